//! High availability: what the HA manager does with VMs, and the HA status. The status lists no hosts or VMs
//! until a VM is managed or a host is in maintenance.

use std::time::Duration;

use serde_json::{Value, json};

use super::{
    ApiCall, Pve,
    access::Identity,
    answer::{Answer, Refusal},
    state::Host,
    vm::HaRequest,
};

/// The time between two rounds of the HA manager.
pub(super) const ROUND: Duration = Duration::from_secs(10);
/// How long a host may be without power before it is fenced. The VMs that HA manages on a fenced host are
/// started elsewhere.
const FENCED: Duration = Duration::from_mins(2);

impl Pve {
    pub(super) fn is_ha(&self, call: &ApiCall) -> bool {
        self.state().vms.get(&call.vmid()).is_some_and(|vm| vm.node == call.node() && vm.ha.is_some())
    }

    /// Handles a power call for an HA resource. The call only requests a state. Its task succeeds without
    /// waiting for the VM to reach that state.
    pub(super) fn ask_ha(&self, call: &ApiCall, what: &str, request: HaRequest) -> Answer {
        let (pve, vmid, words) =
            (self.clone(), call.vmid(), format!("Requesting HA {what} for VM {}", call.vmid()));
        let kind = format!("ha{what}");
        let upid = self.spawn_worker(call.node(), &kind, &vmid.to_string(), &call.who, |worker| async move {
            worker.log(words);
            worker.work(Duration::from_millis(300)).await?;
            if let Some(ha) = pve.state().vms.get_mut(&vmid).and_then(|vm| vm.ha.as_mut()) {
                *ha = request;
            }
            Ok(())
        });
        Value::from(upid).into()
    }

    /// Runs one round of the HA manager: moves VMs away from fenced hosts, then brings each VM into its
    /// requested state.
    pub(super) fn ha_round(&self) {
        self.recover();
        let wanted: Vec<_> = {
            let state = self.state();
            let quorate = state.quorate();
            let busy = |vmid: u32| {
                state.tasks.values().any(|task| task.running() && task.upid.id == vmid.to_string())
            };
            let online = |node: &str| state.hosts.get(node).is_some_and(|host| host.online);
            let vms = state.vms.values().filter(|vm| quorate && online(&vm.node) && !busy(vm.vmid));
            vms.filter_map(|vm| Some((vm.node.clone(), vm.vmid, vm.ha?, vm.machine.is_some()))).collect()
        };
        for (node, vmid, request, running) in wanted {
            let root = Identity::root();
            match request {
                HaRequest::Started if !running => drop(self.begin_start(&node, vmid, &root)),
                HaRequest::Stopped(Duration::ZERO) if running => {
                    drop(self.begin_stop(&node, vmid, &root, false));
                }
                HaRequest::Stopped(limit) if running => {
                    drop(self.begin_shutdown(&node, vmid, &root, limit, true));
                }
                _ => {}
            }
        }
    }

    /// Moves the HA resources of fenced hosts to a host that is up.
    fn recover(&self) {
        let mut state = self.state();
        let fenced = |host: &Host| host.off_since.is_some_and(|since| since.elapsed() >= FENCED);
        let dead: Vec<String> =
            state.hosts.iter().filter(|(_, host)| fenced(host)).map(|(name, _)| name.clone()).collect();
        let up = state.hosts.iter().find(|(_, host)| host.online && !host.maintenance);
        let Some(target) = up.map(|(name, _)| name.clone()).filter(|_| state.quorate()) else { return };
        for vm in state.vms.values_mut().filter(|vm| vm.ha.is_some() && dead.contains(&vm.node)) {
            vm.node.clone_from(&target);
        }
    }

    pub(super) fn ha_status(&self, call: &ApiCall) -> Result<Answer, Refusal> {
        let state = self.state();
        call.who.need(&state, "/", &["Sys.Audit"])?;
        let local = state.hosts.keys().next().cloned().unwrap_or_default();
        let quorum = if state.quorate() { "OK".to_owned() } else { format!("No quorum on node '{local}'!") };
        let mut rows = vec![json!({
            "id": "quorum", "type": "quorum", "node": local, "status": quorum, "quorate": i32::from(state.quorate()),
        })];
        let managed: Vec<_> = state.vms.values().filter(|vm| vm.ha.is_some()).collect();
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
            let asked = if vm.ha == Some(HaRequest::Started) { "started" } else { "stopped" };
            let (sid, wanted) =
                (format!("vm:{}", vm.vmid), if vm.machine.is_some() { "started" } else { "stopped" });
            rows.push(json!({
                "id": format!("service:{sid}"), "type": "service", "sid": sid, "node": vm.node, "state": wanted,
                "crm_state": wanted, "request_state": asked, "status": format!("{sid} ({}, {wanted})", vm.node),
            }));
        }
        Ok(Value::Array(rows).into())
    }
}
