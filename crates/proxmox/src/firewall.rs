//! Proxmox VE's firewall for a VM: options, security groups, IP sets. A VM's settings are readable with
//! `VM.Audit` and writable with `VM.Config.Network`. They only have an effect if the cluster's firewall is on
//! and the network device has `firewall=1`.

use std::collections::{BTreeMap, BTreeSet};

use http::Method;
use model::Vmid;
use runtime::boxed;
use serde_json::Value;

use super::answer::{flag_of, text_of};
use super::client::{Client, Lane, encode};
use super::error::Error;

fn firewall(host: &str, vmid: Vmid, what: &str) -> String {
    format!("/nodes/{}/qemu/{vmid}/firewall/{what}", encode(host))
}

impl Client {
    /// Whether the cluster's firewall is on. Needs `Sys.Audit` on `/`.
    #[boxed]
    pub async fn cluster_firewall(&self) -> Result<bool, Error> {
        let data = self.get(Lane::Free, "/cluster/firewall/options", &[]).await?;
        Ok(flag_of(&data, "enable"))
    }

    /// The security groups of the cluster.
    #[boxed]
    pub async fn security_groups(&self) -> Result<BTreeSet<String>, Error> {
        self.column("/cluster/firewall/groups", "group").await
    }

    /// A VM's firewall options. Options that were never set are absent.
    #[boxed]
    pub async fn firewall_options(&self, host: &str, vmid: Vmid) -> Result<BTreeMap<String, String>, Error> {
        let path = firewall(host, vmid, "options");
        let data = self.get(Lane::Free, &path, &[]).await?;
        let all = data.as_object().ok_or_else(|| Error::malformed("GET firewall/options", "no object"))?;
        Ok(all.keys().filter_map(|key| Some((key.clone(), text_of(&data, key)?))).collect())
    }

    /// Sets firewall options of a VM. Other options keep their values.
    #[boxed]
    pub async fn set_firewall_options(
        &self,
        host: &str,
        vmid: Vmid,
        set: &[(&str, String)],
    ) -> Result<(), Error> {
        let path = firewall(host, vmid, "options");
        self.call(Method::PUT, Lane::Lifecycle(host), &path, set).await.map(|_| ())
    }

    /// The security groups that a VM's enabled rules refer to.
    #[boxed]
    pub async fn security_groups_of(&self, host: &str, vmid: Vmid) -> Result<BTreeSet<String>, Error> {
        let rows = self.table(&firewall(host, vmid, "rules")).await?;
        let on = |row: &&Value| text_of(row, "type").as_deref() == Some("group") && flag_of(row, "enable");
        Ok(rows.iter().filter(on).filter_map(|row| text_of(row, "action")).collect())
    }

    /// Inserts a rule for a security group before a VM's other rules.
    #[boxed]
    pub async fn add_security_group(&self, host: &str, vmid: Vmid, group: &str) -> Result<(), Error> {
        // New rules are disabled by default.
        let form = [("type", "group".to_owned()), ("action", group.to_owned()), ("enable", "1".to_owned())];
        self.post(Lane::Lifecycle(host), &firewall(host, vmid, "rules"), &form).await.map(|_| ())
    }

    /// The networks of one of a VM's IP sets; `None` if the VM has no such set.
    #[boxed]
    pub async fn ip_set(
        &self,
        host: &str,
        vmid: Vmid,
        name: &str,
    ) -> Result<Option<BTreeSet<String>>, Error> {
        if !self.column(&firewall(host, vmid, "ipset"), "name").await?.contains(name) {
            return Ok(None);
        }
        let path = firewall(host, vmid, &format!("ipset/{}", encode(name)));
        self.column(&path, "cidr").await.map(Some)
    }

    /// Creates an empty IP set for a VM.
    #[boxed]
    pub async fn create_ip_set(&self, host: &str, vmid: Vmid, name: &str) -> Result<(), Error> {
        let form = [("name", name.to_owned())];
        self.post(Lane::Lifecycle(host), &firewall(host, vmid, "ipset"), &form).await.map(|_| ())
    }

    /// Adds an address or network to one of a VM's IP sets.
    #[boxed]
    pub async fn add_to_ip_set(&self, host: &str, vmid: Vmid, name: &str, cidr: &str) -> Result<(), Error> {
        let path = firewall(host, vmid, &format!("ipset/{}", encode(name)));
        self.post(Lane::Lifecycle(host), &path, &[("cidr", cidr.to_owned())]).await.map(|_| ())
    }

    /// Removes an address or network from one of a VM's IP sets.
    #[boxed]
    pub async fn remove_from_ip_set(
        &self,
        host: &str,
        vmid: Vmid,
        name: &str,
        cidr: &str,
    ) -> Result<(), Error> {
        let path = firewall(host, vmid, &format!("ipset/{}/{}", encode(name), encode(cidr)));
        self.call(Method::DELETE, Lane::Lifecycle(host), &path, &[]).await.map(|_| ())
    }

    async fn column(&self, path: &str, field: &str) -> Result<BTreeSet<String>, Error> {
        Ok(self.table(path).await?.iter().filter_map(|row| text_of(row, field)).collect())
    }

    async fn table(&self, path: &str) -> Result<Vec<Value>, Error> {
        match self.get(Lane::Free, path, &[]).await? {
            Value::Array(rows) => Ok(rows),
            _ => Err(Error::malformed(&format!("GET {path}"), "no list")),
        }
    }
}
