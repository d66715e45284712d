//! `[[disruption]]`: how many nodes may be removed at a time, for which reasons, and when.

use serde::Deserialize;
use toml::Spanned;

use super::pool::Pool;
use super::values::Checker;
use super::window::{self, Window};
use model::PoolName;
use model::plan::RemovalReason;

/// A checked `[[disruption]]`. A node may be removed only if every rule that applies to it allows the
/// removal.
#[derive(Clone, Debug)]
pub struct Disruption {
    /// The reasons that the rule applies to.
    pub reasons: Vec<RemovalReason>,
    /// The pools that the rule applies to; empty: all.
    pub pools: Vec<PoolName>,
    /// Maximum total number of nodes in `pools` that may be removed at the same time; `None`: no limit.
    pub max_nodes: Option<usize>,
    /// Removals are allowed only in these windows; empty: at any time.
    pub windows: Vec<Window>,
    /// Removals are never allowed in these windows.
    pub closed: Vec<Window>,
}

/// A removal reason, as written in the configuration file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Reason {
    Empty,
    Underutilized,
    Unready,
    Consolidation,
    Drifted,
    Expired,
    Maintenance,
    HostOff,
}

/// The default of `reasons`: the removals that can wait. `Unready` is not included, because a node that has
/// been unready for too long runs no pods. `Maintenance` is not included, because an administrator is working
/// on the host.
const THAT_CAN_WAIT: [RemovalReason; 6] = [
    RemovalReason::Empty,
    RemovalReason::Underutilized,
    RemovalReason::Consolidation,
    RemovalReason::Drifted,
    RemovalReason::Expired,
    RemovalReason::HostOff,
];

impl From<Reason> for RemovalReason {
    fn from(reason: Reason) -> Self {
        match reason {
            Reason::Empty => Self::Empty,
            Reason::Underutilized => Self::Underutilized,
            Reason::Unready => Self::Unready,
            Reason::Consolidation => Self::Consolidation,
            Reason::Drifted => Self::Drifted,
            Reason::Expired => Self::Expired,
            Reason::Maintenance => Self::Maintenance,
            Reason::HostOff => Self::HostOff,
        }
    }
}

/// `[[disruption]]` as written in the configuration file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    reasons: Option<Vec<Reason>>,
    pools: Option<Vec<Spanned<String>>>,
    max_nodes: Option<usize>,
    #[serde(default)]
    windows: Vec<window::Written>,
    #[serde(default)]
    closed: Vec<window::Written>,
}

impl Written {
    pub(super) fn check(table: &Spanned<Self>, pools: &[Pool], checker: &mut Checker) -> Disruption {
        let written = table.get_ref();
        if written.max_nodes.is_none() && written.windows.is_empty() && written.closed.is_empty() {
            let title = "this `[[disruption]]` limits nothing".to_owned();
            checker.wrong(title, table.span(), "expected `max_nodes`, `windows` or `closed`", "");
        }
        for pool in written.pools.iter().flatten() {
            if !pools.iter().any(|one| one.name == *pool.get_ref()) {
                let title = format!("there is no pool `{}`", pool.get_ref());
                checker.wrong(title, pool.span(), "must be the `name` of a `[[pool]]`", "");
            }
        }
        let reasons = written.reasons.as_ref();
        let mut windows = |all: &[window::Written]| -> Vec<Window> {
            all.iter().filter_map(|one| one.check("`[[disruption]]`", checker)).collect()
        };
        Disruption {
            reasons: reasons.map_or_else(
                || THAT_CAN_WAIT.to_vec(),
                |some| some.iter().copied().map(Into::into).collect(),
            ),
            pools: written.pools.iter().flatten().map(|pool| pool.get_ref().as_str().into()).collect(),
            max_nodes: written.max_nodes,
            windows: windows(&written.windows),
            closed: windows(&written.closed),
        }
    }
}
