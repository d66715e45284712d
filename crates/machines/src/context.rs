//! What every machine's task works with.

use std::sync::Arc;

use secrecy::SecretString;
use tokio::sync::{Semaphore, watch};

use super::cluster_facts::KnownFacts;
use super::learned_delays::Pace;
use super::ownership::Owner;
use super::probe::Probe;
use super::registry::Registry;
use super::templates::Templates;
use kubernetes::{Cluster, Recorder, Watches};
use model::Pause;
use proxmox::{Client, redfish};
use runtime::clock::SharedClock;
use runtime::fence::Fence;
use settings::{Config, Mode, Redfish};

/// A client of a management controller, or why there is none.
pub type Controllers = Arc<dyn Fn(&Redfish) -> Result<redfish::Client, String> + Send + Sync>;

/// What every machine's task works with. Cheap to clone.
#[derive(Clone)]
pub struct Context {
    /// The settings at the time when the task began.
    pub config: Arc<Config>,
    /// The settings as they are now.
    pub live: watch::Receiver<Arc<Config>>,
    /// Proxmox VE.
    pub proxmox: Client,
    /// Kubernetes.
    pub kubernetes: Cluster,
    /// What is in the Kubernetes cluster.
    pub watches: Watches,
    /// Wall-clock time.
    pub clock: SharedClock,
    /// Sees guests come up.
    pub probe: Arc<dyn Probe>,
    /// Where machines are in their lives.
    pub registry: Registry,
    /// How long things take.
    pub pace: Pace,
    /// Templates of the pools.
    pub templates: Templates,
    /// What operators see in Kubernetes.
    pub recorder: Recorder,
    /// Machines that are being created at a time.
    pub creating: Arc<Semaphore>,
    /// What a join needs to know of the cluster.
    pub cluster_facts: KnownFacts,
    /// Reaches the management controllers of machines.
    pub controllers: Controllers,
    /// What resets have to pass.
    pub fence: Fence,
    /// Why nothing new is begun now, if so.
    pub pause: watch::Receiver<Option<Arc<Pause>>>,
}

impl Context {
    /// Whose machines it makes.
    pub(super) fn owner(&self) -> Owner {
        Owner { cluster: self.config.cluster.clone(), kubernetes: self.watches.kubernetes_uid() }
    }

    /// Whether a pool is in the settings now.
    pub(super) fn has_pool(&self, name: &str) -> bool {
        self.live.borrow().pools.iter().any(|pool| pool.name == name)
    }

    /// Why nothing new is begun now, in words, if so: everything is paused, or the settings have come to only
    /// observe since the task began.
    pub(super) fn paused(&self) -> Option<String> {
        if let Some(pause) = self.pause.borrow().as_ref() {
            return Some(format!("everything is paused: {}", pause.words()));
        }
        let observes = self.live.borrow().mode == Mode::Observe;
        observes.then(|| "it only observes (`mode = \"observe\"`)".to_owned())
    }

    /// Waits until something new may be begun, or may not; ends with the daemon otherwise.
    pub(super) async fn until_paused(&self, paused: bool) {
        let (mut pause, mut live) = (self.pause.clone(), self.live.clone());
        loop {
            pause.mark_unchanged();
            live.mark_unchanged();
            if self.paused().is_some() == paused {
                return;
            }
            tokio::select! {
                Ok(()) = pause.changed() => {}
                Ok(()) = live.changed() => {}
                // Both end with the daemon: then this does, too.
                else => std::future::pending().await,
            }
        }
    }
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").finish_non_exhaustive()
    }
}

/// A token that was minted for one machine; its secret is nowhere else.
#[derive(Clone, Debug)]
pub(super) struct Ticket {
    /// `id.secret`.
    pub token: SecretString,
    /// Its public part.
    pub id: String,
}
