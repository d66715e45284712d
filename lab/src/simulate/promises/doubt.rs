//! Calls with an unknown outcome: before such a call is repeated, the daemon must read the state of the VM.

use stage::{Call, Side};

use crate::simulate::checker::objects::newid;
use crate::simulate::checker::{Checker, Promise};

/// The outcome of a call that may have been carried out is checked before the call is repeated.
pub struct Doubt;

impl Promise for Doubt {
    fn on_call(&self, checker: &Checker, _: &str, call: &Call<'_>) {
        checker.must_ask_first(call);
    }
}

impl Checker {
    /// Called when the answer to a call is lost. The call itself may be lost too.
    pub fn lost(&self, call: Call<'_>) {
        if let Some(vmid) = told(&call) {
            self.inner().unsure.insert(vmid, format!("{} {}", call.method, call.path));
        }
    }

    /// Checks that a POST with an unknown outcome is not repeated before its outcome has been checked.
    pub fn must_ask_first(&self, call: &Call<'_>) {
        if call.side == Side::Kubernetes {
            return;
        }
        let what = format!("{} {}", call.method, call.path);
        if let Some(vmid) = told(call) {
            let before = self.inner().unsure.get(&vmid).cloned();
            if before.is_some_and(|before| before == what) {
                self.violated(&format!("{what} is repeated blindly for VM {vmid}"));
            }
        } else if let ("GET", ["nodes", _, "qemu", vmid, _, ..]) =
            (call.method, call.path.trim_start_matches('/').split('/').collect::<Vec<_>>().as_slice())
            && let Ok(vmid) = vmid.parse()
        {
            self.inner().unsure.remove(&vmid);
        }
    }
}

/// Returns the VMID of the VM that a POST changes. Returns `None` for calls to the guest agent, which may be
/// repeated: the programs that they start have no further effect when run again.
fn told(call: &Call<'_>) -> Option<u32> {
    let parts: Vec<&str> = call.path.trim_start_matches('/').split('/').collect();
    match (call.method, parts.as_slice()) {
        ("POST", ["nodes", _, "qemu", _, "clone"]) => newid(call.body),
        ("POST", ["nodes", _, "qemu", vmid, what, ..]) if *what != "agent" => vmid.parse().ok(),
        _ => None,
    }
}
