//! Complete texts as Proxmox VE sends them, each with its meaning.

use super::*;
use crate::error::classify;

fn meaning(text: &str) -> Option<Meaning> {
    let error = Error {
        kind: classify(500, text),
        call: "a task".to_owned(),
        status: Some(500),
        text: text.to_owned(),
    };
    error.meaning()
}

fn all_mean(expected: Meaning, texts: &[&str]) {
    for text in texts {
        assert_eq!(meaning(text), Some(expected), "{text}");
    }
}

#[test]
fn missing_rights() {
    all_mean(
        Right,
        &[
            "failed to update VM 9201: 403 Permission check failed (/vms/9201, VM.Config.Cloudinit)",
            "clone failed: 403 Permission check failed (/storage/local-zfs, Datastore.AllocateSpace)",
            "missing privileges to access local:iso/seed.iso",
            "only root can set 'affinity' config",
            "only root can set 'hostpci0' config for non-mapped devices",
            "only root can delete 'serial0' config for real devices",
            "Only root can pass arbitrary filesystem paths. at /usr/share/perl5/PVE/Storage.pm line 651.",
        ],
    );
}

#[test]
fn what_passes() {
    all_mean(
        Passes,
        &[
            "can't lock file '/var/lock/qemu-server/lock-170.conf' - got timeout",
            "can't lock file '/var/lock/pve-manager/pve-storage-local-lvm' - got timeout",
            "clone failed: cfs-lock 'storage-shared' error: got lock request timeout",
            "cluster not ready - no quorum?",
            "command '/sbin/zfs clone rpool/data/base-9000-disk-0@__base__ rpool/data/vm-101-disk-0' failed: got timeout",
            "zfs error: cannot destroy 'rpool/data/vm-101-disk-0': dataset is busy",
            "rbd error: rbd: sysfs write failed: (16) Device or resource busy",
            "can't map rbd volume vm-101-disk-0: rbd: map failed: (16) Device or resource busy",
            "Failed to obtain guest migration lock - replication running?",
            "clone failed: interrupted by signal",
            "received interrupt",
            "lock changed unexpectedly",
            "unexpected state change",
            "timeout waiting on systemd",
            "checksum mismatch (file change by other user?)",
        ],
    );
}

#[test]
fn volumes_that_are_not_seen_yet() {
    all_mean(
        NotSeen,
        &[
            "volume 'nfs:101/vm-101-disk-0.raw' does not exist",
            "start failed: volume 'nfs:9000/base-9000-disk-0.qcow2/101/vm-101-disk-0.qcow2' does not exist",
            "volume local-lvm:vm-101-disk-0 does not exist",
            "Could not determine current size of volume 'nfs:101/vm-101-disk-0.qcow2'",
            "no such logical volume pve/vm-101-disk-0",
            "file_size_info on '101/vm-101-disk-0.qcow2' failed",
            "timeout: no zvol device link for 'vm-101-disk-0' found after 300 sec.",
            "failed to query file information with qemu-img",
            "qemu-img: Could not open '/mnt/pve/nfs/images/101/vm-101-disk-0.qcow2': No such file or directory",
        ],
    );
}

#[test]
fn storages_that_are_full_or_away() {
    all_mean(
        Full,
        &[
            "clone failed: unable to create image: qemu-img: /mnt/pve/nfs/images/101/vm-101-disk-0.qcow2: Could not write qcow2 header: No space left on device",
            "clone failed: unable to create image: qemu-img: /mnt/pve/nfs/images/101/vm-101-disk-0.qcow2: Disk quota exceeded",
            "clone failed: clone image 'pve/base-9000-disk-0' error:   Cannot create new thin volume, free space in thin pool pve/data reached threshold.",
            "lvcreate 'pve/vm-101-disk-0' error:   Volume group \"pve\" has insufficient free space (511 extents): 8192 required.",
            "error resizing volume '/dev/pve/vm-101-disk-0':   Insufficient suitable allocatable extents for logical volume vm-101-disk-0: 1024 more required",
            "not enough free space (2097152 < 33554432)",
            "zfs error: cannot create 'rpool/data/vm-101-disk-0': out of space",
        ],
    );
    all_mean(
        Storage,
        &[
            "storage 'zfs-b' is not available on node 'pve1'",
            "storage 'nfs' is disabled",
            "storage 'nfs' is not online",
            "connection check for storage 'cifs' failed - timed out",
            "unable to activate storage 'nfs' - directory '/mnt/pve/nfs' does not exist or is unreachable",
            "could not activate storage 'tank', zfs error: cannot import 'tank': no such pool available",
            "mount error: mount.nfs: Connection timed out",
            "no such volume group 'vmdata'",
            "rbd error: rbd: error connecting to the cluster: (110) Connection timed out",
            "qemu-img: error while writing sector 2048: Input/output error",
            "failed to create content directory '/mnt/pve/nfs/images' for content 'images' - Permission denied - ensure that you have read and write access to your storage!",
        ],
    );
}

#[test]
fn hosts_that_lack_something() {
    all_mean(
        Host,
        &[
            "start failed: QEMU exited with code 1",
            "KVM virtualisation configured, but not available. Either disable in VM configuration or enable in BIOS.",
            "MAX 8 vcpus allowed per VM on this node",
            "start failed: hugepage allocation failed at /usr/share/perl5/PVE/QemuServer/Memory.pm line 731.",
            "your system doesn't support hugepages of 1024 MB",
            "host NUMA node1 doesn't exist",
            "PCI device mapping not found for 'gpu'",
            "PCI device mapping invalid (hardware probably changed): pci device '0000:01:00.0' not found",
            "could not find a free device for 'hostpci0'",
            "cannot prepare PCI pass-through, IOMMU not present",
            "bridge 'vmbr7' does not exist",
            "no physical interface on bridge 'vmbr0'",
            "netdev net0: MTU '9000' is bigger than the bridge MTU '1500'",
            "script 'local:snippets/hook.pl' does not exist",
            "Installed QEMU version '9.0.2' is too old to run machine type 'pc-i440fx-10.0', please upgrade node 'pve1'",
            "failed to start swtpm: pid file '/var/run/qemu-server/101.swtpm.pid' wasn't created.",
            "Cannot start VM with passed-through RNG device: '/dev/hwrng' exists, but '/sys/devices/virtual/misc/hw_random/rng_current' is set to 'none'.",
            "kvm: cannot set up guest memory 'pc.ram': Cannot allocate memory",
        ],
    );
}

#[test]
fn templates_and_settings_that_cannot_work() {
    all_mean(
        Template,
        &[
            "can't clone VM to node 'pve2' (VM uses local storage)",
            "Linked clone feature is not supported for drive 'scsi0'",
            "Full clone feature is not supported for drive 'efidisk0'",
            "clone failed: clone_image only works on base images",
            "clone failed: can't clone images in lvm storage",
        ],
    );
    all_mean(
        Pool,
        &[
            "storage 'old' does not exist",
            "can't clone to non-shared storage 'local-zfs'",
            "parameter 'storage' not allowed for linked clones",
            "storage 'backup' does not support vm images",
            "disk 'scsi7' does not exist",
            "shrinking disks is not supported",
            "Custom cputype 'worker' not found",
            "NUMA needs to be enabled for memory hotplug",
            "memory size (4097) must be aligned to 512 for hotplugging",
        ],
    );
}

#[test]
fn what_is_not_written_down_means_nothing() {
    for text in ["", "VM 112 already running", "something new"] {
        assert_eq!(meaning(text), None, "{text}");
    }
    assert_eq!(meaning("QEMU guest agent is not running"), None);
}

#[test]
fn every_entry_can_be_reached() {
    for (number, (parts, source, meaning)) in TABLE.iter().enumerate() {
        assert!(!source.is_empty());
        let text = parts.join(" ");
        let first = TABLE.iter().position(|(parts, ..)| parts.iter().all(|part| text.contains(part)));
        let first = first.map(|at| TABLE[at].2);
        assert_eq!(first, Some(*meaning), "an earlier entry hides entry {number}: {text}");
    }
}
