//! The Proxmox VE cluster as `check` sees it.

use std::collections::{BTreeMap, BTreeSet};

use model::HostKey;
use tokio::sync::Mutex;

use model::machine::Host;
use proxmox::{Bridge, Client, ClusterResources, Error, StorageConfig};
use settings::{HostSettings, Pool};

/// A Proxmox VE cluster that answers.
pub(super) struct Pve {
    pub client: Client,
    /// The release, e.g. `9.2.11`.
    pub version: String,
    pub token_id: String,
    /// The resource pool that machines are put into.
    pub resource_pool: Option<String>,
    pub seen: ClusterResources,
    /// The hosts, with their room as the planner calculates it.
    pub hosts: Vec<Host>,
    /// The `[[host]]` settings, by host.
    pub special: BTreeMap<HostKey, HostSettings>,
    /// Storages by name.
    pub storages: BTreeMap<String, StorageConfig>,
    /// Privileges that the token has on no path; they are reported once.
    pub lacking: BTreeSet<&'static str>,
    /// Bridges by host. A host's bridges are added when they are first requested.
    pub bridges: Mutex<BTreeMap<String, Vec<Bridge>>>,
    /// The privilege that this release requires for guest agent calls, if the daemon runs programs in guests.
    pub agent: Option<&'static str>,
}

impl Pve {
    /// The existing hosts that the pool may use.
    pub(super) fn allowed<'p>(&'p self, pool: &'p Pool) -> impl Iterator<Item = &'p String> {
        self.seen
            .hosts
            .keys()
            .filter(|host| pool.hosts.is_empty() || pool.hosts.iter().any(|one| **one == ***host))
    }

    /// How many bytes of a storage the pool may still use on this host; `None` if nothing is known about the
    /// storage there.
    pub(super) fn free(&self, pool: &Pool, host: &str, storage: &str) -> Option<i64> {
        let seen = self.seen.storages.iter().find(|seen| seen.host == host && seen.name == storage)?;
        let left = seen.size.total.saturating_sub(seen.size.used).saturating_sub(pool.storage_reserve);
        Some(left.max(0))
    }

    /// The path on which the token needs its rights over machines.
    pub(super) fn machines_path(&self) -> String {
        self.resource_pool.as_ref().map_or_else(|| "/vms".to_owned(), |pool| format!("/pool/{pool}"))
    }

    pub(super) async fn bridges(&self, host: &str) -> Result<Vec<Bridge>, Error> {
        let mut known = self.bridges.lock().await;
        if let Some(bridges) = known.get(host) {
            return Ok(bridges.clone());
        }
        let bridges = self.client.bridges(host).await?;
        known.insert(host.to_owned(), bridges.clone());
        Ok(bridges)
    }

    /// Returns the `wanted` privileges that the token has elsewhere but lacks on this path, in words, and the
    /// command that grants them.
    pub(super) async fn lacks(
        &self,
        path: &str,
        wanted: &[&'static str],
    ) -> Result<Option<(String, String)>, Error> {
        let has = self.client.privileges_on(path).await?;
        let missing: Vec<&str> =
            wanted.iter().copied().filter(|one| !has.contains(*one) && !self.lacking.contains(one)).collect();
        if missing.is_empty() {
            return Ok(None);
        }
        let user = self.token_id.split('!').next().unwrap_or_default();
        let what = format!("the token lacks {} on {path}", missing.join(", "));
        let help = format!(
            "grant a role that has these privileges: `pveum acl modify {path} --users {user} --tokens \
                '{}' --roles ROLE`",
            self.token_id
        );
        Ok(Some((what, help)))
    }
}
