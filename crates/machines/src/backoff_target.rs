//! Determines whether a host or an entire pool backs off after a failed creation. If a storage was full, this
//! depends on whether the storage is shared.

use std::collections::BTreeSet;

use super::context::Context;
use super::machine_handle::MachineHandle;
use super::step_error::{BackoffTarget, StepError};
use model::Record;
use model::machine::STORED_ON;
use proxmox::Meaning;
use settings::{CloudInit, Pool};

/// Determines what backs off after this failure. If a storage is full and all of the machine's storages are
/// shared, creation would also fail on the other hosts. In this case, the entire pool backs off, so that the
/// creation does not have to fail on every host first.
pub(super) async fn find(ctx: &Context, machine: &MachineHandle, trouble: &StepError) -> BackoffTarget {
    let blame = trouble.blame();
    match trouble {
        StepError::Proxmox(error) if error.meaning() == Some(Meaning::Full) => {
            of_full_storage(ctx, machine.record()).await.unwrap_or(blame)
        }
        _ => blame,
    }
}

/// Determines what backs off if one of the machine's storages is full. The error does not name the storage,
/// so all of them are considered. Returns `None` if the storages cannot be listed.
async fn of_full_storage(ctx: &Context, record: &Record) -> Option<BackoffTarget> {
    let pool = ctx.config.pools.iter().find(|pool| pool.name == record.pool);
    let seen = ctx.proxmox.resources().await.ok()?;
    let is_shared = |name: &str| {
        let mut rows = seen.storages.iter().filter(|storage| storage.name == name).peekable();
        rows.peek().is_some() && rows.all(|storage| storage.size.shared)
    };
    Some(target(storages(record, pool).into_iter().map(is_shared)))
}

/// The storages of the machine's disks and of its cloud-init seed.
fn storages<'a>(record: &'a Record, pool: Option<&'a Pool>) -> BTreeSet<&'a str> {
    let mut all: BTreeSet<&str> = match record.made_of.get(STORED_ON) {
        Some(chosen) => BTreeSet::from([chosen.as_str()]),
        None => record.storages.iter().map(String::as_str).collect(),
    };
    all.extend(pool.into_iter().flat_map(|pool| &pool.extra_disks).map(|disk| disk.storage.as_str()));
    if let Some(CloudInit::Seed(seed)) = pool.map(|pool| &pool.cloud_init) {
        all.insert(&seed.storage);
    }
    all
}

/// Determines what backs off. `shared` contains, for each storage, whether it is shared. If only some
/// storages are shared, the host backs off first. Only a second host with the same failure proves that a
/// shared storage is full.
fn target(shared: impl Iterator<Item = bool>) -> BackoffTarget {
    let all: BTreeSet<bool> = shared.collect();
    match (all.contains(&true), all.contains(&false)) {
        (true, false) => BackoffTarget::Pool,
        (true, true) => BackoffTarget::HostOrPool,
        (false, _) => BackoffTarget::Host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use settings::Needs;

    #[test]
    fn a_full_storage_is_the_pools_fault_only_if_no_storage_of_a_machine_is_a_hosts_own() {
        let extra = "extra_disks = [{ device = \"scsi1\", size = \"8GiB\", storage = \"STORAGE\" }]\n";
        let seed =
            "[pool.cloud_init]\nmethod = \"seed\"\nstorage = \"STORAGE\"\nuser_data = \"#cloud-config\"\n";
        for (clone, more, expected) in [
            ("nfs", String::new(), BackoffTarget::Pool),
            ("local", String::new(), BackoffTarget::Host),
            ("nfs", extra.replace("STORAGE", "nfs"), BackoffTarget::Pool),
            ("nfs", extra.replace("STORAGE", "local"), BackoffTarget::HostOrPool),
            ("local", extra.replace("STORAGE", "nfs"), BackoffTarget::HostOrPool),
            ("local", extra.replace("STORAGE", "local"), BackoffTarget::Host),
            ("nfs", seed.replace("STORAGE", "local"), BackoffTarget::HostOrPool),
        ] {
            let text = format!("[[pool]]\nname = \"workers\"\nmax = 1\ncores = 2\nmemory = \"4GiB\"\n{more}");
            let config = settings::parse("c.toml", &text, Needs::Plan).unwrap();
            let stored = (STORED_ON.to_owned(), clone.to_owned());
            for record in [
                Record { made_of: [stored].into(), ..Record::example() },
                Record { storages: [clone.to_owned()].into(), ..Record::example() },
            ] {
                let all = storages(&record, config.pools.first());
                let found = target(all.into_iter().map(|storage| storage == "nfs"));
                assert_eq!(found, expected, "{clone}, {more}");
            }
        }
    }
}
