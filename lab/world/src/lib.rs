//! A Proxmox VE and a Kubernetes to run against, embedded: real request and response bytes, simulated
//! hardware.
//!
//! The library knows nothing of the daemon and shares no code with it: it is written from the facts of the
//! two APIs, so that one misunderstanding cannot pass on both sides.
//!
//! ```text
//!  tests / lab binary ──HTTP──> proxmox::  hosts, storages, VMs, tasks, tokens ──> guest:: a VM's insides
//!                     ──HTTP──> kubernetes:: objects, watches, scheduler, controllers, kubelets <──joins── guest::
//! ```
//!
//! Everything that takes time takes it from tokio, so a runtime with paused time runs hours in seconds;
//! wall-clock time stamps come from [`clock::WorldClock`], which moves with tokio's time. Randomness comes
//! from one seed.

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
