//! Configures a machine's firewall as its pool requires, before the machine's first start. Other firewall
//! settings from the template are kept.

use std::collections::BTreeSet;

use tokio::time::Instant;

use super::context::Context;
use super::machine_handle::MachineHandle;
use super::ownership::{ours, still_ours};
use super::step_error::{BackoffTarget, StepError, retry_until};
use model::Record;
use proxmox::Kind;
use settings::{Pool, Security};

/// The IP set that lists the addresses that the first device may use. Proxmox VE recognizes it by this name.
const OWN_ADDRESSES: &str = "ipfilter-net0";

/// Configures the firewall as the pool requires. Each part is read first, and only what is missing is
/// written. At the end, everything is read again for verification.
pub(super) async fn apply(ctx: &Context, machine: &MachineHandle, pool: &Pool) -> Result<(), StepError> {
    let Some(wanted) = &pool.security else { return Ok(()) };
    let record = machine.record();
    retry_until!(ctx.config.limits.configure, machine.seed(), {
        let asked = Instant::now();
        ours(ctx, record).await?;
        options(ctx, record, wanted, asked).await?;
        groups(ctx, record, wanted, asked).await?;
        if wanted.ip_filter {
            addresses(ctx, record, asked).await?;
        }
        read_back(ctx, record, wanted).await
    })
    .await
}

fn as_set(wanted: &Security) -> [(&'static str, String); 4] {
    [
        ("enable", "1".to_owned()),
        ("policy_in", wanted.policy_in.word().to_owned()),
        ("policy_out", wanted.policy_out.word().to_owned()),
        ("macfilter", u8::from(wanted.mac_filter).to_string()),
    ]
}

/// The required options that the VM does not have yet.
async fn differing(
    ctx: &Context,
    record: &Record,
    wanted: &Security,
) -> Result<Vec<(&'static str, String)>, StepError> {
    let present = ctx.proxmox.firewall_options(&record.host, record.slot.vmid).await?;
    Ok(as_set(wanted).into_iter().filter(|(key, value)| present.get(*key) != Some(value)).collect())
}

async fn options(ctx: &Context, record: &Record, wanted: &Security, asked: Instant) -> Result<(), StepError> {
    let change = differing(ctx, record, wanted).await?;
    if !change.is_empty() {
        let placed = still_ours(ctx, record, asked).await?;
        placed.set_firewall_options(&record.host, record.slot.vmid, &change).await?;
    }
    Ok(())
}

/// Adds the missing security groups. Proxmox VE inserts a new rule before all others, so the last group is
/// added first to keep the pool's order.
async fn groups(ctx: &Context, record: &Record, wanted: &Security, asked: Instant) -> Result<(), StepError> {
    let (host, vmid) = (&record.host, record.slot.vmid);
    let present = ctx.proxmox.security_groups_of(host, vmid).await?;
    for group in wanted.groups.iter().rev().filter(|group| !present.contains(*group)) {
        let added = still_ours(ctx, record, asked).await?.add_security_group(host, vmid, group).await;
        added.map_err(|error| match error.kind {
            Kind::BadRequest => StepError::Failed {
                what: format!("the security group `{group}` cannot be used: {}", error.text),
                blame: BackoffTarget::Pool,
            },
            _ => error.into(),
        })?;
    }
    Ok(())
}

/// Makes the IP set contain exactly the first device's own addresses. The template's addresses belong to
/// another machine.
async fn addresses(ctx: &Context, record: &Record, asked: Instant) -> Result<(), StepError> {
    let (host, vmid) = (&record.host, record.slot.vmid);
    let own = own_addresses(record);
    let present = ctx.proxmox.ip_set(host, vmid, OWN_ADDRESSES).await?;
    if present.is_none() {
        still_ours(ctx, record, asked).await?.create_ip_set(host, vmid, OWN_ADDRESSES).await?;
    }
    let present = present.unwrap_or_default();
    for address in own.iter().filter(|own| !present.iter().any(|there| alone(there) == own.as_str())) {
        still_ours(ctx, record, asked).await?.add_to_ip_set(host, vmid, OWN_ADDRESSES, address).await?;
    }
    for there in present.iter().filter(|there| !own.contains(alone(there))) {
        still_ours(ctx, record, asked).await?.remove_from_ip_set(host, vmid, OWN_ADDRESSES, there).await?;
    }
    Ok(())
}

/// Removes the prefix length of a single-address network (`/32`, `/128`).
fn alone(cidr: &str) -> &str {
    cidr.strip_suffix("/32").or_else(|| cidr.strip_suffix("/128")).unwrap_or(cidr)
}

fn own_addresses(record: &Record) -> BTreeSet<String> {
    let six = record.slot.further.get("net0/ip6");
    record.slot.address.iter().chain(six).map(ToString::to_string).collect()
}

async fn read_back(ctx: &Context, record: &Record, wanted: &Security) -> Result<(), StepError> {
    let (host, vmid) = (&record.host, record.slot.vmid);
    let mut differs: Vec<String> =
        differing(ctx, record, wanted).await?.into_iter().map(|(key, _)| key.to_owned()).collect();
    let groups = ctx.proxmox.security_groups_of(host, vmid).await?;
    differs.extend(wanted.groups.iter().filter(|group| !groups.contains(*group)).cloned());
    if wanted.ip_filter {
        let present = ctx.proxmox.ip_set(host, vmid, OWN_ADDRESSES).await?.unwrap_or_default();
        if present.iter().map(|there| alone(there)).ne(own_addresses(record).iter().map(String::as_str)) {
            differs.push(OWN_ADDRESSES.to_owned());
        }
    }
    if differs.is_empty() {
        return Ok(());
    }
    let what = format!("the firewall settings of VM {vmid} have been changed: {}", differs.join(", "));
    Err(StepError::Failed { what, blame: BackoffTarget::Pool })
}
