//! Determines which pods were wanted, and when, regardless of where they were placed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use model::Snapshot;
use model::pod::{Pod, Scheduling};
use model::snapshot::POOL_LABEL;
use planning::{being_deleted, leaving, ready};

/// If a pod ended because its node was removed or lost, its controller must recreate the pod within this
/// time. Otherwise, the pod counts as no longer wanted.
const MADE_AGAIN: SignedDuration = SignedDuration::from_mins(2);

/// A change in demand. A unit is a pod, together with the pods that its controller created to replace it when
/// it was moved.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A pod is wanted from now on. In the first round, the pod may already have a node.
    Born {
        /// The unit's number.
        unit: u64,
        /// The pod as recorded.
        pod: Arc<Pod>,
    },
    /// The pod runs on a node outside all pools.
    Settled {
        /// The unit's number.
        unit: u64,
        /// The pod as recorded.
        pod: Arc<Pod>,
    },
    /// The pod's scheduling gates were removed.
    Ungated {
        /// The unit's number.
        unit: u64,
    },
    /// The pod finished by itself.
    Finished {
        /// The unit's number.
        unit: u64,
        /// How long the pod had a node.
        ran: SignedDuration,
    },
    /// The pod is no longer wanted.
    Gone {
        /// The unit's number.
        unit: u64,
    },
}

/// Follows recorded rounds.
#[derive(Clone, Debug, Default)]
pub struct Demand {
    /// The pods of the last round, ordered by namespace and name.
    known: Vec<Known>,
    units: u64,
    /// Units whose pod ended because its node was removed or lost, each with the time at which the pod ended.
    /// The key is the uid of the pod's controller.
    moved: BTreeMap<String, VecDeque<(Timestamp, u64)>>,
}

#[derive(Clone, Debug)]
struct Known {
    pod: Arc<Pod>,
    /// The pod's unit; `None` if the pod does not concern the daemon, or has ended.
    unit: Option<u64>,
    /// When the pod got its node.
    bound: Option<Timestamp>,
}

impl Demand {
    /// Returns what has changed since the previous round.
    pub fn round(&mut self, now: &Snapshot) -> Vec<Event> {
        let there = Nodes::of(now);
        let mut events = Vec::new();
        let mut before = std::mem::take(&mut self.known).into_iter().peekable();
        let mut born = Vec::new();
        let mut known = Vec::with_capacity(now.pods.len());
        for pod in &now.pods {
            while let Some(gone) = before.next_if(|old| name(&old.pod) < name(pod)) {
                self.ended(gone, now.time, &there, &mut events);
            }
            match before.next_if(|old| name(&old.pod) == name(pod)) {
                Some(old) if old.pod.uid == pod.uid => {
                    known.push(self.changed(old, pod, now.time, &there, &mut events));
                    continue;
                }
                Some(other) => self.ended(other, now.time, &there, &mut events),
                None => {}
            }
            born.push(known.len());
            known.push(Known { pod: pod.clone(), unit: None, bound: None });
        }
        for gone in before {
            self.ended(gone, now.time, &there, &mut events);
        }
        // New pods are handled last, because a recreated pod takes the place of one that is gone.
        for at in born {
            self.born(&mut known[at], now.time, &there, &mut events);
        }
        self.known = known;
        self.give_up(now.time, &mut events);
        events
    }

    fn born(&mut self, known: &mut Known, now: Timestamp, there: &Nodes, events: &mut Vec<Event>) {
        let pod = known.pod.clone();
        if is_everywhere(&pod) || pod.is_finished() || pod.deletion.is_some() {
            return;
        }
        known.bound = pod.node.as_ref().map(|_| now);
        let owner = pod.owner.as_ref().and_then(|owner| self.moved.get_mut(&owner.uid));
        if let Some((_, unit)) = owner.and_then(VecDeque::pop_front) {
            known.unit = Some(unit);
            return;
        }
        self.units += 1;
        let unit = self.units;
        known.unit = Some(unit);
        events.push(if there.is_others(&pod) {
            Event::Settled { unit, pod }
        } else {
            Event::Born { unit, pod }
        });
    }

    fn changed(
        &mut self,
        mut known: Known,
        pod: &Arc<Pod>,
        now: Timestamp,
        there: &Nodes,
        events: &mut Vec<Event>,
    ) -> Known {
        let old = std::mem::replace(&mut known.pod, pod.clone());
        let Some(unit) = known.unit.filter(|_| !Arc::ptr_eq(&old, pod)) else { return known };
        if old.node.is_none() && pod.node.is_some() {
            known.bound = Some(now);
            if there.is_others(pod) {
                events.push(Event::Settled { unit, pod: pod.clone() });
            }
        }
        if old.scheduling == Scheduling::Gated && pod.scheduling != Scheduling::Gated {
            events.push(Event::Ungated { unit });
        }
        if pod.is_finished() {
            let ran = known.bound.map_or(SignedDuration::ZERO, |bound| now.duration_since(bound));
            events.push(Event::Finished { unit, ran });
            known.unit = None;
        } else if pod.deletion.is_some() {
            let gone = Known { unit: known.unit.take(), ..known.clone() };
            self.ended(gone, now, there, events);
        }
        known
    }

    /// Handles a pod that is being deleted or no longer exists.
    fn ended(&mut self, gone: Known, now: Timestamp, there: &Nodes, events: &mut Vec<Event>) {
        let Some(unit) = gone.unit else { return };
        let owner = gone.pod.owner.as_ref().filter(|_| there.is_leaving(&gone.pod));
        match owner {
            Some(owner) => self.moved.entry(owner.uid.clone()).or_default().push_back((now, unit)),
            None => events.push(Event::Gone { unit }),
        }
    }

    /// Drops units whose pod was not recreated in time.
    fn give_up(&mut self, now: Timestamp, events: &mut Vec<Event>) {
        for units in self.moved.values_mut() {
            while let Some((_, unit)) =
                units.pop_front_if(|(since, _)| now.duration_since(*since) >= MADE_AGAIN)
            {
                events.push(Event::Gone { unit });
            }
        }
        self.moved.retain(|_, units| !units.is_empty());
    }
}

fn name(pod: &Pod) -> (&str, &str) {
    (&pod.namespace, &pod.name)
}

/// Whether a pod exists because its node does: a DaemonSet pod, or the mirror of a static pod.
pub(super) fn is_everywhere(pod: &Pod) -> bool {
    pod.digest().marks.daemon || pod.digest().marks.mirror
}

/// The nodes of a round that are outside all pools, and those that are in service.
struct Nodes<'s> {
    /// Nodes outside all pools.
    others: BTreeSet<&'s str>,
    /// Nodes in service: ready, and not being removed.
    serving: BTreeSet<&'s str>,
}

impl<'s> Nodes<'s> {
    fn of(now: &'s Snapshot) -> Self {
        let going = leaving(now);
        let (mut others, mut serving) = (BTreeSet::new(), BTreeSet::new());
        for node in &now.nodes {
            if !node.labels.contains_key(POOL_LABEL) {
                others.insert(node.name.as_str());
            }
            if ready(node) && !being_deleted(node) && !going.contains(node.name.as_str()) {
                serving.insert(node.name.as_str());
            }
        }
        Self { others, serving }
    }

    fn is_others(&self, pod: &Pod) -> bool {
        pod.node.as_deref().is_some_and(|node| self.others.contains(node))
    }

    /// Whether the pod's node is gone, being removed or not ready.
    fn is_leaving(&self, pod: &Pod) -> bool {
        pod.node.as_deref().is_some_and(|node| !self.serving.contains(node))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::node::{Node, Taint, TaintEffect};
    use model::pod::{Deletion, Owner, PodPhase};
    use model::snapshot::BEING_DELETED_TAINT;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn pod(name: &str, node: Option<&str>) -> Pod {
        let owner = Owner {
            api_version: "apps/v1".to_owned(),
            kind: "ReplicaSet".to_owned(),
            name: "web".to_owned(),
            uid: "rs".to_owned(),
        };
        let mut pod = Pod {
            name: name.to_owned(),
            uid: name.to_owned(),
            node: node.map(ToOwned::to_owned),
            ..Pod::default()
        };
        pod.owner = Some(owner);
        pod
    }

    fn node(name: &str, pool: bool, leaves: bool) -> Arc<Node> {
        let mut node = Node { name: name.to_owned(), ..Node::default() };
        node.labels.extend(pool.then(|| (POOL_LABEL.to_owned(), "w".to_owned())));
        node.taints.extend(leaves.then(|| Taint {
            key: BEING_DELETED_TAINT.to_owned(),
            value: String::new(),
            effect: TaintEffect::NoSchedule,
            time_added: None,
        }));
        Arc::new(node)
    }

    fn round(second: i64, nodes: Vec<Arc<Node>>, pods: Vec<Pod>) -> Snapshot {
        let pods = pods.into_iter().map(Arc::new).collect();
        Snapshot { time: at(second), nodes, pods, ..Snapshot::default() }
    }

    fn words(events: &[Event]) -> Vec<String> {
        let words = |event: &Event| match event {
            Event::Born { unit, pod } => format!("{unit} {} born", pod.name),
            Event::Settled { unit, pod } => format!("{unit} {} settled", pod.name),
            Event::Ungated { unit } => format!("{unit} ungated"),
            Event::Finished { unit, ran } => format!("{unit} ran {}", ran.as_secs()),
            Event::Gone { unit } => format!("{unit} gone"),
        };
        events.iter().map(words).collect()
    }

    #[test]
    fn pods_come_finish_and_go() {
        let mut demand = Demand::default();
        let mut step =
            |second, pods| words(&demand.round(&round(second, vec![node("n", true, false)], pods)));
        let done = |name: &str| Pod { phase: PodPhase::Succeeded, ..pod(name, Some("n")) };
        assert_eq!(step(0, vec![pod("a", None), pod("b", None)]), ["1 a born", "2 b born"]);
        assert_eq!(step(10, vec![pod("a", Some("n")), pod("b", None)]), [""; 0]);
        assert_eq!(step(40, vec![done("a"), pod("b", Some("n"))]), ["1 ran 30"]);
        let ends =
            Pod { deletion: Some(Deletion { at: at(80), grace_seconds: None }), ..pod("b", Some("n")) };
        assert_eq!(step(50, vec![done("a"), ends.clone()]), ["2 gone"]);
        assert_eq!(step(60, vec![ends]), [""; 0]);
    }

    #[test]
    fn a_pod_that_is_moved_stays_one() {
        let mut demand = Demand::default();
        let drained = || vec![node("m", true, false), node("n", true, true)];
        let first = demand.round(&round(0, vec![node("n", true, false)], vec![pod("a", Some("n"))]));
        assert_eq!(words(&first), ["1 a born"]);
        assert_eq!(words(&demand.round(&round(10, drained(), vec![pod("b", None)]))), [""; 0]);
        assert_eq!(words(&demand.round(&round(20, drained(), vec![pod("b", Some("m"))]))), [""; 0]);
        assert_eq!(words(&demand.round(&round(30, drained(), vec![]))), ["1 gone"]);
        // If a pod is not recreated in time, it is no longer wanted.
        demand.round(&round(40, vec![node("n", true, false)], vec![pod("c", Some("n"))]));
        assert_eq!(words(&demand.round(&round(50, drained(), vec![]))), [""; 0]);
        assert_eq!(words(&demand.round(&round(170, drained(), vec![]))), ["2 gone"]);
    }

    #[test]
    fn pods_on_nodes_of_no_pool_stay_there() {
        let mut demand = Demand::default();
        let nodes = || vec![node("cp", false, false), node("n", true, false)];
        assert_eq!(words(&demand.round(&round(0, nodes(), vec![pod("a", None)]))), ["1 a born"]);
        let both = vec![pod("a", Some("cp")), pod("b", Some("cp"))];
        assert_eq!(words(&demand.round(&round(9, nodes(), both))), ["1 a settled", "2 b settled"]);
    }
}
