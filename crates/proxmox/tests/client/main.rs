//! The Proxmox client against the embedded Proxmox VE: a machine's whole life, and the traps of the API by
//! name.
//!
//! One trap of the 25 does not concern the client: 17 (snippets are not used; the guest gets what it needs
//! through its agent).

#![expect(clippy::unwrap_used, reason = "a test may stop at what it did not expect")]

#[path = "../../../../tests/lab/mod.rs"]
mod lab;
mod life;
mod reads;
mod support;
mod traps;
