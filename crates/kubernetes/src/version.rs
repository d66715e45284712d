//! The control plane's version. It is read regularly, because the control plane may be upgraded while the
//! daemon runs.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use super::cluster::Cluster;
use super::error::ErrorKind;
use super::wake_signals::Worth;
use super::watch_health::Board;
use super::watch_loop::{GIVEN_UP_WAIT, Waits};
use model::KubernetesVersion;
use runtime::error_chain::chain;

/// The name under which problems with the version are reported.
pub(super) const KIND: &str = "/version";
/// The interval at which the version is read.
const AGAIN: Duration = Duration::from_mins(1);

/// Keeps the version up to date until the future is dropped. `known` stays empty until the API server has
/// answered.
pub(super) async fn follow(cluster: Cluster, board: Board, known: watch::Sender<Option<KubernetesVersion>>) {
    let mut waits = Waits::new(KIND);
    loop {
        let wait = match cluster.version().await {
            Ok(text) => {
                waits.reset();
                take(&text, &board, &known);
                AGAIN
            }
            // The response is unusable, and an immediate retry would return the same response.
            Err(error) if error.kind() == ErrorKind::Other => {
                unreadable(&chain(&error), &board, &known);
                AGAIN
            }
            Err(error) => {
                if board.failed(KIND, Some(error.kind()), chain(&error)) {
                    settle(None, &board, &known);
                    GIVEN_UP_WAIT
                } else {
                    waits.next()
                }
            }
        };
        sleep(wait).await;
    }
}

fn take(text: &str, board: &Board, known: &watch::Sender<Option<KubernetesVersion>>) {
    match text.parse() {
        Ok(version) => {
            board.well_formed(KIND, KIND);
            settle(Some(version), board, known);
            board.live(KIND);
        }
        Err(error) => unreadable(&chain(&error), board, known),
    }
}

fn unreadable(why: &str, board: &Board, known: &watch::Sender<Option<KubernetesVersion>>) {
    board.malformed(KIND, KIND, why);
    settle(None, board, known);
    board.live(KIND);
}

/// Publishes a version. If `version` is `None`, the known version is kept; if none is known, the newest is
/// assumed.
fn settle(
    version: Option<KubernetesVersion>,
    board: &Board,
    known: &watch::Sender<Option<KubernetesVersion>>,
) {
    let before = *known.borrow();
    let now = version.or(before).unwrap_or_default();
    if before != Some(now) {
        if before.is_some() {
            tracing::info!(version = %now, "the control plane's version has changed");
            board.bump(Worth::Round);
        }
        known.send_replace(Some(now));
    }
}
