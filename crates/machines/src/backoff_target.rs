//! Who is left alone after a machine could not be made, if that depends on what there is.

use super::context::Context;
use super::machine_handle::MachineHandle;
use super::step_error::{BackoffTarget, StepError};
use model::machine::STORED_ON;
use proxmox::Meaning;

/// Who is left alone after this. A storage that is full is so for each host that uses it: of one that all
/// hosts share, the whole pool is left alone, so that not each of them has to fail.
pub(super) async fn find(ctx: &Context, machine: &MachineHandle, trouble: &StepError) -> BackoffTarget {
    let blame = trouble.blame();
    match trouble {
        StepError::Proxmox(error) if error.meaning() == Some(Meaning::Full) => {
            if on_shared(ctx, machine).await { BackoffTarget::Pool } else { blame }
        }
        _ => blame,
    }
}

/// Whether all that a machine's disks are on is shared, as far as the list shows it.
async fn on_shared(ctx: &Context, machine: &MachineHandle) -> bool {
    let record = machine.record();
    let chosen = record.made_of.get(STORED_ON);
    let names: Vec<&String> =
        if chosen.is_some() { chosen.into_iter().collect() } else { record.storages.iter().collect() };
    let Ok(seen) = ctx.proxmox.resources().await else { return false };
    let is_shared = |name: &&String| {
        let mut rows = seen.storages.iter().filter(|storage| storage.name == **name).peekable();
        rows.peek().is_some() && rows.all(|storage| storage.size.shared)
    };
    !names.is_empty() && names.iter().all(is_shared)
}
