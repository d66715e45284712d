//! `[pool.pinning]`: how a host's CPUs, memory and huge pages are dedicated to a machine.

use serde::Deserialize;
use toml::Spanned;

use super::{Size, Written as Pool};
use crate::values::Checker;

/// Maximum for `reserve`, in cores.
const MOST_RESERVED: u32 = 256;

/// Checked `[pool.pinning]`. Each machine has exclusive use of entire cores of its host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pinning {
    /// Whether a machine's memory is on the NUMA nodes of its CPUs.
    pub numa: bool,
    /// The size of the huge pages for a machine's memory; `None`: ordinary pages.
    pub hugepages: Option<HugePages>,
    /// The number of cores on each host that are not given to machines. These are the cores with the lowest
    /// numbers.
    pub reserve: u32,
}

/// Sizes of huge pages on x86.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum HugePages {
    /// 2 MiB.
    #[serde(rename = "2MiB")]
    TwoMib,
    /// 1 GiB.
    #[serde(rename = "1GiB")]
    OneGib,
}

impl HugePages {
    /// Returns the page size in MiB, as in Proxmox VE's option `hugepages`.
    pub fn mib(self) -> u64 {
        match self {
            Self::TwoMib => 2,
            Self::OneGib => 1024,
        }
    }

    /// Returns the name used in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::TwoMib => "2MiB",
            Self::OneGib => "1GiB",
        }
    }
}

/// How CPUs are assigned.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Whose {
    /// Each CPU is assigned to only one machine.
    Dedicated,
}

/// `[pool.pinning]` as written in the configuration file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    cpus: Whose,
    numa: Option<Spanned<bool>>,
    hugepages: Option<Spanned<HugePages>>,
    reserve: Option<Spanned<u32>>,
}

/// The checked table.
pub(super) fn check(pool: &Pool, sizes: &[Size], checker: &mut Checker) -> Option<Pinning> {
    let table = pool.pinning.as_ref()?;
    let name = pool.name.get_ref();
    let written = table.get_ref();
    // There is only one kind of CPU assignment. If another kind is added, this line no longer compiles.
    let Whose::Dedicated = written.cpus;
    if pool.is_physical() {
        let title = format!("pool `{name}`: bare-metal machines cannot be pinned");
        checker.wrong(title, table.span(), "only for VMs", "remove the `[pool.pinning]` table");
    }
    let numa = written.numa.as_ref().is_some_and(|on| *on.get_ref());
    if let Some(pages) = written.hugepages.as_ref().filter(|_| !numa) {
        let title = format!("pool `{name}`: `hugepages` without `numa`");
        let help = "set `numa = true`: Proxmox VE supports huge pages only for VMs with NUMA enabled";
        checker.wrong(title, pages.span(), "no machine would start", help);
    }
    options(pool, numa, checker);
    let hugepages = written.hugepages.as_ref().map(|pages| *pages.get_ref());
    if let Some(at) = &written.hugepages {
        let page = i64::try_from(at.get_ref().mib() << 20).unwrap_or(i64::MAX);
        for size in sizes.iter().filter(|size| size.memory % page != 0) {
            let title =
                format!("pool `{name}`: `memory` is not a whole number of huge pages ({})", size.words());
            let label = format!("the memory must be a multiple of {}", at.get_ref().name());
            checker.wrong(title, at.span(), &label, "change `memory` or `hugepages`");
        }
    }
    if let Some(reserve) = written.reserve.as_ref().filter(|cores| *cores.get_ref() > MOST_RESERVED) {
        let title = format!("pool `{name}`: `reserve` exceeds the number of cores of any host");
        checker.wrong(title, reserve.span(), &format!("must be at most {MOST_RESERVED}"), "");
    }
    let reserve = written.reserve.as_ref().map_or(1, |cores| *cores.get_ref());
    Some(Pinning { numa, hugepages, reserve })
}

/// Reports VM options that contradict the table.
fn options(pool: &Pool, numa: bool, checker: &mut Checker) {
    let name = pool.name.get_ref();
    for (key, value) in &pool.vm_options {
        let memory = || value.get_ref().to_string().split([',', ';']).any(|part| part.trim() == "memory");
        let label = match key.get_ref().as_str() {
            "numa" => "set by `[pool.pinning]`",
            "hotplug" if numa && memory() => "memory that is bound to NUMA nodes cannot be hotplugged",
            _ => continue,
        };
        let title = format!("pool `{name}`: `{}` contradicts `[pool.pinning]`", key.get_ref());
        checker.wrong(title, key.span(), label, "remove it from `vm_options`");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Needs, parse};

    fn pinning(before: &str, table: &str) -> Result<Option<Pinning>, String> {
        let text = format!(
            "[[pool]]\nname = \"w\"\nmax = 3\ncores = 2\nmemory = \"3GiB\"\n{before}\n[pool.pinning]\n{table}\n"
        );
        parse("c.toml", &text, Needs::Plan)
            .map(|mut config| config.pools.remove(0).pinning)
            .map_err(|report| report.plain())
    }

    #[test]
    fn cores_are_pinned_and_what_else_is_written() {
        for (table, numa, hugepages, reserve) in [
            ("cpus = \"dedicated\"", false, None, 1),
            ("cpus = \"dedicated\"\nnuma = true\nreserve = 0", true, None, 0),
            ("cpus = \"dedicated\"\nnuma = true\nhugepages = \"2MiB\"", true, Some(HugePages::TwoMib), 1),
            (
                "cpus = \"dedicated\"\nnuma = true\nhugepages = \"1GiB\"\nreserve = 4",
                true,
                Some(HugePages::OneGib),
                4,
            ),
        ] {
            assert_eq!(pinning("", table), Ok(Some(Pinning { numa, hugepages, reserve })), "{table}");
        }
        let plain = "[[pool]]\nname = \"w\"\nmax = 3\ncores = 2\nmemory = \"3GiB\"\n";
        assert_eq!(parse("c.toml", plain, Needs::Plan).unwrap().pools[0].pinning, None);
    }

    #[test]
    fn what_contradicts_it_is_refused() {
        let all = "cpus = \"dedicated\"\nnuma = true\nhugepages = \"1GiB\"";
        let metal = "[[pool.machine]]\nname = \"m1\"\n[pool.machine.redfish]\nendpoint = \"https://m1\"\nuser = \"u\"\n\
                     password_file = \"/x\"\nca = \"system\"";
        for (before, table, said) in [
            ("", "numa = true", "missing field `cpus`"),
            ("", "cpus = \"shared\"", "unknown variant `shared`"),
            ("", "cpus = \"dedicated\"\nnuma = true\nhugepages = \"4MiB\"", "unknown variant `4MiB`"),
            ("", "cpus = \"dedicated\"\nhugepages = \"2MiB\"", "`hugepages` without `numa`"),
            ("", "cpus = \"dedicated\"\nreserve = 1000", "exceeds the number of cores of any host"),
            (
                "sizes = [{ cores = 4, memory = \"2560MiB\" }]",
                all,
                "`memory` is not a whole number of huge pages (4 cores and 2560Mi)",
            ),
            ("vm_options = { numa = true }", all, "`numa` contradicts `[pool.pinning]`"),
            ("vm_options = { hotplug = \"disk,memory\" }", all, "`hotplug` contradicts `[pool.pinning]`"),
            ("vm_options = { affinity = \"1\" }", all, "use `[pool.pinning]`"),
            (metal, "cpus = \"dedicated\"", "bare-metal machines cannot be pinned"),
        ] {
            let report = pinning(before, table).unwrap_err();
            assert!(report.contains(said), "no {said:?} in\n{report}");
        }
        assert!(pinning("vm_options = { hotplug = \"disk\", cpu = \"host\" }", all).is_ok());
    }
}
