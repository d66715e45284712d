//! Empties a node by evicting its pods. Each refused eviction is retried with back-off. A pod that must stay
//! ends the drain.
//!
//! If a pod tolerates all taints, its replacement may be placed on the same node as soon as the pod is
//! evicted, and this could repeat endlessly. Such replacements are not evicted: like pods of DaemonSets, they
//! stay until the node is gone. Karpenter never evicts pods that tolerate its taint.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use tokio::time::Instant;

use super::context::Context;
use super::machine_handle::MachineHandle;
use super::node::is_ready;
use super::step_error::StepError;
use super::termination_clock::TerminationClock;
use kubernetes::{Cluster, Error, Eviction};
use model::node::Node;
use model::pod::VolumeSource;
use model::snapshot::BEING_DELETED_TAINT;
use model::{MachineId, Pod, Snapshot};
use planning::Evictions;
use scheduling::World;

/// The maximum number of concurrent eviction requests for one node.
const AT_A_TIME: usize = 10;
/// The first and the longest pause after a refused eviction.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(15));
/// The shortest and the longest time between two checks of the pods that are left.
const LOOKS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// The time between two checks of whether the pods fit elsewhere, as a multiple of the time that a check
/// takes.
const PART: u32 = 20;

/// How a drain ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Drained {
    /// No pod that has to move is left.
    Empty,
    /// The drain was abandoned for this reason: for example, a pod must stay, or the time limit has passed.
    GivenUp(String),
}

struct Refused {
    until: Instant,
    pause: Duration,
    why: String,
}

/// Evicts the pods that the rules select, until none is left on the node or `limit` has passed. `met` is the
/// state that all drains of the same removal share. Because of it, an interrupted drain continues with the
/// time that it has left.
pub(super) async fn run(
    ctx: &Context,
    machine: &mut MachineHandle,
    node: &Node,
    limit: Duration,
    met: &mut Met,
) -> Result<Drained, StepError> {
    let end = *met.end.get_or_insert_with(|| Instant::now() + limit);
    let (id, uid, node) = (machine.record().id.clone(), node.uid.as_str(), node.name.as_str());
    let mut drain = Drain { ctx, id: &id, node, uid, end, met };
    let mut changed = ctx.watches.changed();
    let mut places = Places::default();
    loop {
        changed.mark_unchanged();
        let (snapshot, left, unsure) = match drain.look().await {
            Look::Left { snapshot, left, unsure } => (snapshot, left, unsure),
            Look::Over(drained) => {
                // The next drain, for pods that arrive while volumes are being detached, has its own limit.
                drain.met.finish();
                return Ok(drained);
            }
        };
        if let Some(pod) = drain.intruder(&snapshot, &left) {
            return Ok(Drained::GivenUp(format!(
                "{pod} was placed on the node in the meantime and tolerates all its taints"
            )));
        }
        let some_need_a_place =
            left.left() > left.leaving.len() || drain.that_came_back(&snapshot).next().is_some();
        if some_need_a_place && let Some(pod) = places.lost(ctx, &snapshot, node) {
            return Ok(Drained::GivenUp(format!("{pod} no longer fits on another node")));
        }
        if Instant::now() >= drain.end {
            let limit = super::step_error::time_text(limit);
            let what = drain.last_words(&left);
            return Ok(Drained::GivenUp(format!("the node was not empty after {limit}: {what}")));
        }
        if let Some(why) = drain.evict(&left).await {
            return Ok(Drained::GivenUp(why));
        }
        machine.say(ctx, &unsure.unwrap_or_else(|| drain.last_words(&left)));
        tokio::time::sleep(LOOKS.0).await;
        tokio::select! {
            biased;
            () = changed.changed() => {}
            () = ctx.until_paused(true) => {}
            () = tokio::time::sleep_until(drain.next_look()) => {}
        }
    }
}

/// The result of one check of the node.
enum Look {
    /// Pods that have to move may be left. If the query for pods that the watch does not show has failed,
    /// `unsure` is the error.
    Left {
        snapshot: Box<Snapshot>,
        left: Evictions,
        unsure: Option<String>,
    },
    Over(Drained),
}

struct Drain<'a> {
    ctx: &'a Context,
    /// The machine's id.
    id: &'a MachineId,
    node: &'a str,
    /// The uid of the Node that was cordoned.
    uid: &'a str,
    end: Instant,
    met: &'a mut Met,
}

/// The state that the drains of one removal share.
#[derive(Default)]
pub(super) struct Met {
    first: Option<First>,
    endings: TerminationClock,
    /// The time at which the current drain is abandoned.
    end: Option<Instant>,
    /// Refused evictions, by pod uid. Accepted evictions are in `asked`.
    refused: BTreeMap<String, Refused>,
    asked: BTreeMap<String, Instant>,
}

impl Met {
    fn finish(&mut self) {
        self.end = None;
        self.refused.clear();
        self.asked.clear();
    }
}

/// The pods that were on the node at the first check.
struct First {
    pods: BTreeSet<String>,
    /// The pods' owners.
    owners: BTreeSet<String>,
}

impl First {
    fn of(pods: &[&Arc<Pod>]) -> Self {
        let owners = pods.iter().filter_map(|pod| Some(pod.owner.as_ref()?.uid.clone()));
        Self { pods: pods.iter().map(|pod| pod.uid.clone()).collect(), owners: owners.collect() }
    }

    /// Whether the pod arrived after the first check and tolerates the closed node's taints.
    fn came(&self, pod: &Pod, closed: &Node) -> bool {
        !self.pods.contains(&pod.uid) && World::accepts(pod, closed)
    }

    /// Whether the pod replaces an evicted pod. Returns false for a pod with a volume claim, because its
    /// volume would prevent the machine's removal, and so might the volume of the next replacement.
    fn came_back(&self, pod: &Pod, closed: &Node) -> bool {
        let claims = pod.volumes.iter().any(|volume| matches!(volume.source, VolumeSource::Claim { .. }));
        let was_evicted = pod.owner.as_ref().is_some_and(|owner| self.owners.contains(&owner.uid));
        was_evicted && !claims && self.came(pod, closed)
    }
}

impl Drain<'_> {
    /// Finds a pod that was placed on the closed node, does not replace an evicted pod, and therefore has to
    /// move. If it were evicted, another might arrive, and this could repeat endlessly.
    fn intruder(&mut self, snapshot: &Snapshot, left: &Evictions) -> Option<String> {
        let Some(first) = self.met.first.as_ref() else {
            let there = left.evict.iter().chain(&left.leaving).chain(&left.later);
            self.met.first = Some(First::of(&there.collect::<Vec<_>>()));
            return None;
        };
        let node = self.closed(snapshot)?;
        left.evict.iter().find(|pod| first.came(pod, node)).map(|pod| pod.id())
    }

    /// The node, if the snapshot shows that it is closed to pods.
    fn closed<'s>(&self, snapshot: &'s Snapshot) -> Option<&'s Node> {
        snapshot.nodes.iter().find(|node| node.name == self.node && is_closed(node)).map(|node| &**node)
    }

    /// Returns the reason to stop the drain if the node accepts pods again. If the drain continued, the
    /// replacement of each evicted pod could be placed on the same node. A node that is not ready gets no
    /// pods, so its drain continues.
    async fn opened(&self, snapshot: &Snapshot) -> Option<&'static str> {
        let shown = snapshot.nodes.iter().find(|node| node.name == self.node)?;
        if shown.uid == self.uid && is_closed(shown) {
            return None;
        }
        // The Node is read directly, because the watch shows a cordon with a delay.
        let node = self.ctx.kubernetes.get_node(self.node).await.ok()??;
        if is_closed(&node) || !is_ready(&node) {
            return None;
        }
        Some(if node.uid == self.uid {
            "its Node was uncordoned in the meantime"
        } else {
            "its Node has registered again"
        })
    }

    /// The pods that have replaced evicted ones. They stay on the node until it is gone.
    fn that_came_back<'s>(&'s self, snapshot: &'s Snapshot) -> impl Iterator<Item = &'s Arc<Pod>> {
        let closed = self.met.first.as_ref().zip(self.closed(snapshot));
        let here = snapshot.pods.iter().filter(|pod| pod.node.as_deref() == Some(self.node));
        here.filter(move |pod| closed.is_some_and(|(first, node)| first.came_back(pod, node)))
    }

    async fn look(&mut self) -> Look {
        let mut snapshot = self.ctx.watches.snapshot();
        snapshot.time = self.ctx.clock.now();
        self.met.endings.restate(&mut snapshot, self.node);
        if let Some(why) = self.ctx.paused().or_else(|| pinned(&snapshot, self.node)) {
            return Look::Over(Drained::GivenUp(why));
        }
        if let Some(why) = self.opened(&snapshot).await {
            return Look::Over(Drained::GivenUp(why.to_owned()));
        }
        let others = self.ctx.registry.staying(self.id, |others| (others.to_vec(), None));
        let left = match self.judge(&snapshot, &others) {
            Ok(left) => left,
            Err(why) => return Look::Over(Drained::GivenUp(why)),
        };
        if !left.evict.is_empty() || !left.leaving.is_empty() {
            return Look::Left { snapshot: Box::new(snapshot), left, unsure: None };
        }
        // A stalled watch may not show a pod that was bound before the node was closed.
        let pods = match self.ctx.kubernetes.pods_on(self.node).await {
            Ok(pods) => pods,
            Err(error) => {
                return Look::Left { snapshot: Box::new(snapshot), left, unsure: Some(error.to_string()) };
            }
        };
        snapshot.pods.retain(|pod| pod.node.as_deref() != Some(self.node));
        snapshot.pods.extend(pods);
        self.met.endings.restate(&mut snapshot, self.node);
        let judged = self.ctx.registry.staying(self.id, |others| {
            let judged = self.judge(&snapshot, others);
            let is_empty = judged.as_ref().is_ok_and(|left| left.left() == 0);
            let own = is_empty.then(|| self.that_came_back(&snapshot).cloned().collect());
            (judged, own)
        });
        match judged {
            Err(why) => Look::Over(Drained::GivenUp(why)),
            Ok(left) => match left.evict.first() {
                // The removal was decided without this pod, so the node may be needed after all.
                Some(pod) => Look::Over(Drained::GivenUp(format!(
                    "{} was placed on the node in the meantime",
                    pod.id()
                ))),
                None if left.leaving.is_empty() => Look::Over(Drained::Empty),
                None => Look::Left { snapshot: Box::new(snapshot), left, unsure: None },
            },
        }
    }

    /// Returns the pods to evict according to the rules. `others` are the pods that will be deleted together
    /// with other machines. If a pod must stay, returns the reason to end the drain.
    fn judge(&self, snapshot: &Snapshot, others: &[Arc<Pod>]) -> Result<Evictions, String> {
        let closed = self.met.first.as_ref().zip(self.closed(snapshot));
        let stays = |pod: &Pod| closed.is_some_and(|(first, node)| first.came_back(pod, node));
        planning::evictions(snapshot, &self.ctx.config, self.node, stays, others)
            .map_err(|why| format!("{why} was placed on the node in the meantime and must stay"))
    }

    /// Requests the evictions that are due. Returns the reason to end the drain if an eviction will never be
    /// granted.
    async fn evict(&mut self, left: &Evictions) -> Option<String> {
        let now = Instant::now();
        // The watch shows an accepted eviction with a delay, so the eviction is not requested again
        // immediately.
        let mut due = left.evict.clone();
        due.retain(|pod| {
            self.met.refused.get(&pod.uid).is_none_or(|refused| refused.until <= now)
                && self.met.asked.get(&pod.uid).is_none_or(|asked| *asked + PAUSES.1 <= now)
        });
        let answers: Vec<_> = futures::stream::iter(due)
            .map(|pod| evict(self.ctx.kubernetes.clone(), pod))
            .buffer_unordered(AT_A_TIME)
            .collect()
            .await;
        for (pod, answer) in answers {
            match answer {
                Ok(Eviction::Evicted | Eviction::Gone) => {
                    self.met.refused.remove(&pod.uid);
                    self.met.asked.insert(pod.uid.clone(), Instant::now());
                }
                Ok(Eviction::Refused { message, retry_after }) => self.refuse(&pod, &message, retry_after),
                Ok(Eviction::Blocked { message }) => {
                    return Some(format!("{} cannot be evicted: {message}", pod.id()));
                }
                Err(error) => self.refuse(&pod, &error.to_string(), None),
            }
        }
        None
    }

    fn refuse(&mut self, pod: &Pod, why: &str, wait: Option<Duration>) {
        let before = self.met.refused.get(&pod.uid).map(|refused| refused.pause);
        let pause = before.map_or(PAUSES.0, |pause| (pause * 2).min(PAUSES.1));
        let until = Instant::now() + wait.unwrap_or(pause);
        self.met
            .refused
            .insert(pod.uid.clone(), Refused { until, pause, why: format!("{}: {why}", pod.id()) });
    }

    /// The time of the next check, or of the next request for a refused eviction.
    fn next_look(&self) -> Instant {
        let now = Instant::now();
        let latest = (now + LOOKS.1).min(self.end);
        let next = self.met.refused.values().map(|refused| refused.until).filter(|until| *until > now).min();
        next.map_or(latest, |next| next.min(latest))
    }

    fn last_words(&self, left: &Evictions) -> String {
        let pods = match left.left() {
            1 => "1 pod is left".to_owned(),
            many => format!("{many} pods are left"),
        };
        // A pod whose eviction was refused may have ended since.
        let refused = left.evict.iter().find_map(|pod| self.met.refused.get(&pod.uid));
        match refused {
            Some(one) => format!("{pods}; {}", one.why),
            None => pods,
        }
    }
}

/// Whether the Node has the taint of nodes that are being removed.
pub(super) fn is_closed(node: &Node) -> bool {
    node.taints.iter().any(|taint| taint.key == BEING_DELETED_TAINT)
}

/// Returns the reason to keep the node, if an administrator has decided in the meantime to keep it.
fn pinned(snapshot: &Snapshot, node: &str) -> Option<String> {
    kept(snapshot.nodes.iter().find(|one| one.name == node)?)
}

/// The annotation that keeps this Node, as text; `None` if there is none.
pub(super) fn kept(node: &Node) -> Option<String> {
    planning::disabled(node).map(|key| format!("annotation {key}"))
}

/// Checks whether a node's pods still fit elsewhere. The check takes a while in a large cluster, so it may
/// only use a small part of a drain's time ([`PART`]).
#[derive(Default)]
struct Places {
    next: Option<Instant>,
}

impl Places {
    /// A pod that no longer fits elsewhere; `None` if there is none, or if it is too early for the next
    /// check.
    fn lost(&mut self, ctx: &Context, snapshot: &Snapshot, node: &str) -> Option<String> {
        let began = Instant::now();
        if self.next.is_some_and(|next| next > began) {
            return None;
        }
        let lost = planning::homeless(snapshot, &ctx.config, node);
        self.next = Some(Instant::now() + began.elapsed() * PART);
        lost
    }
}

async fn evict(kubernetes: Cluster, pod: Arc<Pod>) -> (Arc<Pod>, Result<Eviction, Error>) {
    let answer = kubernetes.evict(&pod.namespace, &pod.name, &pod.uid, None).await;
    (pod, answer)
}
