//! Checks whether a pod fits a node. Each of kube-scheduler's default filters has its own file. The filters
//! run in kube-scheduler's order and give its reasons.
//!
//! A [`World`] is a cluster that can be changed in a simulation: nodes with the pods placed on them. A pod is
//! prepared against the world once ([`World::prepare`], kube-scheduler's PreFilter), then checked against as
//! many nodes as needed ([`World::check`], its Filter), then placed. The rules are those of Kubernetes 1.36
//! or 1.37 (`pkg/scheduler/framework/plugins`), depending on the version of the control plane.

mod cel;
mod crowd;
mod dynamic_resources;
mod effort;
mod explain;
pub mod finder;
mod free;
mod ground;
mod in_tree;
mod inter_pod_affinity;
mod node_affinity;
mod node_declared_features;
mod node_load;
mod node_ports;
mod node_resources_fit;
mod node_unschedulable;
mod node_volume_limits;
mod nominated;
pub mod numbers;
mod pod_topology_spread;
mod preferences;
mod prepared;
mod priorities;
mod refusal;
pub mod selector;
mod sim_node;
mod spreads;
mod taint_toleration;
mod terms;
mod topology;
mod volume_binding;
mod volume_restrictions;
mod volume_zone;
mod volumes;
mod world;

pub use dynamic_resources::{DeviceProblem, Shortage};
pub use effort::{EXPRESSION, Effort};
pub use explain::{Explanation, NodeAnswer, explain};
pub use node_load::NodeLoad;
pub use prepared::Prepared;
pub use priorities::Priorities;
pub use refusal::{Refusal, VolumeProblem};
pub use sim_node::SimNode;
pub use taint_toleration::tolerates_all;
pub use world::{NodeIndex, World};
