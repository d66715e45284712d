//! Networks and tags: the bridge and VLAN of each pool and who may use which tags, drawn from the seed, with
//! no more rights than necessary; and that no machine of a pool is cloned again and again while a right is
//! missing for it.

use std::collections::BTreeMap;
use std::time::Duration;

use stage::{Call, Side};
use tokio::time::Instant;

use crate::simulate::checker::Checker;
use crate::simulate::checker::memory::{Missing, Right};
use crate::simulate::checker::objects::newid;

/// How long after refused settings arrived the refusal must be known, including anything lost on the way.
const KNOWN: Duration = Duration::from_mins(6);
/// After this time, another attempt is allowed in any case.
const TRIED_AGAIN: Duration = Duration::from_mins(14);

impl Checker {
    /// A right is revoked.
    pub fn right_is_missing(&self, right: Right) {
        self.inner().missing = Missing { what: Some(right), met: BTreeMap::new() };
    }

    /// The right is restored.
    pub fn right_is_back(&self) {
        self.inner().missing = Missing::default();
    }

    /// The settings of a pool have changed, so another attempt is allowed.
    pub fn is_worth_a_try(&self, pool: &'static str) {
        self.inner().missing.met.remove(pool);
    }

    /// A call arrives as it was sent. If the settings of a machine that needs the right are refused, the
    /// daemon will know it. A clone long after that, but too early for another attempt, must not be made.
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
                "a machine of pool {name} is cloned {} s after the settings of one were refused, although a right is still missing: {what:?}",
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
