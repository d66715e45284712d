//! What the HA stack says: nothing but the quorum until a VM is managed or a host is in maintenance.

use serde_json::{Value, json};

use super::{
    ApiCall, Pve,
    answer::{Answer, Refusal},
};

impl Pve {
    pub(super) fn ha_status(&self, call: &ApiCall) -> Result<Answer, Refusal> {
        let state = self.state();
        call.who.need(&state, "/", &["Sys.Audit"])?;
        let local = state.hosts.keys().next().cloned().unwrap_or_default();
        let quorum = if state.quorate() { "OK".to_owned() } else { format!("No quorum on node '{local}'!") };
        let mut rows = vec![json!({
            "id": "quorum", "type": "quorum", "node": local, "status": quorum, "quorate": i32::from(state.quorate()),
        })];
        let managed: Vec<_> = state.vms.values().filter(|vm| vm.ha).collect();
        let in_use = !managed.is_empty() || state.hosts.values().any(|host| host.maintenance);
        let new = !state.is_release_8();
        if new {
            let armed = if in_use { "armed" } else { "standby" };
            let watchdog = if in_use { "active" } else { "standby" };
            rows.push(json!({
                "id": "fencing", "type": "fencing", "node": local, "armed-state": armed,
                "status": format!("{armed} (CRM watchdog {watchdog})"),
            }));
        }
        let now = self.now();
        let time = now.strftime("%a %b %e %H:%M:%S %Y").to_string();
        for (name, host) in state.hosts.iter().filter(|_| in_use) {
            let busy = managed.iter().any(|vm| vm.node == *name);
            let mode = match () {
                () if host.maintenance => "maintenance mode",
                () if !host.online => "old timestamp - dead?",
                () if busy => "active",
                () => "idle",
            };
            let watchdog = match () {
                () if !new => "",
                () if busy && host.online => " watchdog active,",
                () => " watchdog standby,",
            };
            rows.push(json!({
                "id": format!("lrm:{name}"), "type": "lrm", "node": name, "timestamp": now.as_second(),
                "status": format!("{name} ({mode},{watchdog} {time})"),
            }));
        }
        for vm in managed {
            let (sid, wanted) =
                (format!("vm:{}", vm.vmid), if vm.machine.is_some() { "started" } else { "stopped" });
            rows.push(json!({
                "id": format!("service:{sid}"), "type": "service", "sid": sid, "node": vm.node, "state": wanted,
                "crm_state": wanted, "request_state": wanted, "status": format!("{sid} ({}, {wanted})", vm.node),
            }));
        }
        Ok(Value::Array(rows).into())
    }
}
