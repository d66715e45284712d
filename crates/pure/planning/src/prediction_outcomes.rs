//! The outcome of decisions: whether kube-scheduler puts pods where the planner found that they fit.
//!
//! A pod that fits a ready node is expected to be scheduled there. This prediction is missed in two cases:
//! the scheduler has looked at the pod again and refused it, or the pod is still refused after a timeout in
//! which the scheduler retries every pod more than once. Only a new message shows that the scheduler has
//! looked at the pod: it does not write the condition if the message is unchanged, and it never updates the
//! condition's time. A prediction starts over if pods are added to the node or leave it, or after a gap
//! during which no instance was watching. If the scheduler has not looked at some older pods yet, the timeout
//! alone does not make a prediction missed.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::facts::{
    node::{being_deleted, pool_of, ready},
    pod::{is_daemon, is_mirror},
};
use super::gang_outcomes::GangOutcomes;
use super::predictions::{BOUND, in_vain, is_recent};
use super::{buffers, gangs};
use model::digest::Fingerprint;
use model::machine::Phase;
use model::node::Node;
use model::plan::{Plan, PodOutcome, PodVerdict};
use model::pod::{Pod, Scheduling, VolumeSource};
use model::prediction::{Awaited, MadeFor, Missed, Predictions, fingerprint, kind};
use model::workload::{Backoff, PersistentVolume, VolumeClaim};
use model::{Machine, Snapshot};
use settings::Config;

/// A pod that the scheduler has refused again must remain refused for this long before the prediction counts
/// as missed. The message may be outdated, and after a change in the cluster the scheduler tries the pod
/// again within ten seconds.
pub(super) const SETTLED: SignedDuration = SignedDuration::from_mins(2);
/// If there is a pod older than this that the scheduler has not looked at, the scheduler is behind.
const BEHIND: SignedDuration = SignedDuration::from_mins(1);
/// If there was no round for longer than this, no instance was watching.
const GAP: SignedDuration = SignedDuration::from_mins(5);
/// A missed prediction for which no pods are pending is forgotten this long after its back-off ends.
const FORGOTTEN: SignedDuration = SignedDuration::from_hours(1);
/// Three limits: how many kinds of pods are remembered as expected or missed, how many machines are followed,
/// and how many pods are named for each kind.
const MOST: (usize, usize, usize) = (64, 256, 16);
/// Maximum number of pods that are looked at in a round, one from each class.
const EXAMINED: usize = 256;

/// What to remember about predictions after this decision, which was based on this snapshot.
pub fn follow(snapshot: &Snapshot, plan: &Plan, config: &Config) -> Predictions {
    let before = &snapshot.memory.predictions;
    if plan.pods.is_empty() && plan.chunks.is_empty() && plan.scale_down.is_empty() && before.is_empty() {
        return Predictions::default();
    }
    let mut after = before.clone();
    let follower = Follower::new(snapshot, plan, config);
    follower.forget(&mut after.missed);
    follower.await_pods(&mut after);
    follower.follow_machines(&mut after);
    follower.follow_moves(&mut after.moved);
    after
}

/// The inputs of [`follow`], and lookups that it needs repeatedly.
pub(super) struct Follower<'a> {
    pub snapshot: &'a Snapshot,
    pub plan: &'a Plan,
    pub config: &'a Config,
    pub now: Timestamp,
    pub nodes: BTreeMap<&'a str, &'a Arc<Node>>,
    waiting: BTreeMap<&'a str, &'a Arc<Pod>>,
    /// Chunks of buffers: kube-scheduler never sees them, but a machine that was created for one must be able
    /// to take it.
    chunks: BTreeMap<String, Arc<Pod>>,
    /// The pods on each node, except DaemonSet pods, static pods and finished pods.
    pub guests: BTreeMap<&'a str, Vec<&'a Pod>>,
    gangs: GangOutcomes<'a>,
    kinds: RefCell<BTreeMap<Fingerprint, String>>,
}

impl<'a> Follower<'a> {
    fn new(snapshot: &'a Snapshot, plan: &'a Plan, config: &'a Config) -> Self {
        let mut guests: BTreeMap<&str, Vec<&Pod>> = BTreeMap::new();
        let stays = |pod: &Pod| is_daemon(pod) || is_mirror(pod) || pod.is_finished();
        for pod in &snapshot.pods {
            if let Some(node) = pod.node.as_deref().filter(|_| !stays(pod)) {
                guests.entry(node).or_default().push(pod);
            }
        }
        let waits = snapshot.pods.iter().filter(|pod| pod.digest().marks.waits);
        let waiting: BTreeMap<&str, &Arc<Pod>> = waits.map(|pod| (&*pod.digest().id, pod)).collect();
        let mut follower = Self {
            gangs: GangOutcomes::default(),
            snapshot,
            plan,
            config,
            now: snapshot.time,
            nodes: snapshot.nodes.iter().map(|node| (node.name.as_str(), node)).collect(),
            waiting,
            chunks: if plan.chunks.is_empty() { BTreeMap::new() } else { buffers::chunks(snapshot) },
            guests,
            kinds: RefCell::default(),
        };
        if snapshot.pod_groups.is_some() {
            let fits = follower.expected().map(|(pod, _)| pod).collect();
            follower.gangs = GangOutcomes::of(snapshot, plan, &fits);
        }
        follower
    }

    pub(super) fn kind(&self, pod: &Pod) -> String {
        self.kinds.borrow_mut().entry(pod.digest().class).or_insert_with(|| kind(pod)).clone()
    }

    /// Checks what happened to the pods that were expected on a ready node, and adds pods that fit one now.
    fn await_pods(&self, after: &mut Predictions) {
        let fits: BTreeMap<&str, &str> = self.expected().collect();
        let mut awaited: Vec<Awaited> = Vec::new();
        for one in std::mem::take(&mut after.awaited) {
            let still = fits.get(one.pod.as_str()) == Some(&one.node.as_str());
            let pod = self.waiting.get(one.pod.as_str());
            let pod = pod.filter(|pod| still && pod.uid == one.uid && !self.is_split(pod));
            if let Some(pod) = pod {
                awaited.push(self.go_on(one, pod));
            }
        }
        let mut examined = BTreeSet::new();
        for (name, node) in self.expected() {
            let Some(pod) = self.waiting.get(name).filter(|pod| !self.is_split(pod)) else { continue };
            if awaited.len() >= MOST.0 || examined.len() >= EXAMINED || !examined.insert(pod.digest().class) {
                continue;
            }
            let kind = self.kind(pod);
            if awaited.iter().all(|one| one.kind != kind) {
                awaited.push(self.begin(kind, pod, node));
            }
        }
        for one in awaited {
            let pod = self.waiting[one.pod.as_str()];
            if self.is_missed(&one, pod) {
                let pool = self.nodes.get(one.node.as_str()).and_then(|node| pool_of(node));
                let ours = format!(
                    "at {}, the planner predicted that the pod would fit node {}",
                    one.since, one.node
                );
                self.miss(&mut after.missed, pod, pool, &one.node, ours);
            } else {
                after.awaited.push(one);
            }
        }
    }

    /// Pods that the plan leaves to the scheduler, each with the ready node that they fit.
    fn expected(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let fit = self.plan.pods.iter().filter(|verdict| verdict.verdict == PodOutcome::ExistingNode);
        fit.filter_map(|verdict| {
            let node = verdict.node()?;
            let seen = self.nodes.get(node).filter(|node| ready(node) && !being_deleted(node));
            let pod = self.waiting.get(&*verdict.pod)?;
            (seen.is_some() && !pod.digest().marks.nominated).then_some((&*verdict.pod, node))
        })
    }

    /// Whether the pod belongs to a gang that cannot be placed at present.
    fn is_split(&self, pod: &Pod) -> bool {
        gangs::key(pod).is_some_and(|key| self.gangs.split.contains(&key))
    }

    fn begin(&self, kind: String, pod: &Pod, node: &str) -> Awaited {
        Awaited {
            kind,
            pod: pod.id(),
            uid: pod.uid.clone(),
            node: node.to_owned(),
            company: self.company(node),
            since: self.now,
            words: fingerprint(&pod.refusal),
            refused_again: None,
        }
    }

    fn go_on(&self, mut one: Awaited, pod: &Pod) -> Awaited {
        let gap =
            self.snapshot.memory.last_round.is_none_or(|last| self.now.duration_since(last).abs() > GAP);
        let company = self.company(&one.node);
        if gap || one.since > self.now || company != one.company {
            return self.begin(one.kind, pod, &one.node);
        }
        let words = fingerprint(&pod.refusal);
        if words != one.words {
            one.refused_again = Some(self.now);
            one.words = words;
        }
        one
    }

    /// A fingerprint of the pods on the node.
    fn company(&self, node: &str) -> String {
        let there = self.guests.get(node).into_iter().flatten();
        let mut uids: Vec<(&str, &str)> = there.map(|pod| (&*pod.digest().id, pod.uid.as_str())).collect();
        uids.sort_unstable();
        if uids.is_empty() { String::new() } else { fingerprint(&uids) }
    }

    fn is_missed(&self, one: &Awaited, pod: &Pod) -> bool {
        if !is_refused(pod) {
            return false;
        }
        // For a pod whose volumes may limit its nodes, only the timeout counts: kube-scheduler may have
        // selected a node and still be waiting for a volume to be created.
        let at_once = !pod.volumes.iter().any(model::pod::Volume::decides_place);
        let again = one.refused_again.is_some_and(|at| self.now.duration_since(at) >= SETTLED);
        let timeout = signed(self.config.scale_up.prediction_timeout);
        let late = self.now.duration_since(one.since) >= timeout && !self.is_behind(&pod.scheduler);
        (at_once && again) || late
    }

    /// Whether there are pods older than [`BEHIND`] that the scheduler has not looked at, although it should
    /// have.
    fn is_behind(&self, scheduler: &str) -> bool {
        self.waiting.values().any(|pod| {
            let old = pod.created.is_none_or(|created| self.now.duration_since(created) >= BEHIND);
            let looks = || gangs::key(pod).is_none_or(|key| !self.gangs.unlooked.contains(&key));
            pod.scheduling == Scheduling::Unprocessed && pod.scheduler == scheduler && old && looks()
        })
    }

    /// Follows each machine that was created for pods, for up to an hour, until a pod has been scheduled on
    /// it.
    fn follow_machines(&self, after: &mut Predictions) {
        let machines: BTreeMap<&str, &Machine> = self
            .snapshot
            .proxmox
            .machines
            .iter()
            .flatten()
            .map(|machine| (machine.name.as_str(), machine))
            .collect();
        for machine in machines.values() {
            let comes = machine.warm.is_none() && machine.phase < Phase::Ready;
            let is_new = comes && after.made.iter().all(|one| one.machine != machine.name);
            if is_new && !machine.pods.is_empty() && after.made.len() < MOST.1 {
                after.made.extend(self.made(machine));
            }
        }
        let fits = |one: &&PodVerdict| one.verdict == PodOutcome::ExistingNode;
        let of_chunks = self.plan.chunks.iter().filter(fits).filter_map(PodVerdict::node);
        let expected: BTreeSet<&str> = self.expected().map(|(_, node)| node).chain(of_chunks).collect();
        let short: BTreeSet<&str> =
            self.plan.chunks.iter().filter(|one| !fits(one)).map(|one| &*one.pod).collect();
        after.made.retain_mut(|one| {
            let Some(machine) = machines.get(one.machine.as_str()) else {
                return one.in_vain && is_recent(one, self.now);
            };
            let node = machine.node.as_deref().unwrap_or(&machine.name);
            if !is_recent(one, self.now) || self.guests.contains_key(node) {
                return false;
            }
            let is_ready = self.nodes.get(node).is_some_and(|node| ready(node) && !being_deleted(node));
            // If a pod's gang is incomplete, the machine is not the reason why the pod is pending.
            let is_refused = |pod: &str| self.waiting.get(pod).is_some_and(|pod| !self.is_split(pod));
            let waits = machine.pods.iter().any(|pod| is_refused(pod) || short.contains(pod.as_str()));
            let placed = || self.plan.pods.iter().chain(&self.plan.chunks);
            let coming = || placed().any(|pod| pod.machine() == Some(machine.name.as_str()));
            let serves = machine.phase == Phase::Ready && is_ready;
            one.in_vain |= serves && waits && !expected.contains(node) && !coming();
            true
        });
        self.miss_by_machines(after);
    }

    /// What to remember about a machine that was created, if pods that it was created for are still pending.
    fn made(&self, machine: &Machine) -> Option<MadeFor> {
        let real = |pod: &str| self.waiting.get(pod).copied();
        let pods = machine.pods.iter().filter_map(|pod| real(pod).or_else(|| self.chunks.get(pod.as_str())));
        let kinds: BTreeSet<String> = pods.map(|pod| self.kind(pod)).collect();
        (!kinds.is_empty()).then(|| MadeFor {
            machine: machine.name.clone(),
            pool: machine.pool.clone(),
            kinds: kinds.into_iter().collect(),
            at: self.now,
            in_vain: false,
        })
    }

    /// Marks a prediction as missed if several machines were created one after the other for a kind of pod,
    /// but no such pod was scheduled on any of them.
    fn miss_by_machines(&self, after: &mut Predictions) {
        let mut by_kind: BTreeMap<&str, Vec<&MadeFor>> = BTreeMap::new();
        for one in after.made.iter().filter(|one| one.in_vain) {
            for kind in &one.kinds {
                by_kind.entry(kind).or_default().push(one);
            }
        }
        by_kind.retain(|_, machines| machines.len() >= BOUND);
        if by_kind.is_empty() {
            return;
        }
        for pod in self.waiting.values().filter(|pod| is_refused(pod)) {
            let Some(machines) = by_kind.remove(self.kind(pod).as_str()) else { continue };
            let Some(last) = machines.last() else { continue };
            let names: Vec<&str> = machines.iter().map(|one| one.machine.as_str()).collect();
            self.miss(&mut after.missed, pod, Some(&last.pool), &last.machine, in_vain(&names));
        }
    }

    fn miss(&self, missed: &mut Vec<Missed>, pod: &Pod, pool: Option<&str>, node: &str, ours: String) {
        let kind = self.kind(pod);
        let same = |one: &Missed| match pool {
            Some(_) => one.kind == kind && one.pool.as_deref() == pool,
            None => one.kind == kind && one.pool.is_none() && one.node == node,
        };
        let before = missed.iter().position(same).map(|at| missed.remove(at));
        if let Some(running) = before.as_ref().filter(|before| before.backoff.runs(self.now)) {
            missed.push(running.clone());
            return;
        }
        if missed.len() >= MOST.0 {
            missed.remove(0);
        }
        let settings = &self.config.scale_up;
        let lengths = (settings.prediction_backoff_initial, settings.prediction_backoff_max);
        let alike = self.waiting.values().filter(|other| other.namespace == pod.namespace);
        let alike = alike.filter(|other| self.kind(other) == kind).take(MOST.2);
        missed.push(Missed {
            pod: pod.id(),
            pool: pool.map(Into::into),
            node: node.to_owned(),
            at: self.now,
            ours,
            theirs: pod.refusal.clone(),
            backoff: Backoff::next(before.as_ref().map(|one| &one.backoff), "", lengths, self.now),
            settings: self.settings(pool),
            seen: self.seen(node).unwrap_or_default(),
            volumes: self.volumes(pod),
            waiting: alike.map(|other| other.uid.clone()).collect(),
            kind,
        });
    }

    /// Forgets missed predictions that are old, that pods have since disproved, or whose circumstances have
    /// changed.
    fn forget(&self, missed: &mut Vec<Missed>) {
        if missed.is_empty() {
            return;
        }
        let landed: Vec<bool> = missed.iter().map(|one| self.has_landed(one)).collect();
        let mut landed = landed.into_iter();
        missed.retain(|one| {
            let volumes = self.waiting.get(one.pod.as_str()).map(|pod| self.volumes(pod));
            let changed = self.settings(one.pool.as_deref()) != one.settings
                || volumes.is_some_and(|volumes| volumes != one.volumes)
                || self.seen(&one.node).is_some_and(|seen| !one.seen.is_empty() && seen != one.seen);
            let over = one.backoff.until.saturating_add(FORGOTTEN).unwrap_or(Timestamp::MAX);
            let waits = || {
                let mut alike = self.waiting.values().filter(|pod| pod.namespace == namespace(one));
                alike.any(|pod| self.kind(pod) == one.kind)
            };
            let old = self.now > over && !waits();
            !(landed.next().unwrap_or(false) || changed || old || one.at > self.now)
        });
    }

    /// Whether a pod of the kind has been scheduled in the pool, or on the node, since the prediction was
    /// missed.
    fn has_landed(&self, one: &Missed) -> bool {
        let there = |node: &str| match &one.pool {
            Some(pool) => self.nodes.get(node).and_then(|node| pool_of(node)) == Some(pool.as_str()),
            None => node == one.node,
        };
        let came = |pod: &&Pod| {
            let is_newer = pod.created > Some(one.at) && pod.namespace == namespace(one);
            one.waiting.contains(&pod.uid) || (is_newer && self.kind(pod) == one.kind)
        };
        self.guests.iter().filter(|(node, _)| there(node)).any(|(_, pods)| pods.iter().any(&came))
    }

    /// A fingerprint of the settings that determine the pool's fresh nodes.
    fn settings(&self, pool: Option<&str>) -> String {
        let mut daemons: Vec<String> = self.snapshot.daemon_sets.iter().map(|set| kind(&set.pod)).collect();
        daemons.sort_unstable();
        let pool = self.config.pools.iter().find(|one| Some(one.name.as_str()) == pool);
        let own = pool.map(|pool| (pool.made_of(), &pool.labels, &pool.taints, pool.cores, pool.memory));
        fingerprint(&(own, daemons))
    }

    /// A fingerprint of what the scheduler sees of a node, except what is temporary. `None`: the node is
    /// gone, or is being removed.
    fn seen(&self, node: &str) -> Option<String> {
        let node = self.nodes.get(node).filter(|node| !being_deleted(node))?;
        let passes = |key: &str| key.starts_with("node.kubernetes.io/") || key.starts_with("pve-autoscaler/");
        let taints = node.taints.iter().filter(|taint| !passes(&taint.key));
        let taints: Vec<_> = taints.map(|taint| (&taint.key, &taint.value, taint.effect)).collect();
        let volumes = self.snapshot.csi_nodes.iter().find(|one| one.name == node.name);
        Some(fingerprint(&(&node.labels, taints, &node.allocatable, volumes)))
    }

    /// A fingerprint of what the volumes of a pod depend on, except free storage capacity, which changes all
    /// the time.
    fn volumes(&self, pod: &Pod) -> String {
        let claims = pod.volumes.iter().filter_map(|volume| match &volume.source {
            VolumeSource::Claim { name, .. } => Some(name),
            _ => None,
        });
        let all: Vec<_> = claims.map(|name| self.claim(&pod.namespace, name)).collect();
        if all.is_empty() { String::new() } else { fingerprint(&all) }
    }

    fn claim(&self, namespace: &str, name: &str) -> impl Serialize + use<> {
        let snapshot = self.snapshot;
        let claim = snapshot.claims.iter().find(|one| (&*one.namespace, &*one.name) == (namespace, name));
        let class = claim.and_then(|claim| claim.class.as_deref());
        let class = snapshot.storage_classes.iter().find(|one| Some(&*one.name) == class);
        let driver =
            snapshot.csi_drivers.iter().find(|one| class.is_some_and(|class| class.provisioner == one.name));
        let bound = claim.and_then(|claim| claim.volume.as_ref());
        let suits = |one: &&Arc<PersistentVolume>| match bound {
            Some(name) => one.name == *name,
            None => one.claim.is_none() && class.is_some_and(|class| class.name == one.class),
        };
        let volumes: Vec<_> = snapshot.volumes.iter().filter(suits).cloned().collect();
        // The selected node is left out: each time the scheduler tries the pod, it may set this field and
        // clear it again.
        let claim = claim.map(|claim| VolumeClaim { selected_node: None, ..VolumeClaim::clone(claim) });
        (claim, class.cloned(), driver.cloned(), volumes)
    }
}

fn namespace(one: &Missed) -> &str {
    one.pod.split_once('/').map_or("", |(namespace, _)| namespace)
}

pub(super) fn is_refused(pod: &Pod) -> bool {
    matches!(pod.scheduling, Scheduling::Unschedulable(_) | Scheduling::Refused(_))
}

pub(super) fn signed(time: Duration) -> SignedDuration {
    SignedDuration::try_from(time).unwrap_or(SignedDuration::MAX)
}
