//! Which of the hosts that have room gets a pool's next machine.

use serde::Deserialize;

/// The order in which hosts with room are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// The host with the most free memory.
    #[default]
    Balance,
    /// The host with the fewest machines of the pool; of several that with the most free memory.
    Spread,
    /// The host with the least free memory that is enough, so that others stay empty.
    Pack,
}

impl Placement {
    /// How good a host is for the next machine, less is better: `machines` of the pool are there, `free`
    /// bytes are left.
    pub fn rank(self, machines: u32, free: i64) -> (i64, i64) {
        match self {
            Self::Balance => (0, free.saturating_neg()),
            Self::Spread => (i64::from(machines), free.saturating_neg()),
            Self::Pack => (0, free),
        }
    }
}
