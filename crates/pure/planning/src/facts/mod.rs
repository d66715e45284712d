//! What one object says by itself: leaves that every rule asks, and that ask no rule.

pub mod host;
pub mod machine;
pub mod node;
pub mod pod;
pub mod time;
