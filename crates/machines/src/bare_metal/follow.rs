//! The control loop of a bare-metal machine: look, decide and act, until the run is finished or cannot
//! continue.

use std::collections::BTreeMap;

use tokio::time::Instant;

use super::next::{Decide, Next, Settings, Wait};
use super::node;
use super::perform::Performer;
use super::sight::{Now, Sight};
use super::step::Unmet;
use super::stuck::Stuck;
use crate::context::Context;
use crate::machine_handle::MachineHandle;
use crate::step_error::{StepError, Tries};
use model::machine::Phase;

/// Carries out decisions step by step. If a step fails but may succeed later, the loop pauses and then
/// decides again, because the step's preconditions may have changed. If the step still fails after its time
/// limit, its error ends the run.
pub(super) async fn follow<D>(
    ctx: &Context,
    machine: &mut MachineHandle,
    decide: Decide<D>,
) -> Result<D, StepError> {
    let began = Instant::now();
    let settings = Settings::of(&ctx.config, machine.record());
    let mut performer = Performer { ctx, began, client: None };
    let (mut sight, mut tries) = (Sight::default(), BTreeMap::new());
    let mut changed = ctx.watches.changed();
    loop {
        changed.mark_unchanged();
        sight.watched = node::watched(&ctx.watches, machine.record());
        let now = Now { date: ctx.clock.now(), moment: began.elapsed() };
        match decide(machine.record(), &settings, &sight, now) {
            Next::Done(done) => return Ok(done),
            Next::Stuck(stuck) => return Err(stuck.into()),
            Next::Wait(until, wait) => {
                if wait == Wait::Node && machine.phase != Phase::Booting {
                    machine.enter(ctx, Phase::Booting, "it boots and joins by itself; waiting for its Node");
                }
                tokio::select! {
                    biased;
                    () = changed.changed() => {}
                    () = tokio::time::sleep_until(began + until) => {}
                }
            }
            Next::Do(step) => {
                if let Some(unmet) = step.unmet(machine.record(), &sight, now) {
                    look_again(unmet, machine, &mut sight)?;
                    continue;
                }
                let limit = step.limit(&settings);
                let tried = tries.entry(step.clone()).or_insert_with(|| Tries::new(limit, machine.seed()));
                match performer.perform(machine, &mut sight, &step).await {
                    Ok(()) => drop(tries.remove(&step)),
                    Err(trouble) => tried.again(trouble).await?,
                }
            }
        }
    }
}

/// Handles an unmet precondition of a step: either returns an error, or causes the Node to be read again.
fn look_again(unmet: Unmet, machine: &MachineHandle, sight: &mut Sight) -> Result<(), StepError> {
    match unmet {
        Unmet::NotOurs => Err(Stuck::Unclaimed { name: machine.record().name.clone() }.into()),
        Unmet::NotEmpty => {
            sight.doubt_emptiness();
            Ok(())
        }
    }
}
