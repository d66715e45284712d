//! `[pool.grow]`: how far a running machine of the pool may grow before another one is created.
//!
//! Each VM is created so that it can grow. Proxmox VE hotplugs vCPUs up to `sockets` × `cores`, so `cores` is
//! the VM's maximum number of vCPUs, and `vcpus` is the current number. Memory is hotplugged as DIMMs
//! ([`model::dimms`]), which requires `numa`.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use super::Written as Pool;
use crate::bootstrap::BootstrapMethod;
use crate::values::Checker;
use model::{dimms, quantity};

/// What can be hotplugged into any VM: Proxmox VE's default for `hotplug`.
const ALWAYS: &str = "network,disk,usb";

/// How far a machine may grow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grow {
    /// Maximum vCPUs of a machine.
    pub max_cores: u32,
    /// Maximum memory of a machine, in bytes.
    pub max_memory: i64,
    /// Whether `max_cores` is greater than a machine's initial number of vCPUs.
    pub grows_cores: bool,
    /// Whether `max_memory` is greater than a machine's initial memory.
    pub grows_memory: bool,
    /// The systemd unit in the guest that is restarted so that the Node reports the new size; `None`: the
    /// bootstrap method's default.
    pub service: Option<String>,
}

impl Grow {
    /// Returns the options that a VM needs to be able to grow, except for its current number of vCPUs.
    pub fn options(&self) -> BTreeMap<&'static str, String> {
        let mut options = BTreeMap::from([("hotplug", self.hotplug())]);
        if self.grows_cores {
            options.insert("cores", self.max_cores.to_string());
        }
        // A DIMM belongs to a NUMA node, so the VM needs NUMA.
        options.insert("numa", "1".to_owned());
        options
    }

    fn hotplug(&self) -> String {
        let grown = [(self.grows_cores, "cpu"), (self.grows_memory, "memory")];
        let grown = grown.into_iter().filter(|(grows, _)| *grows).map(|(_, name)| name);
        std::iter::once(ALWAYS).chain(grown).collect::<Vec<_>>().join(",")
    }

    /// Returns the systemd unit in the guest that reports the Node's size.
    pub fn service(&self, method: &BootstrapMethod) -> &str {
        let usual = if matches!(method, BootstrapMethod::K3s(_)) { "k3s-agent" } else { "kubelet" };
        self.service.as_deref().unwrap_or(usual)
    }

    /// Returns, in words, how a machine must be created to be able to grow. `max_memory` is left out, because
    /// it may change for any machine whose memory can grow.
    pub fn words(&self) -> String {
        let cores = self.grows_cores.then(|| format!("cores up to {}", self.max_cores));
        let memory = self.grows_memory.then(|| "memory".to_owned());
        cores.into_iter().chain(memory).collect::<Vec<_>>().join(" and ")
    }
}

/// `[pool.grow]` as written in the configuration file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    max_cores: Option<Spanned<u32>>,
    max_memory: Option<Spanned<String>>,
    service: Option<Spanned<String>>,
}

/// Returns the checked table. `memory` is the memory that a machine starts with.
pub(super) fn check(pool: &Pool, memory: i64, checker: &mut Checker) -> Option<Grow> {
    let table = pool.grow.as_ref()?;
    let (written, name) = (table.get_ref(), pool.name.get_ref());
    let cores = *pool.cores.get_ref();
    let max_cores = written.max_cores.as_ref().map_or(cores, |most| *most.get_ref());
    let before = checker.findings.len();
    let max_memory = written.most_memory(name, memory, checker);
    if max_cores < cores {
        let at = written.max_cores.as_ref().map_or_else(|| table.span(), Spanned::span);
        let title = format!("pool `{name}`: `grow.max_cores` is less than `cores`");
        let label = format!("must be at least {cores}");
        checker.clash(title, at, &label, pool.cores.span(), "a machine never shrinks");
    }
    let (grows_cores, grows_memory) = (max_cores > cores, max_memory > memory);
    if checker.findings.len() == before && !grows_cores && !grows_memory {
        let title = format!("pool `{name}`: `[pool.grow]` allows no growth");
        let help =
            "set `max_cores` to more than the pool's `cores`, or `max_memory` to more than its `memory`";
        checker.wrong(title, table.span(), "up to what?", help);
    }
    if grows_memory && !dimms::is_size(memory) {
        sized(name, "memory", &pool.memory, memory, checker);
    }
    if let Some(service) = &written.service
        && !is_unit(service.get_ref())
    {
        let title = format!("pool `{name}`: `{}` is not a valid systemd unit name", service.get_ref());
        checker.wrong(title, service.span(), "expected e.g. \"rke2-agent\"", "");
    }
    of_others(pool, table, checker);
    let service = written.service.as_ref().map(|service| service.get_ref().clone());
    Some(Grow { max_cores, max_memory, grows_cores, grows_memory, service })
}

/// Reports settings that cannot be combined with `[pool.grow]`.
fn of_others(pool: &Pool, table: &Spanned<Written>, checker: &mut Checker) {
    let name = pool.name.get_ref();
    if let Some(sizes) = &pool.sizes {
        let title = format!("pool `{name}`: `sizes` cannot be combined with `[pool.grow]`");
        let help = "use two pools: one with `sizes`, and one with `[pool.grow]`";
        checker.clash(title, sizes.span(), "machines grow from one initial size", table.span(), help);
    }
    if let Some(pinning) = &pool.pinning {
        let title = format!("pool `{name}`: `[pool.pinning]` cannot be combined with `[pool.grow]`");
        let help = "use two pools: one with `[pool.pinning]`, and one with `[pool.grow]`";
        checker.clash(
            title,
            pinning.span(),
            "a machine's CPUs are pinned before its first start",
            table.span(),
            help,
        );
    }
    let options = pool.vm_options.keys().filter(|key| ["numa", "hotplug"].contains(&key.get_ref().as_str()));
    for option in options {
        let title = format!(
            "pool `{name}`: `{}` in `vm_options` cannot be combined with `[pool.grow]`",
            option.get_ref()
        );
        checker.clash(
            title,
            option.span(),
            "already set by `[pool.grow]`",
            table.span(),
            "remove it from `vm_options`",
        );
    }
}

/// Reports `[pool.grow]` for machines that join by themselves, because the daemon cannot restart their
/// kubelets.
pub(super) fn out_of_reach(pool: &Pool, checker: &mut Checker) {
    let Some(table) = &pool.grow else { return };
    let title = format!("pool `{}`: a machine that joins by itself cannot grow", pool.name.get_ref());
    let help = "after a machine grows, the daemon must restart its kubelet through the guest agent, but \
        `method = \"none\"` in `[bootstrap]` does not use the guest agent";
    checker.wrong(title, table.span(), "the machine's Node would not report the new size", help);
}

impl Written {
    fn most_memory(&self, name: &str, memory: i64, checker: &mut Checker) -> i64 {
        let Some(written) = &self.max_memory else { return memory };
        let before = checker.findings.len();
        let most = checker.size(&format!("pool `{name}`: `grow.max_memory`"), written);
        if checker.findings.len() > before {
            return memory;
        }
        if most < memory {
            let title = format!("pool `{name}`: `grow.max_memory` is less than `memory`");
            let label = format!("must be at least {}", quantity::binary(memory));
            checker.wrong(title, written.span(), &label, "a machine never shrinks");
        } else if !dimms::is_size(most) {
            sized(name, "grow.max_memory", written, most, checker);
        }
        most
    }
}

/// Reports a size that Proxmox VE would round up.
fn sized(name: &str, key: &str, written: &Spanned<String>, bytes: i64, checker: &mut Checker) {
    let title = format!("pool `{name}`: `{key}` is a size that DIMMs cannot provide");
    let next =
        dimms::at_least(bytes).map(|next| format!("the next possible size is \"{}\"", size_text(next)));
    let help = "memory that can grow consists of 1 GiB plus DIMMs: 512 MiB each up to a total of 17 \
        GiB, then 1 GiB each up to 49 GiB, then 2 GiB each up to 113 GiB";
    checker.wrong(title, written.span(), next.as_deref().unwrap_or("too much"), help);
}

/// Formats a size for the configuration file.
fn size_text(bytes: i64) -> String {
    format!("{}B", quantity::binary(bytes))
}

fn is_unit(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with('-')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.@".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Needs, parse};

    const POOL: &str = "[[pool]]\nname = \"a\"\nmax = 2\ncores = 2\nmemory = \"4GiB\"\n";

    fn grow(more: &str) -> Grow {
        let text = format!("{POOL}[pool.grow]\n{more}\n");
        parse("c.toml", &text, Needs::Plan).unwrap().pools.remove(0).grow.unwrap()
    }

    #[test]
    fn a_vm_is_made_for_what_it_may_become() {
        let both = grow("max_cores = 8\nmax_memory = \"16GiB\"");
        assert_eq!((both.max_cores, both.max_memory), (8, 16 << 30));
        assert_eq!(both.words(), "cores up to 8 and memory");
        let options: Vec<String> =
            both.options().iter().map(|(key, value)| format!("{key}={value}")).collect();
        assert_eq!(options, ["cores=8", "hotplug=network,disk,usb,cpu,memory", "numa=1"]);
        let cores = grow("max_cores = 3");
        assert_eq!((cores.max_memory, cores.grows_memory), (4 << 30, false));
        assert_eq!(cores.options()["hotplug"], "network,disk,usb,cpu");
        assert_eq!(cores.service(&BootstrapMethod::None), "kubelet");
        let memory = grow("max_memory = \"5GiB\"\nservice = \"rke2-agent\"");
        assert_eq!(memory.options().get("cores"), None);
        assert_eq!(memory.service(&BootstrapMethod::None), "rke2-agent");
    }

    #[test]
    fn machines_that_were_made_for_less_have_drifted() {
        let made = |text: &str| {
            let text = format!("{POOL}{text}");
            parse("c.toml", &text, Needs::Plan).unwrap().pools[0].made_of()["grow"].clone()
        };
        assert_eq!(made(""), "");
        assert_ne!(made("[pool.grow]\nmax_cores = 4\n"), made("[pool.grow]\nmax_cores = 8\n"));
        let memory = |most: &str| made(&format!("[pool.grow]\nmax_memory = \"{most}\"\n"));
        assert_eq!(memory("8GiB"), memory("16GiB"));
    }

    #[test]
    fn what_cannot_grow_is_refused_with_a_way_out() {
        let table = "[pool.grow]\nmax_cores = 4\n";
        let own = |more: &str| format!("{POOL}{more}");
        for (text, expected) in [
            (own("[pool.grow]\n"), "allows no growth"),
            (own("[pool.grow]\nmax_cores = 2\nmax_memory = \"4GiB\"\n"), "allows no growth"),
            (own("[pool.grow]\nmax_cores = 1\n"), "`grow.max_cores` is less than `cores`"),
            (own("[pool.grow]\nmax_memory = \"2GiB\"\n"), "`grow.max_memory` is less than `memory`"),
            (own("[pool.grow]\nmax_memory = \"64GiB\"\n"), "the next possible size is \"65GiB\""),
            (own("[pool.grow]\nmax_memory = \"9000GiB\"\n"), "too much"),
            (
                own("[pool.grow]\nmax_memory = \"8GiB\"\n").replace("\"4GiB\"", "\"4500MiB\""),
                "`memory` is a size that DIMMs cannot provide",
            ),
            (
                own("[pool.grow]\nmax_cores = 4\nservice = \"a b\"\n"),
                "`a b` is not a valid systemd unit name",
            ),
            (own(&format!("sizes = [{{ cores = 4, memory = \"8GiB\" }}]\n{table}")), "use two pools"),
            (
                own(&format!("{table}[pool.pinning]\ncpus = \"dedicated\"\n")),
                "`[pool.pinning]` cannot be combined with `[pool.grow]`",
            ),
            (own(&format!("vm_options = {{ numa = true }}\n{table}")), "remove it from `vm_options`"),
            (own(&format!("vm_options = {{ hotplug = \"1\" }}\n{table}")), "`hotplug` in `vm_options`"),
            (
                own(&format!("{table}[pool.bootstrap]\nmethod = \"none\"\n")),
                "a machine that joins by itself cannot grow",
            ),
            (
                own(&format!(
                    "{table}[[pool.machine]]\nname = \"m\"\n[pool.machine.redfish]\nendpoint = \"https://10.0.0.1\"\n\
                     user = \"power\"\npassword_file = \"/x\"\nca = \"system\"\n"
                )),
                "`grow` has no effect for bare-metal machines",
            ),
        ] {
            let report = parse("c.toml", &text, Needs::Plan).unwrap_err().plain();
            assert!(report.contains(expected), "no {expected:?} in\n{report}");
        }
    }
}
