//! The context that all machine tasks share.

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

/// Creates a client for a management controller, or returns the reason why that is not possible.
pub type Controllers = Arc<dyn Fn(&Redfish) -> Result<redfish::Client, String> + Send + Sync>;

/// The context that all machine tasks share. Cheap to clone.
#[derive(Clone)]
pub struct Context {
    /// The settings that were in effect when the task began.
    pub config: Arc<Config>,
    /// The current settings.
    pub live: watch::Receiver<Arc<Config>>,
    /// Proxmox VE.
    pub proxmox: Client,
    /// Kubernetes.
    pub kubernetes: Cluster,
    /// The state of the Kubernetes cluster.
    pub watches: Watches,
    /// Wall-clock time.
    pub clock: SharedClock,
    /// Detects when guests come up.
    pub probe: Arc<dyn Probe>,
    /// The machines and their phases.
    pub registry: Registry,
    /// How long each step usually takes.
    pub pace: Pace,
    /// The pools' templates.
    pub templates: Templates,
    /// Sends events to Kubernetes.
    pub recorder: Recorder,
    /// Limits how many machines are created at the same time.
    pub creating: Arc<Semaphore>,
    /// The facts about the cluster that a join needs.
    pub cluster_facts: KnownFacts,
    /// Creates clients for the machines' management controllers.
    pub controllers: Controllers,
    /// The fence that each request to change a bare-metal machine's power state has to pass.
    pub fence: Fence,
    /// The current pause, if any. Nothing new is started during a pause.
    pub pause: watch::Receiver<Option<Arc<Pause>>>,
}

impl Context {
    /// The owner of the machines that the daemon creates.
    pub(super) fn owner(&self) -> Owner {
        Owner { cluster: self.config.cluster.clone(), kubernetes: self.watches.kubernetes_uid() }
    }

    /// Whether the pool exists in the current settings.
    pub(super) fn has_pool(&self, name: &str) -> bool {
        self.live.borrow().pools.iter().any(|pool| pool.name == name)
    }

    /// Returns the reason why nothing new may be started now, or `None` if there is no such reason. Either
    /// everything is paused, or the mode was changed to `observe` after the task began.
    pub(super) fn paused(&self) -> Option<String> {
        if let Some(pause) = self.pause.borrow().as_ref() {
            return Some(format!("everything is paused: {}", pause.words()));
        }
        let observes = self.live.borrow().mode == Mode::Observe;
        observes.then(|| "the daemon only observes (`mode = \"observe\"`)".to_owned())
    }

    /// Waits until the daemon is paused (`true`) or not paused (`false`). Never returns if the daemon ends
    /// first.
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
                // Both channels are only closed when the daemon ends.
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

/// A token that was created for one machine. Its secret is stored nowhere else.
#[derive(Clone, Debug)]
pub(super) struct Ticket {
    /// `id.secret`.
    pub token: SecretString,
    /// The token's public part.
    pub id: String,
}
