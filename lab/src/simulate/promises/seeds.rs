//! Promises about the seed images of machines: each image belongs to its machine, exists when the machine
//! starts, and is removed with it. Images of other clients are not changed.

use serde_json::Value;
use stage::{Call, Side};

use crate::simulate::checker::objects::{name, vmid};
use crate::simulate::checker::{Checker, Promise};
use crate::simulate::drawn::seeds::{DRIVE, FOREIGN, OURS, machine_of};

/// Each machine starts with its own seed image, and images of other clients are not changed.
pub struct Seeds;

impl Promise for Seeds {
    fn on_call(&self, checker: &Checker, _: &str, call: &Call<'_>) {
        checker.must_mind_seeds(call);
    }

    fn throughout(&self, checker: &Checker) {
        checker.images_of_others_stay();
    }
}

impl Checker {
    /// The record of the machine with this id.
    fn machine_with(&self, id: &str) -> Option<Value> {
        let maps = self.world.kube.list("ConfigMap");
        let records = maps.iter().filter(|map| name(map).starts_with("machine-"));
        let mut records =
            records.filter_map(|map| serde_json::from_str::<Value>(map["data"]["record"].as_str()?).ok());
        records.find(|record| record["id"] == id)
    }

    /// Checks a call that removes an image, or starts a machine that has a seed image.
    pub fn must_mind_seeds(&self, call: &Call<'_>) {
        let parts: Vec<&str> = call.path.trim_start_matches('/').split('/').collect();
        match (call.side, call.method, &*parts) {
            (Side::Proxmox, "DELETE", ["nodes", _, "storage", _, "content", volume @ ..]) => {
                self.seed_removed(&volume.join("/").replace("%3A", ":").replace("%2F", "/"));
            }
            (Side::Proxmox, "POST", ["nodes", _, "qemu", vmid, "status", "start"]) => {
                if let Ok(vmid) = vmid.parse() {
                    self.must_have_its_seed(vmid);
                }
            }
            _ => {}
        }
    }

    fn seed_removed(&self, volume: &str) {
        let record = machine_of(volume).and_then(|id| self.machine_with(id));
        let Some(record) = record else {
            return self
                .violated(&format!("{volume} is removed, although it is not the seed image of a machine"));
        };
        let vmid = vmid(&record).unwrap_or_default();
        if self.world.pve.config_of(vmid, DRIVE).is_some_and(|drive| drive.contains(volume)) {
            self.violated(&format!("{volume} is removed while VM {vmid} uses it"));
        }
    }

    fn must_have_its_seed(&self, vmid: u32) {
        let Some(storage) = self.world.pool_of(vmid).and_then(|pool| pool.seed) else { return };
        let (Some(vm), Some(record)) = (self.world.pve.vm(vmid), self.record(vmid)) else { return };
        let wanted = format!("{storage}:iso/{OURS}{}.iso", record["id"].as_str().unwrap_or("?"));
        // If an administrator has already started the VM, the call has no effect.
        if vm.running {
            return;
        }
        let drive = vm.config.get(DRIVE).and_then(|drive| drive.split(',').next());
        if drive != Some(wanted.as_str()) {
            self.violated(&format!("VM {vmid} is started with {drive:?} instead of its seed image {wanted}"));
        }
    }

    /// Checks that all images of other clients still exist.
    pub fn images_of_others_stay(&self) {
        let files = self.world.pve.files();
        let there = files.iter().filter(|(volume, _)| machine_of(volume).is_none()).count();
        let wanted = FOREIGN.len() * (1 + self.world.hosts.len());
        if there != wanted {
            self.violated(&format!(
                "there should be {wanted} images of other clients, but there are {there}; all files: \
                    {files:?}"
            ));
        }
    }

    /// Seed images that are left over once the cluster has settled: the VM of their machine no longer exists,
    /// and no unmanaged VM uses them.
    pub fn seeds_left(&self) -> Vec<String> {
        let files = self.world.pve.files();
        let mut wrong = Vec::new();
        for (volume, _) in &files {
            let Some(id) = machine_of(volume) else { continue };
            let has_it = |vmid: u32| {
                self.world.pve.config_of(vmid, DRIVE).is_some_and(|drive| drive.contains(volume.as_str()))
            };
            if self.foreigners().into_iter().any(has_it) {
                continue;
            }
            let vmid = self.machine_with(id).as_ref().and_then(vmid);
            if vmid.is_none_or(|vmid| self.world.pve.vm(vmid).is_none()) {
                wrong.push(format!("the seed image {volume} is left over"));
            }
        }
        wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_ours_by_its_name_unless_it_was_there_before() {
        assert_eq!(machine_of("local:iso/pve-autoscaler-1234.iso"), Some("1234"));
        for foreign in
            ["local:iso/debian-13.iso", "shared:iso/pve-autoscaler-notes.iso", "local:vm-9100-disk-0"]
        {
            assert_eq!(machine_of(foreign), None, "{foreign}");
        }
    }
}
