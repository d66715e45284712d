//! An embedded Proxmox VE and Kubernetes for tests. Requests and responses have the real wire format; the
//! hardware is simulated.
//!
//! The library shares no code with the daemon. It is written independently, from the behavior of the two real
//! APIs, so that a misunderstanding in the daemon is not repeated in the lab.
//!
//! ```text
//!  tests / lab binary ──HTTP──> proxmox::  hosts, storages, VMs, tasks, tokens ──> guest:: a VM's insides
//!                     ──HTTP──> kubernetes:: objects, watches, scheduler, controllers, kubelets <──joins── guest::
//! ```
//!
//! All waiting uses tokio's time, so a runtime with paused time runs hours in seconds. Wall-clock time stamps
//! come from [`clock::WorldClock`], which moves with tokio's time. Randomness comes from one seed.

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
