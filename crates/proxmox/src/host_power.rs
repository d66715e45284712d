//! Power management for hosts: the reasons why a host must stay on, and the calls that switch a host on and
//! off.
//!
//! The calls return before they take effect: a host that is asked to shut down stops its guests first, and a
//! magic packet is not acknowledged. The caller must check the result later.

use std::collections::{BTreeMap, BTreeSet};

use model::Vmid;
use runtime::boxed;
use serde_json::Value;

use super::answer::{number_of, text_of};
use super::client::{Client, Lane, encode};
use super::error::Error;

/// What is known about the hosts that may be switched off.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PowerSurvey {
    /// The votes of all hosts ([`Client::votes`]).
    pub votes: BTreeMap<String, u32>,
    /// What is known about each host.
    pub hosts: BTreeMap<String, HostSurvey>,
    /// The VMs and containers that HA manages, by host, whether or not they are running.
    pub ha: BTreeMap<String, BTreeSet<Vmid>>,
}

/// What is known about one host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostSurvey {
    /// Whether the host's API answers.
    pub answers: bool,
    /// Why the host has to stay on, in words.
    pub stays_on: Option<String>,
}

impl Client {
    /// Collects the information that decides whether these hosts can be switched off: rights, votes, HA,
    /// Ceph, and the address for waking them. Each entry of `hosts` consists of a host's name, whether the
    /// host answers ([`Client::host_answers`]), and whether Proxmox VE is to wake this host.
    #[boxed]
    pub async fn power_survey(&self, hosts: &[(&str, bool, bool)]) -> Result<PowerSurvey, Error> {
        let mut found =
            PowerSurvey { votes: self.votes().await?, ha: self.ha_guests().await?, ..PowerSurvey::default() };
        let ceph = self.ceph_hosts().await?;
        let of_all = if self.lacks_qdevice().await? {
            Some("the cluster's QDevice is not connected".to_owned())
        } else if self.privileges_on("/vms").await?.contains("VM.Audit") {
            None
        } else {
            Some("the token needs VM.Audit on /vms to see every guest".to_owned())
        };
        for &(name, answers, by_packet) in hosts {
            let path = format!("/nodes/{name}");
            let may = self.privileges_on(&path).await?;
            let stays_on = if ceph.contains(name) {
                Some("Ceph daemons run on the host".to_owned())
            } else if !may.contains("Sys.PowerMgmt") {
                Some(format!("the token needs Sys.PowerMgmt on {path}"))
            } else if of_all.is_some() {
                of_all.clone()
            } else if answers && by_packet && self.wake_address(name).await?.is_none() {
                Some(
                    "no MAC address is set for waking the host; run `pvenode config set --wakeonlan \
                        MAC` on it"
                        .to_owned(),
                )
            } else {
                None
            };
            found.hosts.insert(name.to_owned(), HostSurvey { answers, stays_on });
        }
        Ok(found)
    }

    /// The Wake-on-LAN MAC address from a host's options. Needs `Sys.Audit` on `/`.
    #[boxed]
    pub async fn wake_address(&self, host: &str) -> Result<Option<String>, Error> {
        let path = format!("/nodes/{}/config", encode(host));
        let data = self.get(Lane::Free, &path, &[("property", "wakeonlan".to_owned())]).await?;
        Ok(text_of(&data, "wakeonlan"))
    }

    /// The votes of the cluster's hosts (`quorum_votes` of corosync), including hosts that are off. Empty for
    /// a standalone host. Needs `Sys.Audit` on `/`.
    #[boxed]
    pub async fn votes(&self) -> Result<BTreeMap<String, u32>, Error> {
        let data = self.get(Lane::Free, "/cluster/config/nodes", &[]).await?;
        let rows = data.as_array().ok_or_else(|| Error::malformed("GET /cluster/config/nodes", "no list"))?;
        let votes = |row: &Value| number_of(row, "quorum_votes").and_then(|votes| u32::try_from(votes).ok());
        Ok(rows
            .iter()
            .filter_map(|row| {
                Some((text_of(row, "name").or_else(|| text_of(row, "node"))?, votes(row).unwrap_or(1)))
            })
            .collect())
    }

    /// Whether the cluster has a `QDevice` whose votes are missing because it is not connected. Needs
    /// `Sys.Audit` on `/`.
    #[boxed]
    pub async fn lacks_qdevice(&self) -> Result<bool, Error> {
        let data = self.get(Lane::Free, "/cluster/config/qdevice", &[]).await?;
        let there = data.as_object().is_some_and(|members| !members.is_empty());
        Ok(there && text_of(&data, "State").as_deref() != Some("Connected"))
    }

    /// The hosts on which Ceph daemons run (monitors, managers, OSDs, metadata servers). Empty if Ceph is not
    /// used. Needs `Sys.Audit` on `/`.
    #[boxed]
    pub async fn ceph_hosts(&self) -> Result<BTreeSet<String>, Error> {
        match self.get(Lane::Free, "/cluster/ceph/metadata", &[]).await {
            Ok(data) => Ok(daemons(&data)),
            Err(error) if without_ceph(&error.to_string()) => Ok(BTreeSet::new()),
            Err(error) => Err(error),
        }
    }

    /// The VMs and containers that HA manages, by host, whether or not they are running. Needs `Sys.Audit` on
    /// `/`.
    #[boxed]
    pub async fn ha_guests(&self) -> Result<BTreeMap<String, BTreeSet<Vmid>>, Error> {
        let data = self.get(Lane::Free, "/cluster/ha/status/current", &[]).await?;
        let rows = data.as_array().ok_or_else(|| Error::malformed("GET HA status", "no list"))?;
        let mut all: BTreeMap<String, BTreeSet<Vmid>> = BTreeMap::new();
        for row in rows.iter().filter(|row| text_of(row, "type").as_deref() == Some("service")) {
            let vmid = text_of(row, "sid").and_then(|sid| sid.split_once(':')?.1.parse().ok());
            if let (Some(vmid), Some(host)) = (vmid, text_of(row, "node")) {
                all.entry(host).or_default().insert(vmid);
            }
        }
        Ok(all)
    }

    /// Returns an error if a host's own API does not answer.
    #[boxed]
    pub async fn host_answers(&self, host: &str) -> Result<(), Error> {
        let path = format!("/nodes/{}/version", encode(host));
        self.get(Lane::Free, &path, &[]).await.map(|_| ())
    }

    /// The VMs and containers that currently run on a host, as reported by the host itself. Only those on
    /// which the token has `VM.Audit` are listed.
    #[boxed]
    pub async fn running_on(&self, host: &str) -> Result<BTreeSet<Vmid>, Error> {
        let mut running = BTreeSet::new();
        for kind in ["qemu", "lxc"] {
            let path = format!("/nodes/{}/{kind}", encode(host));
            let data = self.get(Lane::Lifecycle(host), &path, &[]).await?;
            let rows = data.as_array().ok_or_else(|| Error::malformed("GET guests", "no list"))?;
            let runs = rows.iter().filter(|row| text_of(row, "status").as_deref() != Some("stopped"));
            running.extend(
                runs.filter_map(|row| number_of(row, "vmid"))
                    .filter_map(|vmid| u32::try_from(vmid).ok())
                    .map(Vmid),
            );
        }
        Ok(running)
    }

    /// The kinds of the tasks that run on a host, e.g. `vzdump`. Needs `Sys.Audit` on the host.
    #[boxed]
    pub async fn tasks_running_on(&self, host: &str) -> Result<BTreeSet<String>, Error> {
        let path = format!("/nodes/{}/tasks", encode(host));
        let data = self.get(Lane::Free, &path, &[("source", "active".to_owned())]).await?;
        let rows = data.as_array().ok_or_else(|| Error::malformed("GET tasks", "no list"))?;
        // A task that has just ended may still be listed.
        let runs = rows.iter().filter(|row| row.get("endtime").is_none());
        Ok(runs.filter_map(|row| text_of(row, "type")).collect())
    }

    /// Asks a host to shut down (`POST /nodes/{node}/status`). Needs `Sys.PowerMgmt` on the host.
    #[boxed]
    pub async fn shut_down_host(&self, host: &str) -> Result<(), Error> {
        let path = format!("/nodes/{}/status", encode(host));
        self.post(Lane::Lifecycle(host), &path, &[("command", "shutdown".to_owned())]).await.map(|_| ())
    }

    /// Wakes a host with a magic packet (`POST /nodes/{node}/wakeonlan`). The host that handles the call
    /// sends the packet to the MAC address in the target host's options (`pvenode config set --wakeonlan`).
    /// Needs `Sys.PowerMgmt` on the target host.
    #[boxed]
    pub async fn wake_host(&self, host: &str) -> Result<(), Error> {
        let path = format!("/nodes/{}/wakeonlan", encode(host));
        self.post(Lane::Free, &path, &[]).await.map(|_| ())
    }
}

/// Whether this is the error that Proxmox VE reports if Ceph was never set up (`PVE::Ceph::Tools`).
fn without_ceph(message: &str) -> bool {
    ["not installed", "not initialized", "not fully configured"].iter().any(|text| message.contains(text))
}

/// Returns the hosts in Ceph's metadata. The metadata contains OSDs in a list, and other daemons in maps with
/// keys such as `name@host`. Each entry has a `hostname`.
fn daemons(data: &Value) -> BTreeSet<String> {
    let mut hosts = BTreeSet::new();
    for kind in ["mon", "mgr", "mds", "osd"] {
        match data.get(kind) {
            Some(Value::Array(rows)) => hosts.extend(rows.iter().filter_map(|row| text_of(row, "hostname"))),
            Some(Value::Object(named)) => {
                for (name, row) in named {
                    hosts.extend(name.split_once('@').map(|(_, host)| host.to_owned()));
                    hosts.extend(text_of(row, "hostname").or_else(|| text_of(row, "host")));
                }
            }
            _ => {}
        }
    }
    hosts
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn hosts_of_ceph_are_found_whatever_runs_there() {
        let data = json!({
            "mon": { "pve1@pve1": { "hostname": "pve1" } },
            "mgr": { "a@pve2": {} },
            "mds": {},
            "osd": [{ "id": 0, "hostname": "pve3" }],
            "node": { "pve4": { "version": {} } },
        });
        assert_eq!(daemons(&data).into_iter().collect::<Vec<_>>(), ["pve1", "pve2", "pve3"]);
        assert!(daemons(&json!({})).is_empty());
    }

    #[test]
    fn only_a_ceph_that_was_never_set_up_is_none() {
        for text in
            ["binary not installed: /usr/bin/ceph-mon", "pveceph configuration not initialized - missing x"]
        {
            assert!(without_ceph(text), "{text}");
        }
        assert!(!without_ceph("got timeout"));
    }
}
