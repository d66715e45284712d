//! Networks and tags: the bridge and VLAN of each pool and who may use which tags, drawn from the seed, with
//! no right more than that needs; and that no machine of a pool is cloned again and again while a right is
//! missing for it.

use std::collections::BTreeMap;
use std::time::Duration;

use stage::{Call, Side};
use tokio::time::Instant;

use crate::simulate::checker::Checker;
use crate::simulate::checker::memory::{Missing, Right};
use crate::simulate::checker::objects::newid;

/// A refusal is known this long after the settings that met it arrived, with all that may be lost on the way.
const KNOWN: Duration = Duration::from_mins(6);
/// After this time it may be tried again, whatever is known.
const TRIED_AGAIN: Duration = Duration::from_mins(14);

impl Checker {
    /// A right is taken away.
    pub fn right_is_missing(&self, right: Right) {
        self.inner().missing = Missing { what: Some(right), met: BTreeMap::new() };
    }

    /// It is back.
    pub fn right_is_back(&self) {
        self.inner().missing = Missing::default();
    }

    /// The settings of a pool have changed: that is worth another try.
    pub fn is_worth_a_try(&self, pool: &'static str) {
        self.inner().missing.met.remove(pool);
    }

    /// A call arrives as it was sent. The settings of a machine that needs the right are refused, which will
    /// be known; a clone that comes long after that, and too early to be tried again whatever is known,
    /// should not have been made.
    pub fn settings_or_clone_arrive(&self, call: &Call<'_>) {
        if call.side != Side::Proxmox || !self.world.pve.is_quorate() {
            return;
        }
        if let Some(vmid) = newid(call.body).filter(|_| call.path.ends_with("/clone")) {
            self.clone_arrives(vmid);
        } else if let Some(vmid) = vmid_of_settings(call) {
            self.settings_arrive(vmid, &String::from_utf8_lossy(call.body));
        }
    }

    fn settings_arrive(&self, vmid: u32, body: &str) {
        let Some(pool) = self.world.pool_of(vmid) else { return };
        let (network, term) = (pool.network.path(), self.terms());
        let missing = &mut self.inner().missing;
        let refused = missing.what.as_ref().is_some_and(|what| match what {
            Right::Tag => body.contains("tags="),
            Right::Network(path) => *path == network && body.contains("net0="),
        });
        if refused {
            missing.met.entry(pool.name).or_insert((term, Instant::now()));
        }
    }

    fn clone_arrives(&self, vmid: u32) {
        let Some(pool) = self.world.pool_of(vmid) else { return };
        let (name, term) = (pool.name, self.terms());
        let mut inner = self.inner();
        let missing = &mut inner.missing;
        let Some(&(of, first)) = missing.met.get(name) else { return };
        let (since, what) = (first.elapsed(), missing.what.clone());
        if of != term || since >= TRIED_AGAIN {
            missing.met.remove(name);
        } else if since > KNOWN {
            drop(inner);
            self.violated(&format!(
                "a machine of pool {name} is cloned {} s after the settings of one were refused, and a right is still missing: {what:?}",
                since.as_secs(),
            ));
        }
    }
}

/// Whose settings a call writes.
fn vmid_of_settings(call: &Call<'_>) -> Option<u32> {
    let parts: Vec<&str> = call.path.trim_start_matches('/').split('/').collect();
    match (call.method, parts.as_slice()) {
        ("PUT" | "POST", ["nodes", _, "qemu", vmid, "config"]) => vmid.parse().ok(),
        _ => None,
    }
}
