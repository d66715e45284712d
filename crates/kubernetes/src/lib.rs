//! The Kubernetes client. Only this crate uses the types of kube and k8s-openapi.
//!
//! ```text
//!  Cluster ──┬─ Watches: watch streams ─> convert ─> caches of plain data ─> model::Snapshot, `changed`
//!            ├─ records, memory: what the daemon remembers, in ConfigMaps in its own namespace
//!            ├─ nodes, evictions: conditional writes, and what each refusal means
//!            ├─ tokens, cluster-info: what a machine needs to join
//!            ├─ serving: kubelets' requests for serving certificates
//!            ├─ lease: which of several instances is the leader
//!            └─ events, rights: what operators see
//! ```
//!
//! * Every call has a time limit. A call is only repeated if the API server asks clients to wait
//!   (`Retry-After`). A disruption budget's 429 is returned to the caller.
//! * Every write is conditional (resourceVersion or uid) or idempotent.
//! * Objects from the API server are immediately reduced to plain data. A malformed object causes one warning
//!   and does not break the watch.

mod bootstrap_tokens;
mod buffers;
mod call_error;
mod capacity_buffer;
mod cluster;
mod cluster_autoscaler_status;
mod cluster_info;
pub mod convert;
mod error;
mod events;
mod evictions;
mod expiry;
mod gangs;
mod kubeconfig;
mod lease;
mod manifest;
mod memory_store;
mod nodes;
mod object_cache;
mod optional_kinds;
mod pod_templates;
mod provisioning_request;
mod records;
mod retry_after;
mod rights;
mod server_time;
mod serving_certificates;
mod version;
mod wake_signals;
mod watch_health;
mod watch_loop;
mod watches;

pub use bootstrap_tokens::BootstrapToken;
pub use call_error::CallError;
pub use cluster::{Cluster, ConnectOptions, Entropy, EntropyError, Observer};
pub use cluster_info::ClusterInfo;
pub use error::{Error, ErrorKind};
pub use events::{EventKind, Recorder, Saying};
pub use evictions::Eviction;
pub use expiry::{Expiry, certificates_end, expiries};
pub use lease::{Claim, Lease};
pub use manifest::AccountToken;
pub use memory_store::MemoryVersion;
pub use records::{RecordError, Records, UnreadableRecord, Versioned, command_to_drop};
pub use rights::Right;
pub use server_time::ClockDifference;
pub use serving_certificates::{ServingRequest, ServingRequests};
pub use watch_health::Problem;
pub use watches::Watches;

/// The value of the label `app.kubernetes.io/managed-by` that marks the daemon's objects.
pub const MANAGED_BY: &str = "pve-autoscaler";
/// The label that names the manager of an object.
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";
