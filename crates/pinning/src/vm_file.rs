//! A VM's configuration, as Proxmox VE stores it in `/etc/pve/qemu-server/VMID.conf`.

use std::collections::BTreeMap;

use percent_encoding::percent_decode_str;
use sha1::{Digest, Sha1};

use super::cpus::{Cpus, NO_AFFINITY};
use proxmox::marker::{self, Description};

/// A VM's current configuration, without its snapshots and pending changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VmFile {
    values: BTreeMap<String, String>,
    description: String,
    digest: String,
}

impl VmFile {
    /// Reads a file. Unknown lines are ignored.
    pub fn read(bytes: &(impl AsRef<[u8]> + ?Sized)) -> Self {
        let digest =
            Sha1::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat();
        let mut file = Self { digest, ..Self::default() };
        let text = String::from_utf8_lossy(bytes.as_ref());
        let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        for line in text.lines().take_while(|line| !line.starts_with('[')) {
            // Each line of the notes is a comment. In older files, the notes are the value of `description`.
            if let Some(note) = line.strip_prefix('#') {
                file.description.push_str(&decoded(note));
                file.description.push('\n');
            } else if let Some((key, value)) = line.split_once(':') {
                match key.trim() {
                    "description" => file.description.push_str(&decoded(value.trim())),
                    key => {
                        file.values.insert(key.to_owned(), value.trim().to_owned());
                    }
                }
            }
        }
        file
    }

    /// Proxmox VE's digest of this configuration: the SHA-1 of the entire file, including snapshots and
    /// pending changes.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// A key's value.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(String::as_str)
    }

    /// The owner of the VM, according to the mark in its notes.
    pub fn owner(&self) -> Description {
        marker::read(Some(&self.description))
    }

    /// Whether the VM is a template, which never runs.
    pub fn is_template(&self) -> bool {
        self.get("template") == Some("1")
    }

    /// Its vCPUs.
    pub fn vcpus(&self) -> Option<u32> {
        let number = |key: &str| self.get(key).map_or(Some(1), |value| value.parse::<u32>().ok());
        number("sockets")?.checked_mul(number("cores")?)
    }

    /// The VM's memory, in MiB.
    pub fn memory(&self) -> Option<u64> {
        let text = self.get("memory")?;
        text.strip_prefix("current=").unwrap_or(text).split(',').next()?.parse().ok()
    }

    /// The CPUs that the VM is pinned to; empty if it is not pinned.
    pub fn affinity(&self) -> Cpus {
        let text = self.get("affinity").filter(|text| text.trim() != NO_AFFINITY);
        text.and_then(|text| text.parse().ok()).unwrap_or_default()
    }

    /// The numbers of the VM's NUMA nodes.
    pub fn numa_nodes(&self) -> impl Iterator<Item = u32> + '_ {
        self.values.keys().filter_map(|key| key.strip_prefix("numa")?.parse().ok())
    }

    /// The memory that the VM has bound on the host's NUMA nodes: pairs of a node's number and an amount in
    /// MiB.
    pub fn bound_memory(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        self.numa_nodes().filter_map(|number| {
            let value = self.get(&format!("numa{number}"))?;
            let part = |name: &str| {
                value.split(',').filter_map(|part| part.split_once('=')).find(|(key, _)| *key == name)
            };
            // If there are several host nodes, the distribution is unknown, so all memory is attributed to
            // the first one.
            let node = part("hostnodes")?.1.split(['-', ';']).next()?.parse().ok()?;
            Some((node, part("memory")?.1.parse().ok()?))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proxmox::marker::Marker;

    #[test]
    fn a_file_is_read_up_to_its_snapshots() {
        let file = VmFile::read(
            "#pve-autoscaler/v1 cluster=home pool=w machine=1-2\n#\n#Worker%3A 100%25\nagent: enabled=1\naffinity: 2-3,6\n\
             cores: 4\nsockets: 2\nmemory: 4096\nnuma: 1\nnuma0: cpus=0-3,hostnodes=1,memory=4096,policy=bind\n\
             net0: virtio=BC:24:11:00:00:01,bridge=vmbr0\n\n[PENDING]\ncores: 9\n[before]\ntemplate: 1\nlock: x\n",
        );
        let marker = Marker {
            cluster: "home".to_owned(),
            region: None,
            pool: "w".into(),
            machine: "1-2".into(),
            kubernetes: None,
        };
        assert_eq!(file.owner(), Description::Ours(marker));
        assert_eq!(
            (file.vcpus(), file.memory(), file.is_template(), file.get("lock")),
            (Some(8), Some(4096), false, None)
        );
        assert_eq!(file.affinity().to_string(), "2-3,6");
        assert_eq!(file.bound_memory().collect::<Vec<_>>(), [(1, 4096)]);
        assert_eq!(file.get("net0"), Some("virtio=BC:24:11:00:00:01,bridge=vmbr0"));
    }

    #[test]
    fn other_ways_of_writing_the_same_are_known() {
        let file = VmFile::read(
            "description: pve-autoscaler/v1 cluster=a pool=b machine=c%0Amore\nmemory: current=512\n",
        );
        assert!(matches!(file.owner(), Description::Ours(marker) if marker.machine == "c"));
        assert_eq!((file.vcpus(), file.memory()), (Some(1), Some(512)));
        for (text, vcpus, memory) in [("cores: x\n", None, None), ("memory: much\n", Some(1), None)] {
            let file = VmFile::read(text);
            assert_eq!((file.vcpus(), file.memory(), file.owner()), (vcpus, memory, Description::Foreign));
        }
    }
}
