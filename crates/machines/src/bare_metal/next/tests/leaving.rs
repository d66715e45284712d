//! The decisions about removing a machine that is ours, until it is off and its Node and record are gone.

use super::*;
use crate::bare_metal::next::{Wait, leaving};
use crate::bare_metal::sight::{Cleared, Emptied, OwnNode, Refused, Shutdown, Stopping};
use crate::bare_metal::stuck::Stuck;
use crate::kept_node::Kept;
use crate::machine_end::Ended;

/// A sight in which no pods are left on the Node, and the record says that the machine is being shut down.
fn announced(more: impl FnOnce(&mut Sight)) -> Sight {
    seen(|sight| {
        sight.emptied = Emptied::Yes { at: seconds(0), again: false };
        sight.stopping = Stopping::Free;
        more(sight);
    })
}

fn serves(ready: &str, why: &str) -> Next<Ended> {
    Next::Done(Ended::Serves(Kept::new(Node::clone(&node(ready)), why)))
}

/// The record, with a shutdown that began at second 10.
fn stopped(record: Record) -> Record {
    let mut record = record;
    record.entered.insert(Phase::Stopping, at_second(10).date);
    record
}

/// The machine's Node, registered at this second.
fn registered(second: u64) -> OwnNode {
    let created = Some(at_second(second).date);
    OwnNode::There(Arc::new(Node { created, ..Node::clone(&node("True")) }))
}

#[test]
fn one_that_was_never_ours_is_not_touched() {
    let never = || Record { entered: requested().entered, ..given_up() };
    let dropped = Sight { cleared: Cleared::Record, ..Sight::default() };
    check(
        vec![
            row("its record is dropped", never(), Sight::default(), 0, Next::Do(Step::DropRecord)),
            row("its record is gone", never(), dropped, 0, Next::Done(Ended::Gone)),
            row("a machine that is ours", retired(), Sight::default(), 0, look(Look::Controller)),
        ],
        leaving,
    );
}

#[test]
fn its_node_is_emptied_first_and_may_keep_it() {
    let shows = |ready: &'static str| seen(|sight| sight.node = OwnNode::There(node(ready)));
    let gone = || seen(|sight| sight.saw_node(seconds(3), None));
    let stays = |node: OwnNode| {
        seen(|sight| {
            sight.stays("a pod has to stay".to_owned());
            sight.node = node;
        })
    };
    let there = |ready| OwnNode::There(node(ready));
    let stuck = || Next::Stuck(Stuck::Stays { why: "a pod has to stay".to_owned() });
    let young = || Record { node_uid: None, ..given_up() };
    let renamed = || Record { smbios_uuid: None, ..given_up() };
    check(
        vec![
            row("its Node is read", retired(), seen(|_| {}), 0, look(Look::Node)),
            row("its Node is emptied", retired(), shows("True"), 0, Next::Do(Step::Empty)),
            row("a silent Node is emptied, too", retired(), shows("Unknown"), 0, Next::Do(Step::Empty)),
            row("it has no Node", retired(), gone(), 3, Next::Do(Step::BeginShutdown)),
            row(
                "to be discarded, but its Node is ready again",
                given_up(),
                shows("True"),
                0,
                serves("True", "its Node is ready again"),
            ),
            row("discarded, and its Node is silent", given_up(), shows("Unknown"), 0, Next::Do(Step::Empty)),
            row("discarded before it was in service", young(), shows("True"), 0, Next::Do(Step::Empty)),
            row(
                "its uuid is recorded first",
                renamed(),
                shows("True"),
                0,
                Next::Do(Step::Take(UUID.to_owned())),
            ),
            row("the drain was given up", retired(), stays(OwnNode::Unknown), 0, look(Look::Node)),
            row(
                "the drain was given up, and its Node is ready",
                retired(),
                stays(there("True")),
                0,
                serves("True", "a pod has to stay"),
            ),
            row(
                "the drain was given up, and its Node is not ready",
                retired(),
                stays(there("False")),
                0,
                stuck(),
            ),
            row("the drain was given up, and its Node is gone", retired(), stays(OwnNode::Gone), 0, stuck()),
        ],
        leaving,
    );
}

#[test]
fn what_is_written_before_a_shutdown_may_meet_a_pin() {
    let emptied = |stopping| {
        seen(|sight| {
            (sight.emptied, sight.stopping) = (Emptied::Yes { at: seconds(0), again: false }, stopping);
        })
    };
    let pinned = || Stopping::Pinned(node("True"), "annotation pinned".to_owned());
    check(
        vec![
            row("its Node is empty", retired(), emptied(Stopping::NotYet), 0, Next::Do(Step::BeginShutdown)),
            row("shutdown recorded", stopped(retired()), emptied(Stopping::Unpinned), 10, look(Look::Pin)),
            row("pinned", stopped(retired()), emptied(pinned()), 10, serves("True", "annotation pinned")),
            row("not pinned", stopped(retired()), emptied(Stopping::Free), 10, Next::Do(Step::Shutdown)),
        ],
        leaving,
    );
}

#[test]
fn a_node_that_was_asked_to_shut_down_serves_only_if_it_has_registered_since() {
    let stays = |second| {
        announced(|sight| {
            sight.stays("a pod came".to_owned());
            sight.node = registered(second);
        })
    };
    let looked_at = |second| {
        announced(|sight| {
            sight.doubt_emptiness();
            sight.node = registered(second);
        })
    };
    let stuck = Next::Stuck(Stuck::Stays { why: "a pod came".to_owned() });
    let kept = |why| {
        let node = Node { created: Some(at_second(11).date), ..Node::clone(&node("True")) };
        Next::Done(Ended::Serves(Kept::new(node, why)))
    };
    check(
        vec![
            row(
                "its Node was seen empty too long ago",
                stopped(retired()),
                announced(Sight::doubt_emptiness),
                20,
                look(Look::Node),
            ),
            row("its Node is emptied again", stopped(retired()), looked_at(5), 20, Next::Do(Step::Empty)),
            row("a pod has arrived", stopped(retired()), stays(5), 20, stuck),
            row("its Node has registered again", stopped(retired()), stays(11), 20, kept("a pod came")),
            row(
                "to be discarded, but its Node has registered again",
                stopped(given_up()),
                looked_at(11),
                20,
                kept("its Node is ready again"),
            ),
        ],
        leaving,
    );
}

#[test]
fn a_shutdown_has_its_time_before_the_power_is_cut() {
    let taken =
        |power| announced(|sight| (sight.shutdown, sight.power) = (Shutdown::Taken(seconds(0)), power));
    let cut = |power| announced(|sight| (sight.shutdown, sight.power) = (Shutdown::Cut(seconds(0)), power));
    let in_vain = announced(|sight| sight.shutdown = Shutdown::InVain { may_stay: false });
    let wait = |second| Next::Wait(seconds(second), Wait::Power);
    let on = |second| Some(power(second, PowerState::On));
    let late = || {
        let why = "it did not shut down in time".to_owned();
        Next::Do(Step::GiveUpShutdown { why, may_stay: false })
    };
    check(
        vec![
            row("the request is accepted", retired(), taken(None), 0, look(Look::IsOff)),
            row("it is still running", retired(), taken(on(0)), 0, wait(5)),
            row("its power is read again", retired(), taken(on(0)), 5, look(Look::IsOff)),
            row("its controller is silent", retired(), taken(Some(no_answer(10))), 12, wait(15)),
            row("just before the time limit", retired(), taken(on(178)), 179, wait(180)),
            row("the shutdown takes too long", retired(), taken(on(178)), 180, late()),
            row("it is off", retired(), taken(Some(power(5, PowerState::Off))), 5, Next::Do(Step::NoteOff)),
            row(
                "it is off just after the time limit",
                retired(),
                taken(Some(power(181, PowerState::Off))),
                181,
                Next::Do(Step::NoteOff),
            ),
            row("its power is cut", retired(), in_vain, 180, Next::Do(Step::CutPower)),
            row("its power is read after it was cut", retired(), cut(None), 0, look(Look::IsOff)),
            row(
                "it is off after its power was cut",
                retired(),
                cut(Some(power(0, PowerState::Off))),
                0,
                Next::Do(Step::NoteOff),
            ),
            row("it still runs after its power was cut", retired(), cut(on(0)), 119, look(Look::IsOff)),
            row(
                "it runs for too long after its power was cut",
                retired(),
                cut(on(119)),
                120,
                Next::Stuck(Stuck::NotOff { limit: seconds(120) }),
            ),
        ],
        leaving,
    );
}

#[test]
fn a_controller_that_refuses_is_asked_again_for_as_long_as_a_shutdown_may_take() {
    let refuses = |kind, since, at, power| {
        announced(|sight| {
            let refused = Refused { since: seconds(since), at: seconds(at), error: refusal(kind) };
            (sight.shutdown, sight.power) = (Shutdown::Refused(refused), power);
        })
    };
    let busy = |at, power| refuses(Kind::Refused, 0, at, power);
    let on = |second| Some(power(second, PowerState::On));
    let give_up = |words: &str| {
        let why = format!("{words} ({})", refusal(Kind::Refused));
        Next::Do(Step::GiveUpShutdown { why, may_stay: true })
    };
    let unsupported = refuses(Kind::Unsupported, 0, 0, None);
    check(
        vec![
            row("it may already be shutting down", retired(), busy(0, None), 0, look(Look::IsOff)),
            row("it is still running", retired(), busy(0, on(0)), 1, Next::Wait(seconds(5), Wait::Power)),
            row(
                "just before the next request",
                retired(),
                busy(0, on(43)),
                44,
                Next::Wait(seconds(45), Wait::Power),
            ),
            row("its controller is asked again", retired(), busy(0, on(43)), 45, Next::Do(Step::Shutdown)),
            row(
                "the time limit passes before the next request would be due",
                retired(),
                busy(170, on(178)),
                179,
                Next::Wait(seconds(180), Wait::Power),
            ),
            row("asked for the last time", retired(), busy(170, on(178)), 180, Next::Do(Step::Shutdown)),
            row(
                "its controller refuses until the time limit",
                retired(),
                busy(180, None),
                180,
                give_up("its controller refuses to shut it down gracefully"),
            ),
            row(
                "it has shut down",
                retired(),
                busy(0, Some(power(5, PowerState::Off))),
                5,
                Next::Do(Step::NoteOff),
            ),
            row(
                "its controller cannot shut it down gracefully",
                retired(),
                unsupported,
                0,
                give_up("it cannot be shut down gracefully"),
            ),
        ],
        leaving,
    );
    let doubtful = announced(|sight| {
        sight.shutdown = Shutdown::InVain { may_stay: true };
        sight.doubt_emptiness();
    });
    check(vec![row("its Node is read once more", retired(), doubtful, 200, look(Look::Node))], leaving);
}

#[test]
fn one_that_is_off_loses_its_node_and_then_its_record() {
    let cleared = |cleared| announced(|sight| sight.cleared = cleared);
    check(
        vec![
            row("it is noted as off", retired(), cleared(Cleared::OffNoted), 0, Next::Do(Step::DeleteNode)),
            row("its Node is gone", retired(), cleared(Cleared::Node), 0, Next::Do(Step::DropRecord)),
            row("nothing is left", retired(), cleared(Cleared::Record), 0, Next::Done(Ended::Gone)),
        ],
        leaving,
    );
}

#[test]
fn one_that_was_switched_off_by_hand_may_be_another_clients_by_now() {
    // A machine that was seen to be off when the run began.
    let off = || Record { seen_off: Some(Timestamp::UNIX_EPOCH), ..given_up() };
    let heard = |heard, power| seen(|sight| (sight.heard, sight.power) = (Some(heard), power));
    let shows = |ready: &'static str| seen(|sight| sight.watched = watched(ready));
    let wait = Next::Wait(seconds(120), Wait::Silence);
    let emptied = |at, state| {
        announced(|sight| {
            (sight.heard, sight.power) = (Some(false), Some(power(at, state)));
            sight.emptied = Emptied::Yes { at: seconds(4), again: false };
        })
    };
    check(
        vec![
            row("its Node is not silent yet", off(), shows("True"), 1, wait),
            row("its Node still looks ready later", off(), shows("True"), 120, look(Look::Heard)),
            row("its Node is silent", off(), shows("Unknown"), 1, look(Look::Heard)),
            row("it has no Node", off(), seen(|_| {}), 1, look(Look::Heard)),
            row(
                "its Node reports, so it runs on the machine",
                off(),
                heard(true, None),
                130,
                look(Look::Node),
            ),
            row("its Node does not report", off(), heard(false, None), 1, look(Look::Power)),
            row("it is still off", off(), heard(false, Some(power(1, PowerState::Off))), 1, look(Look::Node)),
            row(
                "it runs something else",
                off(),
                heard(false, Some(power(1, PowerState::On))),
                1,
                Next::Do(Step::LeaveOn),
            ),
            row(
                "it is shutting down",
                off(),
                heard(false, Some(power(1, PowerState::PoweringOff))),
                1,
                Next::Do(Step::LeaveOn),
            ),
            row(
                "it was off before its Node was emptied",
                stopped(off()),
                emptied(0, PowerState::Off),
                5,
                look(Look::Power),
            ),
            row(
                "it is still off after its Node was emptied",
                stopped(off()),
                emptied(5, PowerState::Off),
                5,
                Next::Do(Step::NoteOff),
            ),
            row(
                "it was switched on in the meantime, and its Node reports",
                stopped(off()),
                announced(|sight| {
                    (sight.heard, sight.power) = (Some(false), Some(power(5, PowerState::On)));
                    sight.watched = watched("True");
                }),
                5,
                Next::Do(Step::Shutdown),
            ),
            row(
                "it was switched on in the meantime",
                stopped(off()),
                emptied(5, PowerState::On),
                5,
                Next::Do(Step::LeaveOn),
            ),
        ],
        leaving,
    );
}
