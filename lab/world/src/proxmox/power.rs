//! Calls that concern a VM's power: status, start, stop, shutdown, reboot and reset.

use std::time::Duration;

use serde_json::{Value, json};

use super::{
    ApiCall, Pve,
    access::Identity,
    answer::{Answer, Refusal},
    config::LOCK_WAIT,
    hotplug,
    process::CLEAN_UP,
    task::Worker,
    vm::{HaRequest, Inside},
};
use crate::qemu::Running;

/// How long an agent call waits for an agent that does not answer.
pub(super) const AGENT_PING: Duration = Duration::from_secs(3);
/// How long a shutdown waits if the caller gives no timeout.
const SHUTDOWN_LIMIT: Duration = Duration::from_mins(1);

/// How long a stop that overrules a shutdown waits for the shutdown's worker before it kills that worker.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a VM was observed to stay locked after its shutdown's worker was killed.
const ORPHANED_LOCK: Duration = Duration::from_millis(20_300);

/// Handles an interrupt that arrives during the agent ping at the start of a shutdown. The ping swallows the
/// signal, so the worker has to be killed, and the VM stays locked for a while.
async fn swallow(worker: &Worker) -> Result<(), Refusal> {
    worker.log("QEMU Guest Agent is not running - received interrupt");
    tokio::time::sleep(PATIENCE).await;
    worker.vanish();
    tokio::time::sleep(ORPHANED_LOCK).await;
    Ok(())
}

impl Pve {
    pub(super) fn status_current(&self, call: &ApiCall) -> Result<Answer, Refusal> {
        let state = self.state();
        call.who.need(&state, &format!("/vms/{}", call.vmid()), &["VM.Audit"])?;
        let vm = state.vm_on(call.node(), call.vmid())?;
        let mut row = vm.summary(true);
        row["ha"] = json!({ "managed": i32::from(vm.ha.is_some()) });
        if vm.has_agent() {
            row["agent"] = 1.into();
        }
        Ok(row.into())
    }

    pub(super) fn may_power(&self, call: &ApiCall) -> Result<(), Refusal> {
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
        if self.is_ha(call) {
            return Ok(self.ask_ha(call, "start", HaRequest::Started));
        }
        Ok(Value::from(self.begin_start(call.node(), call.vmid(), &call.who)).into())
    }

    /// Starts a task that starts a VM.
    pub(super) fn begin_start(&self, node: &str, vmid: u32, who: &Identity) -> String {
        let (pve, node) = (self.clone(), node.to_owned());
        self.spawn_worker(&node.clone(), "qmstart", &vmid.to_string(), who, |worker| async move {
            let _lock = pve.lock_vm(&node, vmid, LOCK_WAIT).await?;
            if pve.go_on(&worker, &node, vmid).await? {
                return Ok(());
            }
            let (time, has_cloud_init) = {
                let mut state = pve.state();
                let vm = state.vm_on(&node, vmid)?;
                if vm.is_template() {
                    return Err(Refusal::failed("you can't start a vm if it's a template"));
                }
                vm.check_lock()?;
                if vm.machine.is_some() {
                    return Err(Refusal::failed(format!("VM {vmid} already running")));
                }
                let threads = state.hosts.get(&node).map_or(u32::MAX, |host| host.spec.cores);
                if let Some(refusal) = hotplug::unstartable(vm, threads) {
                    return Err(refusal);
                }
                let has_cloud_init = vm.drives().iter().any(|(_, volid, _)| volid.contains("cloudinit"));
                if let Some(gone) = state.missing_volume(vm) {
                    return Err(Refusal::failed(format!("volume '{gone}' does not exist")));
                }
                state.need_writable(vmid, &node, worker.upid.pid)?;
                let time = state.timings.start;
                (state.vary(time), has_cloud_init)
            };
            if has_cloud_init {
                worker.log("generating cloud-init ISO");
            }
            worker.work(time).await?;
            super::pci::take(&mut pve.state(), &node, vmid)?;
            pve.power_up(vmid).await
        })
    }

    pub(super) fn stop(&self, call: &ApiCall) -> Result<Answer, Refusal> {
        self.may_power(call)?;
        let overrule = call.params.flag("overrule-shutdown");
        if self.is_ha(call) {
            if overrule {
                return Err(Refusal::parameter("overrule-shutdown", "Not applicable for HA resources."));
            }
            return Ok(self.ask_ha(call, "stop", HaRequest::Stopped(Duration::ZERO)));
        }
        Ok(Value::from(self.begin_stop(call.node(), call.vmid(), &call.who, overrule)).into())
    }

    /// Starts a task that stops a VM.
    pub(super) fn begin_stop(&self, node: &str, vmid: u32, who: &Identity, overrule: bool) -> String {
        let (pve, node, who) = (self.clone(), node.to_owned(), who.clone());
        self.spawn_worker(&node.clone(), "qmstop", &vmid.to_string(), &who.clone(), |worker| async move {
            if overrule {
                pve.interrupt_shutdowns(&worker, vmid, &who.token).await;
            }
            let _lock = pve.lock_vm(&node, vmid, LOCK_WAIT).await?;
            let (inside, time) = {
                let mut state = pve.state();
                let vm = state.vm_to_stop(&node, vmid)?;
                vm.check_lock()?;
                let Some(machine) = &vm.machine else { return Ok(()) };
                let inside = machine.inside.clone();
                let time = state.timings.stop;
                (inside, state.vary(time))
            };
            worker.work(time).await?;
            if let Inside::Real(running) = inside {
                running.stop().await;
            }
            pve.power_cut(vmid);
            Ok(())
        })
    }

    async fn interrupt_shutdowns(&self, worker: &Worker, vmid: u32, token: &str) {
        let found: Vec<_> = {
            let state = self.state();
            let found = state.tasks.values().filter(|task| {
                task.running()
                    && task.upid.kind == "qmshutdown"
                    && task.upid.id == vmid.to_string()
                    && task.upid.user == token
            });
            found.map(|task| (task.upid.to_string(), task.interrupt.clone())).collect()
        };
        let upids: Vec<&str> = found.iter().map(|(upid, _)| upid.as_str()).collect();
        if !upids.is_empty() {
            worker.log(format!("overruled qmshutdown tasks: {}", upids.join(", ")));
        }
        for (_, interrupt) in &found {
            interrupt.cancel();
        }
        let under_way = || {
            let state = self.state();
            found.iter().any(|(upid, _)| state.tasks.get(upid).is_some_and(super::task::Task::running))
        };
        let end = tokio::time::Instant::now() + PATIENCE;
        while under_way() && tokio::time::Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    pub(super) fn shutdown(&self, call: &ApiCall) -> Result<Answer, Refusal> {
        self.may_power(call)?;
        let limit = call.params.number("timeout").map_or(SHUTDOWN_LIMIT, Duration::from_secs);
        if self.is_ha(call) {
            return Ok(self.ask_ha(call, "stop", HaRequest::Stopped(limit)));
        }
        let force = call.params.flag("forceStop");
        Ok(Value::from(self.begin_shutdown(call.node(), call.vmid(), &call.who, limit, force)).into())
    }

    /// Starts a task that shuts a VM down.
    pub(super) fn begin_shutdown(
        &self,
        node: &str,
        vmid: u32,
        who: &Identity,
        limit: Duration,
        force: bool,
    ) -> String {
        let (pve, node) = (self.clone(), node.to_owned());
        self.spawn_worker(&node.clone(), "qmshutdown", &vmid.to_string(), who, |worker| async move {
            let _lock = pve.lock_vm(&node, vmid, LOCK_WAIT).await?;
            pve.shut_down(&worker, &node, vmid, limit, force).await
        })
    }

    async fn shut_down(
        &self,
        worker: &Worker,
        node: &str,
        vmid: u32,
        limit: Duration,
        force: bool,
    ) -> Result<(), Refusal> {
        let (inside, has_agent, time) = {
            let mut state = self.state();
            let vm = state.vm_to_stop(node, vmid)?;
            vm.check_lock()?;
            let Some(machine) = &vm.machine else { return Ok(()) };
            let (inside, has_agent) = (machine.inside.clone(), vm.has_agent());
            let time = state.timings.shutdown;
            (inside, has_agent, state.vary(time))
        };
        let guest = match inside {
            Inside::Simulated(guest) => guest,
            Inside::Real(running) => {
                return self.shut_real_down(worker, vmid, &running, has_agent, limit, force).await;
            }
        };
        let answers = guest.agent_answers();
        if has_agent && !answers {
            tokio::select! {
                biased;
                () = worker.interrupted() => return swallow(worker).await,
                () = tokio::time::sleep(AGENT_PING) => {}
            }
            let silent = format!("VM {vmid} qga command 'guest-ping' failed - got timeout");
            worker.log(format!("QEMU Guest Agent is not running - {silent}"));
        }
        let reacts = guest.shuts_down() && (answers || guest.accepts_tcp());
        if reacts && time <= limit {
            worker.work(time).await?;
            self.power_cut(vmid);
            return Ok(());
        }
        worker.work(limit).await?;
        if !force {
            return Err(Refusal::failed("VM quit/powerdown failed - got timeout"));
        }
        worker.log("VM still running - terminating now with SIGTERM");
        worker.work(Duration::from_secs(1)).await?;
        self.power_cut(vmid);
        Ok(())
    }

    /// Asks the agent to shut the guest down, or presses the power button if no agent answers. Then waits for
    /// the process to end.
    async fn shut_real_down(
        &self,
        worker: &Worker,
        vmid: u32,
        running: &Running,
        has_agent: bool,
        limit: Duration,
        force: bool,
    ) -> Result<(), Refusal> {
        if has_agent && let Err(silent) = running.agent_shutdown(AGENT_PING).await {
            worker.log(format!("QEMU Guest Agent is not running - {silent}"));
            running.press_power().await.map_err(|error| Refusal::failed(error.to_string()))?;
        } else if !has_agent {
            running.press_power().await.map_err(|error| Refusal::failed(error.to_string()))?;
        }
        let ended = tokio::select! {
            biased;
            () = worker.interrupted() => return Err(Refusal::failed("received interrupt")),
            ended = tokio::time::timeout(limit, running.ended()) => ended,
        };
        if ended.is_err() && !force {
            return Err(Refusal::failed("VM quit/powerdown failed - got timeout"));
        }
        if ended.is_err() {
            worker.log("VM still running - terminating now with SIGTERM");
            running.stop().await;
        }
        self.power_cut(vmid);
        Ok(())
    }

    /// Shuts a guest down. The clean-up that follows the end of QEMU starts the VM again, with its pending
    /// changes.
    pub(super) fn reboot(&self, call: &ApiCall) -> Result<Answer, Refusal> {
        self.may_power(call)?;
        self.need_running(call)?;
        let limit = call.params.number("timeout").map_or(SHUTDOWN_LIMIT, Duration::from_secs);
        let (pve, node, vmid) = (self.clone(), call.node().to_owned(), call.vmid());
        let upid =
            self.spawn_worker(&node.clone(), "qmreboot", &vmid.to_string(), &call.who, |worker| async move {
                let lock = pve.lock_vm(&node, vmid, LOCK_WAIT).await?;
                pve.shut_down(&worker, &node, vmid, limit, false).await?;
                drop(lock);
                tokio::spawn(async move {
                    tokio::time::sleep(CLEAN_UP).await;
                    pve.power_on(vmid);
                });
                Ok(())
            });
        Ok(Value::from(upid).into())
    }

    /// Presses a running VM's reset button: the guest boots again in the same QEMU.
    pub(super) fn reset(&self, call: &ApiCall) -> Result<Answer, Refusal> {
        self.may_power(call)?;
        self.need_running(call)?;
        let (pve, node, vmid) = (self.clone(), call.node().to_owned(), call.vmid());
        let upid =
            self.spawn_worker(&node.clone(), "qmreset", &vmid.to_string(), &call.who, |_| async move {
                let _lock = pve.lock_vm(&node, vmid, LOCK_WAIT).await?;
                let inside = {
                    let state = pve.state();
                    state.vms.get(&vmid).and_then(|vm| Some(vm.machine.as_ref()?.inside.clone()))
                };
                let guest = match inside {
                    None => return Ok(()),
                    Some(Inside::Real(running)) => {
                        let pressed = running.press_reset().await;
                        return pressed.map_err(|error| Refusal::failed(error.to_string()));
                    }
                    Some(Inside::Simulated(guest)) => guest,
                };
                let pending = pve.state().vms.get_mut(&vmid).and_then(|vm| {
                    let pending = std::mem::take(&mut vm.pending);
                    vm.machine.take().map(|_| pending)
                });
                let Some(pending) = pending else { return Ok(()) };
                guest.power_off();
                pve.power_on(vmid);
                if let Some(vm) = pve.state().vms.get_mut(&vmid) {
                    vm.pending = pending;
                }
                Ok(())
            });
        Ok(Value::from(upid).into())
    }

    fn need_running(&self, call: &ApiCall) -> Result<(), Refusal> {
        let running = self.state().vms.get(&call.vmid()).is_some_and(|vm| vm.machine.is_some());
        if running { Ok(()) } else { Err(Refusal::failed(format!("VM {} not running", call.vmid()))) }
    }
}
