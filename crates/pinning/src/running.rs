//! What the kernel says of machines that run: are they on the CPUs that they are pinned to? What a
//! configuration says does not tell.

use std::path::Path;

use super::cpus::Cpus;
use super::request::Astray;
use super::vm_file::VmFile;

/// The process of a VM that runs: its id is written down, and there is such a process.
pub(super) fn process(vmid: u32, running: &Path, proc: &Path) -> Option<u32> {
    let written = std::fs::read_to_string(running.join(format!("{vmid}.pid"))).ok()?;
    let pid = written.trim().parse::<u32>().ok()?;
    proc.join(pid.to_string()).exists().then_some(pid)
}

/// The machine, if it runs on other CPUs than its file says. One that has just ended is none.
pub(super) fn astray(vmid: u32, file: &VmFile, running: &Path, proc: &Path) -> Option<Astray> {
    let affinity = file.get("affinity")?;
    let pid = process(vmid, running, proc)?;
    let status = std::fs::read_to_string(proc.join(pid.to_string()).join("status")).ok()?;
    Astray::found(vmid, file.get("name").unwrap_or_default(), affinity, &allowed(&status)?)
}

/// The CPUs that the kernel lets a process run on.
fn allowed(status: &str) -> Option<Cpus> {
    status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?.trim().parse().ok()
}
