//! Plain data that all crates share: the input of a round ([`Snapshot`]), its result ([`Plan`]), and the
//! types that they contain.
//!
//! This crate has no I/O, no clock, no randomness, and no types from `kube` or `reqwest`.

pub mod amount;
pub mod buffer;
pub mod code;
pub mod condition;
pub mod devices;
pub mod digest;
pub mod dimms;
pub mod drain;
pub mod features;
pub mod gang;
pub mod go;
pub mod host_key;
pub mod machine;
pub mod machine_kind;
pub mod names;
pub mod node;
pub mod passing;
pub mod pause;
pub mod pci;
pub mod plan;
pub mod pod;
pub mod pod_id;
pub mod pod_spec;
pub mod power;
pub mod prediction;
pub mod quantity;
pub mod request;
pub mod resources;
pub mod selector;
pub mod semver;
pub mod snapshot;
pub mod storage;
mod text_id;
pub mod unfinished;
pub mod version;
pub mod vmid;
pub mod workload;

pub use host_key::HostKey;
pub use machine::{Host, Machine, Phase, Record, Slot};
pub use machine_kind::MachineKind;
pub use node::{Node, Taint, TaintEffect};
pub use pause::{Pause, Retry};
pub use plan::Plan;
pub use pod::Pod;
pub use resources::Resources;
pub use snapshot::Snapshot;
pub use text_id::{MachineId, PoolName};
pub use version::KubernetesVersion;
pub use vmid::Vmid;
