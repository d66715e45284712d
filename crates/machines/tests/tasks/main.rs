//! Machines' tasks in unusual situations: many clones at a time, disks that stay, VMs that HA or people move.

#![expect(clippy::unwrap_used, reason = "a test may stop at what it did not expect")]

#[path = "../../../kubernetes/tests/api/fake.rs"]
#[expect(dead_code, reason = "made for more tests than these")]
mod fake;
#[path = "../../../../tests/lab/mod.rs"]
mod lab;
#[path = "../../../proxmox/tests/client/support.rs"]
#[expect(dead_code, reason = "made for more tests than these")]
mod support;

mod clones;
mod destructions;
mod leftovers;
mod moved;
mod world;
