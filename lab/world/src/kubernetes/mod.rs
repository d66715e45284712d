//! An embedded Kubernetes API server with the controllers, the scheduler and the kubelets that an autoscaler
//! interacts with.
//!
//! [`Kube`] is a handle to the whole cluster. The state is behind one plain lock that is never held across an
//! await. The consequences of a change are put on an agenda (`state::Work`), and one task performs them when
//! they are due. All delays use tokio's time, so a runtime with paused time simulates hours in seconds.
//! [`spec`] describes the initial cluster. `hands` contains the functions with which tests change the cluster
//! directly. All other modules answer calls or are controllers.
//!
//! The order of events, their delays and their messages follow recordings of Kubernetes 1.36.2.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::Request;
use jiff::Timestamp;
use tokio::{
    sync::{Notify, broadcast},
    time::Instant,
};

use self::{
    spec::KubeSpec,
    state::{State, Work},
};
use crate::{
    clock::WorldClock,
    serve::{Body, NoAnswer},
};

mod access;
mod accounts;
mod admission;
mod answer;
mod budgets;
mod columns;
mod containers;
mod custom;
mod daemon_sets;
mod devices;
mod discovery;
mod events;
mod eviction;
mod fit;
mod gangs;
mod hands;
mod join;
mod kinds;
mod kubelet;
pub mod metal;
mod node_lifecycle;
mod object;
mod out_of_service;
mod patch;
mod path;
mod pods;
mod preemption;
mod protobuf;
mod quantity;
mod reactions;
mod read;
mod refusal;
mod removal;
mod roles;
pub mod samples;
mod scale;
mod scheduler;
mod selector;
mod serving;
pub mod spec;
mod start;
mod state;
mod store;
mod table;
mod tokens;
mod volumes;
mod watch;
mod workloads;
mod write;

pub use hands::{CallRecord, Effect, Fault};
pub use scheduler::Plugin;

/// An event for live displays and measurements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KubeEvent {
    /// For the first time, the scheduler found no node for this pod.
    PodUnschedulable {
        /// `namespace/name`.
        pod: String,
        /// When.
        at: Timestamp,
    },
    /// A pod was bound.
    PodBound {
        /// `namespace/name`.
        pod: String,
        /// Its node.
        node: String,
        /// When.
        at: Timestamp,
    },
    /// The containers of a pod started.
    PodRunning {
        /// `namespace/name`.
        pod: String,
        /// Its node.
        node: String,
        /// When.
        at: Timestamp,
    },
    /// A Node was created.
    NodeAdded {
        /// Its name.
        node: String,
        /// When.
        at: Timestamp,
    },
    /// A Node became Ready.
    NodeReady {
        /// Its name.
        node: String,
        /// When.
        at: Timestamp,
    },
    /// A Node was deleted.
    NodeRemoved {
        /// Its name.
        node: String,
        /// When.
        at: Timestamp,
    },
}

/// A handle to the cluster. It is cheap to clone.
#[derive(Clone)]
pub struct Kube(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    events: broadcast::Sender<KubeEvent>,
}

impl std::fmt::Debug for Kube {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kube").finish_non_exhaustive()
    }
}

impl Kube {
    /// Starts a cluster. Must be called inside a tokio runtime.
    ///
    /// # Panics
    /// Panics if an object of the spec is refused.
    pub fn new(mut spec: KubeSpec, clock: WorldClock, seed: u64) -> Self {
        let objects = std::mem::take(&mut spec.objects);
        let (events, _) = broadcast::channel(4096);
        let heart = Arc::new(Notify::new());
        let mut state = State::new(spec, clock, seed, heart.clone(), events.clone());
        state.begin();
        let kube = Self(Arc::new(Inner { state: Mutex::new(state), events }));
        for object in &objects {
            kube.apply(object)
                .unwrap_or_else(|why| panic!("cannot create {} from the spec: {why}", object["kind"]));
        }
        let weak = Arc::downgrade(&kube.0);
        tokio::spawn(async move {
            loop {
                let due = {
                    let Some(inner) = weak.upgrade() else { return };
                    Self(inner).work_off()
                };
                match due {
                    Some(due) => tokio::select! {
                        biased;
                        () = heart.notified() => {}
                        () = tokio::time::sleep_until(due) => {}
                    },
                    None => heart.notified().await,
                }
            }
        });
        kube
    }

    /// Answers one request.
    ///
    /// # Errors
    /// Returns an error if the API server is unreachable or the answer is lost.
    pub async fn handle(&self, request: Request<Bytes>) -> Result<http::Response<Body>, NoAnswer> {
        answer::handle(self, request).await
    }

    /// Returns a receiver of all future events.
    pub fn events(&self) -> broadcast::Receiver<KubeEvent> {
        self.0.events.subscribe()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A poisoned lock means that a test has already failed. The state can still be read.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Performs all work that is due. Returns the time at which the next work is due.
    fn work_off(&self) -> Option<Instant> {
        loop {
            let mut state = self.state();
            match state.take_due() {
                Some(work) => state.perform(work),
                None => return state.next_due(),
            }
        }
    }
}

impl State {
    fn perform(&mut self, work: Work) {
        match work {
            Work::NodeTaints(node) => self.tend_node(&node),
            Work::Schedule => self.schedule(),
            Work::Budgets(namespace) => self.tend_budgets(&namespace),
            Work::Workload(store, key) => self.tend_workload(store, &key),
            Work::DaemonSets => self.tend_daemon_sets(),
            Work::Tokens => self.tend_tokens(),
            Work::AccountTokens => self.fill_account_tokens(),
            Work::Start(key, uid) => self.start_pod(&key, &uid),
            Work::Ready(key, uid) => self.make_ready(&key, &uid),
            Work::Complete(key, uid) => self.complete_pod(&key, &uid),
            Work::Stop(key, uid) => self.stop_pod(&key, &uid),
            Work::Register(node) => self.register(&node),
            Work::NodeReady(node) => self.become_ready(&node),
            Work::Lease(node) => self.renew(&node, true),
            Work::Beat(node) => self.beat(&node),
            Work::Silence(node) => self.look_for_silence(&node),
            Work::TaintEviction(key, uid) => self.evict_for_taint(&key, &uid),
            Work::LeaseGone(node) => self.drop_lease(&node),
            Work::PodGc(node) => self.collect_pods(&node),
            Work::OutOfService(node) => self.let_go(&node),
            Work::Volumes => self.tend_volumes(),
            Work::Orphans(uid) => self.collect_orphans(&uid),
            Work::AskToServe(node) => self.ask_to_serve(&node),
            Work::Power(machine) => self.follow_power(&machine),
            Work::Sign(request) => self.sign(&request),
            Work::NamespaceGone(namespace) => self.empty_namespace(&namespace),
        }
    }
}
