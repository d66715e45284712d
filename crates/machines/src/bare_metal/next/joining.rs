//! The decisions about switching a machine on, until its Node has registered.

use std::sync::Arc;
use std::time::Duration;

use super::{AGAIN, Next, Settings, Wait, poll};
use crate::bare_metal::node::is_ours;
use crate::bare_metal::sight::{Answer, Moment, Now, Sight, Watched};
use crate::bare_metal::step::{Look, Step};
use crate::bare_metal::stuck::Stuck;
use model::Record;
use model::node::Node;

/// The wait for the Node ends this long before the overall limit, so that the error can state the machine's
/// power state.
const MOMENT: Duration = Duration::from_secs(1);

/// The next step for a machine that is to become a Node.
pub(crate) fn joining(record: &Record, settings: &Settings, sight: &Sight, now: Now) -> Next<()> {
    if sight.start.is_unproven() {
        // A running machine is not ours until its controller has accepted this run's request.
        return Next::Do(if sight.start.answer.is_none() { Step::SwitchOn } else { Step::Disown });
    }
    match &sight.watched {
        Watched::Own(node) => joined(record, node),
        _ if !sight.has_controller => look(Look::Controller),
        _ if is_ours(record) => coming_up(record, settings, sight, now),
        _ => claiming(record, settings, sight, now),
    }
}

/// Decides what to do with a machine whose Node exists. The Node's uuid is written to the record, so that
/// every search for the machine's Node finds it.
fn joined(record: &Record, node: &Arc<Node>) -> Next<()> {
    let uuid = &node.system_uuid;
    if uuid.is_empty() {
        return Next::Stuck(Stuck::NoUuid { node: node.name.clone() });
    }
    if record.smbios_uuid.as_ref() == Some(uuid) {
        Next::Done(())
    } else {
        Next::Do(Step::Take(uuid.clone()))
    }
}

/// Decides what to do with a machine that is not ours yet. If the machine is off and no Node has its name,
/// the machine is claimed. Right after that, its controller is asked to switch it on.
fn claiming(record: &Record, settings: &Settings, sight: &Sight, now: Now) -> Next<()> {
    let name = || record.name.clone();
    if settings.closed {
        return Next::Stuck(Stuck::Closed { name: name() });
    }
    let answer = sight.start.answer.as_ref();
    match (answer, &sight.power) {
        (None, None) => return look(Look::Power),
        (None, Some(_)) if sight.is_off() => {}
        (None, Some(power)) => {
            return Next::Stuck(Stuck::NotOurs { name: name(), power: power.state });
        }
        (Some((_, Answer::Never(error))), _) => return Next::Stuck(Stuck::Refuses(error.clone())),
        (Some((_, Answer::WasOn)), _) => return Next::Stuck(Stuck::JustTaken { name: name() }),
        _ if sight.is_on() => return Next::Stuck(Stuck::JustTaken { name: name() }),
        (Some((at, _)), _) => {
            let is_due = now.moment >= *at + AGAIN && sight.is_off();
            if is_over(settings, sight, now) || !is_due {
                return awaiting_power(settings, sight, *at, now);
            }
        }
    }
    match sight.namesake {
        None => look(Look::Namesake),
        Some(true) => Next::Stuck(Stuck::HasNode { name: name() }),
        Some(false) => Next::Do(Step::Claim),
    }
}

/// Decides what to do with a machine that is ours. The machine is switched on if needed. Once its controller
/// reports that the machine is on or is being switched on, the run waits for the Node.
fn coming_up(record: &Record, settings: &Settings, sight: &Sight, now: Now) -> Next<()> {
    match &sight.start.answer {
        Some((_, Answer::WasOn)) => awaiting_node(record, settings, sight, now),
        Some(_) if sight.is_on() => awaiting_node(record, settings, sight, now),
        Some((_, Answer::Never(error))) => Next::Stuck(Stuck::Refuses(error.clone())),
        Some((at, _)) if is_over(settings, sight, now) || now.moment < *at + AGAIN => {
            awaiting_power(settings, sight, *at, now)
        }
        _ => Next::Do(Step::SwitchOn),
    }
}

/// Reads the machine's power state repeatedly, until the time limit.
fn awaiting_power(settings: &Settings, sight: &Sight, asked: Moment, now: Now) -> Next<()> {
    if is_over(settings, sight, now) {
        return Next::Stuck(Stuck::NotOn { limit: settings.start });
    }
    let last = sight.power.as_ref().map_or(asked, |power| power.at.max(asked));
    let over = sight.start.since.unwrap_or(asked) + settings.start;
    // The wait ends when it is time to ask the controller again, even if the next reading of the power state
    // is due later.
    let again = if now.moment < asked + AGAIN { asked + AGAIN } else { over };
    poll(Look::IsOn, last, over.min(again), now)
}

/// Whether the time limit for switching the machine on has passed.
fn is_over(settings: &Settings, sight: &Sight, now: Now) -> bool {
    sight.start.since.is_some_and(|since| now.moment >= since + settings.start)
}

fn awaiting_node(record: &Record, settings: &Settings, sight: &Sight, now: Now) -> Next<()> {
    let age = now.date.duration_since(record.wanted_since()).unsigned_abs();
    let left = settings.provision.saturating_sub(age).saturating_sub(MOMENT);
    if !left.is_zero() {
        return Next::Wait(now.moment + left, Wait::Node);
    }
    let limit = settings.provision;
    if let Watched::Other(uuid) = &sight.watched {
        let (name, own) = (record.name.clone(), record.smbios_uuid.clone());
        return Next::Stuck(Stuck::AnotherNode { limit, name, uuid: uuid.clone(), own });
    }
    match &sight.instead {
        None => look(Look::Instead),
        Some(power) => Next::Stuck(Stuck::NoNode { limit, power: power.clone() }),
    }
}

fn look(what: Look) -> Next<()> {
    Next::Do(Step::Look(what))
}
