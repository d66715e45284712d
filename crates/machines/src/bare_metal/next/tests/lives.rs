//! Tests of complete machine lives: the order of the steps, and the effect of a restart between two steps.

use super::*;
use crate::bare_metal::next::{Decide, joining, leaving};
use crate::bare_metal::node::is_ours;
use crate::bare_metal::sight::{Answer, Cleared, Moment, Shutdown, Stopping};
use crate::bare_metal::step::Unmet;
use crate::machine_end::Ended;

/// The real state of a machine and its controller.
#[derive(Clone, Default)]
struct Metal {
    on: bool,
    /// How many of the next requests the controller refuses.
    refuses: u32,
    /// Whether the operating system ignores the shutdown request.
    hangs: bool,
    /// When another client switches the machine on.
    taken_at: Option<Moment>,
    /// Our requests that the controller has carried out.
    asked: Vec<&'static str>,
}

/// How a simulated life ended.
#[derive(Debug, PartialEq)]
enum End<D> {
    Done(D),
    Stuck,
    /// The run was cut off, as if the daemon had ended.
    Cut,
}

/// One run, from the stored state until it is finished or cut off.
struct Run<'a> {
    record: &'a mut Record,
    metal: &'a mut Metal,
    sight: Sight,
    now: u64,
    steps: Vec<String>,
}

impl Run<'_> {
    fn play<D>(&mut self, decide: Decide<D>, most: usize) -> End<D> {
        loop {
            let now = at_second(self.now);
            self.metal.on |= self.metal.taken_at.is_some_and(|at| now.moment >= at);
            let is_up = is_ours(self.record) && self.metal.asked.last() == Some(&"On");
            self.sight.watched = if is_up { watched("True") } else { Watched::Nothing };
            match decide(self.record, &settings(), &self.sight, now) {
                Next::Done(done) => return End::Done(done),
                Next::Stuck(_) => return End::Stuck,
                Next::Wait(until, _) => self.now = until.as_secs(),
                Next::Do(_) if self.steps.len() == most => return End::Cut,
                Next::Do(step) => match step.unmet(self.record, &self.sight, now) {
                    Some(Unmet::NotEmpty) => self.sight.doubt_emptiness(),
                    unmet => {
                        assert_eq!(unmet, None, "{step:?}");
                        self.steps.push(format!("{step:?}"));
                        self.happens(step, now);
                    }
                },
            }
        }
    }

    /// Applies the effect of a step.
    fn happens(&mut self, step: Step, now: Now) {
        let (record, metal, sight) = (&mut *self.record, &mut *self.metal, &mut self.sight);
        match step {
            Step::Look(look) => see(look, record, metal, sight, now),
            Step::Claim => {
                record.entered.insert(Phase::Starting, now.date);
                sight.start.claimed();
            }
            Step::Disown => {
                record.entered.remove(&Phase::Starting);
                sight.disowned();
            }
            Step::SwitchOn => {
                sight.start.since.get_or_insert(now.moment);
                sight.asks();
                let answer = match (metal.on, metal.is_busy()) {
                    (true, _) => Answer::WasOn,
                    (false, true) => Answer::NotNow,
                    (false, false) => Answer::Asked,
                };
                if answer == Answer::Asked {
                    metal.does("On", true);
                }
                sight.start.answered(now.moment, answer);
            }
            Step::Take(uuid) => record.smbios_uuid = Some(uuid),
            Step::Empty => sight.emptied(now.moment),
            Step::BeginShutdown => {
                let again = record.entered.insert(Phase::Stopping, now.date).is_some();
                sight.stopping = if again { Stopping::Free } else { Stopping::Unpinned };
            }
            Step::Shutdown => {
                sight.asks();
                if metal.on && metal.is_busy() {
                    sight.refused(now.moment, refusal(Kind::Refused));
                    return;
                }
                if metal.on {
                    metal.does("GracefulShutdown", metal.hangs);
                }
                sight.shutdown = Shutdown::Taken(now.moment);
            }
            Step::GiveUpShutdown { may_stay, .. } => sight.shutdown = Shutdown::InVain { may_stay },
            Step::CutPower => {
                sight.asks();
                metal.does("ForceOff", false);
                sight.shutdown = Shutdown::Cut(now.moment);
            }
            Step::NoteOff => {
                record.seen_off = Some(now.date);
                sight.cleared = Cleared::OffNoted;
            }
            Step::DeleteNode | Step::LeaveOn => sight.cleared = Cleared::Node,
            Step::DropRecord => sight.cleared = Cleared::Record,
        }
    }
}

impl Metal {
    fn does(&mut self, what: &'static str, on: bool) {
        self.asked.push(what);
        self.on = on;
    }

    fn is_busy(&mut self) -> bool {
        let busy = self.refuses > 0;
        self.refuses = self.refuses.saturating_sub(1);
        busy
    }
}

fn see(look: Look, record: &Record, metal: &Metal, sight: &mut Sight, now: Now) {
    let state = if metal.on { PowerState::On } else { PowerState::Off };
    // The Node exists until its machine is off.
    let own = (is_ours(record) && metal.on).then(|| Node::clone(&node("True")));
    match look {
        Look::Controller => sight.has_controller = true,
        Look::Power | Look::IsOn | Look::IsOff => sight.power = Some(power(now.moment.as_secs(), state)),
        Look::Instead => sight.instead = Some(Ok(state)),
        Look::Namesake => sight.namesake = Some(false),
        Look::Heard => sight.heard = Some(own.is_some()),
        Look::Node => sight.saw_node(now.moment, own),
        Look::Pin => sight.stopping = Stopping::Free,
    }
}

/// Runs at most this many steps. Returns how the run ended, and its steps.
fn run<D>(record: &mut Record, metal: &mut Metal, decide: Decide<D>, most: usize) -> (End<D>, Vec<String>) {
    let mut run = Run { record, metal, sight: Sight::default(), now: 0, steps: Vec::new() };
    (run.play(decide, most), run.steps)
}

/// Runs a machine's life until it ends.
fn live<D>(record: &mut Record, metal: &mut Metal, decide: Decide<D>) -> (End<D>, Vec<String>) {
    run(record, metal, decide, usize::MAX)
}

#[test]
fn one_joins_and_goes_in_this_order() {
    let (mut record, mut metal) = (requested(), Metal::default());
    let (end, steps) = live(&mut record, &mut metal, joining);
    assert_eq!(end, End::Done(()));
    let taken = format!("Take({UUID:?})");
    let up = ["Look(Controller)", "Look(Power)", "Look(Namesake)", "Claim", "SwitchOn", &taken];
    assert_eq!(steps, up);
    record.intent = retired().intent;
    let (end, steps) = live(&mut record, &mut metal, leaving);
    assert_eq!(end, End::Done(Ended::Gone));
    let down = [
        "Look(Controller)",
        "Look(Node)",
        "Empty",
        "BeginShutdown",
        "Look(Pin)",
        "Shutdown",
        "Look(IsOff)",
        "NoteOff",
        "DeleteNode",
        "DropRecord",
    ];
    assert_eq!(steps, down);
    assert_eq!(metal.asked, ["On", "GracefulShutdown"]);
}

#[test]
fn a_restart_after_any_step_switches_each_machine_on_once_and_off_again() {
    for (refuses, cut) in (0..3).flat_map(|refuses| (0..20).map(move |cut| (refuses, cut))) {
        let (mut record, mut metal) = (requested(), Metal { refuses, ..Metal::default() });
        run(&mut record, &mut metal, joining, cut);
        let (end, steps) = live(&mut record, &mut metal, joining);
        assert_eq!(end, End::Done(()), "{refuses} {cut}: {steps:?}");
        assert_eq!(metal.asked, ["On"], "{refuses} {cut}: {steps:?}");
        metal.refuses = refuses;
        record.intent = retired().intent;
        run(&mut record, &mut metal, leaving, cut);
        let (end, steps) = live(&mut record, &mut metal, leaving);
        assert_eq!(end, End::Done(Ended::Gone), "{refuses} {cut}: {steps:?}");
        assert_eq!(metal.asked, ["On", "GracefulShutdown"], "{refuses} {cut}: {steps:?}");
        assert!(!metal.on);
    }
}

#[test]
fn one_that_another_client_gets_while_its_controller_is_busy_is_left_to_it_after_a_restart_too() {
    let mut left = 0;
    for (taken, cut) in (1..120).flat_map(|taken| (5..40).map(move |cut| (taken, cut))) {
        let taken_at = Some(seconds(taken));
        let (mut record, mut metal) = (requested(), Metal { refuses: 3, taken_at, ..Metal::default() });
        run(&mut record, &mut metal, joining, cut);
        // If a run is cut off between its claim and the controller's answer, it is unknown whose request
        // switched the machine on.
        if is_ours(&record) {
            continue;
        }
        let (end, steps) = live(&mut record, &mut metal, joining);
        if metal.asked.is_empty() {
            left += 1;
            assert_eq!(end, End::Stuck, "{taken} {cut}: {steps:?}");
            assert!(!is_ours(&record), "{taken} {cut}: {steps:?}");
        }
    }
    assert!(left > 1000, "{left}");
}

#[test]
fn one_that_does_not_listen_is_cut_off() {
    let (mut record, mut metal) = (retired(), Metal { on: true, hangs: true, ..Metal::default() });
    let (end, _) = live(&mut record, &mut metal, leaving);
    assert_eq!(end, End::Done(Ended::Gone));
    assert_eq!(metal.asked, ["GracefulShutdown", "ForceOff"]);
}

#[test]
fn one_whose_controller_refuses_for_as_long_as_a_shutdown_may_take_is_cut_off_and_emptied_each_time() {
    let (mut record, mut metal) = (retired(), Metal { on: true, refuses: 5, ..Metal::default() });
    let (end, steps) = live(&mut record, &mut metal, leaving);
    assert_eq!(end, End::Done(Ended::Gone));
    assert_eq!(metal.asked, ["ForceOff"]);
    let times = |what: &str| steps.iter().filter(|step| *step == what).count();
    assert_eq!((times("Shutdown"), times("Empty")), (5, 5), "{steps:?}");
}
