//! Storages: their configuration, and their status on a host.

use model::Vmid;
use runtime::boxed;
use serde_json::Value;

use super::answer::{flag_of, number_of, text_of};
use super::client::{Client, Lane, encode};
use super::error::Error;

/// A storage in the cluster's configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StorageConfig {
    /// Its name.
    pub name: String,
    /// The storage's plugin, e.g. `lvmthin`.
    pub kind: String,
    /// The types of content that the storage may hold, e.g. `images`.
    pub content: Vec<String>,
    /// Whether all hosts see the same volumes on the storage.
    pub shared: bool,
    /// The hosts that have the storage; empty if all hosts have it.
    pub hosts: Vec<String>,
    /// Whether the storage is disabled.
    pub disabled: bool,
}

/// A storage as one host reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StorageStatus {
    /// Its name.
    pub name: String,
    /// The storage's plugin, e.g. `lvmthin`.
    pub kind: String,
    /// The types of content that the storage may hold, e.g. `images`.
    pub content: Vec<String>,
    /// Whether all hosts see the same volumes on the storage.
    pub shared: bool,
    /// Whether the storage can be used now.
    pub active: bool,
    /// Size in bytes.
    pub total: i64,
    /// The free space, in bytes. On a thin pool, only written data counts as used, not the allocated sizes of
    /// the volumes.
    pub available: i64,
}

/// Whether a storage of this kind supports linked clones of a template's disk, according to Proxmox VE's
/// storage plugins. Thick LVM and iSCSI do not. Returns `None` for an unknown kind.
pub fn makes_linked_clones(kind: &str) -> Option<bool> {
    match kind {
        "dir" | "nfs" | "cifs" | "cephfs" | "glusterfs" | "btrfs" | "lvmthin" | "zfspool" | "zfs" | "rbd" => {
            Some(true)
        }
        "lvm" | "iscsi" | "iscsidirect" | "pbs" | "esxi" => Some(false),
        _ => None,
    }
}

impl StorageConfig {
    /// Whether the storage's volumes are files (plugins with a `path`).
    pub fn is_file_based(&self) -> bool {
        matches!(self.kind.as_str(), "dir" | "nfs" | "cifs" | "cephfs" | "glusterfs" | "btrfs")
    }

    /// Whether the storage may hold VM disks.
    pub fn holds_disks(&self) -> bool {
        !self.disabled && self.content.iter().any(|kind| kind == "images")
    }

    /// Whether the storage exists on a host.
    pub fn is_on(&self, host: &str) -> bool {
        self.hosts.is_empty() || self.hosts.iter().any(|name| name == host)
    }
}

impl Client {
    /// The storages of the cluster that the token can see (`Datastore.Audit` or `Datastore.AllocateSpace` on
    /// them).
    #[boxed]
    pub async fn storage_config(&self) -> Result<Vec<StorageConfig>, Error> {
        let data = self.get(Lane::Free, "/storage", &[]).await?;
        let rows = data.as_array().ok_or_else(|| Error::malformed("GET /storage", "no list"))?;
        Ok(rows.iter().map(config).collect())
    }

    /// The status of a host's storages, or only of the storage that `only` names. If possible, pass a name:
    /// the host activates each requested storage, so an unresponsive storage delays the answer.
    #[boxed]
    pub async fn storages_on(&self, host: &str, only: Option<&str>) -> Result<Vec<StorageStatus>, Error> {
        let path = format!("/nodes/{}/storage", encode(host));
        let query: Vec<_> = only.map(|name| ("storage", name.to_owned())).into_iter().collect();
        let data = self.get(Lane::Lifecycle(host), &path, &query).await?;
        let rows = data.as_array().ok_or_else(|| Error::malformed("GET storage", "no list"))?;
        Ok(rows.iter().map(status).collect())
    }

    /// The volume ids of the disks on a storage that belong to a VMID, as a host sees them. Proxmox VE leaves
    /// out disks that the token cannot see. To see a disk, the token needs `Datastore.Allocate` on the
    /// storage, or `Datastore.Audit` on the storage and `VM.Config.Disk` on the VM. So a token whose rights
    /// come from a resource pool no longer sees the leftover disks of a destroyed VM.
    #[boxed]
    pub async fn disks_of(&self, host: &str, storage: &str, vmid: Vmid) -> Result<Vec<String>, Error> {
        let path = format!("/nodes/{}/storage/{}/content", encode(host), encode(storage));
        let query = [("vmid", vmid.to_string()), ("content", "images".to_owned())];
        let data = self.get(Lane::Lifecycle(host), &path, &query).await?;
        let rows = data.as_array().ok_or_else(|| Error::malformed("GET content", "no list"))?;
        // The VMID is checked again, because a disk of another VM must never be mistaken for a leftover.
        let own = rows.iter().filter(|row| number_of(row, "vmid") == Some(i64::from(vmid.0)));
        Ok(own.filter_map(|row| text_of(row, "volid")).collect())
    }
}

fn list_field(row: &Value, field: &str) -> Vec<String> {
    let text = text_of(row, field).unwrap_or_default();
    let mut words: Vec<_> =
        text.split([',', ';', ' ']).filter(|word| !word.is_empty()).map(ToOwned::to_owned).collect();
    // Proxmox VE lists the words in no particular order.
    words.sort();
    words
}

fn config(row: &Value) -> StorageConfig {
    let kind = text_of(row, "type").unwrap_or_default();
    // Storages of these kinds are always shared, even without the `shared` flag.
    let by_nature = ["nfs", "cifs", "cephfs", "glusterfs", "rbd", "iscsi", "iscsidirect", "zfs", "pbs"];
    StorageConfig {
        name: text_of(row, "storage").unwrap_or_default(),
        content: list_field(row, "content"),
        shared: flag_of(row, "shared") || by_nature.contains(&kind.as_str()),
        hosts: list_field(row, "nodes"),
        disabled: flag_of(row, "disable"),
        kind,
    }
}

fn status(row: &Value) -> StorageStatus {
    StorageStatus {
        name: text_of(row, "storage").unwrap_or_default(),
        kind: text_of(row, "type").unwrap_or_default(),
        content: list_field(row, "content"),
        shared: flag_of(row, "shared"),
        active: flag_of(row, "active"),
        total: number_of(row, "total").unwrap_or(0),
        available: number_of(row, "avail").unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_shared_by_nature_needs_no_flag() {
        let rows = [
            json!({"storage": "nas", "type": "nfs", "content": "iso,images", "nodes": "pve2,pve1"}),
            json!({"storage": "dir", "type": "dir", "content": "images", "shared": 1, "disable": "1"}),
            json!({"storage": "thick", "type": "lvm", "content": "rootdir"}),
        ];
        let [nas, dir, thick] = rows.each_ref().map(config);
        assert!(nas.shared && nas.holds_disks() && nas.is_on("pve1") && !nas.is_on("pve3"));
        assert!(dir.shared && !dir.holds_disks() && dir.is_on("pve3"));
        assert!(!thick.shared && !thick.holds_disks());
    }

    #[test]
    fn thick_lvm_makes_no_linked_clones() {
        for (kind, linked) in
            [("lvm", Some(false)), ("lvmthin", Some(true)), ("dir", Some(true)), ("new", None)]
        {
            assert_eq!(makes_linked_clones(kind), linked, "{kind}");
        }
    }
}
