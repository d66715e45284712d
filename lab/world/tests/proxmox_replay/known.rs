//! Where the embedded cluster answers otherwise, with the reason; and what happened around the recorded calls.

use std::collections::BTreeMap;

use world::proxmox::Pve;

/// Scenario, numbers of its exchanges, and why they differ.
pub const KNOWN: &[(&str, &[u64], &str)] = &[];

/// Scenario, numbers of exchanges that are not made, and why.
pub const SKIPPED: &[(&str, &[u64], &str)] = &[];

/// Calls that the embedded cluster does not have.
pub const ABSENT: &[&str] = &[];

/// Does what happened between two calls.
pub fn happen(_pve: &Pve, _event: &str) {}

/// Does what a command on a host did.
pub fn command(_pve: &Pve, _command: &str, _given: &BTreeMap<String, String>) {}
