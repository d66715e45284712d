//! Promises about networks and tags. While the token lacks a right that a pool's machines need, the daemon
//! does not keep cloning machines for the pool.

use std::collections::BTreeMap;
use std::time::Duration;

use stage::{Call, Side};
use tokio::time::Instant;

use crate::simulate::checker::Checker;
use crate::simulate::checker::memory::{Missing, Right};
use crate::simulate::checker::objects::newid;

/// How long the daemon may take to learn that a call with a machine's settings was refused, counted from the
/// call's arrival. This allows for lost calls.
const KNOWN: Duration = Duration::from_mins(6);
/// The time after which the daemon may try again in any case.
const TRIED_AGAIN: Duration = Duration::from_mins(14);

impl Checker {
    /// Called when a right is revoked.
    pub fn right_is_missing(&self, right: Right) {
        self.inner().missing = Missing { what: Some(right), met: BTreeMap::new() };
    }

    /// Called when the right is restored.
    pub fn right_is_back(&self) {
        self.inner().missing = Missing::default();
    }

    /// Called when the settings of a pool have changed, which allows another attempt.
    pub fn is_worth_a_try(&self, pool: &'static str) {
        self.inner().missing.met.remove(pool);
    }

    /// Called when a call arrives. If Proxmox VE refuses a machine's settings because a right is missing, the
    /// daemon must know this after a while. It must then not clone another machine for the pool until another
    /// attempt is due.
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
                "a machine of pool {name} is cloned {} s after the settings of another machine were \
                    refused, although the token still lacks a right: {what:?}",
                since.as_secs(),
            ));
        }
    }
}

/// The VMID of the VM whose settings the call writes.
fn vmid_of_settings(call: &Call<'_>) -> Option<u32> {
    let parts: Vec<&str> = call.path.trim_start_matches('/').split('/').collect();
    match (call.method, parts.as_slice()) {
        ("PUT" | "POST", ["nodes", _, "qemu", vmid, "config"]) => vmid.parse().ok(),
        _ => None,
    }
}
