//! The steps of a bare-metal machine's life, how long each step is retried, and its preconditions.

use std::time::Duration;

use super::next::Settings;
use super::node::is_ours;
use super::sight::{Emptied, Now, Shutdown, Sight};
use crate::emptying::FRESH;
use model::Record;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    /// Look at something.
    Look(Look),
    /// Record that the machine is ours and is being switched on.
    Claim,
    /// Remove the claim from the record, because the controller did not accept the request. If the machine
    /// runs, another client switched it on, for example another cluster's daemon.
    Disown,
    /// Ask the controller to switch the machine on.
    SwitchOn,
    /// Record this uuid, which the machine's Node reports.
    Take(String),
    /// Keep new pods off the Node, and evict the pods that have to move.
    Empty,
    /// Record that the machine is being shut down: a run resumed after a crash must not uncordon the node.
    BeginShutdown,
    /// Ask the controller to shut the machine down.
    Shutdown,
    /// Decide to cut the power, for this reason. If `may_stay` is true, the machine may still stay in
    /// service.
    GiveUpShutdown { why: String, may_stay: bool },
    /// Ask the controller to cut the machine's power.
    CutPower,
    /// Record that the machine was seen to be off.
    NoteOff,
    /// Delete the Node of a machine that is off.
    DeleteNode,
    /// Delete the Node, and leave the machine on, because another client uses it.
    LeaveOn,
    /// Drop the record: nothing else is left.
    DropRecord,
}

/// What to query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Look {
    /// How the machine's controller is reached.
    Controller,
    /// The machine's power state. If it cannot be read, the step fails.
    Power,
    /// Whether the machine is running yet. A busy controller is asked again.
    IsOn,
    /// Whether the machine is off yet. A controller that does not report the power state is asked again.
    IsOff,
    /// Whether a Node has the machine's name.
    Namesake,
    /// Whether the machine's Node reports. The API server is queried directly.
    Heard,
    /// The machine's Node, read directly from the API server.
    Node,
    /// Whether an annotation keeps the machine's Node. The API server is queried directly. For VMs, see
    /// [`crate::returned_nodes::pinned`].
    Pin,
    /// The machine's power state, read after its Node did not register in time.
    Instead,
}

/// An unmet precondition of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unmet {
    /// The record does not state that the daemon has switched the machine on.
    NotOurs,
    /// The Node was never seen to be empty, or was last seen to be empty too long ago.
    NotEmpty,
}

impl Step {
    /// How long the step is retried after a temporary failure. Zero if the loop does not retry the step, for
    /// example because the step has its own limit.
    pub fn limit(&self, settings: &Settings) -> Duration {
        match self {
            Self::Look(Look::Power | Look::Namesake) => settings.start,
            Self::Look(Look::Heard | Look::Node | Look::Pin) | Self::Shutdown | Self::CutPower => {
                settings.destroy
            }
            _ => Duration::ZERO,
        }
    }

    /// The precondition that is unmet now, if any. Leadership is not checked here: the client's fence checks
    /// it when a change is sent.
    pub fn unmet(&self, record: &Record, sight: &Sight, now: Now) -> Option<Unmet> {
        if self.is_for_ours() && !is_ours(record) {
            return Some(Unmet::NotOurs);
        }
        // The second check is accepted even if its answer was slow. Otherwise, a slow API server could cause
        // endless checks.
        let is_empty =
            matches!(sight.emptied, Emptied::Yes { at, again } if again || now.moment <= at + FRESH);
        (self.needs_empty(sight) && !is_empty).then_some(Unmet::NotEmpty)
    }

    /// Whether the step changes a machine or its Node. Such a step is only allowed if the machine is ours.
    fn is_for_ours(&self) -> bool {
        match self {
            Self::Look(_)
            | Self::Claim
            | Self::Disown
            | Self::Take(_)
            | Self::GiveUpShutdown { .. }
            | Self::DropRecord => false,
            Self::SwitchOn
            | Self::Empty
            | Self::BeginShutdown
            | Self::Shutdown
            | Self::CutPower
            | Self::NoteOff
            | Self::DeleteNode
            | Self::LeaveOn => true,
        }
    }

    /// Whether the step requires an empty Node. A machine that is already shutting down is not kept, whatever
    /// runs on its Node.
    fn needs_empty(&self, sight: &Sight) -> bool {
        match self {
            Self::Shutdown => true,
            Self::CutPower => matches!(sight.shutdown, Shutdown::InVain { may_stay: true, .. }),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;
    use model::machine::Phase;

    #[test]
    fn a_machine_goes_down_only_if_it_is_ours_and_its_node_was_just_seen_to_be_empty() {
        let (foreign, mut ours) = (Record::example(), Record::example());
        ours.entered.insert(Phase::Starting, Timestamp::UNIX_EPOCH);
        let seconds = Duration::from_secs;
        let empty = |again| Emptied::Yes { at: seconds(10), again };
        let stays = || Emptied::No("a pod has to stay".to_owned());
        let cut = |may_stay| Shutdown::InVain { may_stay };
        let (not_ours, not_empty) = (Some(Unmet::NotOurs), Some(Unmet::NotEmpty));
        for (what, step, record, emptied, shutdown, at, unmet) in [
            ("just seen empty", Step::Shutdown, &ours, empty(false), Shutdown::NotAsked, 12, None),
            ("seen empty 3 s ago", Step::Shutdown, &ours, empty(false), Shutdown::NotAsked, 13, not_empty),
            ("the second check was slow", Step::Shutdown, &ours, empty(true), Shutdown::NotAsked, 30, None),
            ("never seen empty", Step::Shutdown, &ours, Emptied::Unknown, Shutdown::NotAsked, 0, not_empty),
            ("a pod stays", Step::Shutdown, &ours, stays(), Shutdown::NotAsked, 0, not_empty),
            ("not ours", Step::Shutdown, &foreign, empty(false), Shutdown::NotAsked, 10, not_ours),
            ("shutdown never accepted", Step::CutPower, &ours, empty(false), cut(true), 13, not_empty),
            ("it is already shutting down", Step::CutPower, &ours, empty(false), cut(false), 300, None),
            ("not ours", Step::CutPower, &foreign, empty(false), cut(false), 10, not_ours),
            ("not ours", Step::SwitchOn, &foreign, Emptied::Unknown, Shutdown::NotAsked, 0, not_ours),
            ("ours", Step::SwitchOn, &ours, Emptied::Unknown, Shutdown::NotAsked, 0, None),
            ("not ours yet", Step::Claim, &foreign, Emptied::Unknown, Shutdown::NotAsked, 0, None),
            ("never ours", Step::DropRecord, &foreign, Emptied::Unknown, Shutdown::NotAsked, 0, None),
            ("not ours", Step::DeleteNode, &foreign, Emptied::Unknown, Shutdown::NotAsked, 0, not_ours),
        ] {
            let sight = Sight { emptied, shutdown, ..Sight::default() };
            let now = Now { date: Timestamp::UNIX_EPOCH, moment: seconds(at) };
            assert_eq!(step.unmet(record, &sight, now), unmet, "{step:?}: {what}");
        }
    }
}
