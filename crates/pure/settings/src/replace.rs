//! `[replace]`: which nodes are replaced, and how many at a time.

use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;

use super::values::Checker;

/// Checked `[replace]`.
#[derive(Clone, Debug)]
pub struct Replace {
    /// Whether nodes are replaced if their settings or template differ from those of a new node. If false,
    /// the difference is only reported.
    pub drift: bool,
    /// Whether nodes on hosts in maintenance are replaced.
    pub maintenance: bool,
    /// How long a node must have been not ready before it is replaced, even if it is in use. If `None`, such
    /// a node is removed only if it is unneeded, as set in `[scale_down]`.
    pub unready_after: Option<Duration>,
    /// Maximum number of a pool's nodes that are replaced at a time.
    pub max_parallel: usize,
}

/// `[replace]` as written in the configuration file.
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
                "to replace no nodes, set `drift` and `maintenance` to false, and remove `unready_after` and \
                `max_node_age`",
            ),
        }
    }
}
