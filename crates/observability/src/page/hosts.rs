//! Shows hosts with their machines and storages. Bars show, to scale, how much memory and CPU the managed
//! machines and other guests use, and how much is free.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::html::{escaped, gib};
use crate::{HostStatus, MachineStatus, Status, StorageStatus};
use model::HostKey;
use model::machine::WarmState;

/// The maximum numbers of hosts, of machines drawn for each host, and of storages in one list.
const HOSTS: usize = 64;
const MACHINES: usize = 64;
const STORAGES: usize = 12;
/// If a part of a bar is narrower than this percentage of the bar, it shows a VMID instead of a name. If it
/// is narrower than `NUMBERED`, it shows no text.
const NAMED: f64 = 12.0;
const NUMBERED: f64 = 4.0;
/// A storage is highlighted if more than this percentage of it is used.
const FULL: f64 = 90.0;

pub(super) fn section(status: &Status, out: &mut String) {
    out.push_str("<section id=\"hosts\"><h2>Hosts</h2>");
    if status.hosts.is_empty() {
        out.push_str("<p class=\"none\">No host has been seen yet.</p></section>");
        return;
    }
    out.push_str(
        "<p class=\"key\"><span class=\"m ready\">ready</span><span class=\"m coming\">starting</span>\
         <span class=\"m going\">leaving</span><span class=\"m failed\">failed</span>\
         <span class=\"m others\">other guests</span><span class=\"m free\">free</span>\
         <span><i class=\"limit\"></i> the host's capacity, if more is assigned</span></p>",
    );
    let most = |of: fn(&HostStatus) -> i64| status.hosts.iter().map(of).max().unwrap_or(0).max(1);
    let largest = (most(|host| host.memory), most(|host| i64::from(host.cores.max(host.cores_assigned))));
    for host in status.hosts.iter().take(HOSTS) {
        let machines: Vec<&MachineStatus> =
            status.machines.iter().filter(|machine| machine.host == host.name).collect();
        one(host, &machines, largest, out);
    }
    if status.hosts.len() > HOSTS {
        let _ = write!(out, "<p class=\"none\">… and {} more</p>", status.hosts.len() - HOSTS);
    }
    shared(status, out);
    out.push_str("</section>");
}

fn one(host: &HostStatus, machines: &[&MachineStatus], largest: (i64, i64), out: &mut String) {
    let state = match (host.online, host.maintenance) {
        (false, _) => ", <b>offline</b>",
        (true, true) => ", <b>in maintenance</b>",
        (true, false) => "",
    };
    let backoff = host.backoff.as_deref().map(|why| format!(", <b>{}</b>", escaped(why))).unwrap_or_default();
    let _ = write!(
        out,
        "<div class=\"host\"><p><b>{}</b>{state}{backoff} <span class=\"none\">{} managed</span></p><div class=\"uses\">",
        escaped(&host.name),
        machines.len(),
    );
    let words = format!("{} of {} assigned", gib(host.memory_assigned), gib(host.memory));
    label("memory", &words, out);
    let bar = Bar { has: host.memory, given: host.memory_assigned, of: |one| one.memory, words: gib };
    bar.draw(machines, largest.0, out);
    label("CPU", &format!("{} vCPUs on {} threads", host.cores_assigned, host.cores), out);
    let given = i64::from(host.cores_assigned);
    let words = |count: i64| format!("{count} vCPUs");
    let bar = Bar { has: host.cores.into(), given, of: |one| one.cores.into(), words };
    bar.draw(machines, largest.1, out);
    let own: Vec<_> =
        host.storages.iter().filter(|one| !one.shared).map(|one| (one.name.clone(), one)).collect();
    if !own.is_empty() {
        out.push_str("<p><b>storage</b></p>");
        stores(&own, out);
    }
    out.push_str("</div></div>");
}

fn label(name: &str, words: &str, out: &mut String) {
    let _ = write!(out, "<p><b>{name}</b> {words}</p>");
}

/// How one resource of a host is drawn: the host's total amount, the assigned amount, how a machine's share
/// is determined, and how an amount is written.
struct Bar {
    has: i64,
    given: i64,
    of: fn(&MachineStatus) -> i64,
    words: fn(i64) -> String,
}

impl Bar {
    fn draw(&self, machines: &[&MachineStatus], largest: i64, out: &mut String) {
        let running: i64 = machines.iter().filter(|one| runs(one)).map(|one| (self.of)(one)).sum();
        let others = (self.given - running).max(0);
        // If more is assigned than the host has, the bar's length represents the assigned amount.
        let ours: i64 = machines.iter().map(|one| (self.of)(one)).sum();
        let whole = self.has.max(others + ours);
        let _ = write!(out, "<div class=\"bar\" style=\"width:{:.2}%\">", share(whole, largest).min(100.0));
        if others > 0 {
            let words = format!("other guests: {}", (self.words)(others));
            part(share(others, whole), "others", "", &words, out);
        }
        for machine in machines.iter().take(MACHINES) {
            let amount = (self.of)(machine);
            let width = share(amount, whole);
            let (words, name) = (self.about(machine), named(machine, width));
            part(width, kind(&machine.phase), &name, &words, out);
        }
        let free = whole - others - ours;
        if free > 0 {
            part(share(free, whole), "free", "", &format!("free: {}", (self.words)(free)), out);
        }
        if whole > self.has {
            let _ = write!(
                out,
                "<i class=\"limit\" style=\"left:{:.2}%\" title=\"the host's capacity\"></i>",
                share(self.has, whole)
            );
        }
        out.push_str("</div>");
    }

    fn about(&self, machine: &MachineStatus) -> String {
        let (vmid, amount) = (machine.vmid(), (self.words)((self.of)(machine)));
        let vmid = if vmid.is_empty() { vmid } else { format!(" (VMID {vmid})") };
        format!("{}{vmid}: {}, {amount}", machine.name, machine.phase)
    }
}

fn named(machine: &MachineStatus, width: f64) -> String {
    match width {
        NAMED.. => machine.name.clone(),
        NUMBERED.. => machine.vmid(),
        _ => String::new(),
    }
}

fn part(width: f64, kind: &str, name: &str, words: &str, out: &mut String) {
    let _ = write!(
        out,
        "<span class=\"m {kind}\" style=\"width:{width:.2}%\" title=\"{}\">{}</span>",
        escaped(words),
        escaped(name)
    );
}

/// Draws the storages that several hosts share, once for each Proxmox VE cluster.
fn shared(status: &Status, out: &mut String) {
    let mut all: BTreeMap<String, &StorageStatus> = BTreeMap::new();
    for host in &status.hosts {
        let cluster = host.name.region();
        for one in host.storages.iter().filter(|one| one.shared) {
            all.entry(HostKey::new(cluster, &one.name).to_string()).or_insert(one);
        }
    }
    if !all.is_empty() {
        out.push_str("<div class=\"host\"><p><b>Shared storage</b></p>");
        stores(&all.into_iter().collect::<Vec<_>>(), out);
        out.push_str("</div>");
    }
}

fn stores(stores: &[(String, &StorageStatus)], out: &mut String) {
    out.push_str("<div class=\"stores\">");
    for (name, one) in stores.iter().take(STORAGES) {
        let used = share(one.used, one.total).clamp(0.0, 100.0);
        let full = if used > FULL { "full" } else { "others" };
        let _ = write!(
            out,
            "<div><p>{} <span class=\"none\">{} of {} used</span></p><div class=\"bar thin\">\
             <span class=\"m {full}\" style=\"width:{used:.2}%\"></span></div></div>",
            escaped(name),
            gib(one.used),
            gib(one.total)
        );
    }
    if stores.len() > STORAGES {
        let _ = write!(out, "<p class=\"none\">… and {} more</p>", stores.len() - STORAGES);
    }
    out.push_str("</div>");
}

/// Whether a machine in this phase is assumed to run. A running machine's size is included in the host's
/// assigned amount.
fn runs(machine: &MachineStatus) -> bool {
    match machine.phase.as_str() {
        "Warm" => machine.warm.is_some_and(WarmState::runs),
        phase => !["Requested", "Cloning", "Configuring", "Deleting", "Clearing", "Gone"].contains(&phase),
    }
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
            host: "a".into(),
            memory: 8 << 30,
            phase: phase.to_owned(),
            ..MachineStatus::default()
        }
    }

    fn drawn(assigned: i64, machines: Vec<MachineStatus>) -> String {
        let host = HostStatus {
            name: "a".into(),
            online: true,
            memory: 32 << 30,
            memory_assigned: assigned,
            ..HostStatus::default()
        };
        page(vec![host], machines)
    }

    fn page(hosts: Vec<HostStatus>, machines: Vec<MachineStatus>) -> String {
        let mut out = String::new();
        section(&Status { hosts, machines, ..Status::default() }, &mut out);
        out
    }

    #[test]
    fn parts_are_as_wide_as_their_memory() {
        let page = drawn(16 << 30, vec![machine("Ready")]);
        assert_eq!(page.matches("width:25.00%").count(), 2, "the other guests and the machine: {page}");
        assert!(page.contains("m free\" style=\"width:50.00%"), "{page}");
    }

    #[test]
    fn a_machine_that_does_not_run_yet_takes_nothing_from_others() {
        let page = drawn(8 << 30, vec![machine("Cloning")]);
        assert!(page.contains("m others\" style=\"width:25.00%"), "{page}");
    }

    #[test]
    fn of_warm_machines_only_booted_ones_are_part_of_what_the_host_has_assigned() {
        for (state, others) in
            [(WarmState::Stopped, true), (WarmState::Suspended, true), (WarmState::Booted, false)]
        {
            let page = drawn(8 << 30, vec![MachineStatus { warm: Some(state), ..machine("Warm") }]);
            assert_eq!(page.contains("m others\" style=\"width:25.00%"), others, "{state:?}: {page}");
        }
    }

    #[test]
    fn a_host_that_gave_away_more_than_it_has_is_still_one_bar() {
        let page = drawn(48 << 30, vec![machine("Ready"), machine("Ready")]);
        assert!(!page.contains("m free\" style"), "{page}");
        assert!(page.contains("m others\" style=\"width:66.67%"), "{page}");
    }

    #[test]
    fn more_vcpus_than_threads_are_drawn_with_a_mark_where_the_threads_end() {
        let host = HostStatus {
            name: "a".into(),
            online: true,
            cores: 8,
            cores_assigned: 16,
            ..HostStatus::default()
        };
        let one = MachineStatus { cores: 4, ..machine("Ready") };
        let page = page(vec![host], vec![one]);
        assert!(page.contains("16 vCPUs on 8 threads"), "{page}");
        assert!(page.contains("class=\"limit\" style=\"left:50.00%\""), "{page}");
        assert!(
            page.contains("m ready\" style=\"width:25.00%\" title=\" (VMID 0): Ready, 4 vCPUs"),
            "{page}"
        );
    }

    #[test]
    fn a_storage_is_with_its_host_or_if_all_share_it_there_once() {
        let store = |name: &str, used: i64, shared| StorageStatus {
            name: name.to_owned(),
            total: 100 << 30,
            used: used << 30,
            shared,
        };
        let hosts = ["a", "b", "east/a"].map(|name| HostStatus {
            name: name.into(),
            storages: vec![store("local", 95, false), store("nfs", 40, true)],
            ..HostStatus::default()
        });
        let page = page(hosts.to_vec(), Vec::new());
        let count = |words: &str| page.matches(words).count();
        assert_eq!((count("<p>local "), count("<p>nfs "), count("<p>east/nfs ")), (3, 1, 1), "{page}");
        assert_eq!(
            (count("95 GiB of 100 GiB used"), count("m full\" style=\"width:95.00%")),
            (3, 3),
            "{page}"
        );
    }
}
