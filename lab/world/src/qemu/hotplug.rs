//! Processors and memory that are plugged into a running QEMU, with the names that Proxmox VE gives them.
//!
//! A VM with hotplug begins with one processor and 1 GiB of memory. Each additional processor or DIMM is a
//! device of its own, whether it is present at the start (`config_to_command` of qemu-server) or plugged in
//! later (`qemu_cpu_hotplug`, `foreach_dimm`). All memory belongs to one NUMA node, because a VM in the lab
//! has one socket.

use serde_json::json;

use super::{Accelerator, Hardware, HardwareError, Running};

/// The memory that a VM begins with, in MiB.
pub const FIRST: u64 = 1024;
/// The size of the first DIMMs, in MiB.
const SMALLEST: u64 = 512;
/// The number of DIMMs of each size. Each further size is twice the previous one.
const EACH: usize = 32;
/// Slots for DIMMs.
const SLOTS: u32 = 255;
/// The maximum memory size of a VM, in MiB. QEMU reserves address space for it.
const MOST: u64 = 256 * 1024;

/// The kinds of devices that a VM's `hotplug` setting allows to be plugged in.
#[derive(Clone, Copy, Debug, Default)]
pub struct Features {
    /// Processors.
    pub cpu: bool,
    /// Memory.
    pub memory: bool,
}

impl Features {
    /// Reads the `hotplug` setting. Without it, neither processors nor memory can be plugged in.
    pub fn of(text: Option<&str>) -> Self {
        let has = |what| text.unwrap_or_default().split([',', ';', ' ']).any(|one| one == what);
        Self { cpu: has("cpu"), memory: has("memory") }
    }
}

/// The processors and DIMMs that are plugged in together.
#[derive(Clone, Debug, Default)]
pub struct Plug {
    /// The VM's cores per socket.
    pub cores: u32,
    /// The numbers of the processors, from 1.
    pub cpus: Vec<u32>,
    /// The DIMMs: number and size in MiB.
    pub dimms: Vec<(usize, u64)>,
}

/// The DIMMs that, together with the VM's static memory, add up to at least `wanted` MiB. Each DIMM has a
/// number and a size in MiB.
pub fn dimms(wanted: u64) -> Vec<(usize, u64)> {
    let (mut size, mut all) = (FIRST, Vec::new());
    while size < wanted {
        let dimm = SMALLEST << (all.len() / EACH).min(16);
        size += dimm;
        all.push((all.len(), dimm));
    }
    all
}

/// The `-device` argument for a processor.
pub(super) fn cpu(accelerator: Accelerator, number: u32, cores: u32) -> String {
    let (socket, core) = place(number, cores);
    let model = accelerator.processor();
    format!("{model},id=cpu{number},socket-id={socket},core-id={core},thread-id=0")
}

fn place(number: u32, cores: u32) -> (u32, u32) {
    ((number - 1) / cores.max(1), (number - 1) % cores.max(1))
}

/// Returns the arguments for hotpluggable memory. The VM starts with `size` MiB.
pub(super) fn memory(size: u64, cpus: u32) -> Vec<String> {
    let mut words = vec![
        "-m".to_owned(),
        format!("size={FIRST},slots={SLOTS},maxmem={MOST}M"),
        "-object".to_owned(),
        format!("memory-backend-ram,id=ram-node0,size={FIRST}M"),
        "-numa".to_owned(),
        format!("node,nodeid=0,cpus=0-{},memdev=ram-node0", cpus.saturating_sub(1)),
    ];
    for (number, dimm) in dimms(size) {
        words.extend([
            "-object".to_owned(),
            format!("memory-backend-ram,id=mem-dimm{number},size={dimm}M"),
            "-device".to_owned(),
            format!("pc-dimm,id=dimm{number},memdev=mem-dimm{number},node=0"),
        ]);
    }
    words
}

impl Hardware {
    /// Plugs processors and memory into a VM's QEMU.
    ///
    /// # Errors
    /// Returns an error if QEMU refuses a device. The devices that were plugged in before it stay plugged in.
    pub async fn plug(&self, running: &Running, plug: &Plug) -> Result<(), HardwareError> {
        let model = self.accelerator().processor();
        for number in &plug.cpus {
            let (socket, core) = place(*number, plug.cores);
            let device = json!({
                "driver": model, "id": format!("cpu{number}"), "socket-id": socket, "core-id": core, "thread-id": 0,
            });
            running.command("device_add", &device).await?;
        }
        for (number, dimm) in &plug.dimms {
            let (name, memory) = (format!("dimm{number}"), format!("mem-dimm{number}"));
            let object = json!({ "qom-type": "memory-backend-ram", "id": memory, "size": dimm << 20 });
            running.command("object-add", &object).await?;
            let device = json!({ "driver": "pc-dimm", "id": name, "memdev": memory, "node": 0 });
            running.command("device_add", &device).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dimms_add_up_to_the_sizes_that_proxmox_makes() {
        let sum = |wanted| FIRST + dimms(wanted).iter().map(|(_, size)| size).sum::<u64>();
        for (wanted, size) in
            [(512, 1024), (1024, 1024), (1025, 1536), (17 << 10, 17 << 10), ((17 << 10) + 1, 18 << 10)]
        {
            assert_eq!(sum(wanted), size, "{wanted}");
        }
        assert_eq!(dimms(2048), [(0, 512), (1, 512)]);
    }
}
