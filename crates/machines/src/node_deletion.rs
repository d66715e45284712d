//! Deletes a machine's Node, but never another Node with the same name.

use super::context::Context;
use super::machine_handle::MachineHandle;
use super::out_of_service::{self, Off};
use super::step_error::{StepError, retry_until};

/// Deletes the Node with this name and uid, after releasing its volumes if the machine is off. Returns false
/// if another Node has the name.
pub(super) async fn delete_node(
    ctx: &Context,
    machine: &mut MachineHandle,
    (name, uid): (&str, &str),
    off: Off,
) -> Result<bool, StepError> {
    out_of_service::release(ctx, machine, (name, uid), off).await?;
    retry_until!(
        ctx.config.limits.destroy,
        machine.seed(),
        match ctx.kubernetes.delete_node(name, uid).await {
            Err(error) if error.kind() == kubernetes::ErrorKind::Conflict => Ok(false),
            Err(error) => Err(error.into()),
            Ok(()) => Ok(true),
        }
    )
    .await
}
