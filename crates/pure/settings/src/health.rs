//! `[health]`: how many of a pool's nodes may be unready before the pool's additions and removals pause, and
//! how long a host must be off before its nodes are marked as out of service.

use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;

use super::values::Checker;

/// A checked `[health]` table. A pool is unhealthy if its unready nodes exceed both `ok_total_unready_count`
/// and `max_total_unready_percentage`.
#[derive(Clone, Debug)]
pub struct Health {
    /// Maximum percentage of a pool's nodes that may be unready.
    pub max_total_unready_percentage: f64,
    /// How many unready nodes are always acceptable.
    pub ok_total_unready_count: usize,
    /// How long a host must be off before its Nodes are marked as out of service and release their pods and
    /// volumes; `None`: never.
    pub out_of_service_after: Option<Duration>,
}

/// `[health]` as written in the configuration file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    max_total_unready_percentage: Option<Spanned<f64>>,
    ok_total_unready_count: Option<usize>,
    out_of_service_after: Option<Spanned<String>>,
}

impl Written {
    pub(super) fn check(&self, checker: &mut Checker) -> Health {
        Health {
            max_total_unready_percentage: checker.between(
                "max_total_unready_percentage",
                self.max_total_unready_percentage.as_ref(),
                (0.0, 100.0),
                45.0,
            ),
            ok_total_unready_count: self.ok_total_unready_count.unwrap_or(3),
            out_of_service_after: Some(checker.duration(
                "out_of_service_after",
                self.out_of_service_after.as_ref(),
                Duration::ZERO,
            ))
            .filter(|after| !after.is_zero()),
        }
    }
}
