//! The embedded clusters over TLS, the daemon as a process that uses them, and the steps of the demo.
//!
//! ```text
//!  demo ── starts ──> clusters (two TLS servers, guests' ports) <── HTTPS ── the daemon, a process of its own
//!    └── story: applies Deployments ──> measures ──> summary        └── control socket ──> screen
//! ```

pub mod clusters;
pub mod configuration;
pub mod daemon;
pub mod events;
pub mod fuzz;
mod measure;
mod network;
pub mod record;
mod screen;
pub mod simulate;
pub mod story;
mod summary;
