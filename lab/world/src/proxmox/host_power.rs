//! Whole hosts that are shut down and woken through the API, and what an administrator sees before that:
//! votes, Ceph.

use std::time::Duration;

use serde_json::{Value, json};

use super::{
    ApiCall, Pve,
    answer::{Answer, Refusal},
};

/// From the call to the end of the power, if no guest has to be stopped before.
const SHUTDOWN: Duration = Duration::from_secs(20);
/// From a magic packet to a host whose kernel runs; its API needs some seconds more.
const FIRMWARE: Duration = Duration::from_secs(75);

/// The address by which hosts are woken.
const MAC: &str = "BC:24:11:0A:0B:0C";

/// How a host's power behaves.
#[derive(Clone, Debug, Default)]
pub struct HostPower {
    /// Its MAC address in the node's options is missing.
    pub without_mac: bool,
    /// Packets reach it and it does not come up.
    pub dead: bool,
    /// It is going down and takes no notice of anything else.
    pub going_down: bool,
    /// Its firmware runs.
    pub coming_up: bool,
    /// This much longer its shutdown takes.
    pub lingers: Duration,
    /// Daemons of Ceph run on it.
    pub ceph: bool,
}

impl Pve {
    /// `POST /nodes/{node}/status`: guests are shut down, then the host.
    pub(super) fn host_command(&self, call: &ApiCall) -> Result<Answer, Refusal> {
        let node = call.node().to_owned();
        let stopping = {
            let mut state = self.state();
            call.who.need(&state, &format!("/nodes/{node}"), &["Sys.PowerMgmt"])?;
            let running: Vec<u32> = state
                .vms
                .values()
                .filter(|vm| vm.node == node && vm.machine.is_some())
                .map(|vm| vm.vmid)
                .collect();
            let time = if running.is_empty() { Duration::ZERO } else { state.timings.shutdown };
            let Some(host) = state.hosts.get_mut(&node) else {
                return Err(Refusal::failed("no such cluster node"));
            };
            host.power.going_down = true;
            let time = time + host.power.lingers;
            state.stopped_with_hosts.extend(running);
            time
        };
        let again = call.params.text("command").as_deref() == Some("reboot");
        let pve = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(stopping + SHUTDOWN).await;
            pve.power_off_host(&node);
            if let Some(host) = pve.state().hosts.get_mut(&node) {
                host.power.going_down = false;
            }
            if again {
                pve.come_up(&node).await;
            }
        });
        Ok(Value::Null.into())
    }

    /// `POST /nodes/{node}/wakeonlan`: the answer is the same whether a host hears the packet or not.
    pub(super) fn wake_on_lan(&self, call: &ApiCall) -> Result<Answer, Refusal> {
        let node = call.node().to_owned();
        {
            let mut state = self.state();
            call.who.need(&state, &format!("/nodes/{node}"), &["Sys.PowerMgmt"])?;
            let Some(host) = state.hosts.get_mut(&node) else {
                return Err(Refusal::failed("no such cluster node"));
            };
            if host.power.without_mac {
                return Err(Refusal::failed(format!("No wake on LAN MAC address defined for '{node}'!")));
            }
        }
        self.press_power(&node);
        Ok(Value::from(MAC).into())
    }

    /// `GET /nodes/{node}/config`.
    pub(super) fn node_config(&self, call: &ApiCall) -> Result<Answer, Refusal> {
        let state = self.state();
        call.who.need(&state, "/", &["Sys.Audit"])?;
        let without = state.hosts.get(call.node()).is_none_or(|host| host.power.without_mac);
        let digest = "da39a3ee5e6b4b0d3255bfef95601890afd80709";
        Ok(if without { json!({ "digest": digest }) } else { json!({ "digest": digest, "wakeonlan": MAC }) }
            .into())
    }

    /// What a packet or a press of the button does: nothing to a host that is on, going off, or dead.
    pub fn press_power(&self, node: &str) {
        {
            let mut state = self.state();
            let Some(host) = state.hosts.get_mut(node) else { return };
            if host.online || host.power.going_down || host.power.coming_up || host.power.dead {
                return;
            }
            host.power.coming_up = true;
        }
        let (pve, node) = (self.clone(), node.to_owned());
        tokio::spawn(async move { pve.come_up(&node).await });
    }

    async fn come_up(&self, node: &str) {
        tokio::time::sleep(FIRMWARE).await;
        if let Some(host) = self.state().hosts.get_mut(node) {
            host.power.coming_up = false;
        }
        self.power_on_host(node);
    }

    /// Whether its power supply runs, as its management controller sees it.
    pub fn has_power(&self, node: &str) -> bool {
        self.state().hosts.get(node).is_some_and(|host| host.online || host.power.coming_up)
    }

    /// Changes how a host's power behaves.
    pub fn change_power(&self, node: &str, change: impl FnOnce(&mut HostPower)) {
        if let Some(host) = self.state().hosts.get_mut(node) {
            change(&mut host.power);
        }
    }

    /// VMs that ran while their host was asked to shut down.
    pub fn stopped_with_hosts(&self) -> Vec<u32> {
        self.state().stopped_with_hosts.clone()
    }

    pub(super) fn corosync_nodes(&self, call: &ApiCall) -> Result<Answer, Refusal> {
        let state = self.state();
        call.who.need(&state, "/", &["Sys.Audit"])?;
        if state.name.is_none() {
            return Ok(json!([]).into());
        }
        let rows = state.hosts.iter().enumerate().map(|(number, (name, host))| {
            let id = (number + 1).to_string();
            json!({ "node": name, "name": name, "nodeid": id, "quorum_votes": "1", "ring0_addr": host.spec.address })
        });
        Ok(Value::Array(rows.collect()).into())
    }

    /// No `QDevice`.
    pub(super) fn qdevice(&self, call: &ApiCall) -> Result<Answer, Refusal> {
        call.who.need(&self.state(), "/", &["Sys.Audit"])?;
        Ok(json!({}).into())
    }

    pub(super) fn ceph_metadata(&self, call: &ApiCall) -> Result<Answer, Refusal> {
        let state = self.state();
        call.who.need(&state, "/", &["Sys.Audit"])?;
        let on: Vec<&String> =
            state.hosts.iter().filter(|(_, host)| host.power.ceph).map(|(name, _)| name).collect();
        if on.is_empty() {
            return Err(Refusal::failed("binary not installed: /usr/bin/ceph-mon"));
        }
        let mon = on.iter().map(|name| (format!("{name}@{name}"), json!({ "hostname": name })));
        let osd = on.iter().enumerate().map(|(id, name)| json!({ "id": id, "hostname": name }));
        Ok(json!({
            "mon": mon.collect::<serde_json::Map<_, _>>(), "osd": osd.collect::<Vec<_>>(), "mgr": {}, "mds": {},
        })
        .into())
    }
}
