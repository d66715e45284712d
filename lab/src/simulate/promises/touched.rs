//! Promises about VMs that other clients protect or hide: a machine is not drained if its VM cannot be
//! destroyed, and a VM in no resource pool is unknown to the daemon.

use std::time::Duration;

use stage::Call;
use tokio::time::Instant;

use crate::simulate::checker::objects::{is_ready, vmid};
use crate::simulate::checker::{Checker, Promise};

/// The longest time until a daemon reacts to another client's change: an earlier read may still be in
/// progress.
const READ: Duration = Duration::from_mins(2);

/// The daemon does not shut down a protected VM, because it could not destroy the VM afterwards.
pub struct Touched;

impl Promise for Touched {
    fn on_call(&self, checker: &Checker, _: &str, call: &Call<'_>) {
        checker.must_leave_what_is_protected(call);
    }
}

impl Checker {
    /// Called when an administrator protects a VM, or removes the protection.
    pub fn is_protected(&self, vmid: u32, protected: bool) {
        let held = &mut self.inner().touched.protected;
        if protected {
            held.entry(vmid).or_insert_with(Instant::now);
        } else {
            held.remove(&vmid);
        }
    }

    /// Called when an administrator takes a VM out of the machines' resource pool, or puts it back.
    pub fn is_outside(&self, vmid: u32, outside: bool) {
        let until = (!outside).then(Instant::now);
        self.inner().touched.outside.insert(vmid, until);
    }

    /// Whether a VM is hidden from the daemon, or was a moment ago.
    pub fn was_outside(&self, vmid: u32) -> bool {
        let inner = self.inner();
        inner.touched.outside.get(&vmid).is_some_and(|until| until.is_none_or(|until| until.elapsed() < READ))
    }

    /// Called when a record is written. If its machine is to be shut down, the VM must not be protected,
    /// because the shutdown would be useless.
    pub fn must_leave_what_is_protected(&self, call: &Call<'_>) {
        let Some((before, written)) = self.change_of_record(call) else { return };
        let begins = before["entered"]["Stopping"].is_null() && !written["entered"]["Stopping"].is_null();
        let Some(vmid) = vmid(&written).filter(|_| begins) else { return };
        let since = self.inner().touched.protected.get(&vmid).copied();
        let long = since.is_some_and(|since| since + READ < call.sent);
        let runs = self.world.pve.runs_for(vmid).is_some_and(|time| time > READ);
        if long && runs && written["intent"]["kind"] == "retire" && self.is_heard(vmid) {
            self.violated(&format!(
                "VM {vmid} of machine {} is to be shut down, but is protected and cannot be destroyed",
                written["name"]
            ));
        }
    }

    /// Whether the Node of a VM is ready.
    fn is_heard(&self, vmid: u32) -> bool {
        let node = self.node_of(vmid).and_then(|node| self.world.kube.get("Node", "", &node));
        node.is_some_and(|node| is_ready(&node))
    }
}
