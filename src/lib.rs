//! pve-autoscaler gives a Kubernetes cluster on Proxmox VE the worker nodes it needs, and takes them back.
//!
//! ```text
//!  config ───────────────┐
//!  kubernetes (watches) ─┼─> model::Snapshot ─> planning::plan ─> model::Plan ─> machines (create, retire) ─> proxmox, kubernetes
//!  proxmox (inventory) ──┘      plain data       pure, uses scheduling               effects, through clients
//! ```
//!
//! * [`model`], [`scheduling`] and [`planning`] are pure: no I/O, no clock, no randomness, no async.
//! * [`kubernetes`] is the only place that names kube's types, [`proxmox`] the only one that names reqwest's.
//! * [`machines`] and [`bootstrap`] turn decisions into effects, one step at a time, each resumable.
//! * [`daemon`] is the round that ties them together; [`cli`] is what an operator types.

pub mod bootstrap;
pub mod cli;
pub mod clock;
pub mod config;
pub mod daemon;
pub mod kubernetes;
pub mod machines;
pub mod model;
pub mod observability;
pub mod planning;
pub mod proxmox;
pub mod scheduling;
pub mod snapshot;
