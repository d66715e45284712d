//! What all crates that act share: the time, the fence around writes, signals of change, and errors with
//! their causes.

pub mod causes;
pub mod changes;
pub mod clock;
pub mod fence;
