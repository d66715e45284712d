//! Nodes that are to be replaced, and why: not ready for too long, created from settings or a template that
//! have changed, older than their pool allows, or on a host that is in maintenance or to be switched off.
//!
//! None of this is remembered. Each round chooses the nodes that are replaced now and treats them as leaving
//! ([`Node::replaced`]): no pod uses their room, their pods need another place, and they do not count towards
//! their pool's minimum. Scaling up then plans a machine if one is needed. [`super::replacement_removals`]
//! removes the old node only once its pods have a place on ready nodes. If the reason disappears, the
//! replacement ends, and a machine that was created in the meantime becomes a normal node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::budgets::Budgets;
use super::disruptions::Allowed;
use super::drain::{Drain, Rules};
use super::facts::{
    host::is_emptied,
    machine::{ByNode, is_kept},
    node::{being_deleted, is_leaving, pool_of, ready},
    pod::{is_daemon, is_mirror},
    time::after,
};
use super::replacement_order::Turns;
use super::{removal_backoff, unready};
use model::machine::{Machine, Phase};
use model::node::Node;
use model::plan::{NodeOutcome, NodeVerdict, RemovalReason};
use model::pod::Pod;
use model::power::HostOutcome;
use model::{Plan, PoolName, Snapshot};
use settings::{Config, Pool, Size};

/// Why a node is to be replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Due {
    pub(super) reason: RemovalReason,
    /// The reason in words, with the differences.
    words: String,
    /// Why the node is not replaced now. `None`: the node's turn has come.
    pub(super) held: Option<String>,
}

impl Due {
    /// Adds the reason to a node's verdict.
    pub(super) fn explain(&self, verdict: &mut NodeVerdict) {
        let held = self.held.as_ref().map(|why| format!("not replaced now: {why}"));
        let own =
            verdict.message.take().filter(|_| held.is_none() || verdict.verdict != NodeOutcome::Disabled);
        let parts = [Some(self.words.clone()), held, own];
        verdict.message = Some(parts.into_iter().flatten().collect::<Vec<_>>().join("; "));
    }
}

/// Chooses the nodes that are replaced now and marks them. Returns all nodes that are due, by name. Nodes
/// that must stay are not marked.
pub(super) fn mark(
    snapshot: &mut Snapshot,
    pods: &[Arc<Pod>],
    config: &Config,
    stays: &KeptReplacements,
) -> BTreeMap<String, Due> {
    let mut due = find(snapshot, config);
    if due.is_empty() {
        return BTreeMap::new();
    }
    for (at, one) in &mut due {
        if one.held.is_none() {
            one.held = stays.holds(&snapshot.nodes[*at]);
        }
    }
    let mut turns = Turns::new(snapshot, config);
    turns.spare = spare(snapshot, pods, &due);
    let drains = drains(snapshot, pods, config, &due);
    // The least useful nodes come first, then the oldest. Nodes whose removal was recently abandoned come
    // last.
    due.sort_by_key(|(at, one)| {
        let node = &snapshot.nodes[*at];
        (
            removal_backoff::was_given_up(snapshot, node),
            rank(one.reason),
            node.created.unwrap_or(Timestamp::MAX),
            node.name.clone(),
        )
    });
    let mut all = BTreeMap::new();
    for (at, mut one) in due {
        one.held = turns.held(snapshot, config, at, &one, drains.get(&at));
        if one.held.is_none() {
            Arc::make_mut(&mut snapshot.nodes[at]).replaced = Some(one.reason);
        }
        all.insert(snapshot.nodes[at].name.clone(), one);
    }
    all
}

/// Nodes that are not replaced in this round. They are found by trial: a decision in which all due nodes are
/// replaced shows which replacements would fail.
#[derive(Debug, Default)]
pub(super) struct KeptReplacements {
    /// Pools in which no node is replaced in this round, and why. Either nothing is being created or removed,
    /// or the round allows no more decisions. In the first case, room reserved for the nodes' pods would be
    /// of no use, and it could prevent the creation of a machine.
    stranded: BTreeMap<PoolName, &'static str>,
    /// Nodes that could not be removed even if machines were created for their pods, and why. Such machines
    /// would be removed again.
    in_vain: BTreeMap<String, String>,
    tries: usize,
}

impl KeptReplacements {
    /// Maximum number of times that the decision is repeated because some nodes cannot be replaced. After
    /// that, the pools of such nodes replace no node in this round.
    const TRIES: usize = 4;
    const NO_ROOM: &str = "there is no room for its replacement";
    const LIMIT: &str = "waiting for its turn: the round has reached its limit";

    /// Why this node is not replaced. `None`: no decision so far prevents it.
    fn holds(&self, node: &Node) -> Option<String> {
        let stranded = pool_of(node).and_then(|pool| self.stranded.get(pool));
        self.in_vain.get(&node.name).cloned().or_else(|| stranded.map(|why| (*why).to_owned()))
    }

    /// Prevents the replacement of any node in this round.
    pub(super) fn keep_all(&mut self, config: &Config) {
        self.strand(config.pools.iter().map(|pool| pool.name.clone()), Self::LIMIT);
    }

    fn strand(&mut self, pools: impl Iterator<Item = PoolName>, why: &'static str) {
        for pool in pools {
            self.stranded.entry(pool).or_insert(why);
        }
    }

    /// Clears [`Node::replaced`] after a trial decision. If a pod of a node finds no place, `homeless` names
    /// the pod, and the node cannot be replaced. Returns true if there are new nodes of this kind, so that
    /// the decision must be repeated.
    pub(super) fn learn(
        &mut self,
        snapshot: &mut Snapshot,
        config: &Config,
        plan: &Plan,
        homeless: &BTreeMap<String, String>,
    ) -> bool {
        let mut marked: Vec<Marked> = Vec::new();
        for node in &mut snapshot.nodes {
            let Some(reason) = node.replaced else { continue };
            let pool = PoolName::from(pool_of(node).unwrap_or_default());
            Arc::make_mut(node).replaced = None;
            marked.push(Marked { rank: rank(reason), node: node.name.clone(), pool });
        }
        marked.sort();
        if makes_for_them(plan) {
            let homeless = marked.iter().filter_map(|one| {
                let pod = homeless.get(&one.node)?;
                Some((
                    one,
                    format!("{pod} would find no room, even with new machines for the node's other pods"),
                ))
            });
            let mut stay: Vec<(&Marked, String)> = homeless.collect();
            stay.extend(lacking(snapshot, config, plan, &marked).into_iter().map(|one| {
                (one, "its pool would be below its minimum, and its replacement cannot be created".to_owned())
            }));
            if !stay.is_empty() {
                self.tries += 1;
                if self.tries > Self::TRIES {
                    self.strand(stay.iter().map(|(one, _)| one.pool.clone()), Self::LIMIT);
                }
                self.in_vain.extend(stay.into_iter().map(|(one, why)| (one.node.clone(), why)));
                return true;
            }
        }
        if is_anything_under_way(snapshot, plan) {
            return false;
        }
        let any = !marked.is_empty();
        self.strand(marked.into_iter().map(|one| one.pool), Self::NO_ROOM);
        any
    }
}

/// A node whose turn it is. The least useful nodes sort first.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Marked {
    rank: u8,
    node: String,
    pool: PoolName,
}

/// The marked nodes without which a pool would be below its minimum, even with the machines that are or will
/// be created.
fn lacking<'a>(snapshot: &Snapshot, config: &Config, plan: &Plan, marked: &'a [Marked]) -> Vec<&'a Marked> {
    let mut all = Vec::new();
    for pool in config.pools.iter().filter(|pool| marked.iter().any(|one| one.pool == pool.name)) {
        let leaves = |node: &Node| being_deleted(node) || marked.iter().any(|one| one.node == node.name);
        let own = snapshot.nodes.iter().filter(|node| pool_of(node) == Some(pool.name.as_str()));
        let serving = own.filter(|node| ready(node) && !leaves(node)).count();
        let machines = snapshot.proxmox.machines.iter().flatten();
        let coming =
            machines.filter(|one| one.pool == pool.name && one.phase < Phase::Ready && !is_kept(one)).count();
        let made: usize =
            plan.scale_up.iter().filter(|one| one.pool == pool.name).map(|one| one.machines.len()).sum();
        let short = (pool.min as usize).saturating_sub(serving + coming + made);
        all.extend(marked.iter().rev().filter(|one| one.pool == pool.name).take(short));
    }
    all
}

/// Whether anything is created or grows for a reason other than pending pods. False while a host is being
/// switched off or on: once a host is woken, it may have room for everything.
fn makes_for_them(plan: &Plan) -> bool {
    let machines = plan.scale_up.iter().flat_map(|pool| &pool.machines);
    let made = machines.map(|machine| machine.pods.as_slice());
    let mut all = made.chain(plan.grow.iter().map(|machine| machine.pods.as_slice()));
    all.any(<[_]>::is_empty) && !plan.hosts.iter().any(|host| changes(host.verdict))
}

/// Whether anything is being created or removed, by this plan or an earlier one.
fn is_anything_under_way(snapshot: &Snapshot, plan: &Plan) -> bool {
    let comes_or_goes =
        |machine: &Machine| machine.phase != Phase::Ready && !machine.phase.is_over() && !is_kept(machine);
    !plan.scale_up.is_empty()
        || !plan.scale_down.is_empty()
        || !plan.grow.is_empty()
        || plan.hosts.iter().any(|host| changes(host.verdict))
        || snapshot.proxmox.machines.iter().flatten().any(|one| comes_or_goes(one) || one.growing.is_some())
        || snapshot.nodes.iter().any(|node| is_leaving(node))
}

/// Whether a host is being switched on or off.
fn changes(host: HostOutcome) -> bool {
    use HostOutcome::{Emptied, GoingOff, SwitchOff, Wake, Waking};
    matches!(host, Emptied | SwitchOff | GoingOff | Wake | Waking)
}

fn rank(reason: RemovalReason) -> u8 {
    match reason {
        RemovalReason::Unready => 0,
        RemovalReason::Maintenance => 1,
        RemovalReason::Drifted => 2,
        _ => 3,
    }
}

/// Every node that is due for replacement, now or later.
fn find(snapshot: &Snapshot, config: &Config) -> Vec<(usize, Due)> {
    let machines: ByNode = snapshot
        .proxmox
        .machines
        .iter()
        .flatten()
        .filter_map(|machine| Some((machine.node.as_deref()?, machine)))
        .collect();
    let allowed = Allowed::new(snapshot, config);
    let mut found = Vec::new();
    // The description of what a pool's machines are made of is long, so it is built once per pool.
    let mut made_of: BTreeMap<&str, BTreeMap<String, String>> = BTreeMap::new();
    for (at, node) in snapshot.nodes.iter().enumerate() {
        let pool = pool_of(node).and_then(|name| config.pools.iter().find(|pool| pool.name == name));
        let Some(pool) = pool.filter(|_| !being_deleted(node)) else { continue };
        let machine = machines.get(node.name.as_str()).copied();
        if !ready(node) {
            // Nodes that have never been ready are handled as part of their machine's creation.
            let served = machine.is_none_or(|machine| machine.phase == Phase::Ready);
            found.extend(silent(snapshot, config, node).filter(|_| served).map(|due| (at, due)));
            continue;
        }
        let now = made_of.entry(&pool.name).or_insert_with(|| pool.made_of());
        let all = [
            maintenance(snapshot, config, machine),
            machine.and_then(|machine| emptied(snapshot, machine)),
            machine.and_then(|machine| drifted(snapshot, config, (pool, now), machine)),
            expired(snapshot.time, pool, node),
        ];
        let mut all: Vec<Due> = all.into_iter().flatten().collect();
        // A reason that applies now takes precedence over one that has to wait.
        let may = |one: &Due| one.held.is_none() && allowed.refuses(one.reason, &pool.name).is_none();
        if !all.is_empty() {
            let first = all.iter().position(may).unwrap_or(0);
            found.push((at, all.swap_remove(first)));
        }
    }
    found
}

/// Returns the reason to replace the node if it has been unready for too long.
fn silent(snapshot: &Snapshot, config: &Config, node: &Node) -> Option<Due> {
    let since = unready::since(snapshot, config, node)?;
    let due = after(since, config.replace.unready_after?) <= snapshot.time;
    let words = format!("not ready since {since}");
    due.then_some(Due { reason: RemovalReason::Unready, words, held: None })
}

fn maintenance(snapshot: &Snapshot, config: &Config, machine: Option<&Machine>) -> Option<Due> {
    let host = &machine?.host;
    let mut hosts = snapshot.proxmox.hosts.iter().flatten().filter(|one| one.online && one.maintenance);
    hosts.find(|one| one.name == *host)?;
    let held = (!config.replace.maintenance).then(|| "`replace.maintenance` is off".to_owned());
    let words = format!("its host {host} is in maintenance");
    Some(Due { reason: RemovalReason::Maintenance, words, held })
}

/// The reason to replace the node, if its host is being emptied. The decision to empty the host has already
/// checked that its nodes can be replaced.
fn emptied(snapshot: &Snapshot, machine: &Machine) -> Option<Due> {
    is_emptied(snapshot, &machine.host).then(|| {
        let words = format!("its host {} is to be switched off", machine.host);
        Due { reason: RemovalReason::HostOff, words, held: None }
    })
}

/// The reason to replace the node, if its machine differs from a new one.
fn drifted(
    snapshot: &Snapshot,
    config: &Config,
    pool: (&Pool, &BTreeMap<String, String>),
    machine: &Machine,
) -> Option<Due> {
    let differs = differences(snapshot, pool, machine);
    if differs.is_empty() {
        return None;
    }
    let held = (!config.replace.drift).then(|| "`replace.drift` is off".to_owned());
    Some(Due { reason: RemovalReason::Drifted, words: format!("drifted: {}", differs.join(", ")), held })
}

/// Returns a text for each difference between a machine and a new one. `made_of` describes the pool's new
/// machines.
pub(super) fn differences(
    snapshot: &Snapshot,
    (pool, made_of): (&Pool, &BTreeMap<String, String>),
    machine: &Machine,
) -> Vec<String> {
    let mut differs = Vec::new();
    for (key, now) in made_of {
        // A setting that is missing from the record did not exist when the record was written, so it does not
        // count as a difference.
        if let Some(then) = machine.made_of.get(key).filter(|then| *then != now) {
            let then = if then.is_empty() { "nothing" } else { then };
            let now = if now.is_empty() { "nothing" } else { now };
            differs.push(match key.as_str() {
                "ssh_keys" => "different `ssh_keys`".to_owned(),
                _ => format!("`{key}` was {then} and is now {now}"),
            });
        }
    }
    if let Some(size) = machine.made_of.get("size")
        && !pool.sizes.iter().map(Size::words).any(|one| one == *size)
    {
        differs.push(format!("the pool no longer creates machines with {size} of memory"));
    }
    let templates = snapshot.memory.pools.get(&pool.name).map(|memory| memory.templates.as_slice());
    if let (Some(template), Some(known)) = (machine.made_of.get("template"), templates)
        && !known.is_empty()
        && !known.contains(template)
    {
        differs.push("its template was changed or replaced".to_owned());
    }
    differs
}

/// Returns the reason to replace the node if it is too old. The expiry of nodes that were created together is
/// spread over the last tenth of `max_node_age`.
fn expired(now: Timestamp, pool: &Pool, node: &Node) -> Option<Due> {
    const PARTS: u32 = 1000;
    let oldest = pool.max_node_age?;
    let lot = node
        .name
        .bytes()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let earlier = oldest / 10 / PARTS * (lot % PARTS);
    let created = node.created?;
    if after(created, oldest.saturating_sub(earlier)) > now {
        return None;
    }
    let is = if after(created, oldest) <= now { "older than" } else { "almost as old as" };
    let words = format!("{is} its pool's `max_node_age` of {}", age_text(oldest));
    Some(Due { reason: RemovalReason::Expired, words, held: None })
}

fn age_text(age: Duration) -> String {
    let hours = age.as_secs() / 3600;
    if hours >= 48 { format!("{} days", hours / 24) } else { format!("{hours} h") }
}

/// What draining each of these nodes involves, or which pod forbids the drain.
fn drains(
    snapshot: &Snapshot,
    pods: &[Arc<Pod>],
    config: &Config,
    due: &[(usize, Due)],
) -> BTreeMap<usize, Result<Drain, String>> {
    let names: BTreeMap<&str, usize> =
        due.iter().map(|(at, _)| (snapshot.nodes[*at].name.as_str(), *at)).collect();
    let mut on: BTreeMap<usize, Vec<&Arc<Pod>>> = names.values().map(|at| (*at, Vec::new())).collect();
    for pod in pods {
        if let Some(at) = pod.node.as_deref().and_then(|node| names.get(node)) {
            on.entry(*at).or_default().push(pod);
        }
    }
    let (rules, budgets) = (Rules::new(snapshot, &config.scale_down), Budgets::new(snapshot));
    let drain = |mut pods: Vec<&Arc<Pod>>| {
        pods.sort_by_cached_key(|pod| pod.id());
        rules
            .drain(pods, &budgets)
            .map_err(|blocker| format!("{} keeps it ({})", blocker.pod, blocker.reason))
    };
    on.into_iter().map(|(at, pods)| (at, drain(pods))).collect()
}

/// Pools with a machine that is being created, or with a node that has no pods to move. Such a machine or
/// node may be a replacement, and must not prevent the removal of the node that it replaces.
fn spare(snapshot: &Snapshot, pods: &[Arc<Pod>], due: &[(usize, Due)]) -> BTreeSet<PoolName> {
    let moves = |pod: &&Arc<Pod>| !is_daemon(pod) && !is_mirror(pod);
    let busy: BTreeSet<&str> = pods.iter().filter(moves).filter_map(|pod| pod.node.as_deref()).collect();
    let old: BTreeSet<usize> = due.iter().map(|(at, _)| *at).collect();
    let nodes = snapshot.nodes.iter().enumerate().filter(|(at, node)| {
        !old.contains(at) && ready(node) && !being_deleted(node) && !busy.contains(node.name.as_str())
    });
    let empty = nodes.filter_map(|(_, node)| pool_of(node).map(PoolName::from));
    let machines = snapshot.proxmox.machines.iter().flatten();
    let made = machines
        .filter(|machine| machine.phase < Phase::Ready && machine.warm.is_none())
        .map(|machine| machine.pool.clone());
    empty.chain(made).collect()
}
