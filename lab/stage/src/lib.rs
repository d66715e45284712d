//! The real daemon between an embedded Proxmox VE and an embedded Kubernetes, in one process. Scenarios,
//! benches and the simulation run on it.
//!
//! ```text
//!  Actor (daemon::run) ──> Wire ──> observer ──> world::proxmox, world::kubernetes
//!                           └── cut: no later call of the daemon reaches a cluster
//! ```
//!
//! With tokio's time paused, hours pass in seconds. This crate never uses the computer's clock or random
//! number generator.

mod actor;
mod helpers;
mod kubes;
mod settings;
mod wire;

pub use actor::{Actor, Cast};
pub use helpers::Helpers;
pub use kubes::Kubes;
pub use settings::{ONE_POOL, without_pools};
pub use wire::{Arrival, Call, Observer, Side, Stall, Wire};
