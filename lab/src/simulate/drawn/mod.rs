//! The settings that are drawn from a seed, and the checker's own description of them.

pub mod devices;
pub mod growth;
pub mod hours;
pub mod inherited;
pub mod networks;
pub mod places;
pub mod pool_shape;
pub mod power;
pub mod rules;
pub mod seeds;
pub mod settings;
pub mod standing;
pub mod volumes;
pub mod warm;
