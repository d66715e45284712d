//! Embedded simulations of Proxmox VE and Kubernetes for tests. Requests and responses use the real wire
//! formats, but the hardware is simulated.
//!
//! The library shares no code with the daemon. It was written independently, based on the behavior of the two
//! real APIs, so that the lab does not repeat the daemon's misunderstandings.
//!
//! ```text
//!  tests / lab binary ──HTTP──> proxmox::  hosts, storages, VMs, tasks, tokens ──> guest:: a VM's insides
//!                     ──HTTP──> kubernetes:: objects, watches, scheduler, controllers, kubelets <──joins── guest::
//! ```
//!
//! All waiting uses tokio's time, so a runtime with paused time simulates hours in seconds. Wall-clock
//! timestamps come from [`clock::WorldClock`], which advances with tokio's time. All randomness comes from
//! one seed.

pub mod best;
pub mod clock;
pub mod fault;
pub mod guest;
pub mod kubernetes;
pub mod proxmox;
pub mod qemu;
pub mod redfish;
pub mod serve;
pub mod signal;
