//! The life cycle of a VM: clone, configure, resize, start, suspend, shut down, stop, destroy.
//!
//! Most calls return a task's id, which does not show whether the task succeeds. Proxmox VE returns the id of
//! a clone task before it claims the VMID. A clone therefore counts as created only once the task has
//! succeeded and the mark has been read back.

use std::collections::{BTreeMap, BTreeSet};

use http::Method;
use model::Vmid;
use runtime::boxed;
use serde_json::Value;

use super::answer::{flag_of, text_of};
use super::client::{Client, Lane, encode};
use super::error::{Error, Kind};
use super::upid::Upid;
use super::vm_config::VmConfig;

/// A request for a clone.
#[derive(Clone, Debug)]
pub struct CloneRequest {
    /// The template's host. No other host can clone the template.
    pub template_host: String,
    /// The template's VMID.
    pub template: Vmid,
    /// The new VMID.
    pub vmid: Vmid,
    /// The new VM's name.
    pub name: String,
    /// The new VM's description, with the mark.
    pub description: String,
    /// The Proxmox pool.
    pub pool: Option<String>,
    /// The host for the new VM, if it is not the template's host. This requires shared storage.
    pub target: Option<String>,
    /// Whether to copy the disks instead of linking them.
    pub full: bool,
    /// The storage for the copied disks; only used with `full`.
    pub storage: Option<String>,
}

/// A VM's power.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Power {
    /// QEMU is running.
    Running,
    /// QEMU is not running.
    Stopped,
}

/// A VM's status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmStatus {
    /// Its power.
    pub power: Power,
    /// Whether HA manages the VM. If so, start and stop tasks only ask HA and end immediately, and HA may
    /// start the VM again.
    pub ha_managed: bool,
    /// The lock that an operation holds, e.g. `clone`.
    pub lock: Option<String>,
}

pub(super) fn vm(host: &str, vmid: Vmid) -> String {
    format!("/nodes/{}/qemu/{vmid}", encode(host))
}

/// Returns a configuration value in the form that Proxmox VE expects.
pub(super) fn as_sent(key: &str, value: &str) -> String {
    match key {
        "sshkeys" => encode(value.trim()),
        "nameserver" => {
            let addresses: Vec<_> = value.split([',', ';', ' ']).filter(|part| !part.is_empty()).collect();
            addresses.join(" ")
        }
        _ => value.to_owned(),
    }
}

pub(super) fn upid(call: &str, data: &Value) -> Result<Upid, Error> {
    data.as_str().and_then(Upid::parse).ok_or_else(|| Error::malformed(call, "no task id"))
}

impl Client {
    /// Starts a clone.
    #[boxed]
    pub async fn clone_vm(&self, request: &CloneRequest) -> Result<Upid, Error> {
        let path = format!("{}/clone", vm(&request.template_host, request.template));
        let mut form = vec![
            ("newid", request.vmid.to_string()),
            ("name", request.name.clone()),
            ("description", request.description.clone()),
            ("full", u8::from(request.full).to_string()),
        ];
        form.extend(request.pool.clone().map(|pool| ("pool", pool)));
        form.extend(request.target.clone().map(|target| ("target", target)));
        // For a linked clone, Proxmox VE refuses the `storage` parameter.
        form.extend(request.storage.clone().filter(|_| request.full).map(|storage| ("storage", storage)));
        let data = self.post(Lane::Lifecycle(&request.template_host), &path, &form).await?;
        upid("clone", &data)
    }

    /// A VM's configuration, including pending changes. The call is unprotected, so it is cheap, and it works
    /// while the VM is locked.
    #[boxed]
    pub async fn config(&self, host: &str, vmid: Vmid) -> Result<VmConfig, Error> {
        let path = format!("{}/config", vm(host, vmid));
        let data = self.get(Lane::Free, &path, &[]).await?;
        VmConfig::read(&data).ok_or_else(|| Error::malformed("GET config", "no object"))
    }

    /// A VM's current configuration, without the changes that take effect only at the VM's next start.
    #[boxed]
    pub async fn current_config(&self, host: &str, vmid: Vmid) -> Result<VmConfig, Error> {
        let path = format!("{}/config", vm(host, vmid));
        let data = self.get(Lane::Free, &path, &[("current", "1".to_owned())]).await?;
        VmConfig::read(&data).ok_or_else(|| Error::malformed("GET config", "no object"))
    }

    /// The keys whose changes take effect only at the VM's next start.
    #[boxed]
    pub async fn pending(&self, host: &str, vmid: Vmid) -> Result<BTreeSet<String>, Error> {
        let path = format!("{}/pending", vm(host, vmid));
        let data = self.get(Lane::Free, &path, &[]).await?;
        let rows = data.as_array().ok_or_else(|| Error::malformed("GET pending", "no list"))?;
        let waits = |row: &&Value| row.get("pending").is_some() || flag_of(row, "delete");
        Ok(rows.iter().filter(waits).filter_map(|row| text_of(row, "key")).collect())
    }

    /// Reverts the pending changes to these keys, if the configuration still has this digest. Pending changes
    /// take effect only at the VM's next start.
    #[boxed]
    pub async fn revert(&self, host: &str, vmid: Vmid, keys: &[&str], digest: &str) -> Result<(), Error> {
        let path = format!("{}/config", vm(host, vmid));
        let form = [("revert", keys.join(",")), ("digest", digest.to_owned())];
        // PUT, unlike POST, makes the change before the answer is sent.
        self.call(Method::PUT, Lane::Lifecycle(host), &path, &form).await.map(drop)
    }

    /// Changes a configuration if it still has this digest. Returns a task if the change takes longer than
    /// `wait` seconds (1 to 30).
    ///
    /// `sshkeys` takes keys, one per line. It is encoded twice, because Proxmox VE expects a URL-encoded
    /// value, and the form encodes it again. `nameserver` takes addresses separated by commas, semicolons or
    /// spaces. They are sent with spaces, because Proxmox VE accepts commas but then writes all addresses as
    /// one.
    #[boxed]
    pub async fn set_config(
        &self,
        host: &str,
        vmid: Vmid,
        set: &BTreeMap<String, String>,
        delete: &[&str],
        digest: &str,
        wait: u8,
    ) -> Result<Option<Upid>, Error> {
        let path = format!("{}/config", vm(host, vmid));
        let mut form: Vec<(&str, String)> = Vec::new();
        for (key, value) in set {
            form.push((key, as_sent(key, value)));
        }
        if !delete.is_empty() {
            form.push(("delete", delete.join(",")));
        }
        form.push(("digest", digest.to_owned()));
        form.push(("background_delay", wait.clamp(1, 30).to_string()));
        let data = self.post(Lane::Lifecycle(host), &path, &form).await?;
        if data.is_null() { Ok(None) } else { upid("POST config", &data).map(Some) }
    }

    /// Grows a disk to a size in bytes. If the disk already has that size, the call has no effect. All checks
    /// are made by the task.
    #[boxed]
    pub async fn resize(&self, host: &str, vmid: Vmid, disk: &str, bytes: i64) -> Result<Upid, Error> {
        let path = format!("{}/resize", vm(host, vmid));
        let form = [("disk", disk.to_owned()), ("size", bytes.to_string())];
        let data = self.call(Method::PUT, Lane::Lifecycle(host), &path, &form).await?;
        upid("PUT resize", &data)
    }

    /// Starts a VM. The task's result shows whether the VM started.
    #[boxed]
    pub async fn start(&self, host: &str, vmid: Vmid) -> Result<Upid, Error> {
        self.power_call(host, vmid, "start", &[]).await
    }

    /// Shuts a VM down, and cuts its power after `timeout` seconds. Until then, the task holds the VM's lock.
    #[boxed]
    pub async fn shutdown(&self, host: &str, vmid: Vmid, timeout: u32) -> Result<Upid, Error> {
        let form = [("timeout", timeout.to_string()), ("forceStop", "1".to_owned())];
        self.power_call(host, vmid, "shutdown", &form).await
    }

    /// Cuts a VM's power. This also ends the daemon's own shutdown of the VM, if one is in progress. If HA
    /// manages the VM, the call only asks HA to stop it.
    #[boxed]
    pub async fn stop(&self, host: &str, vmid: Vmid) -> Result<Upid, Error> {
        const OVERRULE: &str = "overrule-shutdown";
        match self.power_call(host, vmid, "stop", &[(OVERRULE, "1".to_owned())]).await {
            // Proxmox VE refuses this parameter if HA manages the VM, and releases before 8.2 do not support
            // it. A refused call has no effect, so it is repeated without the parameter.
            Err(error) if error.kind == Kind::BadRequest && error.text.contains(OVERRULE) => {
                self.power_call(host, vmid, "stop", &[]).await
            }
            answer => answer,
        }
    }

    /// Writes a running VM's memory to disk and ends its QEMU process. The next start resumes the guest.
    /// Until then, the VM is locked (`suspended`), and can only be started or destroyed. The saved state is
    /// stored on the VM's `vmstatestorage` or, if none is set, on a storage that Proxmox VE chooses.
    /// Initially, it occupies more than twice the size of the memory.
    #[boxed]
    pub async fn suspend_to_disk(&self, host: &str, vmid: Vmid) -> Result<Upid, Error> {
        self.power_call(host, vmid, "suspend", &[("todisk", "1".to_owned())]).await
    }

    async fn power_call(
        &self,
        host: &str,
        vmid: Vmid,
        what: &str,
        form: &[(&str, String)],
    ) -> Result<Upid, Error> {
        let path = format!("{}/status/{what}", vm(host, vmid));
        let data = self.post(Lane::Lifecycle(host), &path, form).await?;
        upid(what, &data)
    }

    /// Destroys a stopped VM with its disks, and removes references to the VM. **Proxmox VE also accepts this
    /// call without quorum, and then removes the disks but keeps the VM.** Before this call, read the mark
    /// back, then check [`Client::quorate`].
    #[boxed]
    pub async fn destroy(&self, host: &str, vmid: Vmid) -> Result<Upid, Error> {
        // `destroy-unreferenced-disks` stays off, because it deletes disks by VMID on all storages.
        let query = [("purge", "1".to_owned()), ("destroy-unreferenced-disks", "0".to_owned())];
        let data = self.call(Method::DELETE, Lane::Lifecycle(host), &vm(host, vmid), &query).await?;
        upid("DELETE", &data)
    }

    /// Returns whether QEMU is running. The state is requested for this VM, because the list of cluster
    /// resources lags.
    #[boxed]
    pub async fn power(&self, host: &str, vmid: Vmid) -> Result<Power, Error> {
        self.vm_status(host, vmid).await.map(|status| status.power)
    }

    /// A VM's current status (`status/current`).
    #[boxed]
    pub async fn vm_status(&self, host: &str, vmid: Vmid) -> Result<VmStatus, Error> {
        let path = format!("{}/status/current", vm(host, vmid));
        let data = self.get(Lane::Lifecycle(host), &path, &[]).await?;
        let power = match text_of(&data, "status").as_deref() {
            Some("running") => Power::Running,
            Some("stopped") => Power::Stopped,
            other => return Err(Error::malformed("GET status/current", format!("status {other:?}"))),
        };
        let ha_managed = data.get("ha").is_some_and(|ha| flag_of(ha, "managed"));
        Ok(VmStatus { power, ha_managed, lock: text_of(&data, "lock") })
    }

    /// The version of Proxmox VE, e.g. `9.2.11`.
    #[boxed]
    pub async fn version(&self) -> Result<String, Error> {
        let data = self.get(Lane::Free, "/version", &[]).await?;
        text_of(&data, "version").ok_or_else(|| Error::malformed("GET /version", "no version"))
    }

    /// The privileges that the token has on at least one path.
    #[boxed]
    pub async fn privileges(&self) -> Result<BTreeSet<String>, Error> {
        let data = self.get(Lane::Free, "/access/permissions", &[]).await?;
        let paths =
            data.as_object().ok_or_else(|| Error::malformed("GET /access/permissions", "no object"))?;
        Ok(paths
            .values()
            .filter_map(Value::as_object)
            .flat_map(|privileges| privileges.keys().cloned())
            .collect())
    }

    /// Whether an error means that the VMID is already taken. Only the existing VM's mark shows whether that
    /// VM belongs to the machine for which the VMID was requested.
    pub fn is_collision(error: &Error) -> bool {
        error.kind == Kind::Exists
    }
}
