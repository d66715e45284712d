//! The Proxmox VE client. No other crate of the daemon uses reqwest's types.
//!
//! ```text
//!  Client ── lanes (agent, lifecycle) ──> Transport ──> an endpoint
//!     │                                                 (the next one, if nothing was sent, or for a GET)
//!     └─ answers: data, or an Error that says what can be done about it
//! ```
//!
//! Rules for every call: HTTP/1.1; idle connections are closed before the server closes them; calls that
//! occupy one of a host's three workers are limited for each host; values are percent-encoded; numbers and
//! booleans are read in any of their forms. A write that may have reached the server is never repeated by
//! this crate: the error is `OutcomeUnknown`, and the caller reads the state back.

mod access;
mod agent;
mod answer;
mod blank_vm;
mod client;
pub mod cloning;
mod cluster;
mod concurrency;
mod error;
mod files;
mod firewall;
mod host_power;
mod inventory;
mod lifecycle;
pub mod marker;
mod missing_right;
mod pci;
pub mod property;
mod pvesh;
pub mod redfish;
mod refusal_meaning;
mod storages;
mod tags;
mod task;
mod task_list;
mod tls;
mod transport;
mod upid;
mod vm_config;

pub use access::Granted;
pub use agent::{ExecStatus, OsInfo};
pub use client::{Client, Observer, Settings};
pub use cluster::{Bridge, ClusterStatus, HaStatus, agent_privilege};
pub use concurrency::CloneTurn;
pub use error::{Error, Kind};
pub use files::Download;
pub use host_power::{HostSurvey, PowerSurvey};
pub use inventory::{ClusterResources, Guest, HostSeen, StorageSeen, TAG};
pub use lifecycle::{CloneRequest, Power, VmStatus};
pub use missing_right::MissingRight;
pub use pci::PciMapping;
pub use pvesh::over_pvesh;
pub use refusal_meaning::Meaning;
pub use storages::{StorageConfig, StorageStatus, makes_linked_clones};
pub use tags::TagRules;
pub use task::{Exit, TaskStatus, WaitError};
pub use task_list::{TaskFilter, TaskRow};
pub use tls::Trust;
pub use transport::{NotSent, Transport, connect};
pub use upid::Upid;
pub use vm_config::{Drive, VmConfig};
