//! The name of the image that contains a machine's seed, and the drive that it is attached to.

use model::Record;
use proxmox::VmConfig;

/// The drive that the image is attached to.
pub(super) const DRIVE: &str = "ide2";

pub(super) fn file(record: &Record) -> String {
    format!("pve-autoscaler-{}.iso", record.id)
}

/// The volume of a machine's seed on this storage.
pub(super) fn volume(storage: &str, record: &Record) -> String {
    format!("{storage}:iso/{}", file(record))
}

/// Whether a VM's configuration has the machine's seed in [`DRIVE`].
pub(super) fn is_attached(storage: &str, record: &Record, config: &VmConfig) -> bool {
    config.parts(DRIVE).get("file") == Some(volume(storage, record).as_str())
}
