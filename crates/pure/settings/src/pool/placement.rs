//! `placement` of a pool: how a host is chosen for the next machine if several have room.

use serde::Deserialize;

/// How a host is chosen if several have room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// The host with the most free memory.
    #[default]
    Balance,
    /// The host with the fewest machines of the pool; among equals, the one with the most free memory.
    Spread,
    /// The host with the least free memory among those with enough, so that other hosts stay empty.
    Pack,
}

impl Placement {
    /// Returns the rank of a host for the next machine; the lowest rank is the best. The host has `machines`
    /// machines of the pool, and `free` bytes of free memory.
    pub fn rank(self, machines: u32, free: i64) -> (i64, i64) {
        match self {
            Self::Balance => (0, free.saturating_neg()),
            Self::Spread => (i64::from(machines), free.saturating_neg()),
            Self::Pack => (0, free),
        }
    }
}
