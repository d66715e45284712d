//! What cloud-init gets to read.

use serde_json::Value;

use super::{
    ApiCall, Pve,
    answer::{Answer, Refusal},
};

impl Pve {
    pub(super) fn cloud_init_dump(&self, call: &ApiCall) -> Result<Answer, Refusal> {
        let state = self.state();
        call.who.need(&state, &format!("/vms/{}", call.vmid()), &["VM.Audit"])?;
        let vm = state.vm_on(call.node(), call.vmid())?;
        let text = match call.params.text("type").as_deref() {
            Some("user") => format!(
                "#cloud-config\nhostname: {}\nmanage_etc_hosts: true\nchpasswd:\n  expire: False\nusers:\n  - default\npackage_upgrade: {}\n",
                vm.name(),
                vm.get("ciupgrade") != Some("0")
            ),
            Some("network") => format!("version: 1\nconfig: # {}\n", vm.get("ipconfig0").unwrap_or_default()),
            _ => format!("instance-id: {}\n", vm.digest()),
        };
        Ok(Value::from(text).into())
    }
}
