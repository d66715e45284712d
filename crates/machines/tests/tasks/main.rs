//! Machines' tasks in unusual situations: many clones at a time, leftover disks, VMs that HA or an
//! administrator moves.

#![expect(clippy::unwrap_used, reason = "a test may panic on an unexpected result")]

#[path = "../../../kubernetes/tests/api/fake.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod fake;
#[path = "../../../../tests/lab/mod.rs"]
mod lab;
#[path = "../../../proxmox/tests/client/support.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod support;

mod clones;
mod destructions;
mod leftovers;
mod moved;
mod world;
