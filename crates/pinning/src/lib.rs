//! Reserves CPUs, memory and huge pages of a host for one machine. Only root can set `affinity` and
//! `hugepages` in Proxmox VE; an API token cannot. The daemon on the machine's host therefore asks a small
//! helper, which is started as root for each request.
//!
//! ```text
//!  leader: writes to the record that the machine is waiting for CPUs
//!     ─> daemon on the machine's host (leading or not) ─> socket ─> helper ─> `qm set`
//!  leader: reads the VM's configuration through the API until the CPUs are set, then starts the VM
//!  daemon on each host, every minute ─> helper: does every pinned machine run on its CPUs? ─> `status`
//! ```
//!
//! * [`choice`] is pure: it computes CPUs and memory from the topology, the usage by other VMs, and the
//!   machine's needs.
//! * [`helper`] is the only part of the project that runs as root. A request contains no more than the
//!   identity of a machine.
//! * [`door`] is the daemon's connection to the helper.

pub mod choice;
mod cpus;
pub mod door;
pub mod helper;
mod peer;
mod request;
mod running;
pub mod settings;
pub mod topology;
mod vm_file;

pub use cpus::{Cpus, NO_AFFINITY};
pub use door::{Door, DoorError, SocketDoor};
pub use request::{Answer, Astray, Request};
pub use vm_file::VmFile;

/// The socket at which the helper listens, once it is enabled.
pub const SOCKET: &str = "/run/pve-autoscaler-pinning.sock";
/// The command that enables the helper, on each host with machines to pin.
pub const ENABLE: &str = "systemctl enable --now pve-autoscaler-pinning.socket";
