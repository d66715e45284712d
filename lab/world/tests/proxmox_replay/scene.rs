//! The state before a scenario's first call, and the events between its calls.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use world::proxmox::{Pve, spec::VmSpec};

use crate::{cluster, recording::Entry};

/// Returns the VMs that existed before the scenario, as far as its calls show them. Each VM has the first
/// configuration that was read, unless a call changed the VM before that.
///
/// `there`: the VMs that the cluster contains in any case. `plain`: makes a VM whose configuration is not
/// recorded.
pub fn vms(entries: &[Entry], there: &[u32], plain: fn(u32, &str) -> VmSpec) -> Vec<VmSpec> {
    let mut made: BTreeSet<u32> = there.iter().copied().collect();
    let mut changed = BTreeSet::new();
    let mut found: BTreeMap<u32, VmSpec> = BTreeMap::new();
    for entry in entries.iter().filter(|entry| entry.event().is_none() && entry.command().is_none()) {
        let fine = entry.status() == 200;
        let rows = entry.body()["data"].as_array().into_iter().flatten();
        for row in rows.filter(|row| row.get("vmid").is_some() && row.get("status").is_some()) {
            let vmid = number(&row["vmid"]);
            if !made.contains(&vmid) {
                let node = row["node"].as_str().or(entry.node()).unwrap_or("pve1").to_owned();
                let spec = found.entry(vmid).or_insert_with(|| plain(vmid, &node));
                spec.running |= row["status"] == "running" && !changed.contains(&vmid);
                if let (Some(tags), false) = (row["tags"].as_str(), changed.contains(&vmid)) {
                    spec.config.insert("tags".to_owned(), tags.to_owned());
                }
                if let (Some(pool), false) = (row["pool"].as_str(), changed.contains(&vmid)) {
                    spec.pool = Some(pool.to_owned());
                }
            }
        }
        if entry.method() == "POST" && entry.path().ends_with("/clone") && fine {
            made.insert(number(&entry.parameter("newid")));
        }
        if entry.method() == "POST" && entry.path().ends_with("/qemu") && fine {
            made.insert(number(&entry.parameter("vmid")));
        }
        let Some((node, vmid)) = entry.vm() else { continue };
        // Power calls and DELETE do not show whether the VM exists.
        let shows = fine && (entry.method() == "GET" || entry.path().ends_with("/config"));
        if shows && !made.contains(&vmid) {
            let spec = found.entry(vmid).or_insert_with(|| plain(vmid, node));
            let config = &entry.body()["data"];
            let whole =
                config.get("smbios1").is_some() && config.get("…").is_none() && config.get("...").is_none();
            if whole && !changed.contains(&vmid) {
                spec.config = config.as_object().into_iter().flatten().map(text).collect();
                spec.config.remove("digest");
                changed.insert(vmid);
            }
            spec.running |= entry.path().contains("/agent/") || config["qmpstatus"] == "running";
        }
        let powers = entry.path().contains("/status/") || entry.path().contains("/agent/");
        if entry.method() != "GET" && !powers {
            changed.insert(vmid);
        }
    }
    for (vmid, node) in UNSEEN {
        if made.contains(vmid) {
            found.entry(*vmid).or_insert_with(|| plain(*vmid, node));
        }
    }
    found.into_values().collect()
}

/// VMs that are only mentioned in a refusal.
const UNSEEN: &[(u32, &str)] = &[(145, "pve2")];

/// A VM of the first recorded cluster.
pub fn plain(vmid: u32, node: &str) -> VmSpec {
    if vmid == 9011 {
        return cluster::template(vmid, node, "debian-13-k8s-b");
    }
    cluster::machine(vmid, node, &format!("k8s-w-{vmid}"))
}

fn text((key, value): (&String, &Value)) -> (String, String) {
    (key.clone(), value.as_str().map_or_else(|| value.to_string(), str::to_owned))
}

fn number(value: &Value) -> u32 {
    let number = value.as_u64().or_else(|| value.as_str()?.parse().ok());
    number.and_then(|number| u32::try_from(number).ok()).unwrap_or(0)
}

/// Removes the VM whose VMID a recorded clone reuses. In the recorded cluster, this VM was removed between
/// two recorded calls.
pub fn make_room(pve: &Pve, entry: &Entry) {
    if entry.method() == "POST" && entry.path().ends_with("/clone") && entry.status() == 200 {
        let newid = number(&entry.parameter("newid"));
        let here = entry.node();
        if pve.vm(newid).is_some_and(|vm| Some(vm.node.as_str()) == here) {
            pve.delete_by_hand(newid);
        }
    }
}

/// Repeats an event that happened between two calls.
pub fn happen(pve: &Pve, event: &str) {
    if let Some(privilege) = event.strip_suffix(" taken away") {
        pve.change_access(|access| {
            access.roles = cluster::roles().into_iter().map(cluster::role).collect();
            for held in access.roles.values_mut() {
                held.retain(|one| one != privilege);
            }
        });
    } else if event.starts_with("privsep:") {
        pve.change_access(|access| access.roles = cluster::roles().into_iter().map(cluster::role).collect());
    }
    if event == "two deletes at the same time" {
        pve.stop_by_hand(180);
    }
    let (verb, hosts): (fn(&Pve, &str), &[&str]) = match event {
        "pve3 loses power" => (Pve::power_off_host, &["pve3"]),
        "pve2 and pve3 lose power" => (Pve::power_off_host, &["pve2", "pve3"]),
        "pve3 is switched on again" | "quorate again" => (Pve::power_on_host, &["pve3"]),
        "pve2 is switched on again" => (Pve::power_on_host, &["pve2"]),
        "both nodes are switched on again" => (Pve::power_on_host, &["pve2", "pve3"]),
        _ => return,
    };
    for host in hosts {
        verb(pve, host);
    }
}

/// Repeats what a command on a host did.
pub fn command(pve: &Pve, command: &str) {
    let words: Vec<&str> = command.split_whitespace().collect();
    match words.as_slice() {
        ["kill", "-9", _] => {
            let running = pve.task_exits().into_iter().filter(|(_, exit)| exit.is_none());
            for (upid, _) in running {
                pve.kill_task(&upid);
            }
        }
        [
            "mkdir",
            ..,
            "qm",
            "set",
            vmid,
            "--affinity",
            cores,
            "--hookscript",
            script,
            "--startup",
            startup,
        ] => {
            let vmid = vmid.parse().unwrap_or(0);
            pve.set_config_by_hand(vmid, "affinity", Some(cores));
            pve.set_config_by_hand(vmid, "hookscript", Some(script));
            pve.set_config_by_hand(vmid, "startup", Some(startup));
        }
        ["qm", "unlock", vmid] => pve.set_config_by_hand(vmid.parse().unwrap_or(0), "lock", None),
        _ => {}
    }
}
