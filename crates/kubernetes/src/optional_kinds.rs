//! Kinds that need a CustomResourceDefinition or a feature gate. They are watched if the API server serves
//! them. If it does not, the daemon checks again from time to time.

use std::fmt::Debug;

use kube::core::DeserializeGuard;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::time::sleep;

use super::cluster::Cluster;
use super::convert::ConvertError;
use super::error::{Error, ErrorKind};
use super::object_cache::Store;
use super::wake_signals::Worth;
use super::watch_health::Board;
use super::watch_loop::{Feed, GIVEN_UP_WAIT, Waits};
use runtime::error_chain::chain;

/// A kind that not every API server serves.
pub(super) struct Custom<K, T> {
    pub kind: &'static str,
    /// API group and version.
    pub version: &'static str,
    /// The plural name, which is used in API paths.
    pub plural: &'static str,
    pub convert: fn(&K) -> Result<T, ConvertError>,
    /// How urgent a change is.
    pub worth: fn(Option<&T>, Option<&T>) -> Worth,
}

impl<K, T> Custom<K, T>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + Sync + 'static,
    T: PartialEq + Send + Sync + 'static,
{
    /// Keeps the store up to date until the future is dropped.
    pub(super) async fn follow(self, cluster: Cluster, board: Board, store: Store<T>) {
        let (kind, version) = (self.kind, self.version);
        let mut waits = Waits::new(kind);
        loop {
            match cluster.serves(version, self.plural).await {
                Ok(true) => {
                    waits.reset();
                    board.well_formed(kind, version);
                    let api: Api<DeserializeGuard<K>> = Api::all(cluster.client.clone());
                    let (store, board, convert) = (store.clone(), board.clone(), Box::new(self.convert));
                    let feed = Feed { kind, api, fields: None, convert, worth: self.worth, store, board };
                    tokio::select! {
                        biased;
                        () = self.gone(&cluster) => {}
                        () = feed.follow() => {}
                    }
                }
                Ok(false) => {
                    if !store.forget().is_empty() {
                        tracing::info!(kind, "the kind is no longer served");
                        board.bump(Worth::Round);
                    }
                    board.well_formed(kind, version);
                    board.live(kind);
                    sleep(GIVEN_UP_WAIT).await;
                }
                // The response is unusable. Rounds continue without this kind.
                Err(error) if error.kind() == ErrorKind::Other => {
                    board.malformed(kind, version, &chain(&error));
                    board.live(kind);
                    sleep(GIVEN_UP_WAIT).await;
                }
                Err(error) => {
                    let given_up = board.failed(kind, Some(error.kind()), chain(&error));
                    sleep(if given_up { GIVEN_UP_WAIT } else { waits.next() }).await;
                }
            }
        }
    }

    /// Waits until the API server is known to no longer serve the kind.
    async fn gone(&self, cluster: &Cluster) {
        loop {
            sleep(GIVEN_UP_WAIT).await;
            if matches!(cluster.serves(self.version, self.plural).await, Ok(false)) {
                return;
            }
        }
    }
}

impl Cluster {
    /// Whether the API server serves the kind with this plural name.
    pub(super) async fn serves(&self, version: &str, plural: &str) -> Result<bool, Error> {
        let found = self.client.list_api_group_resources(version);
        match self.call(format!("check whether {plural} are served"), found).await {
            Ok(list) => Ok(list.resources.iter().any(|one| one.name == plural)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}
