//! The pod templates that CapacityBuffers and ProvisioningRequests refer to: PodTemplates, and the templates
//! of controllers.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1 as core;
use kube::core::DeserializeGuard;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::buffers::{self, BUFFERS, REQUESTS, Referred};
use super::convert::{self, ConvertError};
use super::object_cache::Store;
use super::wake_signals;
use super::watch_loop::{Feed, key};
use super::watches::Starter;
use model::buffer::{CapacityBuffer, PodTemplate};
use model::request::ProvisioningRequest;
use model::workload::Controller;

/// The name of the kind, which is only watched while a buffer or a request refers to a PodTemplate.
pub(super) const KIND: &str = "PodTemplate";
/// The minimum time between two lists that are requested because references have changed. It limits the load
/// if references keep changing.
const PAUSE: Duration = Duration::from_secs(5);

impl Starter<'_> {
    /// Watches a kind of controller, and also stores the templates of the controllers that buffers refer to.
    /// If the references change, all controllers are listed again. A list in progress is finished first, so a
    /// client that keeps changing references cannot prevent the kind from being read.
    pub(super) fn controllers_of<K>(
        &self,
        kind: &'static str,
        convert: fn(&K, bool) -> Result<Controller, ConvertError>,
        store: &Store<Controller>,
        referred: &watch::Receiver<Arc<Referred>>,
    ) where
        K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + Sync + 'static,
    {
        let api: Api<DeserializeGuard<K>> = Api::all(self.cluster.client.clone());
        let (store, board, mut referred) = (store.clone(), self.board.clone(), referred.clone());
        self.run(async move {
            let mut lists = store.lists();
            let mut earliest = Instant::now();
            loop {
                lists.mark_unchanged();
                let keys = referred.borrow_and_update().of_kind(kind);
                let wanted = keys.clone();
                let convert = Box::new(move |one: &K| convert(one, wanted.contains(&key(one.meta()))));
                let feed = Feed {
                    kind,
                    api: api.clone(),
                    fields: None,
                    convert,
                    worth: wake_signals::controller,
                    store: store.clone(),
                    board: board.clone(),
                };
                let others = async {
                    lists.changed().await.ok()?;
                    sleep_until(earliest).await;
                    referred.wait_for(|other| other.of_kind(kind) != keys).await.ok().map(|_| ())
                };
                tokio::select! {
                    biased;
                    other = others => {
                        if other.is_none() {
                            return;
                        }
                    }
                    () = feed.follow() => {}
                }
                earliest = Instant::now() + PAUSE;
            }
        });
    }

    /// Watches CapacityBuffers and ProvisioningRequests. PodTemplates are only watched while a buffer or
    /// request refers to one. Returns the objects that buffers and requests refer to.
    pub(super) fn buffers(
        &self,
        stored: &Store<CapacityBuffer>,
        requests: &Store<ProvisioningRequest>,
        templates: &Store<PodTemplate>,
    ) -> watch::Receiver<Arc<Referred>> {
        let (told, referred) = watch::channel(Arc::default());
        self.run(BUFFERS.follow(self.cluster.clone(), self.board.clone(), stored.clone()));
        self.run(REQUESTS.follow(self.cluster.clone(), self.board.clone(), requests.clone()));
        let (stored, requests) = (stored.clone(), requests.clone());
        self.run(buffers::tell_referred(self.board.clone(), stored, requests, told));
        let api: Api<DeserializeGuard<core::PodTemplate>> = Api::all(self.cluster.client.clone());
        let (store, board, mut waited) = (templates.clone(), self.board.clone(), referred.clone());
        self.run(async move {
            loop {
                board.live(KIND);
                if waited.wait_for(|referred| referred.templates).await.is_err() {
                    return;
                }
                let feed = Feed {
                    kind: KIND,
                    api: api.clone(),
                    fields: None,
                    convert: Box::new(convert::pod_template),
                    worth: wake_signals::any,
                    store: store.clone(),
                    board: board.clone(),
                };
                tokio::select! {
                    biased;
                    other = waited.wait_for(|referred| !referred.templates) => {
                        if other.is_err() {
                            return;
                        }
                    }
                    () = feed.follow() => {}
                }
                // The kind is no longer watched, so the list becomes outdated. Only the next list can show
                // that a template is missing.
                store.forget();
                sleep(PAUSE).await;
            }
        });
        referred
    }
}
