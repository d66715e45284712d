//! Shared by all crates that act: the time, the fence around writes, signals of change, and errors with their
//! causes.

pub mod clock;
pub mod error_chain;
pub mod fence;
pub mod ordered_notify;
