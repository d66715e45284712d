//! The restrictions on a kind of pod after missed predictions. [`super::predictions`] determines them.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use model::PoolName;
use model::plan::MissedPrediction;

/// The restrictions on a kind of pod.
#[derive(Clone, Debug, Default)]
pub(super) struct Hold {
    /// For each pool that gets no machine for these pods, the reason. The pool's existing nodes are not
    /// expected to take these pods either.
    pub pools: BTreeMap<PoolName, String>,
    /// The maximum number of these pods for which machines may be created, and the reason for the limit.
    pub most: Option<(usize, String)>,
    /// Whether gangs of these pods get no machines either, because too many machines received none of the
    /// pods that they were created for.
    pub ends_gangs: bool,
    /// Nodes that existed at this time are not expected to take these pods.
    pub before: Option<Timestamp>,
    /// The most recent missed prediction.
    pub missed: Option<Arc<MissedPrediction>>,
}

impl Hold {
    /// Why no machine of the pool is created for such pods.
    pub(super) fn of_pool(&self, pool: &str) -> Option<&str> {
        self.pools.get(pool).map(String::as_str)
    }

    /// Why no more machines of any pool are created for such pods.
    pub(super) fn bound(&self) -> Option<&str> {
        self.most.as_ref().map(|(_, why)| why.as_str())
    }

    /// The most recent missed prediction, if any.
    pub(super) fn missed(&self) -> Option<&Arc<MissedPrediction>> {
        self.missed.as_ref()
    }
}
