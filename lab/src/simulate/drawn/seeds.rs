//! Pools whose machines have a seed image.

use fastrand::Rng;
use world::proxmox::spec::{ClusterSpec, Grant};
use world::proxmox::{Pve, VmView};

use crate::simulate::drawn::pool_shape::PoolShape;

/// Storages for seed images: one that is local to each host, and one that all hosts share.
const STORAGES: [&str; 2] = ["local", "shared"];

/// Draws the pools whose machines have seed images, and the storages of the images.
pub fn draw(random: &mut Rng, pools: &mut [PoolShape]) {
    for pool in pools {
        pool.seed = (random.u8(..4) == 0).then(|| STORAGES[random.usize(..STORAGES.len())]);
    }
}

/// The configuration table of a pool with seed images on this storage.
pub fn written(storage: &str) -> String {
    format!(
        "[pool.cloud_init]\nmethod = \"seed\"\nstorage = \"{storage}\"\n\
         user_data = \"#cloud-config\\nhostname: {{{{ machine.name }}}}\\n\"\n"
    )
}

/// Grants the token the rights that seed images require.
pub fn allow(cluster: &mut ClusterSpec) {
    let words = |text: &str| text.split_whitespace().map(ToOwned::to_owned).collect::<Vec<_>>();
    let access = &mut cluster.access;
    access
        .roles
        .insert("Seeds".into(), words("Datastore.AllocateTemplate Datastore.Allocate Datastore.Audit"));
    let worker = access.roles.entry("KasWorker".into()).or_default();
    worker.extend(["VM.Config.CDROM", "VM.Config.Cloudinit"].map(String::from));
    for who in ["autoscaler@pve", ClusterSpec::DEMO_TOKEN] {
        for storage in STORAGES {
            let (path, role) = (format!("/storage/{storage}"), "Seeds".into());
            access.grants.push(Grant { path, who: who.into(), role, propagate: false });
        }
    }
}

/// Puts images of other owners on the storages.
pub fn put_foreign(pve: &Pve, hosts: &[String]) {
    for storage in STORAGES {
        for host in hosts {
            for iso in FOREIGN {
                pve.put_iso_by_hand(storage, host, iso);
            }
        }
    }
}

/// Images that do not belong to the daemon: one with an ordinary name, one with a name that resembles the
/// daemon's, and one for a machine that no longer exists or is part of another cluster.
pub const FOREIGN: [&str; 3] =
    ["debian-13.iso", "pve-autoscaler-notes.iso", "pve-autoscaler-0f0f0f0f-0f0f-4f0f-8f0f-0f0f0f0f0f0f.iso"];

/// The name prefix of the daemon's images.
pub const OURS: &str = "pve-autoscaler-";

/// The drive that contains the seed image.
pub const DRIVE: &str = "ide2";

/// The id of the machine to which an image belongs, if the image has the name of a seed image.
pub fn machine_of(volume: &str) -> Option<&str> {
    let name = volume.split_once(":iso/")?.1;
    (!FOREIGN.contains(&name)).then(|| name.strip_prefix(OURS)?.strip_suffix(".iso")).flatten()
}

/// Whether a VM uses an image on its host's local storage.
pub fn is_bound(vm: &VmView) -> bool {
    vm.config.get(DRIVE).is_some_and(|drive| drive.starts_with("local:iso/"))
}

/// The image in a VM's drive, if it is a machine's seed image.
pub fn of_machine(vm: &VmView) -> Option<String> {
    let volume = vm.config.get(DRIVE)?.split(',').next()?;
    machine_of(volume).map(|_| volume.to_owned())
}
