//! The daemon as a process with both clusters over TLS, in real time. These tests show that what the
//! scenarios test in virtual time is also true with real sockets. Machines boot within a second, and waits
//! are seconds instead of minutes.

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
