//! Commands in a machine's guest. They run as root there, and a VMID alone proves nothing: before each, the
//! VM says whose it is.

use secrecy::SecretString;

use super::context::Context;
use super::ownership::ours;
use super::step_error::StepError;
use model::Record;
use proxmox::{Error, Kind};

/// Starts a command in the guest of a VM that has just proved to be the record's: its process id there.
pub(super) async fn exec(
    ctx: &Context,
    record: &Record,
    command: &[&str],
    input: Option<&SecretString>,
) -> Result<i64, StepError> {
    // Others wait for theirs for minutes while a silent agent holds the lane.
    let placed = ctx.proxmox.in_line_for_agent(&record.host).await;
    ours(ctx, record).await?;
    Ok(placed.agent_exec(&record.host, record.slot.vmid, command, input).await?)
}

/// Whether asking again within the limit of a step is no use: what stands in the way does not pass by itself.
/// Anything else may, and says nothing of a command, which goes on in the guest meanwhile.
pub(super) fn is_for_good(trouble: &StepError) -> bool {
    match trouble {
        StepError::Proxmox(error) => refuses_for_good(error),
        _ => true,
    }
}

fn refuses_for_good(error: &Error) -> bool {
    match error.kind {
        Kind::Forbidden | Kind::BadRequest | Kind::NotFound => true,
        // The VM was stopped, or its agent taken away.
        Kind::Other => error.text.contains("is not running") || error.text.contains("agent configured"),
        _ => false,
    }
}
