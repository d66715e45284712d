//! A booted VM becomes a Node: what runs inside the guest, and what it is told.
//!
//! Everything here is text: the script, its standard input, and what its end means. Who runs it, and how long it may
//! take, is decided in `machines`.

mod join;
mod outcome;
mod script;

pub use join::{JoinFacts, configuration, starting_taint};
pub use outcome::{JoinEnd, read};
pub use script::{Settle, command};
