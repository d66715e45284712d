//! Machines: what is done to VMs and Nodes, one task for each, resumable at every step.
//!
//! ```text
//!  create: record ─> clone ─> configure ─> (CPUs of its own) ─> start ─> guest boots, joins ─> Node read back ─> ready
//!  retire: record ─> taint, cordon ─> evict ─> volumes gone ─> VM stopped ─> Node deleted ─> VM destroyed ─> no disk left ─> record dropped
//!  keep:   record ─> clone ─> configure ─> (start ─> guest boots ─> (suspend)) ─> it waits;  woken: record ─> start ─> as create
//!  grow:   record ─> the guest is asked ─> vCPUs and memory plugged ─> taken up in the guest ─> its Node says so ─> record
//!  discard (a creation that failed, a node that was lost): as retire, without the eviction, unless it is a ready Node again
//!  bare-metal machines ([`bare_metal`]): record ─> switched on ─> joins by itself ─> ready;  … evict ─> switched off ─> Node deleted ─> record dropped
//! ```
//!
//! Rules:
//! * The record is written before the first Proxmox call and dropped after the last. Each step looks at what
//!   is there and goes on from that, so that a restart at any await changes nothing.
//! * A VM is only touched after its own configuration has proved that it is the record's (`ownership`).
//!   Nothing is destroyed without quorum. The VM is stopped before its Node is deleted.
//! * Every wait has a limit of its own from `[limits]`; what passes by itself is tried again with back-off
//!   until then.

pub mod adoption;
mod asking;
mod back;
mod bare_metal;
mod blame;
mod blank;
mod boot;
mod context;
mod create;
mod destroy;
mod devices;
mod drain;
mod emptying;
mod ended;
mod endings;
mod facts;
mod finding;
mod grow;
mod guest;
mod hindrance;
pub mod inherited;
mod jobs;
mod join;
mod kept;
mod leftovers;
mod lost_host;
mod node;
mod node_deletion;
pub mod orphans;
pub mod out_of_service;
mod ownership;
mod pace;
mod pinning;
mod probe;
mod promise;
mod protection;
mod refused;
mod registry;
mod reports;
mod retire;
mod room;
mod security;
mod seed;
mod seed_image;
mod self_join;
mod serving;
mod shape;
mod stock;
mod take_up;
mod task;
mod templates;
mod tokens;
mod touched;
mod tracked;
mod trouble;
mod turn;
mod unheard;
mod vm_size;
mod vm_start;
mod warm;
mod warm_vm;

pub use asking::{answering as answering_hosts, in_time as ask_hosts_in_time};
pub use bare_metal::seen_off;
pub use context::{Context, Controllers};
pub use devices::{DeviceSurvey, Devices};
pub use facts::KnownFacts;
pub use grow::grow;
pub use node::{astray, is_bare, is_ready, is_silent, seen as node_of};
pub use out_of_service::{is_out, taint as out_of_service};
pub use ownership::{Owner, promise_of};
pub use pace::Pace;
pub use probe::{NoProbe, Probe, TcpProbe};
pub use promise::Promise;
pub use registry::{Registry, View};
pub use reports::{Ending, Reports, Told};
pub use serving::{NODE_USER, NotApproved, judge as judge_serving};
pub use task::{adopt, create, discard, missed, restore, retire, wake};
pub use templates::{Found, Templates, Usable};
pub use touched::{by_others, deed, should_run};
pub use trouble::Blame;
