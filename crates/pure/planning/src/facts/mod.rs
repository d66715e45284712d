//! Facts about single objects. Rules use these facts, but the facts do not depend on rules.

pub mod host;
pub mod machine;
pub mod node;
pub mod pod;
pub mod time;
