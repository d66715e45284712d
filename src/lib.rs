//! pve-autoscaler gives a Kubernetes cluster on Proxmox VE the worker nodes it needs, and takes them back.
//!
//! Its parts are crates of their own below `crates/`, which this one shows under their names. Here are the
//! commands ([`cli`]), the templates that they make ([`templates`]), and the settings of other autoscalers
//! that they translate ([`migration`]).
//!
//! ```text
//!  settings ─────────────────────┐
//!  kubernetes (watches) ─┐       ├─> planning::plan ─> model::Plan
//!  proxmox (inventory) ──┼─> model::Snapshot      pure, uses scheduling
//!  snapshot (files) ─────┘      plain data
//! ```

pub mod cli;
pub mod migration;
pub mod templates;

/// The first line of a configuration: what editors check it with, where the package installs it.
pub const SCHEMA_LINE: &str = "#:schema file:///usr/share/pve-autoscaler/config.schema.json";

/// The crates that the daemon is made of, as the targets of its log begin.
pub const CRATES: [&str; 17] = [
    "bootstrap",
    "daemon",
    "files",
    "kubernetes",
    "machines",
    "model",
    "observability",
    "pinning",
    "planning",
    "proxmox",
    "pve_autoscaler",
    "recording",
    "replay",
    "runtime",
    "scheduling",
    "settings",
    "snapshot",
];

/// Whether an event of the log with this target is one of the daemon's own, and no library's.
pub fn is_own(target: &str) -> bool {
    CRATES.contains(&target.split("::").next().unwrap_or(target))
}

pub use {
    bootstrap, daemon, files, kubernetes, machines, model, observability, pinning, planning, proxmox,
    recording, replay, runtime, scheduling, settings, snapshot,
};
