//! Runs commands in a machine's guest. They run as root in the guest, and a VMID alone proves nothing, so the
//! VM's owner is verified before each command.

use secrecy::SecretString;

use super::context::Context;
use super::ownership::ours;
use super::step_error::StepError;
use model::Record;
use proxmox::{Error, Kind};

/// Proves that the VM belongs to the record, then starts a command in its guest. Returns the command's
/// process id in the guest.
pub(super) async fn exec(
    ctx: &Context,
    record: &Record,
    command: &[&str],
    input: Option<&SecretString>,
) -> Result<i64, StepError> {
    // A silent agent can block the queue for minutes. So the call first waits for its place in the queue, and
    // the VM's owner is verified after that. Otherwise, the proof would be outdated when the call is sent.
    let placed = ctx.proxmox.in_line_for_agent(&record.host).await;
    ours(ctx, record).await?;
    Ok(placed.agent_exec(&record.host, record.slot.vmid, command, input).await?)
}

/// Whether the error is permanent: its cause will not go away by itself, so retries within a step's limit are
/// useless. After any other error, a retry may succeed, and the command may still be running in the guest.
pub(super) fn is_for_good(trouble: &StepError) -> bool {
    match trouble {
        StepError::Proxmox(error) => refuses_for_good(error),
        _ => true,
    }
}

fn refuses_for_good(error: &Error) -> bool {
    match error.kind {
        Kind::Forbidden | Kind::BadRequest | Kind::NotFound => true,
        // The VM was stopped, or its agent was disabled.
        Kind::Other => error.text.contains("is not running") || error.text.contains("agent configured"),
        _ => false,
    }
}
