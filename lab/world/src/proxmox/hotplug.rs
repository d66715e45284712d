//! Decides which changes to a running VM's hardware apply immediately, as `vmconfig_hotplug_pending` of
//! qemu-server does. Changes to the number of vCPUs and to the memory size do, if the VM's `hotplug` setting
//! allows them. The number of vCPUs is limited by the maximum that QEMU was started with. The memory size
//! changes in whole DIMMs. Both can be reduced only if the guest releases the vCPUs or memory. All other
//! changes to the hardware wait for the VM's next start.

use std::collections::BTreeMap;

use super::Pve;
use super::answer::Refusal;
use super::vm::{Inside, Vm};
use crate::qemu::{FIRST, Features, Plug, Running, dimms};

/// When a new value applies to a running VM.
pub(super) enum Taken {
    /// Immediately. Contains the value after rounding.
    Now(String),
    /// At the next start.
    Later,
}

/// Decides when a new number of vCPUs or a new memory size applies to a running VM.
pub(super) fn take(vm: &Vm, key: &str, value: &str) -> Result<Taken, Refusal> {
    let features = Features::of(vm.get("hotplug"));
    let number = value.trim_start_matches("current=").parse::<u64>().unwrap_or(0);
    match key {
        "vcpus" if features.cpu => {
            if number > u64::from(vm.most_cpus()) {
                return Err(problem("vcpus", "you can't add more vcpus than maxcpus"));
            }
            if number < u64::from(vm.cpus()) {
                return let_go(vm, "vcpus", number, &format!("vcpus: error unplugging cpu{}", vm.cpus()));
            }
            let guest = vm.machine.as_ref().and_then(super::vm::Machine::simulated);
            if number > u64::from(vm.cpus()) && guest.is_some_and(crate::guest::Guest::has_no_room_for_cpus) {
                let text = format!(
                    "400 Parameter verification failed.\nvcpus: error hotplugging cpu{}",
                    vm.cpus() + 1
                );
                return Err(problem("vcpus", &text));
            }
            Ok(Taken::Now(number.to_string()))
        }
        "memory" if features.memory => {
            let now = vm.memory() >> 20;
            if number < FIRST {
                return Err(problem("memory", &format!("memory can't be lower than {FIRST} MB")));
            }
            if number < now {
                let last = format!("dimm{}: error unplug memory module", dimms(now).len().saturating_sub(1));
                return let_go(vm, "memory", in_dimms(number), &last);
            }
            Ok(Taken::Now(in_dimms(number).to_string()))
        }
        _ => Ok(Taken::Later),
    }
}

/// Unplugs vCPUs or memory if the guest releases them. With a real guest, the change waits for the next
/// start.
fn let_go(vm: &Vm, key: &str, number: u64, refused: &str) -> Result<Taken, Refusal> {
    let Some(guest) = vm.machine.as_ref().and_then(super::vm::Machine::simulated) else {
        return Ok(Taken::Later);
    };
    if guest.holds_on() {
        let text = format!("400 Parameter verification failed.\n{refused}");
        return Err(problem(key, &text));
    }
    Ok(Taken::Now(number.to_string()))
}

impl Pve {
    /// Applies a change to the QEMU process of a real VM, before the configuration is written.
    pub(super) async fn plug(
        &self,
        node: &str,
        vmid: u32,
        set: &BTreeMap<String, String>,
    ) -> Result<(), Refusal> {
        let Some(hardware) = &self.0.hardware else { return Ok(()) };
        let wanted = {
            let state = self.state();
            wanted(state.vm_on(node, vmid)?, set)?
        };
        let Some((running, plug)) = wanted else { return Ok(()) };
        hardware
            .plug(&running, &plug)
            .await
            .map_err(|error| Refusal::failed(format!("hotplug problem - {error}")))
    }
}

fn wanted(vm: &Vm, set: &BTreeMap<String, String>) -> Result<Option<(Running, Plug)>, Refusal> {
    let Some(Inside::Real(running)) = vm.machine.as_ref().map(|machine| machine.inside.clone()) else {
        return Ok(None);
    };
    let number = |key: &str| vm.get(key).and_then(|value| value.parse().ok()).unwrap_or(1);
    let mut plug = Plug { cores: number("cores"), ..Plug::default() };
    for (key, value) in set {
        let Taken::Now(value) = take(vm, key, value)? else { continue };
        if key == "vcpus" {
            plug.cpus = (vm.cpus() + 1..=value.parse().unwrap_or(0)).collect();
        } else {
            let before = dimms(vm.memory() >> 20).len();
            plug.dimms = dimms(value.parse().unwrap_or(0)).split_off(before);
        }
    }
    Ok(Some((running, plug)))
}

/// Returns why a VM cannot be started, or `None` if it can.
pub(super) fn unstartable(vm: &Vm, threads: u32) -> Option<Refusal> {
    let memory = Features::of(vm.get("hotplug")).memory;
    if vm.most_cpus() > threads {
        return Some(Refusal::failed(format!("MAX {threads} vcpus allowed per VM on this node")));
    }
    if !memory {
        return None;
    }
    if vm.get("numa") != Some("1") {
        return Some(Refusal::failed("NUMA needs to be enabled for memory hotplug"));
    }
    if vm.config.keys().any(|key| is_numa_node(key)) {
        return Some(Refusal::failed("cannot enable memory hotplugging with custom NUMA topology"));
    }
    (vm.memory() >> 20 < FIRST).then(|| Refusal::failed(format!("minimum memory must be {FIRST}MB")))
}

fn is_numa_node(key: &str) -> bool {
    key.strip_prefix("numa").is_some_and(|number| !number.is_empty() && number.parse::<u8>().is_ok())
}

fn problem(key: &str, text: &str) -> Refusal {
    Refusal::parameter(key, format!("hotplug problem - {text}\n"))
}

/// Returns the memory rounded up to whole DIMMs, in MiB.
fn in_dimms(wanted: u64) -> u64 {
    FIRST + dimms(wanted).iter().map(|(_, size)| size).sum::<u64>()
}

/// Informs a simulated guest of its VM's number of vCPUs and memory size. Does nothing for a real guest.
pub(super) fn tell_guest(vm: &Vm) {
    if let Some(guest) = vm.machine.as_ref().and_then(super::vm::Machine::simulated) {
        guest.plug(vm.cpus(), vm.memory());
    }
}
