//! Chooses the nodes that a round checks for removal if it cannot check all of them. Nodes are checked in the
//! order of their names, and each round continues where the last one stopped.

use super::removal::Candidate;
use super::view::View;
use model::unfinished::NodeTurns;
use scheduling::NodeIndex;

/// The nodes whose turn it is in this round.
#[derive(Default)]
pub(super) struct CandidateTurns {
    looked_at: usize,
    /// The name of the last of these nodes.
    last: Option<String>,
    /// The nodes that have to wait.
    late: Vec<NodeIndex>,
    /// The name of the node after which this round began.
    after: Option<String>,
}

impl CandidateTurns {
    /// Leaves out the nodes that have to wait, if the last round was not finished.
    pub(super) fn take(view: &View, candidates: &mut Vec<Candidate>) -> Self {
        let name = |one: &Candidate| view.snapshot.nodes[one.node].name.as_str();
        let Some(last) = &view.snapshot.memory.unfinished.nodes else {
            return Self { looked_at: candidates.len(), ..Self::default() };
        };
        let after = |one: &Candidate| last.after.as_deref().is_some_and(|after| name(one) > after);
        let first = candidates.iter().position(after).unwrap_or(0);
        candidates.rotate_left(first);
        let late = candidates.split_off(candidates.len().min(last.most.max(1)));
        Self {
            looked_at: candidates.len(),
            last: candidates.last().map(|one| name(one).to_owned()),
            late: late.into_iter().map(|one| one.node).collect(),
            after: last.after.clone(),
        }
    }

    /// The nodes that have to wait.
    pub(super) fn late(&self) -> impl Iterator<Item = NodeIndex> {
        self.late.iter().copied()
    }

    /// Where the next round continues, or `None` if this round was finished. `spent` is true if the allowance
    /// ran out, and `left` is the number of nodes that were not looked at.
    pub(super) fn next(self, spent: bool, left: usize) -> Option<NodeTurns> {
        if !spent && self.late.is_empty() {
            return None;
        }
        // A single node that is too much for one round is skipped, so that it does not delay the others.
        let goes_on = !spent || self.looked_at <= 1;
        let after = if goes_on { self.last.or(self.after) } else { self.after };
        let most = if spent { (self.looked_at / 2).max(1) } else { self.looked_at.saturating_mul(2).max(1) };
        Some(NodeTurns { left, most, after })
    }
}
