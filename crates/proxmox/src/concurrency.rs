//! Limits the load on Proxmox VE: calls per host, clones per storage.
//!
//! A host has only three workers for protected calls, so the daemon limits its concurrent calls to each host.
//! Agent calls and other protected calls have separate limits, called lanes. The number of concurrent clones
//! is also limited, however many machines are created: every clone takes its storage's lock, for which other
//! tasks wait only ten seconds, and a full clone copies the entire disk.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use runtime::boxed;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::client::Client;

/// The lane that a call uses on its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane<'a> {
    /// Unprotected reads, which are not limited.
    Free,
    /// Calls to guest agents on this host.
    Agent(&'a str),
    /// Other protected calls to this host.
    Lifecycle(&'a str),
}

/// What a lane limits: one kind of call to a host, one kind of clone from a storage, or suspensions on a
/// host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Agent(String),
    Lifecycle(String),
    LinkedClones(String),
    FullClones(String),
    Suspensions(String),
}

/// The number of places in each kind of lane.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub agent: usize,
    pub lifecycle: usize,
    pub linked_clones: usize,
    pub full_clones: usize,
}

/// All lanes, each created on first use.
#[derive(Debug)]
pub(super) struct Lanes {
    sizes: Sizes,
    lanes: Mutex<BTreeMap<Key, Arc<Semaphore>>>,
}

impl Lanes {
    pub fn new(sizes: Sizes) -> Self {
        Self { sizes, lanes: Mutex::default() }
    }

    /// The lane of a call, if it has one.
    pub fn of(&self, lane: Lane<'_>) -> Option<Arc<Semaphore>> {
        match lane {
            Lane::Free => None,
            Lane::Agent(host) => Some(self.lane(Key::Agent(host.to_owned()))),
            Lane::Lifecycle(host) => Some(self.lane(Key::Lifecycle(host.to_owned()))),
        }
    }

    fn clones(&self, source: &str, full: bool) -> Arc<Semaphore> {
        let source = source.to_owned();
        self.lane(if full { Key::FullClones(source) } else { Key::LinkedClones(source) })
    }

    fn lane(&self, key: Key) -> Arc<Semaphore> {
        let size = match key {
            Key::Agent(_) => self.sizes.agent,
            Key::Lifecycle(_) => self.sizes.lifecycle,
            Key::LinkedClones(_) => self.sizes.linked_clones,
            // A suspension writes as much as a small full clone.
            Key::FullClones(_) | Key::Suspensions(_) => self.sizes.full_clones,
        };
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        lanes.entry(key).or_insert_with(|| Arc::new(Semaphore::new(size.max(1)))).clone()
    }
}

/// The places that a clone takes in the lanes of its source storages, or that a suspension takes in the lane
/// of its host. Keep this value until the task has ended.
#[derive(Debug)]
#[must_use = "dropping it releases its places"]
pub struct CloneTurn(
    #[expect(dead_code, reason = "releases the places when dropped")] Vec<OwnedSemaphorePermit>,
);

impl Client {
    /// Waits until one more clone from these storages may start. The caller must name a storage in the same
    /// way each time (with its host, if it is not shared), and must apply a timeout.
    #[boxed]
    pub async fn clone_turn(&self, sources: &BTreeSet<String>, full: bool) -> CloneTurn {
        let mut places = Vec::new();
        // All calls take the places in the same order. Otherwise, two calls could wait for each other.
        for source in sources {
            let lane = self.lanes().clones(source, full);
            // `acquire_owned` only fails if the lane is closed, which never happens.
            places.extend(lane.acquire_owned().await.ok());
        }
        CloneTurn(places)
    }

    /// Waits until one more guest of a host may be suspended to disk. The caller must apply a timeout.
    #[boxed]
    pub async fn suspend_turn(&self, host: &str) -> CloneTurn {
        let lane = self.lanes().lane(Key::Suspensions(host.to_owned()));
        // `acquire_owned` only fails if the lane is closed, which never happens.
        CloneTurn(lane.acquire_owned().await.ok().into_iter().collect())
    }

    /// Waits for a place in a host's lane for protected calls. Returns a client that holds this place, for
    /// one call. That call does not wait again, so whatever the caller checks after this wait is still
    /// current when the call is sent. The caller must apply a timeout.
    #[boxed]
    pub async fn in_line(&self, host: &str) -> Self {
        self.with_place(Lane::Lifecycle(host)).await
    }

    /// Like [`Self::in_line`], for a call to a guest agent on a host.
    #[boxed]
    pub async fn in_line_for_agent(&self, host: &str) -> Self {
        self.with_place(Lane::Agent(host)).await
    }

    async fn with_place(&self, lane: Lane<'_>) -> Self {
        match self.lanes().of(lane) {
            // `acquire_owned` only fails if the lane is closed, which never happens.
            Some(lane) => self.holding(lane.acquire_owned().await.ok()),
            None => self.clone(),
        }
    }

    /// Takes places for a clone that began before a restart and is still running. Does not wait: storages
    /// without a free place are skipped.
    pub fn running_clone_turn(&self, sources: &BTreeSet<String>, full: bool) -> CloneTurn {
        let lanes = sources.iter().map(|source| self.lanes().clones(source, full));
        CloneTurn(lanes.filter_map(|lane| lane.try_acquire_owned().ok()).collect())
    }
}
