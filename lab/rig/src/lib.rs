//! A real Kubernetes control plane for tests: etcd, API server, controller manager and scheduler as processes
//! on loopback, set up by kubeadm's own phases, and guests of the embedded Proxmox VE that join it by the
//! code of kubeadm and of the kubelet.
//!
//! ```text
//!  tests/rig/build ──> programs ──> control plane (processes) <── HTTPS ── admin (objects), the daemon
//!                          ├──────> guests: one `machine` process for each joined guest, killed with its power
//!                          └──────> drivers: one `driver` process for each node with devices
//! ```
//!
//! Whatever is started here ends with the process that started it, however that ends.

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
