//! Which host with room gets a pool's next machine.

use serde::Deserialize;

/// The order in which hosts with room are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// The host with the most free memory.
    #[default]
    Balance,
    /// The host with the fewest machines of the pool; among equals, the one with the most free memory.
    Spread,
    /// The host with the least free memory that is enough, so that others stay empty.
    Pack,
}

impl Placement {
    /// The rank of a host for the next machine; less is better. It has `machines` of the pool and `free`
    /// bytes.
    pub fn rank(self, machines: u32, free: i64) -> (i64, i64) {
        match self {
            Self::Balance => (0, free.saturating_neg()),
            Self::Spread => (i64::from(machines), free.saturating_neg()),
            Self::Pack => (0, free),
        }
    }
}
