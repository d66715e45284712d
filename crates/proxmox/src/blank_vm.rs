//! Creates VMs without a template, and turns VMs into templates.

use std::collections::BTreeMap;

use super::client::{Client, Lane, encode};
use super::error::Error;
use super::lifecycle::{as_sent, upid, vm};
use super::upid::Upid;
use model::Vmid;
use runtime::boxed;

impl Client {
    /// Creates a VM with these options. The VMID is claimed before the task begins. Until the task ends, the
    /// configuration only contains `lock: create`, and a token with rights only on the resource pool cannot
    /// see the VM.
    ///
    /// # Errors
    /// Returns [`super::Kind::Exists`] if the VMID is taken, or another error if Proxmox VE refuses the
    /// request.
    #[boxed]
    pub async fn create_vm(
        &self,
        host: &str,
        vmid: Vmid,
        options: &BTreeMap<String, String>,
        pool: Option<&str>,
    ) -> Result<Upid, Error> {
        let path = format!("/nodes/{}/qemu", encode(host));
        let mut form = vec![("vmid", vmid.to_string())];
        form.extend(options.iter().map(|(key, value)| (key.as_str(), as_sent(key, value))));
        form.extend(pool.map(|pool| ("pool", pool.to_owned())));
        let data = self.post(Lane::Lifecycle(host), &path, &form).await?;
        upid("POST qemu", &data)
    }

    /// Turns a stopped VM into a template. Its disks become base images, which clones do not change.
    ///
    /// # Errors
    /// Returns an error if Proxmox VE refuses the request, for example because the VM is already a template.
    #[boxed]
    pub async fn convert_to_template(&self, host: &str, vmid: Vmid) -> Result<Upid, Error> {
        let path = format!("{}/template", vm(host, vmid));
        let data = self.post(Lane::Lifecycle(host), &path, &[]).await?;
        upid("POST template", &data)
    }
}
