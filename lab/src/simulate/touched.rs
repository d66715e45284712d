//! VMs that others hold: what cannot be destroyed is not emptied for that, and of what is in no pool nothing
//! can be known.

use std::collections::BTreeMap;
use std::time::Duration;

use stage::Call;
use tokio::time::Instant;

use super::checker::{Checker, is_ready};

/// Between a change by others and the moment in which it counts, at most: what was read before may be on its
/// way for as long.
const READ: Duration = Duration::from_mins(2);

/// VMs that others hold, or held a moment ago.
#[derive(Default)]
pub struct Touched {
    /// These cannot be destroyed, since when.
    protected: BTreeMap<u32, Instant>,
    /// In no pool; until when, if it was put back.
    outside: BTreeMap<u32, Option<Instant>>,
}

impl Checker {
    /// An administrator protects a VM, or takes that back.
    pub(super) fn is_protected(&self, vmid: u32, protected: bool) {
        let held = &mut self.inner().touched.protected;
        if protected {
            held.entry(vmid).or_insert_with(Instant::now);
        } else {
            held.remove(&vmid);
        }
    }

    /// An administrator takes a VM out of the machines' pool, or puts it back.
    pub(super) fn is_outside(&self, vmid: u32, outside: bool) {
        let until = (!outside).then(Instant::now);
        self.inner().touched.outside.insert(vmid, until);
    }

    /// Whether a VM is hidden from the daemon, or was a moment ago.
    pub(super) fn was_outside(&self, vmid: u32) -> bool {
        let inner = self.inner();
        inner.touched.outside.get(&vmid).is_some_and(|until| until.is_none_or(|until| until.elapsed() < READ))
    }

    /// A record that is written: from here on its machine is shut down, which is of no use if it cannot be
    /// destroyed.
    pub(super) fn must_leave_what_is_protected(&self, call: &Call<'_>) {
        let Some((before, written)) = self.change_of_record(call) else { return };
        let begins = before["entered"]["Stopping"].is_null() && !written["entered"]["Stopping"].is_null();
        let Some(vmid) = super::places::vmid(&written).filter(|_| begins) else { return };
        let since = self.inner().touched.protected.get(&vmid).copied();
        let long = since.is_some_and(|since| since + READ < call.sent);
        let runs = self.world.pve.runs_for(vmid).is_some_and(|time| time > READ);
        if long && runs && written["intent"]["kind"] == "retire" && self.is_heard(vmid) {
            self.violated(&format!(
                "VM {vmid} is to be shut down, and cannot be destroyed: {}",
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
