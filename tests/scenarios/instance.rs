//! One running daemon, and its wires to both clusters.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use pve_autoscaler::clock::{Clock, TokioClock};
use pve_autoscaler::daemon::Switch;
use pve_autoscaler::observability::Board;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub struct Instance {
    pub cancel: CancellationToken,
    pub running: JoinHandle<()>,
    pub link: Link,
    pub board: Board,
    /// The operator's hand on it.
    pub switch: Switch,
}

impl Instance {
    /// Ends it as SIGTERM does.
    pub async fn stop(self) {
        self.cancel.cancel();
        tokio::time::timeout(Duration::from_mins(1), self.running)
            .await
            .expect("the daemon ends soon")
            .unwrap();
    }

    /// Ends it as SIGKILL does: whatever is under way is torn off.
    pub fn kill(self) {
        self.link.cut.store(true, Ordering::SeqCst);
        self.running.abort();
        self.cancel.cancel();
    }
}

/// What a wire leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Proxmox,
    Kubernetes,
}

/// A call that has arrived.
#[derive(Clone, Debug)]
pub struct Arrived {
    pub at: Timestamp,
    pub side: Side,
    /// Method and path.
    pub what: String,
}

impl Arrived {
    /// It may have changed something, other than who holds the lease.
    pub fn is_write(&self) -> bool {
        !self.what.starts_with("GET ") && !self.what.contains("/leases")
    }
}

/// The wires of one instance: once they are cut, nothing of what it still does reaches anybody.
#[derive(Clone)]
pub struct Link {
    cut: Arc<AtomicBool>,
    calls: Arc<AtomicU64>,
    /// Cuts the wires after this call was carried out, its answer lost.
    last: Arc<AtomicU64>,
    /// What is held up: Proxmox, Kubernetes.
    held: watch::Sender<(bool, bool)>,
    arrived: Arc<Mutex<Vec<Arrived>>>,
    clock: TokioClock,
}

impl Link {
    /// Wires that are cut after `last` calls, counted together with those of others.
    pub fn new(calls: &Arc<AtomicU64>, last: u64, clock: TokioClock) -> Self {
        Self {
            cut: Arc::default(),
            calls: calls.clone(),
            last: Arc::new(AtomicU64::new(last)),
            held: watch::Sender::new((false, false)),
            arrived: Arc::default(),
            clock,
        }
    }

    pub fn is_cut(&self) -> bool {
        self.cut.load(Ordering::SeqCst)
    }

    /// Holds up every call and every answer on this side, or lets those that still wait pass.
    pub fn hold(&self, side: Side, held: bool) {
        self.held.send_modify(|state| match side {
            Side::Proxmox => state.0 = held,
            Side::Kubernetes => state.1 = held,
        });
    }

    /// What has arrived, oldest first.
    pub fn arrived(&self) -> Vec<Arrived> {
        self.arrived.lock().unwrap().clone()
    }

    /// Writes that have arrived after a time.
    pub fn writes_after(&self, time: Timestamp) -> Vec<Arrived> {
        self.arrived().into_iter().filter(|one| one.at > time && one.is_write()).collect()
    }

    pub async fn pass<R>(&self, side: Side, what: &str, call: impl Future<Output = R>) -> R {
        self.free(side).await;
        // Renewals go on all the time: they would make most of the calls to be cut off at.
        let counts = u64::from(!what.contains("/leases"));
        let number = self.calls.fetch_add(counts, Ordering::SeqCst) + counts;
        let arrived = Arrived { at: self.clock.now(), side, what: what.to_owned() };
        self.arrived.lock().unwrap().push(arrived);
        let answer = call.await;
        if number >= self.last.load(Ordering::SeqCst) {
            self.cut.store(true, Ordering::SeqCst);
        }
        self.free(side).await;
        answer
    }

    async fn free(&self, side: Side) {
        if self.is_cut() {
            return std::future::pending().await;
        }
        let held = |state: &(bool, bool)| match side {
            Side::Proxmox => state.0,
            Side::Kubernetes => state.1,
        };
        // The sender lives as long as this.
        let _ = self.held.subscribe().wait_for(|state| !held(state)).await;
        if self.is_cut() {
            std::future::pending::<()>().await;
        }
    }
}
