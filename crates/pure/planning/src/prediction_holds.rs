//! The restrictions on a kind of pods after missed predictions, as determined by [`super::predictions`].

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use model::PoolName;
use model::plan::MissedPrediction;

/// The restrictions on a kind of pods.
#[derive(Clone, Debug, Default)]
pub(super) struct Hold {
    /// Pools that get no machine for these pods and whose nodes are not expected to take them, and why.
    pub pools: BTreeMap<PoolName, String>,
    /// For how many of these pods machines may be created, and why not for more.
    pub most: Option<(usize, String)>,
    /// Whether gangs get no machines either, because too many were created in vain.
    pub ends_gangs: bool,
    /// Nodes that existed at this time are not expected to take these pods.
    pub before: Option<Timestamp>,
    /// The prediction that was missed last.
    pub missed: Option<Arc<MissedPrediction>>,
}

impl Hold {
    /// Why the pool gets no machine for such pods.
    pub(super) fn of_pool(&self, pool: &str) -> Option<&str> {
        self.pools.get(pool).map(String::as_str)
    }

    /// Why no pool gets one more machine for such pods.
    pub(super) fn bound(&self) -> Option<&str> {
        self.most.as_ref().map(|(_, why)| why.as_str())
    }

    /// The prediction that was missed last, if any.
    pub(super) fn missed(&self) -> Option<&Arc<MissedPrediction>> {
        self.missed.as_ref()
    }
}
