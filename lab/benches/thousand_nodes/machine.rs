//! The delays that this computer and the API server add to the measured times.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::cluster::Cluster;

/// The intended duration of each nap (a short sleep).
const NAP: Duration = Duration::from_millis(5);

/// Short sleeps during the measurement. Their delays show how long a runnable process on this computer waits
/// for a CPU.
pub struct Naps(tokio::task::JoinHandle<()>, std::sync::mpsc::Receiver<Duration>);

impl Naps {
    /// Starts the naps.
    pub fn start() -> Self {
        let (late, lateness) = std::sync::mpsc::channel();
        let task = tokio::spawn(async move {
            loop {
                let from = Instant::now();
                tokio::time::sleep(NAP).await;
                if late.send(from.elapsed().saturating_sub(NAP)).is_err() {
                    return;
                }
            }
        });
        Self(task, lateness)
    }

    /// Stops the naps. Returns each nap's delay, shortest first.
    pub fn end(self) -> Vec<Duration> {
        self.0.abort();
        let mut all: Vec<Duration> = self.1.try_iter().collect();
        all.sort_unstable();
        all
    }
}

/// Returns the number of calls to create a ConfigMap (each machine's record is one). Also returns, for
/// several time limits in seconds, how many of these calls stayed within the limit. The numbers come from the
/// API server's metrics.
pub async fn record_writes(cluster: &Cluster) -> (u64, BTreeMap<String, u64>) {
    let text = cluster.admin.text("/metrics").await.unwrap();
    let mut within: BTreeMap<String, u64> = BTreeMap::new();
    let mut all = 0;
    for line in text.lines().filter(|line| line.starts_with("apiserver_request_duration_seconds_bucket{")) {
        if !line.contains("resource=\"configmaps\"") || !line.contains("verb=\"POST\"") {
            continue;
        }
        let Some((labels, count)) = line.rsplit_once(' ') else { continue };
        let count = count.parse::<f64>().unwrap_or_default().round();
        let limit = labels.split("le=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap_or_default();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a count, which is written as a float"
        )]
        let count = count as u64;
        match limit {
            "+Inf" => all += count,
            "0.005" | "0.025" | "0.05" | "0.1" | "0.2" => {
                *within.entry(limit.to_owned()).or_default() += count;
            }
            _ => {}
        }
    }
    (all, within)
}
