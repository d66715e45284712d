//! Tests the daemon as a process that reaches both clusters over TLS, in real time. The tests show that the
//! results of the scenarios, which run in virtual time, also hold with real sockets. Machines boot within a
//! second, and waits take seconds instead of minutes.

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
