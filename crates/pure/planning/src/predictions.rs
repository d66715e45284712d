//! Missed predictions prevent the creation of machines. If kube-scheduler refuses pods although the planner
//! found that they fit, another machine of the same pool would not help. [`super::prediction_outcomes`] finds
//! the missed predictions.
//!
//! * If a prediction about a kind of pods was missed in a pool, the pool gets no machine for such pods until
//!   the prediction's back-off ends, and such pods are expected on none of the pool's nodes. The same applies
//!   to every other pool with a ready node that should have taken them.
//! * After the back-off, a machine may be tried again. Nodes that existed when the prediction was missed are
//!   not counted on: the scheduler has refused them.
//! * At most two machines an hour are created for a kind of pods that is never scheduled on them. Two pods of
//!   a gang are of no use without the others, so a gang may get machines for all of its pods. Once two
//!   machines have been created but received none of the pods, it gets no more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::class::Class;
use super::facts::{
    node::{pool_of, ready},
    pod::{is_daemon, is_mirror},
};
use super::packer::Packer;
use super::prediction_holds::Hold;
use model::plan::MissedPrediction;
use model::prediction::{MadeFor, Missed, kind};
use model::{Pod, PoolName};
use scheduling::NodeIndex;

/// Maximum number of machines that are created within [`BOUND_TIME`] for a kind of pods that is never
/// scheduled on them.
pub(super) const BOUND: usize = 2;
/// The time within which [`BOUND`] applies.
pub(super) const BOUND_TIME: SignedDuration = SignedDuration::from_hours(1);

/// Whether a machine was created recently enough to count towards [`BOUND`].
pub(super) fn is_recent(made: &MadeFor, now: Timestamp) -> bool {
    made.at <= now && now.duration_since(made.at) < BOUND_TIME
}

/// The reason text for two or more machines that received none of the pods that they were created for.
pub(super) fn in_vain(machines: &[&str]) -> String {
    format!("{} were created for such pods, but none was scheduled on them", machines.join(" and "))
}

impl<'a> Packer<'_, 'a> {
    /// Determines the restrictions on each class. Does nothing if no prediction was missed and
    /// [`Self::made_in_vain`] finds no machines.
    pub(super) fn hold_back(&mut self, classes: &mut [Class<'a>]) {
        let followed = &self.view.snapshot.memory.predictions;
        let vain = self.made_in_vain();
        if followed.missed.is_empty() && vain.is_empty() {
            return;
        }
        for class in classes {
            let kind = kind(class.sample);
            let missed: Vec<&Missed> = followed.missed.iter().filter(|one| one.kind == kind).collect();
            let vain = vain.get(kind.as_str()).map(|all| self.still_refusing(class.sample, all));
            let vain = vain.filter(|machines| machines.len() >= BOUND);
            if missed.is_empty() && vain.is_none() {
                continue;
            }
            let made = followed.made.iter().filter(|one| is_recent(one, self.view.snapshot.time));
            let made: Vec<&MadeFor> = made.filter(|one| one.kinds.contains(&kind)).collect();
            let hold = self.hold(class.sample, &missed, vain.as_deref(), &made);
            let mut suits = self.demands.suits[class.demands].clone();
            for (offer, suits) in suits.iter_mut().enumerate() {
                *suits &= !hold.pools.contains_key(&self.pools()[offer].name);
            }
            class.demands = self.demands.suits.len();
            self.demands.suits.push(suits);
            let hold = Arc::new(hold);
            self.holds.insert(self.pods[class.pods[0]].group, hold.clone());
            class.hold = Some(hold);
        }
    }

    /// Whether the planner must not place pods of this class on this node: kube-scheduler refused such pods
    /// there, or the node belongs to a planned machine that was dropped.
    #[inline]
    pub(super) fn is_closed_to(&self, class: &Class<'a>, at: NodeIndex) -> bool {
        class.hold.as_ref().is_some_and(|hold| self.is_held(hold, at)) || self.is_dropped(at)
    }

    fn is_held(&self, hold: &Hold, at: NodeIndex) -> bool {
        let node = &self.view.world.node(at).node;
        let was_there =
            || at < self.view.existing && hold.before.is_some_and(|before| node.created <= Some(before));
        pool_of(node).is_some_and(|pool| hold.pools.contains_key(pool)) || was_there()
    }

    /// Whether the pod would fit an existing node that the hold excludes, by the planner's own checks.
    pub(super) fn would_fit(&self, hold: &Hold, pod: &Arc<Pod>) -> bool {
        let prepared = self.view.world.prepare(pod);
        (0..self.view.existing)
            .any(|at| self.is_held(hold, at) && self.view.world.check(&prepared, at).is_ok())
    }

    fn hold(&self, pod: &Arc<Pod>, missed: &[&Missed], vain: Option<&[&str]>, made: &[&MadeFor]) -> Hold {
        let now = self.view.snapshot.time;
        let mut hold = Hold::default();
        for one in missed {
            hold.before = hold.before.max(Some(one.at));
            if one.backoff.runs(now) {
                let why = format!(
                    "no machine for pods like this one until {}: {}",
                    one.backoff.until,
                    MissedPrediction::of(one).words()
                );
                for pool in one.pool.iter().chain(&self.also_refused(pod, one)) {
                    hold.pools.entry(pool.clone()).or_insert_with(|| why.clone());
                }
            }
        }
        let last = missed.iter().max_by_key(|one| one.at);
        hold.missed = last.map(|one| Arc::new(MissedPrediction::of(one)));
        let failed = made.iter().filter(|one| one.in_vain).count();
        hold.ends_gangs = vain.is_some() || failed >= BOUND;
        let made: Vec<&str> = made.iter().map(|one| one.machine.as_str()).collect();
        let spent = vain.unwrap_or(&made);
        if last.is_some() || vain.is_some() {
            let left = BOUND.saturating_sub(spent.len());
            let words = if spent.len() < BOUND {
                "no more machines until a pod like this one is scheduled on one of the new machines"
                    .to_owned()
            } else {
                format!("no more machines for up to an hour: {}", in_vain(spent))
            };
            hold.most = Some((left, words));
        }
        hold
    }

    /// Returns each pool with a ready node that already existed when the pod was refused, and should have
    /// taken it.
    fn also_refused(&self, pod: &Arc<Pod>, missed: &Missed) -> BTreeSet<PoolName> {
        let prepared = self.view.world.prepare(pod);
        let refused = |at: &NodeIndex| {
            let node = &self.view.world.node(*at).node;
            node.created <= Some(missed.at) && ready(node) && self.view.world.check(&prepared, *at).is_ok()
        };
        let nodes = (0..self.view.existing).filter(refused);
        nodes.filter_map(|at| pool_of(&self.view.world.node(at).node)).map(Into::into).collect()
    }

    /// For each kind of pod, returns the recent machines that were created for it but received none of its
    /// pods. These are machines for which this is already recorded, and ready machines that run no pod. Kinds
    /// with fewer than [`BOUND`] such machines are left out.
    fn made_in_vain(&self) -> BTreeMap<&'a str, Vec<&'a str>> {
        let snapshot = self.view.snapshot;
        let made = &snapshot.memory.predictions.made;
        if made.len() < BOUND {
            return BTreeMap::new();
        }
        let coming: BTreeSet<&str> = self.upcoming.values().map(String::as_str).collect();
        let waits_idle = |at: NodeIndex| {
            let node = &snapshot.nodes[at];
            ready(node)
                && !coming.contains(node.name.as_str())
                && self.view.on[at]
                    .bound
                    .iter()
                    .all(|pod| is_daemon(pod) || is_mirror(pod) || pod.is_finished())
        };
        let idle: BTreeSet<&str> =
            (0..self.view.existing).filter(|&at| waits_idle(at)).map(|at| self.machine_on(at)).collect();
        let mut all: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for one in made.iter().filter(|one| is_recent(one, snapshot.time)) {
            if one.in_vain || idle.contains(one.machine.as_str()) {
                for kind in &one.kinds {
                    all.entry(kind).or_default().push(&one.machine);
                }
            }
        }
        all.retain(|_, machines| machines.len() >= BOUND);
        all
    }

    /// The name of the machine behind a node. It may differ from the node's name.
    fn machine_on(&self, at: NodeIndex) -> &str {
        let node = self.view.snapshot.nodes[at].name.as_str();
        self.view.machines.get(node).map_or(node, |machine| machine.name.as_str())
    }

    /// Returns those of the machines that are gone or would not take the pod. The scheduler may still place
    /// the pod on the others.
    fn still_refusing<'m>(&self, pod: &Arc<Pod>, machines: &[&'m str]) -> Vec<&'m str> {
        let prepared = self.view.world.prepare(pod);
        let takes = |at: NodeIndex| self.view.world.check(&prepared, at).is_ok();
        let at = |name: &str| (0..self.view.existing).find(|&at| self.machine_on(at) == name);
        machines.iter().copied().filter(|name| !at(name).is_some_and(takes)).collect()
    }
}

/// Limits each class that is held back to the number of pods for which machines may be created.
pub(super) fn keep_to_bound(classes: &mut [Class]) {
    for class in classes {
        if let Some((most, _)) = class.hold.as_ref().and_then(|hold| hold.most.as_ref()) {
            class.pods.truncate(class.done + most);
        }
    }
}

/// Drops the unplaced pods of classes whose hold applies to gangs too ([`Hold::ends_gangs`]). Called for pods
/// that are only useful together.
pub(super) fn keep_gang_to_bound(classes: &mut [Class]) {
    for class in classes {
        if class.hold.as_ref().is_some_and(|hold| hold.ends_gangs) {
            class.pods.truncate(class.done);
        }
    }
}
