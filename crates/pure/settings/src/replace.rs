//! `[replace]`: which nodes are replaced, and how many at a time.

use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;

use super::values::Checker;

/// Checked `[replace]`.
#[derive(Clone, Debug)]
pub struct Replace {
    /// Replace nodes whose settings or template differ from those of a new node. If this is off, the
    /// difference is only reported.
    pub drift: bool,
    /// Replace nodes on hosts in maintenance.
    pub maintenance: bool,
    /// Replace nodes that have not been ready for this long, however much they are used; `None`: only
    /// unneeded ones are removed, as set in `[scale_down]`.
    pub unready_after: Option<Duration>,
    /// Maximum number of a pool's nodes that are replaced at a time.
    pub max_parallel: usize,
}

/// `[replace]` as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    drift: Option<bool>,
    maintenance: Option<bool>,
    unready_after: Option<Spanned<String>>,
    max_parallel: Option<Spanned<usize>>,
}

impl Written {
    pub(super) fn check(&self, checker: &mut Checker) -> Replace {
        Replace {
            drift: self.drift.unwrap_or(false),
            maintenance: self.maintenance.unwrap_or(true),
            unready_after: self
                .unready_after
                .as_ref()
                .map(|written| checker.positive("unready_after", Some(written), Duration::MAX)),
            max_parallel: checker.count(
                "max_parallel",
                self.max_parallel.as_ref(),
                1,
                "to replace no nodes, set `drift` and `maintenance` to false, without `unready_after` and `max_node_age`",
            ),
        }
    }
}
