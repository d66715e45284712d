//! Carries out the steps of a bare-metal machine's life that change something.

use runtime::boxed;
use tokio::time::Instant;

use super::sight::{Answer, Cleared, Emptied, Moment, OwnNode, Shutdown, Sight, Stopping};
use super::step::Step;
use crate::context::Context;
use crate::drain::Drained;
use crate::machine_handle::MachineHandle;
use crate::out_of_service::Off;
use crate::step_error::{BackoffTarget, StepError, retry_until};
use crate::{emptying, node_deletion};
use model::machine::Phase;
use proxmox::redfish::{self, Client, Kind, Reset};

/// Carries out the steps of one run.
pub(super) struct Performer<'a> {
    pub ctx: &'a Context,
    /// When the run began.
    pub began: Instant,
    /// A client for the machine's controller, once the controller has been looked up.
    pub client: Option<Client>,
}

impl Performer<'_> {
    /// Carries out a step whose preconditions hold, and notes the result in `sight`.
    ///
    /// # Errors
    /// Returns an error if the step failed. The request may have taken effect nevertheless.
    #[boxed]
    pub async fn perform(
        &mut self,
        machine: &mut MachineHandle,
        sight: &mut Sight,
        step: &Step,
    ) -> Result<(), StepError> {
        let ctx = self.ctx;
        match step {
            Step::Look(what) => self.look(machine, sight, *what).await?,
            Step::Claim => self.claim(machine, sight).await?,
            Step::Disown => self.disown(machine, sight).await?,
            Step::SwitchOn => self.switch_on(machine, sight).await?,
            Step::Take(uuid) => machine.change(ctx, |record| record.smbios_uuid = Some(uuid.clone())).await?,
            Step::Empty => self.empty(machine, sight).await?,
            Step::BeginShutdown => self.begin_shutdown(machine, sight).await?,
            Step::Shutdown => self.shut_down(machine, sight).await?,
            Step::GiveUpShutdown { why, may_stay } => {
                machine.say(ctx, &format!("{why}: cutting its power"));
                tracing::warn!(machine = %machine.record().name, why, "cutting the machine's power");
                sight.shutdown = Shutdown::InVain { may_stay: *may_stay };
            }
            Step::CutPower => self.cut_power(machine, sight).await?,
            Step::NoteOff => {
                let now = ctx.clock.now();
                machine.change(ctx, |record| record.seen_off = Some(now)).await?;
                sight.cleared = Cleared::OffNoted;
            }
            Step::DeleteNode => {
                machine.enter(ctx, Phase::Deleting, "it is off; its Node is being deleted");
                self.forget_node(machine, Off::Seen).await?;
                sight.cleared = Cleared::Node;
            }
            Step::LeaveOn => self.leave_on(machine, sight).await?,
            Step::DropRecord => {
                machine.drop_record(ctx).await?;
                sight.cleared = Cleared::Record;
            }
        }
        Ok(())
    }

    async fn claim(&self, machine: &mut MachineHandle, sight: &mut Sight) -> Result<(), StepError> {
        let before = machine.record().clone();
        machine.enter(self.ctx, Phase::Starting, "it is being switched on");
        machine.stored.record.smbios_uuid = sight.power.as_ref().and_then(|power| power.uuid.clone());
        if let Err(error) = machine.save(self.ctx).await {
            // The controller has not been asked to do anything yet, so the removal must not treat the machine
            // as ours.
            machine.stored.record = before;
            return Err(error);
        }
        sight.start.claimed();
        Ok(())
    }

    async fn disown(&self, machine: &mut MachineHandle, sight: &mut Sight) -> Result<(), StepError> {
        let disown = machine.change(self.ctx, |record| {
            record.entered.remove(&Phase::Starting);
        });
        disown.await?;
        sight.disowned();
        Ok(())
    }

    async fn switch_on(&self, machine: &mut MachineHandle, sight: &mut Sight) -> Result<(), StepError> {
        machine.enter(self.ctx, Phase::Starting, "it is being switched on");
        let client = self.client()?;
        sight.start.since.get_or_insert(self.moment());
        sight.asks();
        let answer = match client.reset(Reset::On).await {
            Ok(true) => Answer::Asked,
            Ok(false) => Answer::WasOn,
            Err(error) => failed(error),
        };
        sight.start.answered(self.moment(), answer);
        Ok(())
    }

    async fn empty(&self, machine: &mut MachineHandle, sight: &mut Sight) -> Result<(), StepError> {
        let OwnNode::There(node) = sight.node.clone() else {
            sight.doubt_emptiness();
            return Ok(());
        };
        emptying::close(self.ctx, machine, &node).await?;
        match emptying::empty(self.ctx, machine, &node).await? {
            Drained::Empty => sight.emptied(self.moment()),
            Drained::GivenUp(why) => sight.stays(why),
        }
        Ok(())
    }

    async fn begin_shutdown(&self, machine: &mut MachineHandle, sight: &mut Sight) -> Result<(), StepError> {
        let again = machine.record().entered.contains_key(&Phase::Stopping);
        machine.enter(self.ctx, Phase::Stopping, "it is being shut down");
        machine.save(self.ctx).await?;
        sight.stopping = if again { Stopping::Free } else { Stopping::Unpinned };
        Ok(())
    }

    async fn shut_down(&self, machine: &mut MachineHandle, sight: &mut Sight) -> Result<(), StepError> {
        self.say_asked(machine, sight);
        sight.asks();
        match self.client()?.reset(Reset::GracefulShutdown).await {
            Ok(_) => sight.shutdown = Shutdown::Taken(self.moment()),
            Err(error) if matches!(error.kind, Kind::Refused | Kind::Unsupported) => {
                let refused = sight.refused(self.moment(), error);
                if refused.is_asked_again(self.ctx.config.limits.shutdown) {
                    machine.say(self.ctx, &format!("{}; asking again", refused.words()));
                    tracing::warn!(machine = %machine.record().name, error = %refused.error, "graceful shutdown not possible yet; retrying");
                }
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    async fn cut_power(&self, machine: &mut MachineHandle, sight: &mut Sight) -> Result<(), StepError> {
        self.say_asked(machine, sight);
        sight.asks();
        self.client()?.reset(Reset::ForceOff).await?;
        sight.shutdown = Shutdown::Cut(self.moment());
        Ok(())
    }

    /// Updates the progress line if the Node was emptied again just before the request to the controller,
    /// because the line then still describes the emptying.
    fn say_asked(&self, machine: &mut MachineHandle, sight: &Sight) {
        if matches!(sight.emptied, Emptied::Yes { again: true, .. }) {
            machine.say(self.ctx, "asking its controller to shut it down");
        }
    }

    async fn leave_on(&self, machine: &mut MachineHandle, sight: &mut Sight) -> Result<(), StepError> {
        let what =
            "it was off, but another client has switched it on since: leaving it on and deleting its Node";
        tracing::warn!(machine = %machine.record().name, "{what}");
        machine.enter(self.ctx, Phase::Deleting, what);
        // Everything that ran on the machine ended when the machine was switched off. A Node that reports
        // again is also deleted, but is not tainted as out of service.
        self.forget_node(machine, Off::Gone).await?;
        sight.cleared = Cleared::Node;
        Ok(())
    }

    /// Deletes the machine's Node, even if no watch has shown it yet, but never another Node with the same
    /// name.
    async fn forget_node(&self, machine: &mut MachineHandle, off: Off) -> Result<(), StepError> {
        let limit = self.ctx.config.limits.destroy;
        let found = retry_until!(limit, machine.seed(), self.own_node(machine.record()).await).await?;
        if let Some(node) = found {
            node_deletion::delete_node(self.ctx, machine, (&node.name, &node.uid), off).await?;
        }
        Ok(())
    }

    pub(super) fn client(&self) -> Result<&Client, StepError> {
        let what = || "its controller's address was not looked up".to_owned();
        self.client.as_ref().ok_or_else(|| StepError::Failed { what: what(), blame: BackoffTarget::Other })
    }

    pub(super) fn moment(&self) -> Moment {
        self.began.elapsed()
    }
}

/// Interprets a failed request to switch a machine on. A controller that is busy with another client's
/// request refuses or does not answer, and is asked again later.
fn failed(error: redfish::Error) -> Answer {
    if error.may_have_asked() {
        return Answer::Asked;
    }
    let trouble = StepError::Redfish(error.clone());
    if !trouble.passes() {
        return Answer::Never(error);
    }
    tracing::debug!(error = %trouble, "asking a machine's controller again");
    Answer::NotNow
}
