//! Asks the kernel whether running machines are on the CPUs they are pinned to, because their configuration
//! does not prove it.

use std::path::Path;

use super::cpus::Cpus;
use super::request::Astray;
use super::vm_file::VmFile;

/// The process id of a running VM, from its pid file; `None` if that process does not exist.
pub(super) fn process(vmid: u32, running: &Path, proc: &Path) -> Option<u32> {
    let written = std::fs::read_to_string(running.join(format!("{vmid}.pid"))).ok()?;
    let pid = written.trim().parse::<u32>().ok()?;
    proc.join(pid.to_string()).exists().then_some(pid)
}

/// Returns the machine if the kernel lets it run on CPUs other than those in its configuration. Returns
/// `None` if it only runs on these CPUs, is not pinned, or has stopped.
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
