//! Promises about VMs: unmanaged VMs are not changed, a machine's record is written before its VM is created,
//! no VM is stopped while a pod needs it, and the number of VMs stays within the limits of the settings.

use std::collections::BTreeMap;
use std::time::Duration;

use stage::{Call, Side};
use tokio::time::Instant;
use world::proxmox::VmView;

use crate::simulate::checker::objects::{is_kept, is_ready, name, newid};
use crate::simulate::checker::{Checker, Promise};

/// The longest time between the check of the quorum, or of a VM, and the call that relies on it.
const JUST_LOOKED: Duration = Duration::from_secs(2);

/// How long a pool may be below its minimum after an administrator or a fault removed machines.
const DISTURBED: Duration = Duration::from_mins(40);

/// VMs are cloned, stopped and destroyed only when this is allowed.
pub struct Guests;

impl Promise for Guests {
    fn on_call(&self, checker: &Checker, _: &str, call: &Call<'_>) {
        let parts: Vec<&str> = call.path.trim_start_matches('/').split('/').collect();
        match (call.side, call.method, parts.as_slice()) {
            (Side::Proxmox, "POST", ["nodes", _, "qemu", _, "clone"]) => checker.clone_asked(call.body),
            (Side::Proxmox, "GET", ["nodes", _, "qemu", vmid, "config"]) => {
                if let Ok(vmid) = vmid.parse() {
                    checker.inner().proven.insert(vmid, Instant::now());
                }
            }
            (Side::Proxmox, "POST" | "PUT" | "DELETE", ["nodes", host, "qemu", vmid, rest @ ..]) => {
                if let Ok(vmid) = vmid.parse() {
                    checker.vm_asked(host, vmid, call, rest);
                }
            }
            _ => {}
        }
    }

    fn throughout(&self, checker: &Checker) {
        checker.quorum();
        checker.guests();
    }
}

impl Checker {
    fn clone_asked(&self, body: &[u8]) {
        self.inner().figures.clones += 1;
        let text = String::from_utf8_lossy(body);
        let Some(vmid) = newid(body) else {
            return self.violated(&format!("a clone request contains no VMID: {text}"));
        };
        self.inner().asked.insert(vmid, Instant::now());
        self.inner().started.remove(&vmid);
        let Some(record) = self.record(vmid) else {
            return self.violated(&format!("VM {vmid} is being cloned although no record has its VMID"));
        };
        let id = record["id"].as_str().unwrap_or("?");
        if !text.contains(id) {
            self.violated(&format!("VM {vmid} is cloned for a machine other than the one in its record"));
        }
    }

    fn vm_asked(&self, host: &str, vmid: u32, call: &Call<'_>, rest: &[&str]) {
        let method = call.method;
        self.inner().asked.insert(vmid, Instant::now());
        let Some(vm) = self.world.pve.vm(vmid).filter(|vm| vm.node == host) else { return };
        if self.is_foreign(vmid) {
            // Proxmox VE rejects a call whose digest belongs to a different version of the configuration.
            if rest == ["config"] && String::from_utf8_lossy(call.body).contains("digest=") {
                return;
            }
            return self.violated(&format!("{method} {} for the unmanaged VM {vmid}", rest.join("/")));
        }
        match (method, rest) {
            ("DELETE", []) => {
                self.inner().figures.destructions += 1;
                let lost = self.inner().no_quorum_since.is_some_and(|since| since.elapsed() > JUST_LOOKED);
                // The quorum may have returned since the last check.
                if lost && !self.world.pve.is_quorate() {
                    self.violated(&format!("VM {vmid} is destroyed without quorum"));
                }
                // A VM that has only just started is ignored, because Proxmox VE itself refuses to destroy a
                // running VM.
                let runs = self.world.pve.runs_for(vmid).is_some_and(|time| time > JUST_LOOKED);
                if vm.running && runs && self.world.pve.is_online(host) {
                    self.violated(&format!("VM {vmid} is destroyed while it runs"));
                }
            }
            ("POST", ["status", "shutdown" | "stop"]) if vm.running => self.stop_asked(vmid),
            _ => {}
        }
    }

    /// Called when a VM is about to be shut down or stopped. Checks that no pod still needs the VM.
    fn stop_asked(&self, vmid: u32) {
        let (Some(node), Some(pool)) = (self.node_of(vmid), self.world.pool_of(vmid)) else { return };
        let unready = self.inner().unready_since.get(&node).copied();
        let given_up = self.world.config.scale_down.unready_time;
        let given_up = self.world.rules.unready_after.map_or(given_up, |after| after.min(given_up));
        if unready.is_some_and(|since| since.elapsed() + JUST_LOOKED >= given_up) {
            return;
        }
        let record = self.record(vmid).unwrap_or_default();
        let mut running = self.missed(&node);
        running.retain(|pod| !self.may_go_down(pod, &record));
        if let Some(pod) = running.first() {
            let pod = name(pod);
            self.violated(&format!(
                "VM {vmid} is stopped while {} pods run on {node}, including {pod}",
                running.len()
            ));
        }
        if let Some(pod) = self.ending(&node).iter().find(|pod| !self.may_go_down(pod, &record)) {
            self.violated(&format!(
                "VM {vmid} is stopped before the grace period of pod {} on {node} has ended",
                name(pod)
            ));
        }
        let ready = self.world.kube.get("Node", "", &node).is_some_and(|node| is_ready(&node));
        if let (true, [volume, ..]) = (ready, self.attached_to(&node).as_slice()) {
            self.violated(&format!("VM {vmid} is stopped while {volume} is attached to {node}"));
        }
        let disturbed =
            self.inner().disturbed.get(pool.name).is_some_and(|since| since.elapsed() < DISTURBED);
        if record["intent"]["kind"] == "retire" && !disturbed && unready.is_none() {
            let stays = |other: &u32| {
                *other != vmid
                    && pool.vmids.contains(other)
                    && self
                        .record(*other)
                        .is_some_and(|record| record["intent"]["kind"] == "create" && !is_kept(&record))
            };
            let left = self.ours().into_iter().filter(stays).count();
            let min = self.sure_minimum(pool);
            if left < min {
                self.violated(&format!(
                    "VM {vmid} is stopped, which leaves {left} machines in pool {}, fewer than the \
                        pool's minimum of {min}",
                    pool.name
                ));
            }
        }
    }

    fn quorum(&self) {
        let quorate = self.world.pve.is_quorate();
        let mut inner = self.inner();
        match (quorate, inner.no_quorum_since) {
            (true, _) => inner.no_quorum_since = None,
            (false, None) => inner.no_quorum_since = Some(Instant::now()),
            (false, Some(_)) => {}
        }
    }

    fn guests(&self) {
        let [vms, pools, _] = self.world.pve.changes();
        let now = Some([vms, pools]);
        if std::mem::replace(&mut self.inner().looked_at.guests, now) != now {
            self.foreigners_are_as_they_were();
            self.numbers();
        }
    }

    fn foreigners_are_as_they_were(&self) {
        let changed: Vec<(u32, VmView)> = {
            let inner = self.inner();
            let changed = inner.foreign.iter().filter(|(vmid, then)| !self.world.pve.is_as(**vmid, then));
            changed.map(|(vmid, then)| (*vmid, then.clone())).collect()
        };
        for (vmid, wanted) in changed {
            let now = self.world.pve.vm(vmid);
            self.violated(&format!("the unmanaged VM {vmid} was changed from {wanted:?} to {now:?}"));
            self.inner().foreign.remove(&vmid);
        }
    }

    fn numbers(&self) {
        let ours = self.ours();
        let hidden = |vmid: &u32| self.was_outside(*vmid) && self.record(*vmid).is_none();
        for pool in &self.world.pools {
            let number =
                ours.iter().filter(|vmid| !hidden(vmid)).filter(|vmid| pool.vmids.contains(vmid)).count();
            if number > pool.max {
                self.violated(&format!(
                    "pool {} has {number} VMs, but only {} are allowed",
                    pool.name, pool.max
                ));
            }
        }
        let mut addresses: BTreeMap<String, u32> = BTreeMap::new();
        for vmid in ours {
            let config = self.world.pve.config_of(vmid, "ipconfig0").unwrap_or_default();
            let own = config.split(',').filter(|part| part.starts_with("ip=") || part.starts_with("ip6="));
            for address in own {
                if let Some(other) = addresses.insert(address.to_owned(), vmid) {
                    self.violated(&format!("VMs {other} and {vmid} both have {address}"));
                }
            }
        }
    }
}
