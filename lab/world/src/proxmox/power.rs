//! Power: status, start, stop, shutdown, and what they do to the guest.

use std::time::Duration;

use serde_json::{Value, json};

use super::{
    ApiCall, Event, Pve,
    answer::{Answer, Refusal},
    config::LOCK_WAIT,
    state::{Machine, Pending, property},
    task::Worker,
};
use crate::guest::{Guest, Identity, Pace};

/// What an agent call waits for an agent that does not answer.
pub(super) const AGENT_PING: Duration = Duration::from_secs(3);
/// How long a shutdown waits when the caller does not say.
const SHUTDOWN_LIMIT: Duration = Duration::from_mins(1);

impl Pve {
    pub(super) fn status_current(&self, call: &ApiCall) -> Result<Answer, Refusal> {
        let state = self.state();
        call.who.need(&state, &format!("/vms/{}", call.vmid()), &["VM.Audit"])?;
        let vm = state.vm_on(call.node(), call.vmid())?;
        let mut row = vm.summary();
        row["ha"] = json!({ "managed": i32::from(vm.ha) });
        row["qmpstatus"] = row["status"].clone();
        if vm.has_agent() {
            row["agent"] = 1.into();
        }
        if vm.get("serial0").is_some() {
            row["serial"] = 1.into();
        }
        Ok(row.into())
    }

    fn may_power(&self, call: &ApiCall) -> Result<(), Refusal> {
        let state = self.state();
        call.who.need(&state, &format!("/vms/{}", call.vmid()), &["VM.PowerMgmt"])?;
        if call.params.flag("skiplock") {
            return Err(Refusal::parameter("skiplock", "Only root may use this option."));
        }
        Ok(())
    }

    pub(super) fn start(&self, call: &ApiCall) -> Result<Answer, Refusal> {
        self.may_power(call)?;
        self.state().need_quorum()?;
        let (pve, node, vmid) = (self.clone(), call.node().to_owned(), call.vmid());
        let upid =
            self.spawn_worker(&node.clone(), "qmstart", &vmid.to_string(), &call.who, |worker| async move {
                let _lock = pve.lock_vm(&node, vmid, LOCK_WAIT).await?;
                let time = {
                    let mut state = pve.state();
                    let vm = state.vm_on(&node, vmid)?;
                    if vm.is_template() {
                        return Err(Refusal::failed("you can't start a vm if it's a template"));
                    }
                    vm.check_lock()?;
                    if vm.machine.is_some() {
                        return Err(Refusal::failed(format!("VM {vmid} already running")));
                    }
                    state.need_writable(vmid, &node, worker.upid.pid)?;
                    let time = state.timings.start;
                    state.vary(time)
                };
                worker.log("generating cloud-init ISO");
                worker.work(time).await?;
                pve.power_on(vmid);
                Ok(())
            });
        Ok(Value::from(upid).into())
    }

    pub(super) fn stop(&self, call: &ApiCall) -> Result<Answer, Refusal> {
        self.may_power(call)?;
        let (pve, node, vmid) = (self.clone(), call.node().to_owned(), call.vmid());
        let overrule = call.params.flag("overrule-shutdown");
        let who = call.who.clone();
        let upid =
            self.spawn_worker(&node.clone(), "qmstop", &vmid.to_string(), &call.who, |worker| async move {
                if overrule {
                    pve.interrupt_shutdowns(&worker, vmid, &who.token);
                }
                let _lock = pve.lock_vm(&node, vmid, LOCK_WAIT).await?;
                let time = {
                    let mut state = pve.state();
                    let vm = state.vm_on(&node, vmid)?;
                    vm.check_lock()?;
                    if vm.machine.is_none() {
                        return Ok(());
                    }
                    let time = state.timings.stop;
                    state.vary(time)
                };
                worker.work(time).await?;
                pve.power_cut(vmid);
                Ok(())
            });
        Ok(Value::from(upid).into())
    }

    fn interrupt_shutdowns(&self, worker: &Worker, vmid: u32, token: &str) {
        let state = self.state();
        let found = state.tasks.values().filter(|task| {
            task.running()
                && task.upid.kind == "qmshutdown"
                && task.upid.id == vmid.to_string()
                && task.upid.user == token
        });
        let found: Vec<_> = found.map(|task| (task.upid.to_string(), task.interrupt.clone())).collect();
        drop(state);
        for (upid, interrupt) in found {
            worker.log(format!("overruling active shutdown task {upid}"));
            interrupt.cancel();
        }
    }

    pub(super) fn shutdown(&self, call: &ApiCall) -> Result<Answer, Refusal> {
        self.may_power(call)?;
        let (pve, node, vmid) = (self.clone(), call.node().to_owned(), call.vmid());
        let limit = call.params.number("timeout").map_or(SHUTDOWN_LIMIT, Duration::from_secs);
        let force = call.params.flag("forceStop");
        let upid = self.spawn_worker(
            &node.clone(),
            "qmshutdown",
            &vmid.to_string(),
            &call.who,
            |worker| async move {
                let _lock = pve.lock_vm(&node, vmid, LOCK_WAIT).await?;
                let (guest, has_agent, time) = {
                    let mut state = pve.state();
                    let vm = state.vm_on(&node, vmid)?;
                    vm.check_lock()?;
                    let Some(machine) = &vm.machine else { return Ok(()) };
                    let (guest, has_agent) = (machine.guest.clone(), vm.has_agent());
                    let time = state.timings.shutdown;
                    (guest, has_agent, state.vary(time))
                };
                let answers = guest.agent_answers();
                if has_agent && !answers {
                    // Not interruptible: the ping swallows the signal.
                    tokio::time::sleep(AGENT_PING).await;
                }
                let reacts = guest.shuts_down() && (answers || guest.accepts_tcp());
                if reacts && time <= limit {
                    worker.work(time).await?;
                    pve.power_cut(vmid);
                    return Ok(());
                }
                worker.work(limit).await?;
                if !force {
                    return Err(Refusal::failed("VM quit/powerdown failed - got timeout"));
                }
                worker.log("VM quit/powerdown failed - terminating now with SIGTERM");
                worker.work(Duration::from_secs(1)).await?;
                pve.power_cut(vmid);
                Ok(())
            },
        );
        Ok(Value::from(upid).into())
    }

    /// Starts a VM's machine and its guest, with pending changes applied.
    pub(super) fn power_on(&self, vmid: u32) {
        let mut state = self.state();
        let timings = state.timings.clone();
        let pace = Pace {
            agent: state.vary(timings.boot_to_agent),
            running: state.vary(timings.agent_to_running),
            join: state.vary(timings.join),
        };
        let pid = state.new_pid();
        let Some(vm) = state.vms.get_mut(&vmid).filter(|vm| vm.machine.is_none()) else { return };
        for (key, pending) in std::mem::take(&mut vm.pending) {
            match pending {
                Pending::Set(value) => vm.config.insert(key, value),
                Pending::Delete => vm.config.remove(&key),
            };
        }
        let ip = vm.get("ipconfig0").unwrap_or_default().to_owned();
        let addresses =
            ["ip", "ip6"].iter().filter_map(|key| property(&ip, key)).filter(|text| text.contains('/'));
        let net = vm.get("net0").unwrap_or_default();
        let identity = Identity {
            uuid: vm.uuid(),
            hostname: vm.name(),
            addresses: addresses.map(String::from).collect(),
            mac: net
                .split(',')
                .next()
                .and_then(|model| model.split('=').nth(1))
                .unwrap_or_default()
                .to_lowercase(),
            cpus: vm.cpus(),
            memory: vm.memory(),
            disk: vm.disk_size(),
        };
        let inner = std::sync::Arc::downgrade(&self.0);
        let on_join = Box::new(move || {
            if let Some(inner) = inner.upgrade() {
                Self(inner).announce(Event::GuestJoined { vmid });
            }
        });
        let (disk, faults) = (vm.disk.clone(), vm.faults.clone());
        let guest = Guest::boot(identity, disk, faults, pace, self.0.control_plane.clone(), on_join);
        vm.machine = Some(Machine { pid, started: tokio::time::Instant::now(), guest });
        drop(state);
        self.announce(Event::Power { vmid, on: true });
    }

    /// Ends a VM's machine at once.
    pub(super) fn power_cut(&self, vmid: u32) {
        let machine = self.state().vms.get_mut(&vmid).and_then(|vm| {
            let machine = vm.machine.take()?;
            for (key, pending) in std::mem::take(&mut vm.pending) {
                match pending {
                    Pending::Set(value) => vm.config.insert(key, value),
                    Pending::Delete => vm.config.remove(&key),
                };
            }
            Some(machine)
        });
        if let Some(machine) = machine {
            machine.guest.power_off();
            self.announce(Event::Power { vmid, on: false });
        }
    }
}
