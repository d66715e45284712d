//! pve-autoscaler gives a Kubernetes cluster on Proxmox VE the worker nodes it needs, and takes them back.
//!
//! ```text
//!  config ───────────────────────┐
//!  kubernetes (watches) ─┐       ├─> planning::plan ─> model::Plan
//!  proxmox (inventory) ──┼─> model::Snapshot      pure, uses scheduling
//!  snapshot (files) ─────┘      plain data
//! ```
//!
//! * [`model`], [`scheduling`] and [`planning`] are pure: no I/O, no clock, no randomness, no async.
//! * [`kubernetes`] is the only place that names kube's types, [`proxmox`] the only one that names reqwest's.
//! * [`cli`] is what an operator types.

pub mod bootstrap;
mod causes;
pub mod changes;
pub mod cli;
pub mod clock;
pub mod config;
pub mod daemon;
pub mod fence;
pub mod kubernetes;
pub mod machines;
pub mod migration;
pub mod model;
pub mod observability;
pub mod pinning;
pub mod planning;
pub mod proxmox;
pub mod recording;
pub mod redfish;
pub mod replay;
pub mod scheduling;
pub mod snapshot;
pub mod templates;
