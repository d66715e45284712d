//! Hosts with their machines, drawn to the scale of their memory: what others use, each of our machines, what
//! is left.

use std::fmt::Write;

use super::html::{escaped, gib};
use crate::{HostStatus, MachineStatus, Status};

/// Hosts that are drawn, and machines of one.
const HOSTS: usize = 64;
const MACHINES: usize = 64;
/// A part of the bar that is narrower, in percent, bears its VMID.
const NAMED: f64 = 12.0;

pub(super) fn section(status: &Status, out: &mut String) {
    out.push_str("<section id=\"hosts\"><h2>Hosts</h2>");
    if status.hosts.is_empty() {
        out.push_str("<p class=\"none\">No host was seen yet.</p></section>");
        return;
    }
    out.push_str(
        "<p class=\"key\"><span class=\"m ready\">ready</span><span class=\"m coming\">coming</span>\
         <span class=\"m going\">going</span><span class=\"m failed\">failed</span>\
         <span class=\"m others\">other guests</span><span class=\"m free\">free memory</span></p>",
    );
    let largest = status.hosts.iter().map(|host| host.memory).max().unwrap_or(0).max(1);
    for host in status.hosts.iter().take(HOSTS) {
        let machines: Vec<&MachineStatus> =
            status.machines.iter().filter(|machine| machine.host == host.name).collect();
        one(host, &machines, largest, out);
    }
    if status.hosts.len() > HOSTS {
        let _ = write!(out, "<p class=\"none\">… and {} more</p>", status.hosts.len() - HOSTS);
    }
    out.push_str("</section>");
}

fn one(host: &HostStatus, machines: &[&MachineStatus], largest: i64, out: &mut String) {
    let state = match (host.online, host.maintenance) {
        (false, _) => ", <b>offline</b>",
        (true, true) => ", <b>in maintenance</b>",
        (true, false) => "",
    };
    let backoff = host.backoff.as_deref().map(|why| format!(", <b>{}</b>", escaped(why))).unwrap_or_default();
    let _ = write!(
        out,
        "<div class=\"host\"><p><b>{}</b>{state}{backoff} <span class=\"none\">{} managed, {} of {} given to guests, {} vCPUs on {} \
         threads</span></p><div class=\"bar\" style=\"width:{:.2}%\">",
        escaped(&host.name),
        machines.len(),
        gib(host.memory_assigned),
        gib(host.memory),
        host.cores_assigned,
        host.cores,
        share(host.memory, largest),
    );
    let running: i64 = machines.iter().filter(|one| runs(one)).map(|one| one.memory).sum();
    let others = (host.memory_assigned - running).max(0);
    // More than there is may have been given away: then the bar is as long as that.
    let ours: i64 = machines.iter().map(|one| one.memory).sum();
    let whole = host.memory.max(others + ours);
    if others > 0 {
        part(share(others, whole), "others", "", &format!("other guests: {}", gib(others)), out);
    }
    for machine in machines.iter().take(MACHINES) {
        let words = format!(
            "{} (VMID {}): {}, {} vCPUs, {}",
            machine.name,
            machine.vmid,
            machine.phase,
            machine.cores,
            gib(machine.memory)
        );
        let width = share(machine.memory, whole);
        let name = if width < NAMED { machine.vmid.to_string() } else { machine.name.clone() };
        part(width, kind(&machine.phase), &name, &words, out);
    }
    let free = whole - others - ours;
    if free > 0 {
        part(share(free, whole), "free", "", &format!("free: {}", gib(free)), out);
    }
    out.push_str("</div></div>");
}

fn part(width: f64, kind: &str, name: &str, words: &str, out: &mut String) {
    let _ = write!(
        out,
        "<span class=\"m {kind}\" style=\"width:{width:.2}%\" title=\"{}\">{}</span>",
        escaped(words),
        escaped(name)
    );
}

/// Whether Proxmox counts its memory as given already.
fn runs(machine: &MachineStatus) -> bool {
    !["Requested", "Cloning", "Configuring", "Deleting", "Clearing", "Gone"].contains(&machine.phase.as_str())
}

fn kind(phase: &str) -> &'static str {
    match phase {
        "Ready" => "ready",
        "Draining" | "Stopping" | "Deleting" | "Clearing" | "Gone" => "going",
        "Failed" => "failed",
        _ => "coming",
    }
}

#[expect(clippy::cast_precision_loss, reason = "a width on a screen")]
fn share(part: i64, whole: i64) -> f64 {
    part as f64 / whole.max(1) as f64 * 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(phase: &str) -> MachineStatus {
        MachineStatus {
            host: "a".to_owned(),
            memory: 8 << 30,
            phase: phase.to_owned(),
            ..MachineStatus::default()
        }
    }

    fn drawn(assigned: i64, machines: Vec<MachineStatus>) -> String {
        let host = HostStatus {
            name: "a".to_owned(),
            online: true,
            memory: 32 << 30,
            memory_assigned: assigned,
            ..HostStatus::default()
        };
        let mut out = String::new();
        section(&Status { hosts: vec![host], machines, ..Status::default() }, &mut out);
        out
    }

    #[test]
    fn parts_are_as_wide_as_their_memory() {
        let page = drawn(16 << 30, vec![machine("Ready")]);
        assert_eq!(page.matches("width:25.00%").count(), 2, "others and ours: {page}");
        assert!(page.contains("m free\" style=\"width:50.00%"), "{page}");
    }

    #[test]
    fn a_machine_that_does_not_run_yet_takes_nothing_from_others() {
        let page = drawn(8 << 30, vec![machine("Cloning")]);
        assert!(page.contains("m others\" style=\"width:25.00%"), "{page}");
    }

    #[test]
    fn a_host_that_gave_away_more_than_it_has_is_still_one_bar() {
        let page = drawn(48 << 30, vec![machine("Ready"), machine("Ready")]);
        assert!(!page.contains("m free\" style"), "{page}");
        assert!(page.contains("m others\" style=\"width:66.67%"), "{page}");
    }
}
