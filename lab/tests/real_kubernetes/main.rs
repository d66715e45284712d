//! The daemon as a process between the embedded Proxmox VE and a **real** Kubernetes control plane, with the
//! rights of `packaging/rbac.yaml` and a token by TokenRequest. The tests share two control planes and take
//! turns at them.
//!
//! Without Go to build it with they are skipped, which they say; if the environment says `CI=true` they fail
//! instead.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test may panic on unexpected results, and prints what it skips"
)]

mod buffers;
mod devices;
mod gangs;
mod joins;
mod playbooks;
mod real;
mod rights;
mod setup;
#[path = "../shared/mod.rs"]
mod shared;
mod volumes;

use real::Real;

shared::play_on!(Real);
