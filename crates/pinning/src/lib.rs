//! Host CPUs, memory and huge pages of a machine's own. Proxmox VE lets only root itself set `affinity` and
//! `hugepages`, with no token; so the daemon on a machine's own host asks a small helper that runs as root,
//! for one request at a time.
//!
//! ```text
//!  leader: record says that the machine waits ─> daemon on its host (leading or not) ─> socket ─> helper ─> `qm set`
//!  leader: reads the VM's configuration through the API until it is so, then starts it
//!  daemon on its host, each minute ─> helper: does every such machine run on its CPUs? ─> `status`
//! ```
//!
//! * [`choice`] is pure: topology, what others have, what is wanted → CPUs and memory.
//! * [`helper`] is the only thing of the project that runs as root. A request names the machine, and nothing
//!   else.
//! * [`door`] is how the daemon asks.

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

/// Where the helper listens, once its socket is enabled.
pub const SOCKET: &str = "/run/pve-autoscaler-pinning.sock";
/// What lets it be asked, on each host with machines that are to be pinned.
pub const ENABLE: &str = "systemctl enable --now pve-autoscaler-pinning.socket";
