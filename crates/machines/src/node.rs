//! A machine's Node, which is found by its SMBIOS uuid. Missing labels and taints are added, and the Node is
//! opened for pods once it is ready.

use std::sync::Arc;

use super::context::Context;
use super::machine_handle::MachineHandle;
use super::step_error::{StepError, retry_until};
use super::{bare_metal, bootstrap_tokens};
use kubernetes::Watches;
use model::Record;
use model::machine::Phase;
use model::node::Node;
use model::selector::Labels;
use model::snapshot::{POOL_LABEL, STARTING_TAINT};
use settings::own_labels::starting_taint;
use settings::{Pool, ZoneLabels};

/// The machine's Node, if the watches show it.
pub(super) fn find(ctx: &Context, record: &Record) -> Option<Arc<Node>> {
    seen(&ctx.watches, record)
}

/// The machine's Node according to these watches, if it exists.
pub fn seen(watches: &Watches, record: &Record) -> Option<Arc<Node>> {
    if record.is_physical() {
        return bare_metal::node::seen(watches, record);
    }
    let uuid = record.smbios_uuid.as_deref()?;
    let named = watches.node(&record.name).filter(|node| node.system_uuid == uuid);
    named.or_else(|| watches.node_by_system_uuid(uuid))
}

/// Waits until the condition returns a value. The condition is checked immediately, and whenever something in
/// the cluster changes.
pub(super) async fn until<T>(ctx: &Context, mut condition: impl FnMut() -> Option<T>) -> T {
    let mut changed = ctx.watches.changed();
    loop {
        changed.mark_unchanged();
        if let Some(found) = condition() {
            return found;
        }
        changed.changed().await;
    }
}

/// Waits for the Node, adds missing labels and taints, and waits until the Node is ready. Labels and taints
/// may be missing because kubeadm only warns about unknown settings.
pub(super) async fn settle(ctx: &Context, machine: &mut MachineHandle, pool: &Pool) -> Result<(), StepError> {
    let limits = &ctx.config.limits;
    let blame = machine.blame();
    let late = |what: &str, limit| StepError::Limit { what: what.to_owned(), limit, blame: blame.clone() };
    let record = machine.record().clone();
    let found = tokio::time::timeout(limits.registered, until(ctx, || find(ctx, &record))).await;
    let node = found.map_err(|_| late("the Node's registration", limits.registered))?;
    machine.node = Some(node.name.clone());
    machine.enter(ctx, Phase::Registered, "the Node is not ready yet");
    read_back(ctx, machine, pool, &node).await?;
    let ready =
        tokio::time::timeout(limits.ready, until(ctx, || find(ctx, &record).filter(|node| is_ready(node))));
    let node = ready.await.map_err(|_| late("the Node's readiness", limits.ready))?;
    serve(ctx, machine, &node).await?;
    machine.enter(ctx, Phase::Ready, "");
    machine.save(ctx).await
}

/// Completes the creation of a machine whose Node is ready: opens the Node for pods and deletes the bootstrap
/// tokens. The changes to the record are stored the next time the record is saved.
pub(super) async fn serve(ctx: &Context, machine: &mut MachineHandle, node: &Node) -> Result<(), StepError> {
    if let Some(pool) = ctx.config.pools.iter().find(|pool| pool.name == machine.record().pool) {
        open(ctx, machine, pool, node).await?;
    }
    bootstrap_tokens::delete_all(ctx, machine, ctx.config.limits.ready).await?;
    machine.stored.record.token_id = None;
    machine.stored.record.old_token_ids.clear();
    machine.stored.record.node_uid = Some(node.uid.clone());
    Ok(())
}

/// Whether the Node of a machine in service is incomplete: it was deleted and has registered again, still has
/// the start-up taint, or lacks the pool's label. If the Node is not ready, only the label is checked,
/// because every Node is given time to become ready again.
pub fn is_bare(record: &Record, node: &Node) -> bool {
    let registered_again = || record.node_uid.as_ref().is_some_and(|uid| *uid != node.uid);
    let starting = || node.taints.iter().any(|taint| taint.key == STARTING_TAINT);
    node.labels.get(POOL_LABEL).is_none_or(|pool| *pool != record.pool)
        || (is_ready(node) && (registered_again() || starting()))
}

/// Adds the labels and taints that an incomplete Node ([`is_bare`]) lacks. If the Node is ready, also opens
/// it for pods and records its uid.
pub(super) async fn restore(ctx: &Context, machine: &mut MachineHandle) -> Result<(), StepError> {
    let record = machine.record().clone();
    let pool = ctx.config.pools.iter().find(|pool| pool.name == record.pool);
    let (Some(pool), Some(node)) = (pool, find(ctx, &record)) else { return Ok(()) };
    tracing::info!(machine = %record.name, node = %node.name, "adding the labels and taints that the Node lacks");
    machine.node = Some(node.name.clone());
    if !is_ready(&node) {
        return read_back(ctx, machine, pool, &node).await;
    }
    open(ctx, machine, pool, &node).await?;
    machine.stored.record.node_uid = Some(node.uid.clone());
    machine.save(ctx).await
}

/// Whether the kubelet reports that the Node is ready.
pub fn is_ready(node: &Node) -> bool {
    node.conditions.iter().any(|one| one.kind == "Ready" && one.status == "True")
}

/// Whether the kubelet has stopped reporting: the Node's readiness is `Unknown`. A kubelet that reports that
/// the Node is not ready is still running.
pub fn is_silent(node: &Node) -> bool {
    node.conditions.iter().any(|one| one.kind == "Ready" && one.status == "Unknown")
}

/// Adds the pool's labels and taints that the Node lacks.
async fn read_back(
    ctx: &Context,
    machine: &MachineHandle,
    pool: &Pool,
    node: &Node,
) -> Result<(), StepError> {
    let mut missing = missing_labels(&wanted_labels(machine.record(), pool), node);
    if pool.zone_labels == ZoneLabels::Birth && !machine.record().left_hosts.is_empty() {
        // Labels that name the place where the machine was created are kept.
        missing.retain(|key, _| !astray(machine.record(), pool, node).contains_key(key));
    }
    let limit = ctx.config.limits.ready;
    if !missing.is_empty() {
        retry_until!(limit, machine.seed(), Ok(ctx.kubernetes.set_labels(&node.name, &missing).await?))
            .await?;
    }
    for taint in &pool.taints {
        let there = node
            .taints
            .iter()
            .any(|one| (&one.key, &one.value, one.effect) == (&taint.key, &taint.value, taint.effect));
        if !there {
            retry_until!(limit, machine.seed(), Ok(ctx.kubernetes.add_taint(&node.name, taint).await?))
                .await?;
        }
    }
    Ok(())
}

/// Opens the node for pods: adds missing labels, taints and annotations (a restarted kubelet may have removed
/// labels), then removes the start-up taint.
async fn open(ctx: &Context, machine: &MachineHandle, pool: &Pool, node: &Node) -> Result<(), StepError> {
    read_back(ctx, machine, pool, node).await?;
    let record = machine.record();
    for (key, value) in pool.annotations_for(&record.host, &record.name, record.slot.vmid) {
        let write = || ctx.kubernetes.annotate_node(&node.name, &key, Some(&value));
        retry_until!(ctx.config.limits.ready, machine.seed(), Ok(write().await?)).await?;
    }
    let taint = starting_taint();
    if node.taints.iter().any(|one| one.key == taint.key) {
        let limit = ctx.config.limits.ready;
        retry_until!(limit, machine.seed(), Ok(ctx.kubernetes.remove_taint(&node.name, &taint).await?))
            .await?;
    }
    Ok(())
}

/// The labels of a machine's Node that do not match the place of its VM, each with the value that would
/// match.
pub fn astray(record: &Record, pool: &Pool, node: &Node) -> Labels {
    let mut there = pool.labels_of_place(&record.host, &record.name, record.slot.vmid);
    there.retain(|key, value| node.labels.get(key).is_some_and(|says| says != value));
    there
}

/// The labels that a machine's Node must have.
pub(super) fn wanted_labels(record: &Record, pool: &Pool) -> Labels {
    let mut labels = pool.labels_for(&record.host, &record.name, record.slot.vmid);
    labels.insert(POOL_LABEL.to_owned(), pool.name.to_string());
    labels
}

pub(super) fn missing_labels(wanted: &Labels, node: &Node) -> Labels {
    let lacks = |key: &String, value: &String| node.labels.get(key) != Some(value);
    wanted
        .iter()
        .filter(|(key, value)| lacks(key, value))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}
