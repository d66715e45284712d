//! `[replace]`: which nodes are replaced by new ones, and how many at a time.

use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;

use super::values::Checker;

/// Checked `[replace]`.
#[derive(Clone, Debug)]
pub struct Replace {
    /// Nodes that were made from other settings, or from another template, than a new one would be. If this
    /// is off, they are only said to be such.
    pub drift: bool,
    /// Nodes on hosts in maintenance.
    pub maintenance: bool,
    /// Nodes that have not been ready for this long, however much they are used; `None`: only unneeded ones
    /// go, as `[scale_down]` says.
    pub unready_after: Option<Duration>,
    /// At most this many nodes of a pool are replaced at a time.
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
                "`drift = false` and `maintenance = false` switch replacements off",
            ),
        }
    }
}
