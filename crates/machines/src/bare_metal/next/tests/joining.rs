//! The decisions about switching a machine on, until its Node has registered.

use super::*;
use crate::bare_metal::next::{Wait, joining};
use crate::bare_metal::sight::{Answer, Start};
use crate::bare_metal::stuck::Stuck;

fn name() -> String {
    "metal-1".to_owned()
}

/// The state after this run has claimed the machine, and its controller has given this answer to a request at
/// second 0.
fn tried(answer: Answer) -> Start {
    let asked = answer == Answer::Asked;
    Start { claimed: true, asked, since: Some(seconds(0)), answer: Some((seconds(0), answer)) }
}

/// Like [`tried`], but for a run that was resumed or has removed its claim since.
fn unclaimed(answer: Answer) -> Start {
    Start { claimed: false, ..tried(answer) }
}

#[test]
fn one_is_claimed_only_if_it_is_off_and_no_node_has_its_name() {
    let off = || Some(power(0, PowerState::Off));
    let is = |state| seen(|sight| sight.power = Some(power(0, state)));
    let not_ours = |state| Next::Stuck(Stuck::NotOurs { name: name(), power: Some(state) });
    check(
        vec![
            row("nothing is known", requested(), Sight::default(), 0, look(Look::Controller)),
            row("the controller is known", requested(), seen(|_| {}), 0, look(Look::Power)),
            row("switched on by hand", requested(), is(PowerState::On), 0, not_ours(PowerState::On)),
            row(
                "being switched off by hand",
                requested(),
                is(PowerState::PoweringOff),
                0,
                not_ours(PowerState::PoweringOff),
            ),
            row("it is off", requested(), is(PowerState::Off), 0, look(Look::Namesake)),
            row(
                "a Node has its name",
                requested(),
                seen(|sight| (sight.power, sight.namesake) = (off(), Some(true))),
                0,
                Next::Stuck(Stuck::HasNode { name: name() }),
            ),
            row(
                "no Node has its name",
                requested(),
                seen(|sight| (sight.power, sight.namesake) = (off(), Some(false))),
                0,
                Next::Do(Step::Claim),
            ),
        ],
        joining,
    );
    let closed = Settings { closed: true, ..settings() };
    let next = joining(&requested(), &closed, &seen(|_| {}), at_second(0));
    assert_eq!(next, Next::Stuck(Stuck::Closed { name: name() }));
}

#[test]
fn what_was_not_asked_of_its_controller_is_not_ours() {
    let never = Answer::Never(refusal(Kind::Unauthorized));
    let claimed = Start { claimed: true, ..Start::default() };
    let start = |start: Start| seen(|sight| sight.start = start);
    check(
        vec![
            row("it is claimed", ours(), start(claimed), 0, Next::Do(Step::SwitchOn)),
            row(
                "another cluster has switched it on first",
                ours(),
                start(tried(Answer::WasOn)),
                0,
                Next::Do(Step::Disown),
            ),
            row("its controller is busy", ours(), start(tried(Answer::NotNow)), 0, Next::Do(Step::Disown)),
            row("its controller refuses", ours(), start(tried(never.clone())), 0, Next::Do(Step::Disown)),
            row(
                "another cluster has switched it on first, and its Node exists",
                ours(),
                seen(|sight| (sight.start, sight.watched) = (tried(Answer::WasOn), watched("True"))),
                0,
                Next::Do(Step::Disown),
            ),
            row(
                "it is left to the other cluster",
                requested(),
                start(unclaimed(Answer::WasOn)),
                0,
                Next::Stuck(Stuck::JustTaken { name: name() }),
            ),
            row(
                "its controller refuses, and it is left alone",
                requested(),
                start(unclaimed(never)),
                0,
                Next::Stuck(Stuck::Refuses(refusal(Kind::Unauthorized))),
            ),
        ],
        joining,
    );
}

#[test]
fn a_busy_controller_is_asked_again_once_the_machine_is_claimed_again() {
    let busy = |power| seen(|sight| (sight.start, sight.power) = (unclaimed(Answer::NotNow), power));
    let wait = |second| Next::Wait(seconds(second), Wait::Power);
    let off = |second| Some(power(second, PowerState::Off));
    check(
        vec![
            row("just after the request", requested(), busy(None), 0, wait(5)),
            row("a while after the request", requested(), busy(None), 5, look(Look::IsOn)),
            row("it is still off", requested(), busy(off(5)), 6, wait(10)),
            row("just before the next request", requested(), busy(off(43)), 44, wait(45)),
            row("the next request is due", requested(), busy(off(43)), 45, look(Look::Namesake)),
            row(
                "still no Node has its name",
                requested(),
                seen(|sight| {
                    (sight.start, sight.power) = (unclaimed(Answer::NotNow), off(43));
                    sight.namesake = Some(false);
                }),
                45,
                Next::Do(Step::Claim),
            ),
            row("its controller has not answered", requested(), busy(Some(no_answer(43))), 45, wait(48)),
            row(
                "its controller has not answered for a while",
                requested(),
                busy(Some(no_answer(43))),
                48,
                look(Look::IsOn),
            ),
            row(
                "another client has switched it on first",
                requested(),
                busy(Some(power(10, PowerState::PoweringOn))),
                10,
                Next::Stuck(Stuck::JustTaken { name: name() }),
            ),
            row(
                "it is still off at the time limit",
                requested(),
                busy(off(118)),
                120,
                Next::Stuck(Stuck::NotOn { limit: seconds(120) }),
            ),
        ],
        joining,
    );
}

#[test]
fn one_that_is_ours_is_switched_on_until_it_runs() {
    let asked = |power| seen(|sight| (sight.start, sight.power) = (tried(Answer::Asked), power));
    let wait = |second| Next::Wait(seconds(second), Wait::Power);
    let until_its_node = Next::Wait(seconds(15 * 60 - 1), Wait::Node);
    let busy_now = || seen(|sight| sight.start = unclaimed(Answer::NotNow));
    let never = Answer::Never(refusal(Kind::Unauthorized));
    check(
        vec![
            row("resumed before the request", ours(), seen(|_| {}), 0, Next::Do(Step::SwitchOn)),
            row(
                "resumed, and it runs",
                ours(),
                seen(|sight| sight.start = unclaimed(Answer::WasOn)),
                0,
                Next::Wait(seconds(15 * 60 - 1), Wait::Node),
            ),
            row("resumed, and its controller is busy", ours(), busy_now(), 0, wait(5)),
            row(
                "resumed, and its controller refuses",
                ours(),
                seen(|sight| sight.start = unclaimed(never)),
                0,
                Next::Stuck(Stuck::Refuses(refusal(Kind::Unauthorized))),
            ),
            row("its controller was just asked", ours(), asked(None), 0, wait(5)),
            row("its controller was asked a while ago", ours(), asked(None), 5, look(Look::IsOn)),
            row("it is still off", ours(), asked(Some(power(5, PowerState::Off))), 5, wait(10)),
            row("its controller is silent", ours(), asked(Some(no_answer(5))), 10, look(Look::IsOn)),
            row(
                "still off long after the request",
                ours(),
                asked(Some(power(40, PowerState::Off))),
                45,
                Next::Do(Step::SwitchOn),
            ),
            row("it runs", ours(), asked(Some(power(5, PowerState::PoweringOn))), 5, until_its_node),
            row(
                "its controller is busy at the second request",
                ours(),
                seen(|sight| sight.start = Start { asked: true, ..tried(Answer::NotNow) }),
                0,
                wait(5),
            ),
            row(
                "it is still off at the time limit",
                ours(),
                asked(Some(power(118, PowerState::Off))),
                120,
                Next::Stuck(Stuck::NotOn { limit: seconds(120) }),
            ),
        ],
        joining,
    );
}

#[test]
fn its_node_is_awaited_and_taken() {
    let runs = |more: fn(&mut Sight)| {
        seen(|sight| {
            (sight.start, sight.power) = (tried(Answer::Asked), Some(power(5, PowerState::On)));
            more(sight);
        })
    };
    let known = || Record { smbios_uuid: Some(UUID.to_owned()), ..ours() };
    let nameless = || {
        let node = Node { system_uuid: String::new(), ..Node::clone(&node("True")) };
        Sight { watched: Watched::Own(Arc::new(node)), ..Sight::default() }
    };
    let there = || Sight { watched: watched("False"), ..Sight::default() };
    let limit = Duration::from_mins(15);
    let other = || Watched::Other("another uuid".to_owned());
    let another = |own: Option<&str>| {
        let (name, uuid, own) = (name(), "another uuid".to_owned(), own.map(ToOwned::to_owned));
        Next::Stuck(Stuck::AnotherNode { limit, name, uuid, own })
    };
    let late = 15 * 60 - 1;
    let power = |power| Next::Stuck(Stuck::NoNode { limit, power });
    check(
        vec![
            row("its Node exists", ours(), there(), 0, Next::Do(Step::Take(UUID.to_owned()))),
            row("the record contains its uuid", known(), there(), 0, Next::Done(())),
            row(
                "its Node reports no uuid",
                ours(),
                nameless(),
                0,
                Next::Stuck(Stuck::NoUuid { node: name() }),
            ),
            row(
                "its Node registers",
                known(),
                runs(|sight| sight.watched = watched("False")),
                60,
                Next::Done(()),
            ),
            row("its Node does not register", ours(), runs(|_| {}), late, look(Look::Instead)),
            row(
                "its Node does not register although it is on",
                ours(),
                runs(|sight| sight.instead = Some(Ok(PowerState::On))),
                late,
                power(Ok(PowerState::On)),
            ),
            row(
                "its Node does not register, and its power is unknown",
                ours(),
                runs(|sight| sight.instead = Some(Err("no answer".to_owned()))),
                late,
                power(Err("no answer".to_owned())),
            ),
            row(
                "another machine's Node registers, and the wait continues",
                known(),
                seen(|sight| (sight.start, sight.watched) = (unclaimed(Answer::WasOn), other())),
                60,
                Next::Wait(seconds(late), Wait::Node),
            ),
            row(
                "another machine's Node registered, and the limit has passed",
                known(),
                seen(|sight| (sight.start, sight.watched) = (unclaimed(Answer::WasOn), other())),
                late,
                another(Some(UUID)),
            ),
        ],
        joining,
    );
}
