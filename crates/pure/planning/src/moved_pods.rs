//! Checks whether the pods of removed nodes run elsewhere, as predicted for each removal. Until they do, no
//! other node of the pool is removed, because the same wrong prediction could be repeated.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use super::facts::node::{being_deleted, pool_of};
use super::prediction_outcomes::{Follower, is_refused, signed};
use model::pod::{Pod, PodPhase};
use model::prediction::Moved;

/// If kube-scheduler refuses a pod that is at least this old, the pod counts as left behind. A younger pod
/// may still be moving between nodes.
const LEFT: SignedDuration = SignedDuration::from_secs(30);
/// If a removal has had no effect after this time, it is assumed that it never began.
const BEGUN: SignedDuration = SignedDuration::from_mins(2);
/// Maximum number of removals whose pods are checked at the same time.
const MOST: usize = 64;

impl Follower<'_> {
    /// Adds the removals that the plan begins, and checks the pods of earlier ones.
    pub(super) fn follow_moves(&self, moved: &mut Vec<Moved>) {
        for removal in self.plan.scale_down.iter().filter(|removal| !removal.moves.is_empty()) {
            if moved.len() < MOST && moved.iter().all(|one| one.node != removal.node) {
                moved.extend(self.begun(&removal.node));
            }
        }
        moved.retain_mut(|one| self.go_on_moving(one));
    }

    fn begun(&self, node: &str) -> Option<Moved> {
        let pool = pool_of(self.nodes.get(node)?)?;
        let kinds: BTreeSet<String> =
            self.guests.get(node).into_iter().flatten().map(|pod| self.kind(pod)).collect();
        let kinds: Vec<String> = kinds.into_iter().collect();
        let pods = self.of_kinds(&kinds).count();
        Some(Moved { node: node.to_owned(), pool: pool.into(), kinds, pods, at: self.now, missed: None })
    }

    fn of_kinds<'s>(&'s self, kinds: &'s [String]) -> impl Iterator<Item = &'s Pod> {
        let counts = |pod: &&Pod| pod.deletion.is_none() && !pod.is_finished();
        let all = self.snapshot.pods.iter().map(AsRef::as_ref).filter(counts);
        all.filter(|pod| kinds.contains(&self.kind(pod)))
    }

    /// Checks the pods of one removal. Returns whether to continue following the removal.
    fn go_on_moving(&self, one: &mut Moved) -> bool {
        let age = self.now.duration_since(one.at);
        let settings = &self.config.scale_up;
        let most = signed(settings.prediction_backoff_max).max(signed(settings.prediction_timeout));
        let stays = self.nodes.get(one.node.as_str()).is_some_and(|node| !being_deleted(node));
        if age.is_negative() || age > most || (stays && age > BEGUN) {
            return false;
        }
        match self.left_behind(one) {
            // The first message is kept, because kube-scheduler's message changes with the number of nodes.
            Some(why) => _ = one.missed.get_or_insert(why),
            None => one.missed = None,
        }
        one.missed.is_some()
            || self.nodes.contains_key(one.node.as_str())
            || age < signed(settings.prediction_timeout)
    }

    /// Describes a pod that replaces a pod from the removed node but does not run. Such a pod is of the same
    /// kind and newer than the removal. Returns `None` if there are now more pods of these kinds than before
    /// the removal, because the new pod may then be an additional one.
    fn left_behind(&self, one: &Moved) -> Option<String> {
        let came = |pod: &&Pod| pod.created >= Some(one.at) && pod.phase == PodPhase::Pending;
        if !self.snapshot.pods.iter().any(|pod| came(&pod.as_ref())) {
            return None;
        }
        let all: Vec<&Pod> = self.of_kinds(&one.kinds).collect();
        let late = |pod: &&&Pod| came(pod) && self.is_left(pod);
        let pod = all.iter().find(late).filter(|_| all.len() <= one.pods)?;
        let words = match (&pod.node, pod.refusal.as_str()) {
            (Some(node), _) => format!("it does not start on {node}"),
            (None, "") => "it has no node".to_owned(),
            (None, words) => format!("kube-scheduler reports: {words}"),
        };
        Some(format!(
            "pod {}, which replaces one on the removed node {}, does not run: {words}",
            pod.id(),
            one.node
        ))
    }

    fn is_left(&self, pod: &Pod) -> bool {
        let age = self.now.duration_since(pod.created.unwrap_or(Timestamp::MIN));
        let refused = pod.node.is_none() && pod.nominated_node.is_none() && is_refused(pod);
        (refused && age >= LEFT) || age >= signed(self.config.scale_up.prediction_timeout)
    }
}
