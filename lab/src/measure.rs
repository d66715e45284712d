//! The demo's measurements: the times of events in the embedded clusters, and the number of calls to Proxmox
//! VE.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::TryRecvError;
use world::kubernetes::KubeEvent;
use world::proxmox::Pve;

/// What has happened in Kubernetes so far.
pub struct Measures {
    events: Receiver<KubeEvent>,
    unschedulable: BTreeMap<String, Timestamp>,
    running: BTreeMap<String, Timestamp>,
    ready: BTreeMap<String, Timestamp>,
    removed: BTreeMap<String, Timestamp>,
}

impl Measures {
    /// Measures these events.
    pub fn of(events: Receiver<KubeEvent>) -> Self {
        Self {
            events,
            unschedulable: BTreeMap::new(),
            running: BTreeMap::new(),
            ready: BTreeMap::new(),
            removed: BTreeMap::new(),
        }
    }

    /// Reads the events since the last call.
    pub fn listen(&mut self) {
        loop {
            match self.events.try_recv() {
                Ok(event) => self.note(event),
                Err(TryRecvError::Lagged(_)) => {}
                Err(TryRecvError::Empty | TryRecvError::Closed) => return,
            }
        }
    }

    fn note(&mut self, event: KubeEvent) {
        match event {
            KubeEvent::PodUnschedulable { pod, at } => {
                self.unschedulable.entry(pod).or_insert(at);
            }
            KubeEvent::PodRunning { pod, at, .. } => {
                self.running.entry(pod).or_insert(at);
            }
            KubeEvent::NodeReady { node, at } => {
                self.ready.entry(node).or_insert(at);
            }
            KubeEvent::NodeRemoved { node, at } => {
                self.removed.entry(node).or_insert(at);
            }
            KubeEvent::PodBound { .. } | KubeEvent::NodeAdded { .. } => {}
        }
    }

    /// The time from the scheduler's first report that a pod fits nowhere until the first clone is requested.
    pub fn reaction(&self, pve: &Pve) -> Option<Duration> {
        let first = self.unschedulable.values().min()?;
        let calls = pve.calls();
        let clone = calls.iter().find(|call| call.path.ends_with("/clone") && call.time > *first)?;
        // The call is recorded when it is answered, so the duration of the request is subtracted.
        Some(between(*first, clone.time).saturating_sub(pve.request_time()))
    }

    /// The time from the scheduler's first report that a pod fits nowhere until all such pods run.
    pub fn all_running(&self) -> Option<Duration> {
        let first = self.unschedulable.values().min()?;
        let last = self.unschedulable.keys().filter_map(|pod| self.running.get(pod)).max()?;
        Some(between(*first, *last))
    }

    /// The number of nodes that became ready, and the number of nodes that were removed.
    pub fn nodes(&self) -> (usize, usize) {
        (self.ready.len(), self.removed.len())
    }
}

/// The number of calls to Proxmox VE, except those for the regular inventory.
pub fn calls(pve: &Pve) -> usize {
    pve.calls().iter().filter(|call| call.path != "/cluster/resources").count()
}

fn between(since: Timestamp, until: Timestamp) -> Duration {
    Duration::try_from(until.duration_since(since)).unwrap_or_default()
}
