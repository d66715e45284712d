//! The Proxmox VE client against the embedded Proxmox VE: a machine's entire life, and the traps of the API
//! by name.
//!
//! Of the 25 traps, only number 17 does not concern the client: snippets are not used, because the guest
//! receives its files through its agent.

#![expect(clippy::unwrap_used, reason = "a test may panic on unexpected results")]

#[path = "../../../../tests/lab/mod.rs"]
mod lab;
mod life;
mod reads;
mod support;
mod traps;
