//! Tests the daemon as a process with the embedded Proxmox VE and a **real** Kubernetes control plane. The
//! daemon has the rights in `packaging/rbac.yaml` and a token from a TokenRequest. The tests share two
//! control planes and take turns using them.
//!
//! If Go is not available to build the control plane, the tests are skipped with a message. If the
//! environment contains `CI=true`, they fail instead.

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
