//! pve-autoscaler adds the worker nodes that a Kubernetes cluster on Proxmox VE needs, and removes them
//! again.
//!
//! Its parts are separate crates below `crates/`, which this crate re-exports under their names. This crate
//! itself contains the commands ([`cli`]), the creation of templates ([`templates`]), and the conversion of
//! other autoscalers' settings ([`migration`]).
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

/// The first line of a configuration: it points editors to the schema at the path where the package installs
/// it.
pub const SCHEMA_LINE: &str = "#:schema file:///usr/share/pve-autoscaler/config.schema.json";

/// The names of this program's own crates, as they appear in the targets of log events.
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

/// Whether a log event with this target comes from one of [`CRATES`], not from a library.
pub fn is_own(target: &str) -> bool {
    CRATES.contains(&target.split("::").next().unwrap_or(target))
}

pub use {
    bootstrap, daemon, files, kubernetes, machines, model, observability, pinning, planning, proxmox,
    recording, replay, runtime, scheduling, settings, snapshot,
};
