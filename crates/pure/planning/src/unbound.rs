//! The pods that have no node, in order of their names.
//!
//! Fetching tens of thousands of pods from memory takes longer than placing them. So what every decision
//! needs to know about each pod is copied into one list, and the list is kept from one round to the next.

use std::cmp::Ordering;
use std::sync::Arc;

use model::digest::{Fingerprint, Marks};
use model::pod::Pod;

/// The pods of a list that have no node, in order of their names.
#[derive(Debug, Default)]
pub(super) struct Unbound(Vec<Entry>);

/// A pod without a node, and the parts of its digest that every decision needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnboundPod<'p> {
    pub pod: &'p Arc<Pod>,
    /// [`model::digest::Digest::class`].
    pub class: Fingerprint,
    pub marks: Marks,
}

/// Collects the pods of a list that have no node.
#[derive(Default)]
pub(super) struct Collected {
    entries: Vec<Entry>,
    /// Whether these pods are out of order.
    is_mixed: bool,
}

/// The pods without a node that are in both the old and the new list. Their order is known, so they are not
/// looked at.
pub(super) struct Kept {
    before: Unbound,
    /// For each pod of the old list, its position in the new list, if it is still there. Empty if no pod of
    /// the old list is without a node.
    now: Vec<Option<usize>>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// The pod's position in the list. The pod itself is not kept, because cloning tens of thousands of
    /// `Arc`s would write to each pod's memory.
    at: usize,
    class: Fingerprint,
    marks: Marks,
}

impl Unbound {
    /// The pods, from the list that contains them.
    pub(super) fn of<'p>(&self, list: &'p [Arc<Pod>]) -> impl ExactSizeIterator<Item = UnboundPod<'p>> {
        self.0.iter().map(|one| UnboundPod { pod: &list[one.at], class: one.class, marks: one.marks })
    }
}

impl Collected {
    /// Adds the last of these pods. `count` is the number of pods in the whole list.
    pub(super) fn push_last(&mut self, pods: &[Arc<Pod>], count: usize) {
        let at = pods.len() - 1;
        if self.entries.is_empty() {
            self.entries.reserve(count - at);
        }
        // The pods are compared now, while both are in the processor's cache.
        let before = self.entries.last().map(|before| &pods[before.at]);
        self.is_mixed = self.is_mixed || before.is_some_and(|before| order(before, &pods[at]).is_gt());
        let digest = pods[at].digest();
        self.entries.push(Entry { at, class: digest.class, marks: digest.marks });
    }

    /// These pods, in order of their names.
    pub(super) fn in_order(mut self, pods: &[Arc<Pod>]) -> Unbound {
        if self.is_mixed {
            self.entries.sort_by(|a, b| order(&pods[a.at], &pods[b.at]));
        }
        Unbound(self.entries)
    }
}

impl Kept {
    /// `before` contains the pods without a node of a list of `count` pods.
    pub(super) fn new(before: Unbound, count: usize) -> Self {
        let count = if before.0.is_empty() { 0 } else { count };
        Self { before, now: vec![None; count] }
    }

    /// Notes that a pod, with or without a node, is still in the list.
    pub(super) fn moves(&mut self, before: usize, now: usize) {
        if let Some(place) = self.now.get_mut(before) {
            *place = Some(now);
        }
    }

    /// These pods and the new ones, as parts of the new list.
    pub(super) fn with(self, new: Unbound, pods: &[Arc<Pod>]) -> Unbound {
        let Unbound(mut kept) = self.before;
        kept.retain_mut(|one| {
            let now = self.now[one.at];
            one.at = now.unwrap_or_default();
            now.is_some()
        });
        if new.0.is_empty() {
            return Unbound(kept);
        }
        let (mut all, mut rest) = (Vec::with_capacity(kept.len() + new.0.len()), &kept[..]);
        for one in new.0 {
            let smaller = rest.partition_point(|kept| order(&pods[kept.at], &pods[one.at]).is_le());
            all.extend(&rest[..smaller]);
            all.push(one);
            rest = &rest[smaller..];
        }
        all.extend(rest);
        Unbound(all)
    }
}

/// Compares pods by name, and by uid if their names are equal.
pub(super) fn order(a: &Arc<Pod>, b: &Arc<Pod>) -> Ordering {
    a.digest().compare(b.digest()).then_with(|| a.uid.cmp(&b.uid))
}
