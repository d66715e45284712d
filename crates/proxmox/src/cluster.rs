//! Reads the state of the Proxmox VE cluster: quorum, HA, pools, bridges, and the token's rights.

use std::collections::{BTreeMap, BTreeSet};

use model::Vmid;
use runtime::boxed;
use serde_json::Value;

use super::answer::{flag_of, number_of, text_of};
use super::client::{Client, Lane, encode};
use super::error::{Error, Kind};

/// The cluster's status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterStatus {
    /// The cluster's name. A standalone host has none.
    pub name: Option<String>,
    /// Whether the cluster is quorate, so that its configuration can be written. Always true for a standalone
    /// host.
    pub quorate: bool,
    /// The cluster's hosts, and whether each is up.
    pub hosts: BTreeMap<String, bool>,
}

/// The status of the HA stack. Empty if HA is not used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HaStatus {
    /// Hosts in maintenance, on which no new VM should be placed.
    pub maintenance: BTreeSet<String>,
    /// The VMs that HA manages, with their HA states, e.g. `started`.
    pub vms: BTreeMap<Vmid, String>,
}

/// A bridge or SDN network of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bridge {
    /// The network's name, e.g. `vmbr0`.
    pub name: String,
    /// Whether the network is up. SDN networks do not report their state, so they are assumed to be up.
    pub active: bool,
    /// Whether the network supports VLAN tags. An OVS bridge always supports them, although the API does not
    /// report it.
    pub vlan_aware: bool,
    /// Whether the network belongs to an SDN zone.
    pub vnet: bool,
}

/// The privilege that is required to run programs through the guest agent. It is `VM.Monitor` before Proxmox
/// VE 9, and `VM.GuestAgent.Unrestricted` since.
pub fn agent_privilege(version: &str) -> &'static str {
    let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok());
    if major.is_some_and(|major| major < 9) { "VM.Monitor" } else { "VM.GuestAgent.Unrestricted" }
}

impl Client {
    /// The cluster's name, quorum and hosts. Needs `Sys.Audit` on `/`.
    ///
    /// A host without a cluster name counts as standalone only if corosync's configuration contains no nodes.
    /// Without this check, a cluster host whose corosync has not run since boot would look like a standalone
    /// host.
    #[boxed]
    pub async fn cluster_status(&self) -> Result<ClusterStatus, Error> {
        let data = self.get(Lane::Free, "/cluster/status", &[]).await?;
        let rows = data.as_array().ok_or_else(|| Error::malformed("GET /cluster/status", "no list"))?;
        let mut status = ClusterStatus::read(rows);
        if status.name.is_none() {
            status.quorate = self.votes().await?.is_empty();
        }
        Ok(status)
    }

    /// Whether the cluster's configuration can be written. Always true for a standalone host.
    #[boxed]
    pub async fn quorate(&self) -> Result<bool, Error> {
        self.cluster_status().await.map(|status| status.quorate)
    }

    /// The status of HA. Needs `Sys.Audit` on `/`.
    #[boxed]
    pub async fn ha_status(&self) -> Result<HaStatus, Error> {
        let data = self.get(Lane::Free, "/cluster/ha/status/current", &[]).await?;
        let rows = data.as_array().ok_or_else(|| Error::malformed("GET HA status", "no list"))?;
        Ok(HaStatus::read(rows))
    }

    /// The VMs and containers of a pool that the token can see. If the pool does not exist, the error is
    /// [`Kind::NotFound`].
    #[boxed]
    pub async fn pool_members(&self, pool: &str) -> Result<BTreeSet<Vmid>, Error> {
        // The path `/pools/{pool}` cannot be used for a nested pool.
        let data = self.get(Lane::Free, "/pools", &[("poolid", pool.to_owned())]).await?;
        let members = data.pointer("/0/members").and_then(Value::as_array).into_iter().flatten();
        Ok(members
            .filter_map(|member| {
                number_of(member, "vmid").and_then(|vmid| u32::try_from(vmid).ok()).map(Vmid)
            })
            .collect())
    }

    /// The bridges and SDN networks of a host on which the token has `SDN.Use` or `SDN.Audit`.
    #[boxed]
    pub async fn bridges(&self, host: &str) -> Result<Vec<Bridge>, Error> {
        let path = format!("/nodes/{}/network", encode(host));
        let data = self.get(Lane::Free, &path, &[("type", "any_bridge".to_owned())]).await?;
        let rows = data.as_array().ok_or_else(|| Error::malformed("GET network", "no list"))?;
        Ok(rows.iter().filter_map(bridge).collect())
    }

    /// The time of a host's own clock, as Unix time in seconds. Needs `Sys.Audit` on the host.
    #[boxed]
    pub async fn host_time(&self, host: &str) -> Result<i64, Error> {
        let data = self.get(Lane::Free, &format!("/nodes/{}/time", encode(host)), &[]).await?;
        number_of(&data, "time").ok_or_else(|| Error::malformed("GET time", "no time"))
    }

    /// The privileges that the token has on one path, e.g. `/pool/workers`.
    #[boxed]
    pub async fn privileges_on(&self, path: &str) -> Result<BTreeSet<String>, Error> {
        let data = self.get(Lane::Free, "/access/permissions", &[("path", path.to_owned())]).await?;
        let paths =
            data.as_object().ok_or_else(|| Error::malformed("GET /access/permissions", "no object"))?;
        let privileges = paths.get(path).and_then(Value::as_object);
        Ok(privileges.into_iter().flat_map(|privileges| privileges.keys().cloned()).collect())
    }

    /// Whether any VM or container in the cluster has this VMID, even one that the token cannot see. Only
    /// this call can determine it: if a token only has rights on a pool, other calls return the same error
    /// for a hidden VM as for one that does not exist. This call does not reserve the VMID.
    #[boxed]
    pub async fn vmid_taken(&self, vmid: Vmid) -> Result<bool, Error> {
        match self.get(Lane::Free, "/cluster/nextid", &[("vmid", vmid.to_string())]).await {
            Ok(_) => Ok(false),
            Err(error) if error.kind == Kind::Exists => Ok(true),
            Err(error) => Err(error),
        }
    }
}

impl ClusterStatus {
    fn read(rows: &[Value]) -> Self {
        let mut status = Self { quorate: true, ..Self::default() };
        for row in rows {
            match text_of(row, "type").as_deref() {
                Some("cluster") => {
                    status.name = text_of(row, "name");
                    status.quorate = flag_of(row, "quorate");
                }
                Some("node") => {
                    let name = text_of(row, "name").unwrap_or_default();
                    status.hosts.insert(name, flag_of(row, "online"));
                }
                _ => {}
            }
        }
        status
    }
}

impl HaStatus {
    fn read(rows: &[Value]) -> Self {
        let mut seen = Self::default();
        for row in rows {
            match text_of(row, "type").as_deref() {
                // Only the status text shows that a host is in maintenance: `pve1 (maintenance mode, …)`.
                Some("lrm") if text_of(row, "status").is_some_and(|text| text.contains("maintenance")) => {
                    seen.maintenance.extend(text_of(row, "node"));
                }
                Some("service") => {
                    let sid = text_of(row, "sid").unwrap_or_default();
                    let vmid = sid.strip_prefix("vm:").and_then(|vmid| vmid.parse().ok());
                    seen.vms.extend(vmid.map(|vmid| (vmid, text_of(row, "state").unwrap_or_default())));
                }
                _ => {}
            }
        }
        seen
    }
}

fn bridge(row: &Value) -> Option<Bridge> {
    let kind = text_of(row, "type").unwrap_or_default();
    let name = text_of(row, "iface").or_else(|| text_of(row, "vnet"))?;
    let vnet = kind == "vnet";
    Some(Bridge {
        name,
        vnet,
        active: vnet || flag_of(row, "active"),
        vlan_aware: kind == "OVSBridge" || flag_of(row, "bridge_vlan_aware") || flag_of(row, "vlanaware"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_host_alone_is_quorate_and_has_no_name() {
        let alone = ClusterStatus::read(&[json!({"type": "node", "name": "pve1", "online": 1, "local": 1})]);
        assert_eq!((alone.name, alone.quorate, alone.hosts["pve1"]), (None, true, true));
        let status = ClusterStatus::read(&[
            json!({"type": "cluster", "name": "lab", "quorate": "0", "nodes": 3}),
            json!({"type": "node", "name": "pve2", "online": 0}),
        ]);
        assert_eq!(
            (status.name.as_deref(), status.quorate, status.hosts["pve2"]),
            (Some("lab"), false, false)
        );
    }

    #[test]
    fn maintenance_is_read_from_the_text_of_either_release() {
        let seen = HaStatus::read(&[
            json!({"type": "quorum", "id": "quorum", "node": "pve1", "status": "OK", "quorate": 1}),
            json!({"type": "lrm", "node": "pve1", "status": "pve1 (maintenance mode, Sat Nov 21 07:00:00 2026)"}),
            json!({"type": "lrm", "node": "pve2", "status": "pve2 (maintenance mode, watchdog standby, Sat Nov 21)"}),
            json!({"type": "lrm", "node": "pve3", "status": "pve3 (idle, watchdog standby, Sat Nov 21)"}),
            json!({"type": "service", "sid": "vm:104", "node": "pve1", "state": "started"}),
            json!({"type": "service", "sid": "ct:105", "node": "pve1", "state": "started"}),
        ]);
        assert_eq!(seen.maintenance, BTreeSet::from(["pve1".to_owned(), "pve2".to_owned()]));
        assert_eq!(seen.vms, BTreeMap::from([(Vmid(104), "started".to_owned())]));
    }

    #[test]
    fn bridges_of_each_kind_are_read() {
        let rows = [
            json!({"type": "bridge", "iface": "vmbr0", "active": 1, "bridge_vlan_aware": 1}),
            json!({"type": "OVSBridge", "iface": "vmbr1", "active": 0}),
            json!({"type": "vnet", "vnet": "tenant", "alias": "x"}),
        ];
        let read: Vec<_> = rows.iter().filter_map(bridge).map(|b| (b.name, b.active, b.vlan_aware)).collect();
        assert_eq!(
            read,
            [
                ("vmbr0".to_owned(), true, true),
                ("vmbr1".to_owned(), false, true),
                ("tenant".to_owned(), true, false)
            ]
        );
    }

    #[test]
    fn the_agents_privilege_goes_by_the_release() {
        assert_eq!(agent_privilege("8.4.21"), "VM.Monitor");
        assert_eq!(agent_privilege("9.2.11"), "VM.GuestAgent.Unrestricted");
        assert_eq!(agent_privilege("10.0"), "VM.GuestAgent.Unrestricted");
    }
}
