//! Reserves CPUs for a machine before its first start. This module only requests the CPUs and waits for them.
//! In the meantime, the daemon on the machine's host asks the pinning helper there to pin the VM.

use std::time::Duration;

use super::context::Context;
use super::machine_handle::MachineHandle;
use super::ownership::ours;
use super::step_error::{BackoffTarget, StepError, retry_until, time_text};
use model::machine::Pinned;
use model::{MachineKind, Record};
use pinning::{Cpus, ENABLE, NO_AFFINITY};
use proxmox::VmConfig;
use settings::{Pinning, Pool};

/// The time between two checks of the VM's configuration.
const LOOK: Duration = Duration::from_secs(1);

/// Waits until the machine has its own CPUs, if its pool requires them.
pub(super) async fn settle(ctx: &Context, machine: &mut MachineHandle, pool: &Pool) -> Result<(), StepError> {
    let Some(pinning) = &pool.pinning else {
        // The pool may have required pinning when the machine was requested, but it does not require pinning
        // now.
        return machine.change(ctx, |record| record.pinned = None).await;
    };
    if machine.record().pinned == Some(Pinned::Done) {
        return Ok(());
    }
    if machine.record().pinned.is_none() {
        not_inherited(ctx, machine).await?;
        machine.change(ctx, |record| record.pinned = Some(Pinned::Awaited)).await?;
    }
    let host = machine.record().host.clone();
    machine.say(ctx, &format!("waiting for the helper on {host} to assign it dedicated CPUs"));
    let limit = ctx.config.limits.pinning;
    let seen = tokio::time::timeout(limit, seen(ctx, machine, pinning)).await;
    seen.unwrap_or_else(|_| Err(unanswered(&host, limit)))?;
    machine.change(ctx, |record| record.pinned = Some(Pinned::Done)).await
}

/// Returns an error if the VM has inherited an `affinity` from its template: all clones would share the same
/// CPUs, and the option cannot be distinguished from one that was set for the machine.
async fn not_inherited(ctx: &Context, machine: &MachineHandle) -> Result<(), StepError> {
    let record = machine.record();
    // A machine without a template inherits nothing.
    let MachineKind::Clone(template) = record.kind() else { return Ok(()) };
    let config = retry_until!(ctx.config.limits.configure, machine.seed(), ours(ctx, record).await).await?;
    if config.get("affinity").is_none() {
        return Ok(());
    }
    Err(StepError::pool(format!(
        "its template is itself pinned to CPUs (`affinity`); to fix it: qm set {} --delete affinity, as root \
         on {}",
        template, record.template_host
    )))
}

async fn seen(ctx: &Context, machine: &MachineHandle, pinning: &Pinning) -> Result<(), StepError> {
    let record = machine.record();
    loop {
        match ours(ctx, record).await {
            Ok(config) if is_pinned(pinning, record, &config) => return Ok(()),
            Ok(_) => {}
            Err(trouble) if trouble.passes() => {}
            Err(trouble) => return Err(trouble),
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Returns the error for a machine to which the helper has not assigned CPUs in time. Only the log on the
/// machine's host shows why.
fn unanswered(host: &str, limit: Duration) -> StepError {
    let what = format!(
        "the helper on {host} did not assign it dedicated CPUs within {}; a daemon must run on that \
            host with its helper enabled: {ENABLE} (as root on {host}); if the helper refuses, \
            `journalctl -u pve-autoscaler` and `pve-autoscaler check` on the host show why",
        time_text(limit)
    );
    StepError::Failed { what, blame: BackoffTarget::Host }
}

/// Whether the VM has the CPUs, huge pages and NUMA nodes that its pool requires.
fn is_pinned(pinning: &Pinning, record: &Record, config: &VmConfig) -> bool {
    let affinity = config.get("affinity").filter(|text| *text != NO_AFFINITY);
    let cpus = affinity.and_then(|text| text.parse::<Cpus>().ok());
    if cpus.is_none_or(|cpus| cpus.len() < record.cores as usize) {
        return false;
    }
    let pages = pinning.hugepages.map(|page| page.mib().to_string());
    if pages.as_deref().is_some_and(|pages| config.get("hugepages") != Some(pages)) {
        return false;
    }
    !pinning.numa || (config.get("numa") == Some("1") && bound(config) == record.memory >> 20)
}

/// The memory that is bound to NUMA nodes, in MiB. Proxmox VE does not start a VM if only a part of its
/// memory is bound.
fn bound(config: &VmConfig) -> i64 {
    let nodes = config
        .all()
        .filter(|(key, _)| key.strip_prefix("numa").is_some_and(|number| number.parse::<u8>().is_ok()));
    let memory =
        |value: &str| value.split(',').find_map(|part| part.strip_prefix("memory=")?.parse::<i64>().ok());
    nodes.filter_map(|(_, value)| memory(value)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use settings::HugePages;

    #[test]
    fn a_machine_is_pinned_once_all_of_it_is_there() {
        let all = [
            ("affinity", "1,5"),
            ("hugepages", "2"),
            ("numa", "1"),
            ("numa0", "cpus=0,hostnodes=0,memory=1024,policy=bind"),
            ("numa1", "cpus=1,hostnodes=1,memory=1024,policy=bind"),
        ];
        let record: Record = serde_json::from_value(serde_json::json!({
            "id": "m", "pool": "w", "name": "w-1", "slot": { "vmid": 9100 }, "host": "pve1", "template": 9000, "templateHost": "pve1",
            "cores": 2, "memory": 2_u64 << 30, "intent": { "kind": "create" }, "created": "2026-01-01T00:00:00Z",
        }))
        .unwrap();
        let numa = Pinning { numa: true, hugepages: Some(HugePages::TwoMib), reserve: 1 };
        let plain = Pinning { numa: false, hugepages: None, reserve: 1 };
        let config = |without: &str| -> VmConfig {
            let rest = all.iter().filter(|(key, _)| *key != without);
            rest.map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        for (without, with_numa, without_numa) in [
            ("", true, true),
            ("affinity", false, false),
            ("hugepages", false, true),
            ("numa", false, true),
            ("numa1", false, true),
        ] {
            let config = config(without);
            assert_eq!(is_pinned(&numa, &record, &config), with_numa, "{without}");
            assert_eq!(is_pinned(&plain, &record, &config), without_numa, "{without}");
        }
        let larger = Record { cores: 3, ..record };
        assert!(!is_pinned(&plain, &larger, &config("")), "too few CPUs");
    }
}
