//! What a VM that runs is given at once (`vmconfig_hotplug_pending` of qemu-server): vCPUs up to those that its QEMU was started for,
//! and memory in whole DIMMs, each where its `hotplug` allows it. The rest waits for its next start.

use super::answer::Refusal;
use super::vm::Vm;

/// The default of `hotplug`.
const USUAL: &str = "network,disk,usb";
/// DIMMs begin above this, in MiB, …
const FIRST: u64 = 1024;
/// … have this size, …
const SMALLEST: u64 = 512;
/// … and are doubled after so many.
const EACH: u64 = 32;

/// What becomes of a value for a VM that runs.
pub(super) enum Taken {
    /// It has it, in this form.
    Now(String),
    /// It waits.
    Later,
}

/// Gives a VM that runs more vCPUs or memory.
pub(super) fn take(vm: &mut Vm, key: &str, value: &str) -> Result<Taken, Refusal> {
    let allows = |what: &str| {
        let features = vm.get("hotplug").unwrap_or(USUAL);
        let features = if features == "1" { USUAL } else { features };
        features.split([',', ';', ' ']).any(|one| one == what)
    };
    // What is real is plugged by nobody yet.
    if vm.machine.as_ref().is_some_and(|machine| machine.simulated().is_none()) {
        return Ok(Taken::Later);
    }
    let number = value.trim_start_matches("current=").parse::<u64>().unwrap_or(0);
    match key {
        "vcpus" if allows("cpu") => {
            if number > u64::from(vm.most_cpus()) {
                return Err(problem("vcpus", "you can't add more vcpus than maxcpus"));
            }
            if number < u64::from(vm.cpus()) {
                return Ok(Taken::Later);
            }
            Ok(Taken::Now(number.to_string()))
        }
        "memory" if allows("memory") => {
            let now = vm.memory() >> 20;
            if number < now {
                return Ok(Taken::Later);
            }
            Ok(Taken::Now(in_dimms(number).to_string()))
        }
        _ => Ok(Taken::Later),
    }
}

/// Why a VM cannot be started, if so.
pub(super) fn unstartable(vm: &Vm, threads: u32) -> Option<Refusal> {
    let memory = vm.get("hotplug").is_some_and(|features| features.split(',').any(|one| one == "memory"));
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

/// The size that whole DIMMs make of it, in MiB.
fn in_dimms(wanted: u64) -> u64 {
    let (mut size, mut dimm, mut count) = (FIRST, SMALLEST, 0);
    while size < wanted {
        size += dimm;
        count += 1;
        if count % EACH == 0 {
            dimm *= 2;
        }
    }
    size
}

/// What a VM's guest is told of its machine.
pub(super) fn tell_guest(vm: &Vm) {
    if let Some(guest) = vm.machine.as_ref().and_then(super::vm::Machine::simulated) {
        guest.plug(vm.cpus(), vm.memory());
    }
}
