//! A real Kubernetes control plane for tests. etcd, the API server, the controller manager and the scheduler
//! are processes on loopback, set up by kubeadm's own phases. Guests of the embedded Proxmox VE join it with
//! the code of kubeadm and the kubelet.
//!
//! ```text
//!  tests/rig/build ──> programs ──> control plane (processes) <── HTTPS ── admin (objects), the daemon
//!                          ├──────> guests: one `machine` process for each joined guest, killed at power-off
//!                          └──────> drivers: one `driver` process for each node with devices
//! ```
//!
//! All child processes end with the process that started them, even if that process is killed.

mod admin;
mod control_plane;
mod driver;
mod guests;
mod hollow;
mod process;
mod programs;

pub use admin::Admin;
pub use control_plane::{ControlPlane, Options};
pub use driver::Driver;
pub use guests::Guests;
pub use hollow::Hollow;
pub use programs::{Missing, Programs};
