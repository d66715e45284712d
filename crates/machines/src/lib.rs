//! Machines: all changes to VMs and Nodes. Each machine has a task, which can be resumed at every step.
//!
//! ```text
//!  create: record ─> clone ─> configure ─> (pin to CPUs) ─> start ─> guest boots, joins ─> Node read back ─> ready
//!  retire: record ─> taint, cordon ─> evict ─> volumes gone ─> VM stopped ─> Node deleted ─> VM destroyed ─> no disk left ─> record dropped
//!  keep:   record ─> clone ─> configure ─> (start ─> guest boots ─> (suspend)) ─> it waits;  woken: record ─> start ─> as create
//!  grow:   record ─> guest checked ─> vCPUs and memory plugged ─> used by the guest ─> reported by its Node ─> record
//!  discard (a creation that failed, a node that was lost): as retire, without the eviction; a lost node that is back stays in service
//!  bare-metal machines ([`bare_metal`]): record ─> switched on ─> joins by itself ─> ready;  … evict ─> switched off ─> Node deleted ─> record dropped
//! ```
//!
//! Rules:
//! * The record is written before the first Proxmox VE call and dropped after the last. Each step checks the
//!   current state and continues from there, so the daemon can be restarted at any time.
//! * A VM is only changed after its own configuration has proved that it belongs to the record (`ownership`).
//!   Nothing is destroyed without quorum. The VM is stopped before its Node is deleted.
//! * Each wait for a call, a task or a guest has a time limit, usually one from `[limits]`. Temporary
//!   failures are retried with back-off until that limit.

pub mod adoption;
mod backoff_target;
mod bare_metal;
mod blank;
mod boot;
mod bootstrap_tokens;
mod cluster_facts;
mod context;
mod create;
mod creation_turn;
mod desired_vm_config;
mod destroy;
mod devices;
mod drain;
mod emptying;
mod failed_growth;
mod firewall;
mod grow;
mod guest;
mod hindrance;
mod host_clock;
mod host_queries;
pub mod inherited;
mod join;
mod kept_node;
mod learned_delays;
mod leftover_disks;
mod lost_host;
mod machine_end;
mod machine_handle;
mod nocloud_seed;
mod node;
mod node_deletion;
pub mod orphans;
pub mod out_of_service;
mod outside_changes;
mod ownership;
mod pinning;
mod probe;
mod promise;
mod promised_room;
mod protection;
mod proxmox_tasks;
mod refused_pools;
mod registry;
mod reports;
mod retire;
mod returned_nodes;
mod seed_image;
mod self_join;
mod serving_certificates;
mod silent_kubelet;
mod step_error;
mod take_up;
mod task;
mod templates;
mod termination_clock;
mod vm_search;
mod vm_size;
mod vm_start;
mod warm_machine;
mod warm_vm;

pub use bare_metal::seen_off;
pub use cluster_facts::KnownFacts;
pub use context::{Context, Controllers};
pub use devices::{DeviceSurvey, Devices};
pub use grow::grow;
pub use host_clock::seconds_ahead;
pub use host_queries::{answering as answering_hosts, in_time as ask_hosts_in_time};
pub use learned_delays::Pace;
pub use node::{astray, is_bare, is_ready, is_silent, seen as node_of};
pub use out_of_service::{is_out, taint as out_of_service};
pub use outside_changes::{by_others, deed, should_run};
pub use ownership::{Owner, is_ours, promise_of};
pub use probe::{NoProbe, Probe, TcpProbe};
pub use promise::Promise;
pub use registry::{MachineView, Registry};
pub use reports::{Ending, MachineReport, Reports};
pub use serving_certificates::{NODE_USER, NotApproved, judge as judge_serving};
pub use step_error::BackoffTarget;
pub use task::{adopt, create, discard, missed, restore, retire, wake};
pub use templates::{PoolTemplates, Templates, Usable, full_clone_bytes};
pub use warm_vm::SUSPENDED;
