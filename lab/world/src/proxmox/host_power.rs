//! Shuts down and wakes hosts through the API. Also answers the calls that report votes and Ceph daemons,
//! which an administrator checks before a shutdown.

use std::time::Duration;

use serde_json::{Value, json};

use super::{
    ApiCall, Pve,
    answer::{Answer, Refusal},
};

/// The time from the shutdown call until the host is off, if no guest has to be stopped.
const SHUTDOWN: Duration = Duration::from_secs(20);
/// The time from a magic packet until the host's kernel starts. The host's API answers some seconds later.
const FIRMWARE: Duration = Duration::from_secs(75);

/// The MAC address to which wake-on-LAN packets are sent.
const MAC: &str = "BC:24:11:0A:0B:0C";

/// A host's power behavior: simulated faults, and the transition that is under way.
#[derive(Clone, Debug, Default)]
pub struct HostPower {
    /// The node's options contain no MAC address for wake-on-LAN.
    pub without_mac: bool,
    /// The host does not power on, although wake-on-LAN packets reach it.
    pub dead: bool,
    /// The host is shutting down. It ignores wake-on-LAN packets and its power button until it is off.
    pub going_down: bool,
    /// The host's firmware is running.
    pub coming_up: bool,
    /// The additional time that a shutdown of the host takes.
    pub lingers: Duration,
    /// Ceph daemons run on the host.
    pub ceph: bool,
}

impl Pve {
    /// Answers `POST /nodes/{node}/status`: shuts down the host's guests, then shuts down or reboots the
    /// host.
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

    /// Answers `POST /nodes/{node}/wakeonlan`. The answer does not depend on whether the host receives the
    /// packet.
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

    /// Switches a host on, as a wake-on-LAN packet or the power button does. Does nothing if the host is
    /// already on, shutting down, starting, or dead.
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

    /// Whether the host is powered on, as its management controller sees it.
    pub fn has_power(&self, node: &str) -> bool {
        self.state().hosts.get(node).is_some_and(|host| host.online || host.power.coming_up)
    }

    /// Changes how a host's power behaves.
    pub fn change_power(&self, node: &str, change: impl FnOnce(&mut HostPower)) {
        if let Some(host) = self.state().hosts.get_mut(node) {
            change(&mut host.power);
        }
    }

    /// The VMs that were running when their host was asked to shut down.
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
