//! Facts about single objects. Every rule uses them, and they depend on no rule.

pub mod host;
pub mod machine;
pub mod node;
pub mod pod;
pub mod time;
