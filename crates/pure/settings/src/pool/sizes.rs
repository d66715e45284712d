//! `sizes` of a pool: machine sizes in addition to the one that `cores` and `memory` define.

use serde::Deserialize;
use toml::Spanned;

use super::{Written as Pool, machine};
use crate::values::Checker;

/// The size of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size {
    /// vCPUs.
    pub cores: u32,
    /// Memory in bytes.
    pub memory: i64,
}

/// One of the `sizes` as written in the configuration file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    cores: Spanned<u32>,
    memory: Spanned<String>,
}

/// Maximum number of sizes of a pool, including the one that `cores` and `memory` define. Comparing more
/// sizes would take too long.
const MOST: usize = 16;

/// All sizes of the pool, including the one that `cores` and `memory` define, smallest first.
pub(super) fn check(pool: &Pool, own: Size, checker: &mut Checker) -> Vec<Size> {
    let name = pool.name.get_ref();
    let mut sizes = vec![own];
    let Some(written) = &pool.sizes else { return sizes };
    if written.get_ref().len() >= MOST {
        let title = format!("pool `{name}`: too many `sizes`");
        checker.wrong(title, written.span(), &format!("must be fewer than {MOST}"), "");
    }
    if pool.allocatable.is_some() {
        let title = format!("pool `{name}`: `allocatable` and `sizes` are both given");
        let help = "remove `allocatable`: the daemon learns or computes what a node of each size offers";
        checker.wrong(title, written.span(), "declared values apply to one size only", help);
    }
    for one in written.get_ref() {
        let cores = *one.get_ref().cores.get_ref();
        if cores == 0 {
            let title = format!("pool `{name}`: `cores` is zero");
            checker.wrong(title, one.get_ref().cores.span(), "must be at least 1", "");
        }
        let memory = machine::memory_of(pool, &one.get_ref().memory, checker);
        let size = Size { cores, memory };
        if sizes.contains(&size) {
            let title = format!("pool `{name}`: the same size is listed twice");
            let help = "list each additional size once: `cores` and `memory` already define one size";
            checker.wrong(title, one.span(), "the pool already has this size", help);
        }
        sizes.push(size);
    }
    sizes.sort_unstable();
    sizes
}
