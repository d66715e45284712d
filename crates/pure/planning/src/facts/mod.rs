//! Facts about single objects. Rules use them, but they depend on no rule.

pub mod host;
pub mod machine;
pub mod node;
pub mod pod;
pub mod time;
