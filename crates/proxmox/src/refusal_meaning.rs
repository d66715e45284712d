//! What a refusal or a failed task means for creating machines: whether its cause is temporary, or lies in
//! the host, a storage, the pool's settings, the template or a missing right.
//!
//! Proxmox VE reports causes only as texts, without codes. The table lists fixed parts of these texts, each
//! with the source file that produces the text. The texts come from qemu-server 8.4 and 9.2, pve-storage 8.3
//! and 9.1, pve-common, pve-guest-common and pve-access-control, and from tools whose last line of output is
//! passed on (LVM, ZFS, Ceph, QEMU, the kernel). The first entry that matches is used.

use super::error::{Error, Kind};

/// The cause of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// The cause is temporary: the call is retried. If the failure persists, it is attributed to the host.
    Passes,
    /// The host does not see a volume. If another host has just created it, for example on NFS, it becomes
    /// visible some seconds later.
    NotSeen,
    /// The host is to blame: its memory, CPUs, devices, bridges or packages.
    Host,
    /// A storage is full.
    Full,
    /// A storage is not online, or does not exist on this host.
    Storage,
    /// The pool's settings are to blame: every host would refuse them.
    Pool,
    /// The template is to blame.
    Template,
    /// The token lacks a right.
    Right,
}

use Meaning::{Full, Host, NotSeen, Passes, Pool, Right, Storage, Template};

/// A table entry: the parts that must all occur in a text, the source file that produces the text, and the
/// meaning of the text.
type Entry = (&'static [&'static str], &'static str, Meaning);

const TABLE: &[Entry] = &[
    // Missing rights. They come first, because these texts also name the request, which could match other
    // entries.
    (&["Permission check failed"], "pve-access-control: RPCEnvironment.pm", Right),
    (&["missing privileges to access"], "pve-storage: Storage.pm", Right),
    (&["nly root can"], "qemu-server: API2/Qemu.pm, QemuServer.pm, pve-storage: Storage.pm", Right),
    (&["only root@pam can"], "qemu-server: API2/Qemu.pm", Right),
    // Storages that are full.
    (&["No space left on device"], "the kernel (ENOSPC), QEMU and Ceph", Full),
    (&["Disk quota exceeded"], "the kernel (EDQUOT)", Full),
    (&["out of space"], "ZFS", Full),
    (&["free space in thin pool"], "LVM: thin_manip.c: a thin pool above its autoextend threshold", Full),
    (&["insufficient free space"], "LVM: a volume group or thin pool without free extents", Full),
    (&["nsufficient suitable"], "LVM: an allocation for which there are too few extents", Full),
    (&["not enough free space ("], "pve-storage: LVMPlugin.pm", Full),
    // Storages that do not exist, or do not exist on this host.
    (&["storage '", "is not available on node"], "pve-storage: Storage.pm", Storage),
    (&["storage '", "is disabled"], "pve-storage: Storage.pm", Storage),
    (&["storage '", "is not online"], "pve-storage: Storage.pm", Storage),
    (&["connection check for storage"], "pve-storage: Storage.pm", Storage),
    (
        &["unable to activate storage"],
        "pve-storage: Plugin.pm, NFSPlugin.pm, CIFSPlugin.pm, CephFSPlugin.pm",
        Storage,
    ),
    (&["could not activate storage"], "pve-storage: ZFSPoolPlugin.pm", Storage),
    (&["failed to create content directory"], "pve-storage: Plugin.pm", Storage),
    (&["mount error"], "pve-storage: NFSPlugin.pm, CIFSPlugin.pm, CephFSPlugin.pm", Storage),
    (&["no such volume group"], "pve-storage: LVMPlugin.pm, LvmThinPlugin.pm", Storage),
    (&["iscsi session scan failed"], "pve-storage: ISCSIPlugin.pm", Storage),
    (&["Read-only file system"], "the kernel (EROFS)", Storage),
    (&["Input/output error"], "the kernel (EIO)", Storage),
    (&["Stale file handle"], "the kernel (ESTALE)", Storage),
    (&["Transport endpoint is not connected"], "the kernel (ENOTCONN): a FUSE mount that is gone", Storage),
    (&["Host is down"], "the kernel (EHOSTDOWN): a CIFS server that is down", Storage),
    (&["error connecting to the cluster"], "Ceph: rbd cannot reach the monitors", Storage),
    // Volumes that this host does not see, or does not see yet.
    (&["volume '", "does not exist"], "pve-storage: Plugin.pm", NotSeen),
    (&["volume ", ":", "does not exist"], "qemu-server: API2/Qemu.pm", NotSeen),
    (&["no such logical volume"], "pve-storage: LvmThinPlugin.pm", NotSeen),
    (&["file_size_info on '"], "pve-storage: Plugin.pm, LVMPlugin.pm", NotSeen),
    (&["Could not determine current size of volume"], "qemu-server: API2/Qemu.pm", NotSeen),
    (&["failed to query file information with qemu-img"], "pve-storage: Plugin.pm", NotSeen),
    (&["can't get size of '"], "pve-storage: LVMPlugin.pm", NotSeen),
    (&["no zvol device link for"], "pve-storage: ZFSPoolPlugin.pm", NotSeen),
    (&["Could not open '", "No such file or directory"], "QEMU and qemu-img", NotSeen),
    (&["can't find file '"], "pve-storage: Storage.pm", NotSeen),
    // Resources that another task holds for a short time. "Device" occurs with and without a capital letter.
    (&["dataset is busy"], "ZFS", Passes),
    (&["evice or resource busy"], "the kernel (EBUSY) and Ceph", Passes),
    (&["Failed to get \"write\" lock"], "QEMU: an image that another process has open", Passes),
    (&["Failed to get shared \"write\" lock"], "QEMU", Passes),
    (&["Failed to obtain guest migration lock"], "qemu-server: API2/Qemu.pm", Passes),
    (&["lock changed unexpectedly"], "qemu-server: RunState.pm", Passes),
    (&["unexpected state change"], "qemu-server: API2/Qemu.pm", Passes),
    (&["interrupted by signal"], "qemu-server: API2/Qemu.pm: pvedaemon was restarted", Passes),
    (&["received interrupt"], "pve-common: RESTEnvironment.pm", Passes),
    (&["Resource temporarily unavailable"], "the kernel (EAGAIN)", Passes),
    (
        &["timeout waiting on systemd"],
        "pve-common: Systemd.pm: the scope of the VM's last run still exists",
        Passes,
    ),
    (&["QEMU storage daemon", "already running"], "qemu-server: OVMF.pm", Passes),
    // The host.
    (&["KVM virtualisation configured, but not available"], "qemu-server: QemuServer.pm", Host),
    (&["vcpus allowed per VM on this node"], "qemu-server: QemuServer.pm", Host),
    (&["Cannot allocate memory"], "the kernel (ENOMEM)", Host),
    (&["annot set up guest memory"], "QEMU", Host),
    (&["hugepage"], "qemu-server: Memory.pm", Host),
    (&["host NUMA node", "doesn't exist"], "qemu-server: Memory.pm", Host),
    (&["PCI device mapping"], "qemu-server: PCI.pm", Host),
    (&["could not find a free device for"], "qemu-server: PCI.pm", Host),
    (&["no PCI device found for"], "qemu-server: PCI.pm", Host),
    (&["IOMMU not present"], "qemu-server: PCI.pm", Host),
    (&["no pci device info for device"], "qemu-server: PCI.pm", Host),
    (&["PCI device '", "already in use"], "qemu-server: PCI.pm", Host),
    (&["can't unbind/bind PCI group"], "qemu-server: PCI.pm", Host),
    (&["could not create mediated device"], "qemu-server: QemuServer.pm", Host),
    (&["USB device mapping not found"], "qemu-server: USB.pm", Host),
    (&["USB Mapping invalid"], "qemu-server: USB.pm", Host),
    (&["directory mapping"], "qemu-server: Virtiofs.pm, pve-guest-common: Mapping/Dir.pm", Host),
    (&["No directory mapping for node"], "pve-guest-common: Mapping/Dir.pm", Host),
    (&["virtiofsd is not installed"], "qemu-server: Virtiofs.pm", Host),
    (&["bridge '", "does not exist"], "pve-common: Network.pm", Host),
    (&["bridge '", "is not active"], "pve-common: Network.pm", Host),
    (&["no physical interface on bridge"], "pve-common: Network.pm", Host),
    (&["bigger than the bridge MTU"], "qemu-server: QemuServer.pm", Host),
    (&["vlan aware feature need to be enabled"], "pve-common: Network.pm", Host),
    (&["script '", "does not exist"], "pve-guest-common: GuestHelpers.pm: a hook script", Host),
    (&["is not executable"], "pve-guest-common: GuestHelpers.pm: a hook script", Host),
    (&["network script", "failed"], "QEMU: pve-bridge could not add the interface", Host),
    (&["/dev/hwrng"], "qemu-server: RNG.pm", Host),
    (&["failed to start swtpm"], "qemu-server: QemuServer.pm", Host),
    (&["EFI base image '"], "qemu-server: OVMF.pm", Host),
    (&["EFI vars image '"], "qemu-server: OVMF.pm", Host),
    (&["Installed QEMU version"], "qemu-server: QemuServer.pm", Host),
    (&["Installed qemu-server"], "qemu-server: QemuServer.pm", Host),
    (&["Detected old QEMU binary"], "qemu-server: QemuServer.pm", Host),
    (&["Your CPU does not support"], "qemu-server: CPUConfig.pm", Host),
    (&["failed to get an ip address"], "qemu-server: QemuServer.pm", Host),
    (&["unable to get remote IP address for node"], "pve-manager: HTTPServer.pm", Host),
    // The template.
    (&["(VM uses local storage)"], "qemu-server: API2/Qemu.pm", Template),
    (&["clone feature is not supported for"], "qemu-server: API2/Qemu.pm", Template),
    (&["clone_image only works on base images"], "pve-storage: plugins", Template),
    (&["can't clone images in"], "pve-storage: LVMPlugin.pm, ISCSIPlugin.pm", Template),
    (&["does not support clone_image"], "pve-storage: Plugin.pm", Template),
    (&["contains wrong information about parent"], "pve-storage: Plugin.pm, RBDPlugin.pm", Template),
    (&["snapshot '", "does not exist"], "qemu-server: API2/Qemu.pm", Template),
    (&["missing base image"], "pve-storage: a linked clone whose base is gone", Template),
    // The pool's settings.
    (&["storage '", "does not exist"], "pve-storage: Storage.pm", Pool),
    (&["storage ID '", "does not exist"], "pve-storage: LVMPlugin.pm", Pool),
    (&["can't clone to non-shared storage"], "qemu-server: API2/Qemu.pm", Pool),
    (&["not allowed for linked clones"], "qemu-server: API2/Qemu.pm", Pool),
    (&["does not support vm images"], "qemu-server: API2/Qemu.pm", Pool),
    (&["does not support content"], "qemu-server: QemuServer.pm", Pool),
    (&["content type '", "is not available on storage"], "qemu-server: QemuServer.pm", Pool),
    (&["shrinking disks is not supported"], "qemu-server: API2/Qemu.pm", Pool),
    (&["can't resize this image format"], "pve-storage: Plugin.pm", Pool),
    (&["you can't resize a cdrom"], "qemu-server: API2/Qemu.pm", Pool),
    (&["disk '", "does not exist"], "qemu-server: API2/Qemu.pm", Pool),
    (&["has no associated volume"], "qemu-server: API2/Qemu.pm", Pool),
    (&["ustom cputype '", "not found"], "qemu-server: CPUConfig.pm", Pool),
    (&["CPU model '", "does not exist"], "qemu-server: CPUConfig.pm", Pool),
    (&["uilt-in cputype"], "qemu-server: CPUConfig.pm", Pool),
    (&["invalid bootorder"], "qemu-server: API2/Qemu.pm", Pool),
    (&["balloon value too large"], "qemu-server: API2/Qemu.pm", Pool),
    (&["NUMA"], "qemu-server: Memory.pm", Pool),
    (&["must be aligned to"], "qemu-server: Memory.pm", Pool),
    (&["minimum memory must be"], "qemu-server: Memory.pm", Pool),
    (&["smaller than the IP minimum MTU"], "qemu-server: QemuServer.pm", Pool),
    (&["cloud-init drive is already attached"], "qemu-server: API2/Qemu.pm", Pool),
    (&["Cloud-Init sum of snippets too big"], "qemu-server: Cloudinit.pm", Pool),
    (&["snippets directory"], "qemu-server: Cloudinit.pm, pve-guest-common: GuestHelpers.pm", Pool),
    (&["OVMF (UEFI) BIOS is not supported"], "qemu-server: QemuServer.pm", Pool),
    // General failures to start a VM. QEMU's own messages are in the task's log.
    (&["QEMU exited with code"], "qemu-server: QemuServer.pm", Host),
    (&["start failed"], "qemu-server: QemuServer.pm", Host),
];

/// The meaning of a text, if the table contains it.
pub fn of_text(text: &str) -> Option<Meaning> {
    let fits = |parts: &&[&str]| parts.iter().all(|part| text.contains(part));
    TABLE.iter().find(|(parts, ..)| fits(parts)).map(|(.., meaning)| *meaning)
}

impl Error {
    /// The cause of the error. `None` if neither its kind nor its text shows the cause.
    pub fn meaning(&self) -> Option<Meaning> {
        match self.kind {
            Kind::Forbidden => Some(Right),
            Kind::HostUnreachable
            | Kind::OutcomeUnknown
            | Kind::Busy
            | Kind::Locked
            | Kind::NoQuorum
            | Kind::Changed => Some(Passes),
            Kind::NotFound | Kind::Exists | Kind::BadRequest | Kind::Other => of_text(&self.text),
            Kind::Unauthorized | Kind::AgentSilent | Kind::Fenced => None,
        }
    }
}

#[cfg(test)]
#[path = "refusal_meaning_tests.rs"]
mod tests;
