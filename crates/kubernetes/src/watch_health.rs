//! The health of each watch: whether its first list has arrived, whether it can be read at the moment, and
//! which objects are malformed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::buffers;
use super::error::ErrorKind;
use super::gangs;
use super::wake_signals::Worth;
use runtime::ordered_notify::{Changed, Changes};

/// The number of consecutive refusals that indicate a missing right. Fewer prove nothing, because a
/// restarting API server refuses everything for a moment.
const REFUSALS: u32 = 3;

/// Kinds that not every API server serves: some are too old or lack a CustomResourceDefinition. If such a
/// kind is not served, that is not reported.
const NEWER: [&str; 7] = [
    "ResourceClaim",
    "DeviceClass",
    "ResourceSlice",
    "DeviceTaintRule",
    buffers::KIND,
    buffers::REQUEST,
    gangs::KIND,
];

/// A problem that hides a part of the cluster from the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The affected kind, e.g. `Pod`.
    pub kind: &'static str,
    /// What is wrong, in words.
    pub what: String,
    /// Whether the daemon should make no decisions while the problem lasts, because the kind is essential and
    /// the known objects may be outdated.
    pub essential: bool,
}

#[derive(Debug)]
struct State {
    essential: bool,
    /// Whether the first list has arrived, or the daemon has given up on the kind because the API server
    /// refuses or does not serve it.
    settled: bool,
    /// Why no updates can be read at the moment.
    trouble: Option<String>,
    refusals: u32,
    warned: bool,
    /// Unreadable objects, with the reason.
    malformed: BTreeMap<String, String>,
}

/// The states of all watches and the resulting signals.
#[derive(Clone, Debug)]
pub(super) struct Board {
    states: Arc<Mutex<BTreeMap<&'static str, State>>>,
    changed: Changes,
    demand: Changes,
    settled: watch::Sender<bool>,
    /// Whether the lost connection to the API server has been logged. All watches share the connection, so
    /// this is logged once and not once for each kind.
    disconnected: Arc<AtomicBool>,
}

impl Board {
    pub(super) fn new(kinds: &[(&'static str, bool)]) -> Self {
        let fresh = |essential| State {
            essential,
            settled: false,
            trouble: None,
            refusals: 0,
            warned: false,
            malformed: BTreeMap::new(),
        };
        let states = kinds.iter().map(|(kind, essential)| (*kind, fresh(*essential))).collect();
        Self {
            states: Arc::new(Mutex::new(states)),
            changed: Changes::default(),
            demand: Changes::default(),
            settled: watch::Sender::new(false),
            disconnected: Arc::default(),
        }
    }

    pub(super) fn changed(&self) -> Changed {
        self.changed.subscribe()
    }

    pub(super) fn settled(&self) -> watch::Receiver<bool> {
        self.settled.subscribe()
    }

    pub(super) fn demand(&self) -> Changed {
        self.demand.subscribe()
    }

    /// Signals a change of this urgency.
    pub(super) fn bump(&self, worth: Worth) {
        if worth == Worth::Haste {
            self.demand.announce();
        }
        if worth > Worth::Nothing {
            self.changed.announce();
        }
    }

    /// Call this when a complete list has arrived.
    pub(super) fn live(&self, kind: &'static str) {
        if self.disconnected.swap(false, Ordering::Relaxed) {
            tracing::info!("the Kubernetes API server can be reached again");
        }
        let mut states = self.lock();
        if let Some(state) = states.get_mut(kind) {
            if state.warned {
                tracing::info!(kind, "objects of this kind can be read again");
            }
            (state.settled, state.trouble, state.refusals, state.warned) = (true, None, 0, false);
        }
        self.settle(&states);
    }

    /// Call this when a list or watch has failed. Returns true if the kind is given up for now, so that the
    /// caller can wait longer before it retries.
    pub(super) fn failed(&self, kind: &'static str, error: Option<ErrorKind>, what: String) -> bool {
        let mut states = self.lock();
        let Some(state) = states.get_mut(kind) else { return false };
        let refused = matches!(error, Some(ErrorKind::Forbidden | ErrorKind::Unauthorized));
        let absent = error == Some(ErrorKind::NotFound);
        // Only refusals count: that a kind is not served does not indicate a missing right.
        state.refusals = if refused { state.refusals + 1 } else { 0 };
        let hopeless = absent || state.refusals >= REFUSALS;
        if absent && NEWER.contains(&kind) {
            tracing::debug!(kind, reason = what, "this kind is not served");
            (state.settled, state.trouble) = (true, None);
            self.settle(&states);
            return true;
        }
        let given_up = hopeless && !state.essential;
        if error == Some(ErrorKind::Unreachable) {
            if !self.disconnected.swap(true, Ordering::Relaxed) {
                tracing::warn!(reason = what, "the Kubernetes API server cannot be reached; retrying");
            }
        } else if !state.warned && (hopeless || !refused) {
            if given_up {
                tracing::warn!(
                    kind,
                    reason = what,
                    "objects of this kind cannot be read, and are treated as absent"
                );
            } else {
                tracing::warn!(kind, reason = what, "objects of this kind cannot be read at the moment");
            }
            state.warned = true;
        }
        state.trouble = Some(what);
        state.settled |= given_up;
        self.settle(&states);
        given_up
    }

    /// Call this when an object cannot be read. Logs a warning the first time.
    pub(super) fn malformed(&self, kind: &'static str, object: &str, why: &str) {
        let mut states = self.lock();
        let Some(state) = states.get_mut(kind) else { return };
        if state.malformed.insert(object.to_owned(), why.to_owned()).is_none() {
            tracing::warn!(
                kind,
                object,
                reason = why,
                "the object is malformed; its last readable \
                version is kept, if there is one"
            );
        }
    }

    /// Call this when an object can be read, or is gone.
    pub(super) fn well_formed(&self, kind: &'static str, object: &str) {
        if let Some(state) = self.lock().get_mut(kind) {
            state.malformed.remove(object);
        }
    }

    /// Forgets the malformed objects that are not in a new list.
    pub(super) fn keep_malformed(&self, kind: &'static str, listed: impl Fn(&str) -> bool) {
        if let Some(state) = self.lock().get_mut(kind) {
            state.malformed.retain(|object, _| listed(object));
        }
    }

    /// Returns all current problems.
    pub(super) fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        for (kind, state) in &*self.lock() {
            let essential = state.essential;
            if let Some(what) = &state.trouble {
                problems.push(Problem { kind, what: what.clone(), essential });
            }
            for (object, why) in &state.malformed {
                problems.push(Problem {
                    kind,
                    what: format!("`{object}` is malformed: {why}"),
                    essential: false,
                });
            }
        }
        problems
    }

    /// Whether updates of the kind can be read at the moment.
    pub(super) fn is_well(&self, kind: &'static str) -> bool {
        self.lock().get(kind).is_some_and(|state| state.trouble.is_none())
    }

    /// Returns the kinds whose last list or watch was refused. If the refusals persist, a right is missing.
    pub(super) fn unseen(&self) -> Vec<Problem> {
        let states = self.lock();
        let refused = states.iter().filter(|(_, state)| state.refusals > 0);
        refused
            .filter_map(|(kind, state)| {
                let (what, essential) = (state.trouble.clone()?, state.essential);
                Some(Problem { kind, what, essential })
            })
            .collect()
    }

    fn settle(&self, states: &BTreeMap<&'static str, State>) {
        if states.values().all(|state| state.settled) {
            self.settled.send_if_modified(|settled| !std::mem::replace(settled, true));
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, State>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
