//! Tests the Proxmox VE client against the embedded Proxmox VE: a machine's entire life cycle, and the traps
//! of the API.
//!
//! Of the 25 traps, only number 17 (snippets) does not concern the client: the guest receives its files
//! through its agent, not as snippets.

#![expect(clippy::unwrap_used, reason = "a test may panic on unexpected results")]

#[path = "../../../../tests/lab/mod.rs"]
mod lab;
mod life;
mod reads;
mod support;
mod traps;
