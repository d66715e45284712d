//! The ownership mark: the first line of a VM's description.
//!
//! The clone call takes a description, so a clone has the mark as soon as its configuration is complete.
//! Until then, its description is Proxmox VE's placeholder. Only the mark proves that a VM belongs to this
//! project; a VMID or a name does not.

use model::{MachineId, PoolName};
use std::collections::BTreeMap;

/// The mark of a VM, which shows the machine to which the VM belongs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Marker {
    /// The Kubernetes cluster's id.
    pub cluster: String,
    /// The region's name, if it has one. It is only informational, and does not affect ownership.
    pub region: Option<String>,
    /// The pool.
    pub pool: PoolName,
    /// The machine's unique id.
    pub machine: MachineId,
    /// The uid of the Kubernetes cluster's namespace `kube-system`, which distinguishes two clusters that
    /// were given the same id. Marks of adopted VMs and of earlier versions do not contain it.
    pub kubernetes: Option<String>,
}

/// What a VM's description says about its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Description {
    /// The description contains the mark.
    Ours(Marker),
    /// The VM is being cloned, and its owner is not known yet.
    BeingCloned,
    /// The VM's disks are freed, and its configuration only contains the `destroyed` lock, so its owner is no
    /// longer known. A destroy task that is interrupted at that point leaves the VM in this state.
    BeingDestroyed,
    /// The VM belongs to another owner.
    Foreign,
}

const PREFIX: &str = "pve-autoscaler/v1";

impl Marker {
    /// Whether the machine belongs to a Kubernetes cluster whose uid differs from `uid`, even if both
    /// clusters were given the same id. False if one of the uids is unknown.
    pub fn is_of_another(&self, uid: Option<&str>) -> bool {
        self.kubernetes.as_deref().zip(uid).is_some_and(|(theirs, own)| theirs != own)
    }

    /// Returns a description that consists of the mark and, below it, a human-readable text.
    pub fn describe(&self, text: &str) -> String {
        let region = self.region.as_ref().map(|name| format!(" region={name}")).unwrap_or_default();
        let mark =
            format!("{PREFIX} cluster={}{region} pool={} machine={}", self.cluster, self.pool, self.machine);
        let uid = self.kubernetes.as_ref().map(|uid| format!(" kubernetes={uid}")).unwrap_or_default();
        let mark = mark + &uid;
        if text.is_empty() { mark } else { format!("{mark}\n\n{text}") }
    }
}

/// Reads a description as Proxmox VE returns it: without trailing white space. An administrator's text below
/// the mark is ignored.
pub fn read(description: Option<&str>) -> Description {
    let first = description.unwrap_or_default().lines().next().unwrap_or_default().trim();
    if first == "qmclone temporary file" {
        return Description::BeingCloned;
    }
    let Some(fields) = first.strip_prefix(PREFIX) else { return Description::Foreign };
    let fields: BTreeMap<_, _> =
        fields.split_whitespace().filter_map(|field| field.split_once('=')).collect();
    let field =
        |name: &str| fields.get(name).filter(|value| !value.is_empty()).map(|value| (*value).to_owned());
    match (field("cluster"), field("pool"), field("machine")) {
        (Some(cluster), Some(pool), Some(machine)) => {
            let (region, kubernetes) = (field("region"), field("kubernetes"));
            Description::Ours(Marker {
                cluster,
                region,
                pool: pool.into(),
                machine: machine.into(),
                kubernetes,
            })
        }
        _ => Description::Foreign,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_survives_what_proxmox_does_to_it() {
        for further in [None, Some("east".to_owned())] {
            let (cluster, pool, machine) = ("home".to_owned(), "w".to_owned(), "1-2".to_owned());
            let marker = Marker {
                cluster,
                region: further.clone(),
                pool: pool.into(),
                machine: machine.into(),
                kubernetes: further,
            };
            for text in ["", "made for shop/web-1\n\n", "edited by hand"] {
                let stored = marker.describe(text).trim_end().to_owned();
                assert_eq!(read(Some(&stored)), Description::Ours(marker.clone()));
            }
        }
    }

    #[test]
    fn what_is_not_marked_is_not_ours() {
        let cases = [
            (None, Description::Foreign),
            (Some(""), Description::Foreign),
            (Some(" qmclone temporary file"), Description::BeingCloned),
            (Some("pve-autoscaler/v1 cluster=home pool=w"), Description::Foreign),
            (Some("pve-autoscaler/v1 cluster= pool=w machine=1"), Description::Foreign),
            (Some("text\npve-autoscaler/v1 cluster=a pool=b machine=c"), Description::Foreign),
            (Some("pve-autoscaler/v2 cluster=a pool=b machine=c"), Description::Foreign),
        ];
        for (description, expected) in cases {
            assert_eq!(read(description), expected, "{description:?}");
        }
    }
}
