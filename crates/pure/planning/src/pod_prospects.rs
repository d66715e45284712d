//! The prospects of a pod: what each pool would do with it if no other pod were pending, and what happens if
//! its node is removed.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use super::allowance::{Allowance, Limits};
use super::budgets::Budgets;
use super::capacity::{NoRoom, Rooms};
use super::drain::Rules;
use super::pods_by_node::PodsByNode;
use super::priorities::Priorities;
use super::view::View;
use super::{buffers, expected, fresh_node, requests, sizes};
use model::drain::Blocking;
use model::pod::Pod;
use model::{PoolName, Snapshot};
use scheduling::{Effort, Prepared, Refusal, SimNode};
use settings::{Config, Pool};

/// The prospects of one pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Prospects {
    /// What each pool would do with the pod, in the order of the configuration. Other pending pods are
    /// ignored.
    pub pools: Vec<PoolAnswer>,
    /// What the removal of the pod's node means for the pod, if it has a node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub removal: Option<Removal>,
}

/// What a pool would do with a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PoolAnswer {
    /// The pool.
    pub pool: PoolName,
    /// Whether the pool can create a machine that the pod would fit.
    pub fits: bool,
    /// kube-scheduler's name for the first filter that refuses the pod on a fresh node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<&'static str>,
    /// Why no machine can be created, although the pod would fit a fresh node: `PoolAtMax`, `NoFreeSlot`,
    /// `NoHostCapacity`, `BackingOff`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'static str>,
    /// The filter's refusal, or the reason why no machine can be created, in words and with numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// What the removal of its node means for a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Removal {
    /// The pod's node.
    pub node: String,
    /// What happens to the pod.
    pub treatment: Treatment,
    /// The drain rule that keeps the pod on its node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Blocking>,
    /// The reason in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// What happens to a pod when its node is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Treatment {
    /// The pod is evicted, and needs another place.
    Evicted,
    /// The pod is evicted, and needs no other place: its priority is below the cut-off.
    Expendable,
    /// The pod ends when its node is removed, and needs no other place: it is a DaemonSet's pod or a static
    /// one, has finished, or is being deleted.
    EndsWithNode,
    /// The removal waits until the pod has finished.
    Awaited,
    /// The pod keeps its node.
    KeepsNode,
}

/// The prospects of the pods with these ids (`namespace/name`).
pub fn prospects<'i>(
    snapshot: &Snapshot,
    config: &Config,
    ids: impl IntoIterator<Item = &'i str>,
) -> BTreeMap<String, Prospects> {
    let scheduled = config.scheduled_at(snapshot.time);
    let config = scheduled.as_ref().unwrap_or(config);
    let sorted = expected(snapshot, config);
    let offers = sizes::offers(config, snapshot);
    let (buffers, requests) = (buffers::resolve(snapshot), requests::resolve(snapshot));
    let pods = buffers::beside(&snapshot.pods, &buffers, &requests);
    let effort = Effort::default();
    let allowance = Allowance::new(&effort, Limits::default());
    let pods = PodsByNode::new(&pods, &sorted, config);
    let mut view = View::new(&sorted, &pods, config, &offers, &allowance);
    let fresh: Vec<SimNode> =
        offers.iter().map(|pool| fresh_node::node(&view, pool, &format!("{}-new", pool.name))).collect();
    let rooms = Rooms::new(&view);
    let (rules, budgets) = (Rules::new(snapshot, &config.scale_down), Budgets::new(snapshot));
    let priorities = Priorities::new(snapshot, config);
    let named: BTreeMap<&str, &Arc<Pod>> = snapshot.pods.iter().map(|pod| (&*pod.digest().id, pod)).collect();
    let mut found = BTreeMap::new();
    for id in ids {
        let Some(pod) = named.get(id).copied() else { continue };
        let bound = bound(&view, pod);
        if let Some(at) = bound {
            view.world.remove(pod, at);
        }
        let prepared = view.world.prepare(pod);
        let pools = pools(&view, &rooms, &fresh, &prepared);
        if let Some(at) = bound {
            view.world.place(pod, at);
        }
        let removal = removal(&rules, &budgets, &priorities, pod);
        found.insert(id.to_owned(), Prospects { pools, removal });
    }
    found
}

/// The pod's node, if the pod is in the world.
fn bound(view: &View, pod: &Arc<Pod>) -> Option<usize> {
    let at = view.named.find(pod.node.as_deref()?)?;
    let counts = view.on[at].bound.iter().any(|one| one.digest().id == pod.digest().id);
    (counts && !pod.is_finished()).then_some(at)
}

/// The answer of each pool. A pool has several offers if its machines have several sizes or its hosts have
/// different labels. Its answer comes from the first offer that takes the pod, or else from the first whose
/// nodes would take the pod, or else from the last.
fn pools(view: &View, rooms: &Rooms, fresh: &[SimNode], prepared: &Prepared) -> Vec<PoolAnswer> {
    let mut answers: Vec<PoolAnswer> = Vec::new();
    for (offer, node) in view.offers.iter().zip(fresh) {
        let found = match view.world.check_fresh(prepared, node) {
            Err(refusal) => refused(offer, &refusal),
            Ok(()) => match rooms.next(offer) {
                Err(full) => no_machine(offer, &full),
                Ok(_) => taken(offer),
            },
        };
        match answers.last_mut().filter(|last| last.pool == offer.name) {
            None => answers.push(found),
            Some(last) if !last.fits && (found.fits || last.reason.is_none()) => *last = found,
            Some(_) => {}
        }
    }
    answers
}

fn taken(offer: &Pool) -> PoolAnswer {
    PoolAnswer { pool: offer.name.clone(), fits: true, filter: None, reason: None, message: None }
}

fn refused(offer: &Pool, refusal: &Refusal) -> PoolAnswer {
    PoolAnswer {
        fits: false,
        filter: Some(refusal.filter()),
        message: Some(refusal.to_string()),
        ..taken(offer)
    }
}

fn no_machine(offer: &Pool, full: &NoRoom) -> PoolAnswer {
    PoolAnswer { fits: false, reason: Some(full.reason()), message: Some(full.message()), ..taken(offer) }
}

fn removal(rules: &Rules, budgets: &Budgets, priorities: &Priorities, pod: &Arc<Pod>) -> Option<Removal> {
    let node = pod.node.clone()?;
    let (treatment, reason) = match rules.drain([pod], budgets) {
        Err(blocker) => (Treatment::KeepsNode, Some(blocker.reason)),
        Ok(drain) if drain.awaited.is_some() => (Treatment::Awaited, None),
        Ok(drain) if drain.moves.is_empty() => (Treatment::EndsWithNode, None),
        Ok(_) if priorities.expendable(pod) => (Treatment::Expendable, None),
        Ok(_) => (Treatment::Evicted, None),
    };
    let message = reason.map(|reason| reason.words().to_owned());
    Some(Removal { node, treatment, reason, message })
}
