//! The image with a machine's NoCloud seed. The image is written for one machine, uploaded before it is
//! attached, and removed with the machine.
//!
//! The image's name contains the machine's unique id, so no other machine uses it. The machine's record names
//! the storage, so the image can be found even if the configuration changes. The image contains the
//! administrator's files, with the machine's facts filled in. It contains no secrets.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use super::context::Context;
use super::desired_vm_config;
use super::machine_handle::MachineHandle;
use super::proxmox_tasks::{self, Job};
use super::seed_image::{DRIVE, file, is_attached, volume};
use super::step_error::{BackoffTarget, StepError, retry_until};
use bootstrap::iso;
use model::Record;
use proxmox::property::Properties;
use proxmox::{ClusterResources, Kind, VmConfig};
use settings::{CloudInit, MachineFacts, Pool, Seed};

/// The volume label by which cloud-init finds the image.
const LABEL: &str = "cidata";
const UPLOAD: Job = Job { name: "the seed upload", guess: Duration::from_millis(200) };
/// The key in a record's `made_of` whose value is `drive` or `seed STORAGE DIGEST`.
const MADE_OF: &str = "cloud_init";

/// Makes sure that the machine's seed is on its storage, if the pool has seeds.
///
/// # Errors
/// Returns an error if the upload failed, or if the pool's seed differs from the recorded one: a seed that is
/// not recorded would not be removed with the machine.
pub(super) async fn provide(
    ctx: &Context,
    machine: &MachineHandle,
    pool: &Pool,
    config: &VmConfig,
) -> Result<(), StepError> {
    let CloudInit::Seed(seed) = &pool.cloud_init else { return Ok(()) };
    let record = machine.record();
    if is_attached(&seed.storage, record, config) {
        return Ok(());
    }
    if record.made_of.get(MADE_OF) != pool.made_of().get(MADE_OF) {
        let what = "its pool's `cloud_init` was changed while the machine was being created".to_owned();
        return Err(StepError::Failed { what, blame: BackoffTarget::Other });
    }
    upload(ctx, machine, pool, seed, config).await
}

/// Writes and uploads the seed. If the machine already has a seed, it is overwritten with the same content.
async fn upload(
    ctx: &Context,
    machine: &MachineHandle,
    pool: &Pool,
    seed: &Seed,
    config: &VmConfig,
) -> Result<(), StepError> {
    let record = machine.record();
    let image = image(&ctx.config.cluster, record, pool, seed, config)?;
    let limit = ctx.config.limits.configure;
    retry_until!(limit, machine.seed(), {
        let upid = ctx.proxmox.upload_iso(&record.host, &seed.storage, &file(record), &image).await?;
        proxmox_tasks::succeed(ctx, UPLOAD, &upid, limit).await
    })
    .await
}

/// Builds the image with the machine's seed. If a file cannot be filled in, the error is attributed to the
/// pool.
fn image(
    cluster: &str,
    record: &Record,
    pool: &Pool,
    seed: &Seed,
    config: &VmConfig,
) -> Result<Vec<u8>, StepError> {
    let facts = MachineFacts::new(cluster, record, pool);
    let facts = match mac(config, 0) {
        Some(mac) => facts.with_mac(&mac),
        None => facts,
    };
    let fill = |key: &str, text: &str| {
        let wrong = |error| {
            StepError::pool(format!("the variables in its seed's `{key}` cannot be filled in: {error}"))
        };
        facts.fill(text).map_err(wrong)
    };
    let user = fill("user_data", &seed.user_data)?;
    let meta = fill("meta_data", &seed.meta_data)?;
    let network = match &seed.network_config {
        Some(text) => fill("network_config", text)?,
        None => network(&desired_vm_config::addresses(pool, record), config),
    };
    let files = [
        ("meta-data", meta.as_bytes()),
        ("network-config", network.as_bytes()),
        ("user-data", user.as_bytes()),
        ("vendor-data", &[]),
    ];
    Ok(iso::image(LABEL, &files))
}

/// The MAC of a network device, in lower case.
fn mac(config: &VmConfig, number: usize) -> Option<String> {
    config.net(&format!("net{number}")).1.map(str::to_lowercase)
}

/// The network configuration in the form of Proxmox VE's own drive: version 1, with devices identified by
/// their MACs.
fn network(options: &[(String, String)], config: &VmConfig) -> String {
    let mut text = "version: 1\nconfig:\n".to_owned();
    let mut line = |line: std::fmt::Arguments<'_>| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{line}");
    };
    for (key, value) in options {
        let Some(number) = key.strip_prefix("ipconfig").and_then(|number| number.parse::<usize>().ok())
        else {
            continue;
        };
        line(format_args!("  - type: physical\n    name: eth{number}"));
        if let Some(mac) = mac(config, number) {
            line(format_args!("    mac_address: '{mac}'"));
        }
        line(format_args!("    subnets:"));
        let parts = Properties::of(key, value);
        for (address, gateway, six) in [("ip", "gw", ""), ("ip6", "gw6", "6")] {
            match parts.get(address) {
                None => {}
                Some("dhcp") => {
                    line(format_args!("      - type: dhcp{}", if six.is_empty() { "4" } else { six }));
                }
                Some("auto") => line(format_args!("      - type: ipv6_slaac")),
                Some(own) => {
                    line(format_args!("      - type: static{six}\n        address: '{own}'"));
                    if let Some(gateway) = parts.get(gateway) {
                        line(format_args!("        gateway: '{gateway}'"));
                    }
                }
            }
        }
    }
    let option = |name: &str| options.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
    if let Some(servers) = option("nameserver") {
        line(format_args!("  - type: nameserver\n    address:"));
        for server in servers.split(' ') {
            line(format_args!("      - '{server}'"));
        }
        if let Some(search) = option("searchdomain") {
            line(format_args!("    search:\n      - '{search}'"));
        }
    }
    text
}

/// The storage of a machine's seed, if its pool used seeds when the machine was created.
fn storage(record: &Record) -> Option<&str> {
    record.made_of.get(MADE_OF)?.strip_prefix("seed ")?.split(' ').next()
}

/// The commands that remove a machine's seed. An administrator runs them before dropping the machine's record
/// by hand: without the record, the daemon no longer knows about the seed.
pub(super) fn commands_to_free(record: &Record) -> Vec<String> {
    let Some(volume) = storage(record).map(|storage| volume(storage, record)) else { return Vec::new() };
    let hosts = [&record.host].into_iter().chain(&record.left_hosts);
    hosts.map(|host| command_to_free(host, &volume)).collect()
}

fn command_to_free(host: &str, volume: &str) -> String {
    format!("on {host}: pvesm free {volume}")
}

/// Removes the seed of a machine whose VM is gone, even if the machine's creation was never finished. A seed
/// that may be in another VM's drive is kept, because that VM could not start without it.
///
/// # Errors
/// Returns an error if the token may not remove the seed, so that an administrator has to; if the storage
/// does not answer; or if a former host that may still have the seed is down.
pub(super) async fn remove(ctx: &Context, machine: &mut MachineHandle) -> Result<(), StepError> {
    let Some(storage) = storage(machine.record()).map(ToOwned::to_owned) else { return Ok(()) };
    let left = proxmox_tasks::still_on_its_way(ctx, machine.record());
    if !left.is_zero() {
        machine.say(ctx, "an upload of its seed may still be running");
        tokio::time::sleep(left).await;
    }
    let record = machine.record().clone();
    if let Some(why) = still_in_a_drive(ctx, machine, &volume(&storage, &record)).await? {
        let command = command_to_free(&record.host, &volume(&storage, &record));
        let reason = format!("{why}; to fix it: {command}");
        tracing::warn!(machine = %record.name, vmid = record.slot.vmid.0, reason, "a machine's seed is left behind");
    } else {
        remove_from(ctx, machine, &record.host, &storage).await?;
    }
    if record.left_hosts.is_empty() {
        return Ok(());
    }
    let limit = ctx.config.limits.destroy;
    let seen = retry_until!(limit, machine.seed(), Ok(ctx.proxmox.resources().await?)).await?;
    let (on, off) = left_on(&record.left_hosts, &storage, &seen);
    for host in on {
        remove_from(ctx, machine, host, &storage).await?;
    }
    let Some(host) = off.first() else { return Ok(()) };
    let what = format!(
        "host {host} is down and may still hold the seed of VM {}; the seed will be removed once the \
            host is back",
        record.slot.vmid
    );
    Err(StepError::Failed { what, blame: BackoffTarget::Other })
}

/// Returns the reason why the seed may still be in a drive, or `None` if it is not in a drive. The VMID may
/// belong to a VM that is no longer ours, for example because an administrator has made it a template.
async fn still_in_a_drive(
    ctx: &Context,
    machine: &MachineHandle,
    volume: &str,
) -> Result<Option<&'static str>, StepError> {
    let (host, vmid) = (&machine.record().host, machine.record().slot.vmid);
    // The machine never had a VM, so a VM with this VMID is not the machine's.
    if machine.record().smbios_uuid.is_none() {
        return Ok(None);
    }
    retry_until!(ctx.config.limits.destroy, machine.seed(), {
        match ctx.proxmox.config(host, vmid).await {
            Ok(config) if config.parts(DRIVE).get("file") == Some(volume) => Ok(Some(
                "the VM with the machine's VMID is no longer managed and still has the seed \
                    attached",
            )),
            Ok(_) => Ok(None),
            // A token that only has rights on a resource pool gets the same answer for a missing VM as for a
            // VM outside the pool.
            Err(error) if matches!(error.kind, Kind::NotFound | Kind::Forbidden) => {
                let hidden = "the VM with the machine's VMID is hidden from the token and may still \
                    have the seed attached";
                Ok(ctx.proxmox.vmid_taken(vmid).await?.then_some(hidden))
            }
            Err(error) => Err(error.into()),
        }
    })
    .await
}

/// The former hosts whose own storage may still have the VM's seed: first those that are on, then those that
/// are off. A VM may be moved after its seed is uploaded and before the seed is attached. For a shared
/// storage, both lists are empty, because the seed is removed through the VM's current host. A host that has
/// left the cluster is not listed, because it took its own storages with it.
fn left_on<'a>(
    left: &'a BTreeSet<String>,
    storage: &str,
    seen: &ClusterResources,
) -> (Vec<&'a str>, Vec<&'a str>) {
    if seen.storages.iter().any(|one| one.name == storage && one.size.shared) {
        return (Vec::new(), Vec::new());
    }
    let known = left.iter().filter(|host| seen.hosts.contains_key(*host)).map(String::as_str);
    known.partition(|host| seen.hosts[*host].online)
}

async fn remove_from(
    ctx: &Context,
    machine: &MachineHandle,
    host: &str,
    storage: &str,
) -> Result<(), StepError> {
    let record = machine.record();
    let volume = volume(storage, record);
    retry_until!(ctx.config.limits.destroy, machine.seed(), {
        let there = match ctx.proxmox.isos(host, storage).await {
            Ok(isos) => isos.contains(&volume),
            // The storage is gone.
            Err(error) if error.kind == Kind::NotFound => false,
            Err(error) => return Err(error.into()),
        };
        if !there {
            return Ok(());
        }
        match ctx.proxmox.delete_iso(host, storage, &volume).await {
            Err(error) if error.kind == Kind::Forbidden => Err(StepError::Administrator {
                what: format!(
                    "the seed {volume} of VM {} cannot be removed: the token lacks Datastore.Allocate \
                        on /storage/{storage}",
                    record.slot.vmid
                ),
                command: command_to_free(host, &volume),
            }),
            Err(error) => Err(error.into()),
            Ok(()) => Ok(()),
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::machine::Storage;
    use proxmox::{HostSeen, StorageSeen};

    #[test]
    fn a_seed_is_looked_for_on_hosts_of_the_cluster_with_storages_of_their_own() {
        let host = |name: &str, online| (name.to_owned(), HostSeen { online, ..HostSeen::default() });
        let storage = |name: &str, shared| StorageSeen {
            name: name.to_owned(),
            host: "pve1".to_owned(),
            size: Storage { shared, ..Storage::default() },
            kind: "dir".to_owned(),
        };
        let seen = ClusterResources {
            hosts: [host("pve1", true), host("pve2", true), host("pve3", false)].into(),
            storages: vec![storage("local", false), storage("shared", true)],
            ..ClusterResources::default()
        };
        let left = ["pve2", "pve3", "removed"].map(ToOwned::to_owned).into();
        assert_eq!(left_on(&left, "local", &seen), (vec!["pve2"], vec!["pve3"]));
        assert_eq!(left_on(&left, "shared", &seen), (vec![], vec![]));
    }

    #[test]
    fn the_network_is_written_as_proxmox_writes_it() {
        let options: Vec<(String, String)> = [
            ("ipconfig0", "ip=10.0.0.5/24,gw=10.0.0.1,ip6=auto"),
            ("ipconfig1", "ip=dhcp,ip6=fd00::5/64,gw6=fd00::1"),
            ("nameserver", "10.0.0.1 10.0.0.2"),
            ("searchdomain", "example.org"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
        let config: VmConfig = [
            ("net0".to_owned(), "virtio=BC:24:11:00:00:01,bridge=vmbr0".to_owned()),
            ("net1".to_owned(), "virtio=BC:24:11:00:00:02,bridge=vmbr1".to_owned()),
        ]
        .into_iter()
        .collect();
        let expected = "version: 1\nconfig:\n  - type: physical\n    name: eth0\n    mac_address: 'bc:24:11:00:00:01'\n    \
            subnets:\n      - type: static\n        address: '10.0.0.5/24'\n        gateway: '10.0.0.1'\n      - type: ipv6_slaac\n  \
            - type: physical\n    name: eth1\n    mac_address: 'bc:24:11:00:00:02'\n    subnets:\n      - type: dhcp4\n      \
            - type: static6\n        address: 'fd00::5/64'\n        gateway: 'fd00::1'\n  - type: nameserver\n    address:\n      \
            - '10.0.0.1'\n      - '10.0.0.2'\n    search:\n      - 'example.org'\n";
        assert_eq!(network(&options, &config), expected);
    }
}
