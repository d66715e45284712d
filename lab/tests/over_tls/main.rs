//! The daemon as a process, both clusters over TLS, in real time: what the scenarios play in virtual time
//! holds on real sockets too. Machines boot within a second here, and waits are seconds instead of minutes.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test may panic on unexpected results, and prints what it skips"
)]

mod commands;
mod faults;
mod kills;
mod lab_kubernetes;
mod page;
mod pools;
#[path = "../shared/mod.rs"]
mod shared;

use lab_kubernetes::Lab;

shared::play_on!(Lab);
