//! The Proxmox client against the embedded Proxmox VE: a machine's whole life, and the traps of the API by name.
//!
//! Traps that do not concern the client's calls: 3 and 18 (tags and root-only keys are the caller's choice of keys), 15 and 16
//! (values of the caller), 17 (snippets are not used), 22 (the planner's choice of hosts), 23 (privilege names are the set-up's).

#![expect(clippy::unwrap_used, reason = "a test may stop at what it did not expect")]

#[path = "../lab/mod.rs"]
mod lab;
mod life;
mod reads;
mod support;
mod traps;
