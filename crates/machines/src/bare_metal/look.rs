//! Queries a bare-metal machine's controller and, bypassing the watches, its Node.

use super::node::is_its;
use super::perform::Performer;
use super::sight::{Power, Sight, Stopping};
use super::step::Look;
use crate::drain;
use crate::machine_handle::MachineHandle;
use crate::node::is_silent;
use crate::step_error::{BackoffTarget, StepError};
use model::Record;
use model::node::Node;
use proxmox::redfish::{self, Client};

impl Performer<'_> {
    /// Carries out a query, and notes the result in `sight`.
    ///
    /// # Errors
    /// Returns an error if the query failed.
    pub(super) async fn look(
        &mut self,
        machine: &mut MachineHandle,
        sight: &mut Sight,
        what: Look,
    ) -> Result<(), StepError> {
        let record = machine.record();
        match what {
            Look::Controller => {
                self.client = Some(self.controller(record)?);
                sight.has_controller = true;
            }
            Look::Power => {
                machine.say(self.ctx, "reading its power state");
                let seen = self.client()?.look().await?;
                sight.power = Some(self.power(Some(seen)));
            }
            Look::IsOn => {
                let seen = unless_it_passes(self.client()?.look().await)?;
                sight.power = Some(self.power(seen));
            }
            Look::IsOff => {
                let seen = self.client()?.look().await.ok();
                sight.power = Some(self.power(seen));
            }
            Look::Instead => {
                let seen = self.client()?.power().await;
                sight.instead = Some(seen.map_err(|error| error.to_string()));
            }
            Look::Namesake => {
                sight.namesake = Some(self.ctx.kubernetes.get_node(&record.name).await?.is_some());
            }
            Look::Heard => {
                let node = self.own_node(record).await?;
                sight.heard = Some(node.is_some_and(|node| !is_silent(&node)));
            }
            Look::Node => {
                let node = self.own_node(record).await?;
                sight.saw_node(self.moment(), node);
            }
            Look::Pin => {
                let node = self.own_node(record).await?.filter(|node| !node.system_uuid.is_empty());
                sight.stopping = node.map_or(Stopping::Free, pinned);
            }
        }
        Ok(())
    }

    fn power(&self, seen: Option<redfish::SystemState>) -> Power {
        let (state, uuid) = seen.map_or((None, None), |seen| (Some(seen.power), seen.uuid));
        Power { at: self.moment(), state, uuid }
    }

    /// The machine's own Node in its current state; `None` if there is none.
    pub(super) async fn own_node(&self, record: &Record) -> Result<Option<Node>, StepError> {
        let found = self.ctx.kubernetes.get_node(&record.name).await?;
        Ok(found.filter(|node| is_its(record, node)))
    }

    /// A client for the machine's controller. The fence checks each request that changes the power.
    fn controller(&self, record: &Record) -> Result<Client, StepError> {
        let pool = self.ctx.config.pools.iter().find(|pool| pool.name == record.pool);
        let Some(own) = pool.and_then(|pool| pool.physical(&record.name)) else {
            let what = format!(
                "machine `{}` is no longer in the configuration of pool `{}`, so its controller's address \
                 is unknown",
                record.name, record.pool
            );
            return Err(StepError::Failed { what, blame: BackoffTarget::Other });
        };
        match (self.ctx.controllers)(&own.redfish) {
            Ok(client) => Ok(client.fenced(&self.ctx.fence)),
            Err(what) => Err(StepError::Failed { what, blame: BackoffTarget::Host }),
        }
    }
}

/// Returns the controller's answer, or `None` after a temporary failure, for example if the controller is
/// busy.
fn unless_it_passes(
    seen: Result<redfish::SystemState, redfish::Error>,
) -> Result<Option<redfish::SystemState>, StepError> {
    match seen.map_err(StepError::Redfish) {
        Ok(seen) => Ok(Some(seen)),
        Err(trouble) if trouble.passes() => {
            tracing::debug!(error = %trouble, "asking a machine's controller again");
            Ok(None)
        }
        Err(trouble) => Err(trouble),
    }
}

fn pinned(node: Node) -> Stopping {
    match drain::kept(&node) {
        Some(why) => Stopping::Pinned(node.into(), why),
        None => Stopping::Free,
    }
}
