//! Turns a snapshot into a plan with reasons. The same input always gives the same plan, byte for byte.
//!
//! ```text
//! scale_up:   pending pods ─> existing nodes ─> machines on their way ─> machines that grow
//!             ─> new machines of the pools ─> hosts and slots
//! scale_down: nodes of pools ─> utilization ─> drain rules ─> re-placement ─> timers, cool-downs, limits
//! ```

mod admission;
mod all_or_nothing;
mod allowance;
mod annotations;
mod bare_metal;
mod budgets;
mod buffers;
mod candidate_turns;
mod capacity;
mod class;
mod classes;
mod consolidation;
mod cooldowns;
mod csi;
mod daemons;
mod device_mismatch;
mod device_room;
mod disk_room;
mod disruptions;
mod dominant_share;
mod drain;
mod existing_nodes;
mod expander;
mod expected_devices;
mod expected_taints;
mod facts;
mod features;
mod filling;
mod fresh_devices;
mod fresh_node;
mod gang_outcomes;
mod gang_placement;
mod gangs;
mod groups;
mod grow;
mod headroom;
mod health;
mod host_room;
mod kind_turns;
mod learned_allocatable;
mod limits;
mod lost_nodes;
mod machine_growths;
mod moved_pods;
mod names;
mod node_state;
mod nodes_by_name;
mod one_per_node;
mod packer;
mod packing;
mod packing_drafts;
mod pending;
mod placement_search;
mod planned_daemons;
mod pod_place;
mod pod_prospects;
mod pod_verdict;
mod pods_by_node;
mod power;
mod prediction_holds;
mod prediction_outcomes;
mod predictions;
mod priorities;
mod removal;
mod removal_backoff;
mod replacement_due;
mod replacement_order;
mod replacement_removals;
mod requests;
mod scale_down;
mod scale_up;
mod scale_up_check;
mod scale_up_decision;
mod sizes;
pub mod slots;
mod spread_check;
mod storage_room;
mod unbound;
mod unplaced_pods;
mod unready;
mod upcoming_nodes;
mod utilization;
mod view;
mod waiting;
mod waiting_stock;
mod warm_pool;
mod zones;

pub use allowance::{Limits, Stop};
pub use device_mismatch::unlike_declared;
pub use device_room::devices_left;
pub use drain::{Evictions, volumes_that_stay};
pub use expected_taints::leaving;
pub use facts::node::{being_deleted, disabled, ready, stays};
pub use fresh_node::expected as expected_node;
pub use pod_prospects::{PoolAnswer, Prospects, Removal, Treatment, prospects};
pub use prediction_outcomes::follow;
pub use removal_backoff::{emptied_in_vain, removal_given_up, wish_rests};
pub use unplaced_pods::homeless;
pub use unready::watched;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use allowance::Allowance;
use pods_by_node::PodsByNode;
use view::View;

use model::machine::Machine;
use model::plan::Destination;
use model::pod::Pod;
use model::snapshot::Memory;
use model::unfinished::Unfinished;
use model::{Plan, Snapshot};
use scheduling::Effort;
use settings::{Config, Pool};

/// Remembers what existing nodes show about future nodes: the resources that they offer, and their CSI
/// drivers and devices. Also remembers when each node stopped being ready. Returns whether anything changed.
pub fn learn(memory: &mut Memory, snapshot: &Snapshot, config: &Config) -> bool {
    let shapes = learned_allocatable::learn(memory, snapshot, config);
    let devices = fresh_devices::learn(memory, snapshot, config);
    let unready = unready::notice(memory, snapshot);
    csi::learn(memory, snapshot, config) || shapes || devices || unready
}

/// Decides which machines to create and which nodes to remove, with a verdict for each pending pod and each
/// node.
pub fn plan(snapshot: &Snapshot, config: &Config) -> Plan {
    plan_within(snapshot, config, Limits::default())
}

/// Like [`plan`], but each part of the decision looks at no more than its limit allows.
pub fn plan_within(snapshot: &Snapshot, config: &Config, limits: Limits) -> Plan {
    let whole = Allowance::new(&Effort::default(), limits);
    decided(snapshot, config, &whole, None)
}

/// Like [`plan`], but another thread can stop it. Returns `None` if it was stopped. `carried` is data from
/// earlier decisions. It saves time and has no other effect.
pub fn plan_unless(stop: &Stop, snapshot: &Snapshot, config: &Config, carried: &mut Carried) -> Option<Plan> {
    let whole = Allowance::new(&Effort::default(), Limits::default()).unless(stop);
    let plan = decided(snapshot, config, &whole, Some(carried));
    (!stop.is_set()).then_some(plan)
}

/// Sums over the pods of each node, kept from one decision to the next. The next decision only has to look at
/// pods that have changed.
#[derive(Debug, Default)]
pub struct Carried(PodsByNode<'static>);

fn decided(snapshot: &Snapshot, config: &Config, whole: &Allowance, carried: Option<&mut Carried>) -> Plan {
    let scheduled = config.scheduled_at(snapshot.time);
    let config = scheduled.as_ref().unwrap_or(config);
    let mut sorted = expected(snapshot, config);
    let offers = sizes::offers(config, snapshot);
    let buffers = buffers::resolve(snapshot);
    let requests = requests::resolve(snapshot);
    let all = buffers::beside(&snapshot.pods, &buffers, &requests);
    let known: PodsByNode;
    let pods = if let Some(Carried(pods)) = carried {
        pods.update(&all, snapshot, config);
        &*pods
    } else {
        known = PodsByNode::new(&all, snapshot, config);
        &known
    };
    let mut stays = replacement_due::KeptReplacements::default();
    let (mut allowance, mut repeats) = (whole.clone(), false);
    let (mut plan, due) = loop {
        let due = replacement_due::mark(&mut sorted, &snapshot.pods, config, &stays);
        let Decision { mut plan, homeless } = decide(&sorted, pods, config, &offers, Depth::Real, &allowance);
        plan.hosts = power::decide(&sorted, pods, config, &offers, &plan, &allowance);
        if !stays.learn(&mut sorted, config, &plan, &homeless) {
            break (plan, due);
        }
        let (rest, all_spent) = whole.of_repeat();
        // The first repetition is always allowed, so that a node that cannot be replaced does not prevent the
        // replacement of other nodes. After that, if the whole allowance is used up, only one more decision
        // is made, and it replaces no node.
        if repeats && all_spent {
            stays.keep_all(config);
        }
        (allowance, repeats) = (rest, true);
    };
    for verdict in &mut plan.nodes {
        if let Some(due) = due.get(&verdict.node) {
            due.explain(verdict);
        }
    }
    buffers::tell(&buffers, &mut plan);
    requests::tell(&requests, &mut plan);
    plan
}

/// Whether a decision is real, or a simulation for another decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Depth {
    Real,
    /// A simulation, which does not look for nodes to replace or machines to grow.
    Thought,
}

/// The decision about a snapshot.
struct Decision {
    plan: Plan,
    /// By node name, a pod that has to leave the node but finds no place on existing, upcoming or new
    /// machines.
    homeless: BTreeMap<String, String>,
}

/// Decides about a sorted snapshot within an allowance. The snapshot's pods are passed separately.
fn decide(
    snapshot: &Snapshot,
    pods: &PodsByNode,
    config: &Config,
    offers: &[Pool],
    depth: Depth,
    allowance: &Allowance,
) -> Decision {
    let mut view = View::new(snapshot, pods, config, offers, allowance);
    view.allowance = allowance.of_growth();
    view.grows = depth == Depth::Real;
    let mut growth = scale_up::decide(&mut view);
    view.allowance = allowance.of_shrinkage();
    let shrinkage = scale_down::decide(&mut view, &growth, depth);
    // If this round removes the node on which a pending pod was placed, the pod is placed on another node
    // instead.
    if !shrinkage.rehoused.is_empty() {
        for verdict in &mut growth.verdicts {
            if let Some(node) = shrinkage.rehoused.get(&*verdict.pod) {
                let before = verdict.destination.as_deref().cloned().unwrap_or_default();
                verdict.destination = Some(Arc::new(Destination { node: Some(node.clone()), ..before }));
            }
        }
    }
    let mut plan = Plan {
        time: snapshot.time,
        scale_up: if growth.pools.is_empty() { shrinkage.replacements } else { growth.pools },
        below_minimum: growth.short,
        grow: growth.grown,
        pods: growth.verdicts,
        scale_down: shrinkage.removals,
        nodes: shrinkage.verdicts,
        unfinished: Unfinished { pods: growth.unfinished, nodes: shrinkage.unfinished },
        ignored_annotations: annotations::ignored(snapshot, &view.annotated),
        ..Plan::default()
    };
    if depth == Depth::Real {
        warm_pool::provide(&view, growth.rooms, &mut plan);
    }
    let homeless = growth.homeless.iter().filter_map(|pod| Some((pod.node.clone()?, pod.id())));
    Decision { plan, homeless: homeless.collect() }
}

/// Returns the pods to evict from a node that is being drained, according to the same rules by which the node
/// was chosen. A pod for which `stays` is true is not evicted and runs until the node's machine stops.
/// `others` are pods on other nodes that are left running in the same way. While they exist, they count
/// against the budgets, like the pods that stay on this node.
///
/// # Errors
/// Returns an error if a pod on the node must not be evicted. The error names the pod and the reason.
pub fn evictions(
    snapshot: &Snapshot,
    config: &Config,
    node: &str,
    stays: impl Fn(&Pod) -> bool,
    others: &[Arc<Pod>],
) -> Result<Evictions, String> {
    let mut budgets = budgets::Budgets::new(snapshot);
    if !others.is_empty() {
        let others: BTreeSet<&str> = others.iter().map(|pod| &*pod.uid).collect();
        budgets.take(snapshot.pods.iter().filter(|pod| others.contains(&*pod.uid)));
    }
    let mut pods: Vec<_> = snapshot.pods.iter().filter(|pod| pod.node.as_deref() == Some(node)).collect();
    pods.sort_by_cached_key(|pod| (pod.priority, pod.id()));
    let rules = drain::Rules::new(snapshot, &config.scale_down);
    let priorities = priorities::Priorities::new(snapshot, config);
    rules
        .evictions(pods, budgets, stays)
        .map(|all| all.in_groups(&config.scale_down.drain_priorities, |pod| priorities.of(pod)))
        .map_err(|blocker| format!("{} ({})", blocker.pod, blocker.reason))
}

/// The first pod on the node that must not be evicted, with the rule that prevents its eviction. `None` if
/// the node can be drained. Pods whose eviction only has to wait for a disruption budget are ignored.
pub fn must_stay(snapshot: &Snapshot, config: &Config, node: &str) -> Option<String> {
    let pods: Vec<_> = snapshot.pods.iter().filter(|pod| pod.node.as_deref() == Some(node)).collect();
    let rules = drain::Rules::new(snapshot, &config.scale_down);
    let blocker = rules.evictions(pods, budgets::Budgets::new(snapshot), |_| false).err()?;
    Some(format!("pod {} must stay ({}): {}", blocker.pod, blocker.reason, blocker.reason.words()))
}

/// The snapshot that decisions are based on: sorted, and with the taints, drivers and devices that its nodes
/// are expected to get.
fn expected(snapshot: &Snapshot, config: &Config) -> Snapshot {
    let mut sorted = sorted(snapshot);
    expected_taints::expect_taints(&mut sorted);
    expected_devices::expect_devices(&mut sorted, config);
    csi::expect(&mut sorted, config);
    fresh_devices::expect(&mut sorted, config);
    sorted
}

/// The snapshot without its pods. Lists whose order could affect the plan are sorted by name.
fn sorted(snapshot: &Snapshot) -> Snapshot {
    let mut sorted = Snapshot {
        time: snapshot.time,
        kubernetes: snapshot.kubernetes,
        nodes: snapshot.nodes.clone(),
        pods: Vec::new(),
        namespaces: snapshot.namespaces.clone(),
        controllers: snapshot.controllers.clone(),
        daemon_sets: snapshot.daemon_sets.clone(),
        budgets: snapshot.budgets.clone(),
        volumes: snapshot.volumes.clone(),
        claims: snapshot.claims.clone(),
        storage_classes: snapshot.storage_classes.clone(),
        csi_drivers: snapshot.csi_drivers.clone(),
        csi_nodes: snapshot.csi_nodes.clone(),
        storage_capacities: snapshot.storage_capacities.clone(),
        attachments: snapshot.attachments.clone(),
        priority_classes: snapshot.priority_classes.clone(),
        resource_claims: snapshot.resource_claims.clone(),
        device_classes: snapshot.device_classes.clone(),
        resource_slices: snapshot.resource_slices.clone(),
        device_taint_rules: snapshot.device_taint_rules.clone(),
        buffers: snapshot.buffers.clone(),
        requests: snapshot.requests.clone(),
        pod_groups: snapshot.pod_groups.clone(),
        pod_templates: snapshot.pod_templates.clone(),
        proxmox: snapshot.proxmox.clone(),
        memory: snapshot.memory.clone(),
    };
    sorted.nodes.sort_by(|a, b| a.name.cmp(&b.name));
    sorted.daemon_sets.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    sorted.budgets.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    let by_name = |a: &Machine, b: &Machine| (&a.name, a.vmid).cmp(&(&b.name, b.vmid));
    let machines = sorted.proxmox.machines.as_deref().unwrap_or_default();
    // The inventory is copied only if necessary, because it is large.
    if !machines.is_sorted_by(|a, b| by_name(a, b).is_le())
        && let Some(machines) = &mut Arc::make_mut(&mut sorted.proxmox).machines
    {
        machines.sort_by(by_name);
    }
    sorted
}
