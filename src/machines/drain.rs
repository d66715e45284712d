//! Emptying a node by evictions: each refusal is asked again with back-off, a pod that must stay ends it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use tokio::time::Instant;

use super::Context;
use super::tracked::Tracked;
use super::trouble::Trouble;
use crate::kubernetes::{Cluster, Error, Eviction};
use crate::model::{Pod, Snapshot};
use crate::planning;

/// Evictions that are asked for at a time, for one node.
const AT_A_TIME: usize = 10;
/// The first pause after a refusal, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(15));
/// Between two looks at what is left: at least, at most.
const LOOKS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// The time between two looks at the places of pods, in times of what a look takes.
const PART: u32 = 20;

/// How a drain ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Drained {
    /// Nothing is left that has to go.
    Empty,
    /// It cannot go on: a pod must stay, or the limit is over.
    GivenUp(String),
}

struct Refused {
    until: Instant,
    pause: Duration,
    why: String,
}

/// Evicts what the rules evict from the node, until nothing of it is left, or `limit` is over.
pub(super) async fn run(
    ctx: &Context,
    machine: &mut Tracked,
    node: &str,
    limit: Duration,
) -> Result<Drained, Trouble> {
    let end = Instant::now() + limit;
    let mut refused: BTreeMap<String, Refused> = BTreeMap::new();
    let mut asked: BTreeMap<String, Instant> = BTreeMap::new();
    let (mut changed, mut pause) = (ctx.watches.changed(), ctx.pause.clone());
    pause.mark_unchanged();
    let mut places = Places::default();
    loop {
        changed.mark_unchanged();
        let mut snapshot = ctx.watches.snapshot();
        snapshot.time = ctx.clock.now();
        let judge = |snapshot: &Snapshot| {
            planning::evictions(snapshot, &ctx.config, node)
                .map_err(|why| Drained::GivenUp(format!("{why} came to the node meanwhile and must stay")))
        };
        if let Some(why) = ctx.paused().or_else(|| pinned(&snapshot, node)) {
            return Ok(Drained::GivenUp(why));
        }
        let mut left = match judge(&snapshot) {
            Ok(left) => left,
            Err(given_up) => return Ok(given_up),
        };
        let mut unsure = None;
        if left.evict.is_empty() && left.leaving.is_empty() {
            // A watch that stands still shows no pod that was bound before the node was closed.
            match ctx.kubernetes.pods_on(node).await {
                Ok(pods) => {
                    snapshot.pods.retain(|pod| pod.node.as_deref() != Some(node));
                    snapshot.pods.extend(pods);
                    left = match judge(&snapshot) {
                        Ok(left) => left,
                        Err(given_up) => return Ok(given_up),
                    };
                    if let Some(pod) = left.evict.first() {
                        // The removal was decided on without it: the node may well be needed.
                        return Ok(Drained::GivenUp(format!("{} came to the node meanwhile", pod.id())));
                    }
                    if left.leaving.is_empty() {
                        return Ok(Drained::Empty);
                    }
                }
                Err(error) => unsure = Some(error.to_string()),
            }
        }
        if left.left() > left.leaving.len()
            && let Some(pod) = places.lost(ctx, &snapshot, node)
        {
            return Ok(Drained::GivenUp(format!("{pod} has no place on another node any more")));
        }
        if Instant::now() >= end {
            let what = last_words(&refused, left.left());
            return Ok(Drained::GivenUp(format!(
                "it was not empty after {}: {what}",
                super::trouble::words(limit)
            )));
        }
        let now = Instant::now();
        // An eviction that was accepted shows in the watch a moment later.
        let mut due = left.evict.clone();
        due.retain(|pod| {
            refused.get(&pod.uid).is_none_or(|refused| refused.until <= now)
                && asked.get(&pod.uid).is_none_or(|asked| *asked + PAUSES.1 <= now)
        });
        let answers: Vec<_> = futures::stream::iter(due)
            .map(|pod| evict(ctx.kubernetes.clone(), pod))
            .buffer_unordered(AT_A_TIME)
            .collect()
            .await;
        for (pod, answer) in answers {
            match answer {
                Ok(Eviction::Evicted | Eviction::Gone) => {
                    refused.remove(&pod.uid);
                    asked.insert(pod.uid.clone(), Instant::now());
                }
                Ok(Eviction::Refused { message, retry_after }) => {
                    refuse(&mut refused, &pod, message, retry_after);
                }
                Ok(Eviction::Blocked { message }) => {
                    return Ok(Drained::GivenUp(format!("{} cannot be evicted: {message}", pod.id())));
                }
                Err(error) => refuse(&mut refused, &pod, error.to_string(), None),
            }
        }
        let words = unsure.unwrap_or_else(|| last_words(&refused, left.left()));
        machine.say(ctx, &words);
        tokio::time::sleep(LOOKS.0).await;
        let next =
            refused.values().map(|refused| refused.until).filter(|until| *until > Instant::now()).min();
        let latest = (Instant::now() + LOOKS.1).min(end);
        tokio::select! {
            biased;
            () = changed.changed() => {}
            Ok(()) = pause.changed() => {}
            () = tokio::time::sleep_until(next.map_or(latest, |next| next.min(latest))) => {}
        }
    }
}

/// Why a node stays that somebody wants to keep meanwhile.
fn pinned(snapshot: &Snapshot, node: &str) -> Option<String> {
    let node = snapshot.nodes.iter().find(|one| one.name == node)?;
    planning::disabled(node).map(|key| format!("annotation {key}"))
}

/// Looks whether the pods of a node still have places elsewhere. In a large cluster that takes a while: of the time of a drain
/// it takes [`PART`] at most.
#[derive(Default)]
struct Places {
    next: Option<Instant>,
}

impl Places {
    /// A pod that has none any more, where it was looked.
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

fn refuse(refused: &mut BTreeMap<String, Refused>, pod: &Pod, why: String, wait: Option<Duration>) {
    let before = refused.get(&pod.uid).map(|refused| refused.pause);
    let pause = before.map_or(PAUSES.0, |pause| (pause * 2).min(PAUSES.1));
    let until = Instant::now() + wait.unwrap_or(pause);
    refused.insert(pod.uid.clone(), Refused { until, pause, why: format!("{}: {why}", pod.id()) });
}

fn last_words(refused: &BTreeMap<String, Refused>, left: usize) -> String {
    let pods = if left == 1 { "1 pod is left".to_owned() } else { format!("{left} pods are left") };
    match refused.values().next() {
        Some(one) => format!("{pods}; {}", one.why),
        None => pods,
    }
}
