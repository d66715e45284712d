//! The daemon as a process, both clusters over TLS, in real time: what the scenarios play in virtual time holds on real
//! sockets too. Machines boot within a second here, and waits are seconds instead of minutes.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may stop at what it did not expect")]

mod bench;
mod commands;
mod faults;
mod kills;
mod page;
mod pools;
mod removal;
