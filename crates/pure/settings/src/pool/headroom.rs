//! `headroom` of a pool: CPU and memory that stay free on its nodes after a removal.

use serde::Deserialize;
use toml::Spanned;

use crate::one_or_many::Scalar;
use crate::values::Checker;
use model::quantity;

/// CPU and memory to keep free for pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// CPU in thousandths of a core.
    pub cpu_milli: i64,
    /// Memory in bytes.
    pub memory: i64,
}

/// `headroom` as written in the configuration file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    cpu: Option<Spanned<Scalar>>,
    memory: Option<Spanned<String>>,
}

impl Written {
    pub(super) fn check(&self, pool: &str, checker: &mut Checker) -> Room {
        let cpu_milli = self.cpu.as_ref().map_or(0, |written| {
            let amount = quantity::milli(&written.get_ref().to_string()).unwrap_or(-1);
            if amount < 0 {
                let title = format!("pool `{pool}`: `headroom.cpu` is not an amount of CPU");
                checker.wrong(title, written.span(), "expected e.g. 2 or \"500m\"", "");
            }
            amount.max(0)
        });
        let memory = self
            .memory
            .as_ref()
            .map_or(0, |written| checker.size(&format!("pool `{pool}`: `headroom.memory`"), written).max(0));
        Room { cpu_milli, memory }
    }
}
