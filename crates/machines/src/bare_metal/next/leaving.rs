//! The decisions about removing a machine that is ours, until it is off and its Node and record are gone.

use std::sync::Arc;

use super::{AGAIN, Next, Settings, Wait, poll};
use crate::bare_metal::node::is_ours;
use crate::bare_metal::sight::{Cleared, Emptied, Moment, Now, OwnNode, Shutdown, Sight, Stopping};
use crate::bare_metal::step::{Look, Step};
use crate::bare_metal::stuck::Stuck;
use crate::kept_node::Kept;
use crate::machine_end::Ended;
use crate::node::is_ready;
use crate::out_of_service::NOTICED;
use jiff::Timestamp;
use model::Record;
use model::machine::{Intent, Phase};
use model::node::Node;

/// The next step for a machine that is to be removed. A machine that the daemon did not switch on is not
/// changed, and a machine whose Node has to stay remains in service.
pub(crate) fn leaving(record: &Record, settings: &Settings, sight: &Sight, now: Now) -> Next<Ended> {
    if let Some(next) = clearing(record, sight) {
        return next;
    }
    if !sight.has_controller {
        return look(Look::Controller);
    }
    left_on(record, sight, now)
        .or_else(|| kept(record, sight))
        .or_else(|| announced(record, sight))
        .or_else(|| still_off(record, sight))
        .unwrap_or_else(|| shutting_down(settings, sight, now))
}

/// The next cleanup step for a machine that is off, is used by another client, or was never ours; `None` for
/// any other machine.
fn clearing(record: &Record, sight: &Sight) -> Option<Next<Ended>> {
    let is_off = sight.shutdown != Shutdown::NotAsked && sight.is_off();
    Some(match sight.cleared {
        Cleared::Record => Next::Done(Ended::Gone),
        Cleared::Node => Next::Do(Step::DropRecord),
        Cleared::OffNoted => Next::Do(Step::DeleteNode),
        Cleared::Nothing if !is_ours(record) => Next::Do(Step::DropRecord),
        // The record is updated first, because a resumed run must not switch the machine off again.
        Cleared::Nothing if is_off => Next::Do(Step::NoteOff),
        Cleared::Nothing => return None,
    })
}

/// Leaves a machine on if it was seen to be off, but is now on and its Node does not report. Another client
/// has then switched the machine on, and the machine runs something else. This is only checked when the
/// removal begins.
fn left_on(record: &Record, sight: &Sight, now: Now) -> Option<Next<Ended>> {
    let off = record.seen_off?;
    if sight.emptied != Emptied::Unknown || !matches!(sight.stopping, Stopping::NotYet) {
        return None;
    }
    let Some(heard) = sight.heard else {
        let left = NOTICED.saturating_sub(now.date.duration_since(off).unsigned_abs());
        // The Node of a machine that was just switched off may seem to report for up to `NOTICED`. If the
        // Node still reports after that, it is running on the machine.
        let may_fall_silent = sight.watched.is_heard() && !left.is_zero();
        return Some(if may_fall_silent {
            Next::Wait(now.moment + left, Wait::Silence)
        } else {
            look(Look::Heard)
        });
    };
    match &sight.power {
        _ if heard => None,
        None => Some(look(Look::Power)),
        Some(_) if sight.is_off() => None,
        Some(_) => Some(Next::Do(Step::LeaveOn)),
    }
}

/// Decides whether the Node prevents its machine from being switched off. It does if the machine was to be
/// discarded and the Node is ready again, or if the Node is ready and cannot be emptied. Any other Node is
/// emptied first, even if it was drained before or has failed, because pods may have arrived since.
fn kept(record: &Record, sight: &Sight) -> Option<Next<Ended>> {
    let stays = match &sight.emptied {
        _ if !may_be_kept(sight) => return None,
        Emptied::Yes { .. } => return None,
        Emptied::No(why) => Some(why),
        Emptied::Unknown => None,
    };
    let open = match &sight.node {
        OwnNode::Unknown => return Some(look(Look::Node)),
        OwnNode::There(node) if may_serve(record, node) => Some(node),
        OwnNode::There(_) | OwnNode::Gone => None,
    };
    let given_up = matches!(record.intent, Intent::Discard { .. }) && record.node_uid.is_some();
    Some(match (open, stays) {
        (Some(node), Some(why)) => serves(record, node, why),
        (None, Some(why)) => Next::Stuck(Stuck::Stays { why: why.clone() }),
        (Some(node), None) if given_up => serves(record, node, "its Node is ready again"),
        (_, None) => Next::Do(Step::Empty),
    })
}

/// Whether the machine can still be kept, because its controller has not accepted the shutdown.
fn may_be_kept(sight: &Sight) -> bool {
    match &sight.shutdown {
        Shutdown::NotAsked | Shutdown::Refused(_) => true,
        Shutdown::InVain { may_stay } => *may_stay,
        Shutdown::Taken(_) | Shutdown::Cut(_) => false,
    }
}

/// Records that the machine is being shut down, then checks whether an annotation keeps its Node. Returns
/// `None` once both are done and nothing keeps the Node.
fn announced(record: &Record, sight: &Sight) -> Option<Next<Ended>> {
    match &sight.stopping {
        Stopping::NotYet => Some(Next::Do(Step::BeginShutdown)),
        Stopping::Unpinned => Some(look(Look::Pin)),
        Stopping::Pinned(node, why) => Some(serves(record, node, why)),
        Stopping::Free => None,
    }
}

/// Decides what to do with a machine that was seen to be off before its silent Node was emptied. Emptying may
/// have taken minutes, and another client may have switched the machine on in the meantime, so the power
/// state is read again. A running machine is left on, unless its Node reports again.
fn still_off(record: &Record, sight: &Sight) -> Option<Next<Ended>> {
    let was_off = record.seen_off.is_some() && sight.heard == Some(false);
    if !was_off || sight.shutdown != Shutdown::NotAsked {
        return None;
    }
    let Emptied::Yes { at: emptied, .. } = sight.emptied else { return None };
    Some(match &sight.power {
        Some(power) if power.at < emptied => look(Look::Power),
        None => look(Look::Power),
        Some(_) if sight.is_off() => Next::Do(Step::NoteOff),
        // The machine's own Node reports, so the machine runs that Node and nothing else.
        Some(_) if sight.watched.is_heard() => return None,
        Some(_) => Next::Do(Step::LeaveOn),
    })
}

/// Asks the operating system to shut down and gives it time, then cuts the power.
///
/// Each run gives the operating system the full time, because it is unknown whether an earlier request
/// reached it. The controller may not have answered since the record was written, or its answer may have been
/// lost. A refusal proves nothing either: the controller may be busy, or its machine may already be shutting
/// down.
fn shutting_down(settings: &Settings, sight: &Sight, now: Now) -> Next<Ended> {
    let in_vain = |why: String, may_stay| Next::Do(Step::GiveUpShutdown { why, may_stay });
    match &sight.shutdown {
        Shutdown::NotAsked => Next::Do(Step::Shutdown),
        Shutdown::Taken(at) if now.moment >= *at + settings.shutdown => {
            in_vain("it did not shut down in time".to_owned(), false)
        }
        Shutdown::Taken(at) => awaiting_off(sight, *at + settings.shutdown, now),
        Shutdown::Refused(refused) if !refused.is_asked_again(settings.shutdown) => {
            in_vain(refused.words(), true)
        }
        Shutdown::Refused(refused) => {
            let again = refused.at + AGAIN.min(refused.left(settings.shutdown));
            if now.moment >= again { Next::Do(Step::Shutdown) } else { awaiting_off(sight, again, now) }
        }
        Shutdown::InVain { .. } => Next::Do(Step::CutPower),
        Shutdown::Cut(at) if now.moment >= *at + settings.start => {
            Next::Stuck(Stuck::NotOff { limit: settings.start })
        }
        Shutdown::Cut(at) => awaiting_off(sight, *at + settings.start, now),
    }
}

/// Waits until the machine is off. A missing answer from the controller proves nothing, so the controller is
/// asked again.
fn awaiting_off(sight: &Sight, until: Moment, now: Now) -> Next<Ended> {
    match &sight.power {
        None => look(Look::IsOff),
        Some(power) => poll(Look::IsOff, power.at, until, now),
    }
}

/// Keeps the node in service. The Node's uuid is written to the record, so that every search for the
/// machine's Node finds it.
fn serves(record: &Record, node: &Arc<Node>, why: &str) -> Next<Ended> {
    if record.smbios_uuid.as_ref() != Some(&node.system_uuid) {
        return Next::Do(Step::Take(node.system_uuid.clone()));
    }
    Next::Done(Ended::Serves(Kept::new(Node::clone(node), why)))
}

/// Whether a Node may be uncordoned: it is ready, it identifies its machine, and the machine was not asked to
/// shut down since the Node registered.
fn may_serve(record: &Record, node: &Node) -> bool {
    let is_before = |asked: &Timestamp| node.created.is_none_or(|created| created <= *asked);
    is_ready(node)
        && !node.system_uuid.is_empty()
        && !record.entered.get(&Phase::Stopping).is_some_and(is_before)
}

fn look(what: Look) -> Next<Ended> {
    Next::Do(Step::Look(what))
}
