//! What backs off after a failed creation. If a storage was full, this depends on whether it is shared.

use super::context::Context;
use super::machine_handle::MachineHandle;
use super::step_error::{BackoffTarget, StepError};
use model::machine::STORED_ON;
use proxmox::Meaning;

/// What backs off after this failure. If a storage is full, and all storages of the machine are shared, the
/// same would happen on the other hosts: the entire pool backs off, so that not every host has to fail first.
pub(super) async fn find(ctx: &Context, machine: &MachineHandle, trouble: &StepError) -> BackoffTarget {
    let blame = trouble.blame();
    match trouble {
        StepError::Proxmox(error) if error.meaning() == Some(Meaning::Full) => {
            if on_shared(ctx, machine).await { BackoffTarget::Pool } else { blame }
        }
        _ => blame,
    }
}

/// Whether all storages of the machine's disks are shared. `false` if the storages cannot be listed.
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
