//! Checks whether a pool's template exists, whether it can be cloned the way the pool wants, and whether the
//! pool's hosts can reach it.

use std::collections::{BTreeMap, BTreeSet};

use super::findings::{Answer, Level, Line};
use super::proxmox_view::Pve;
use super::{cloning, grow, hosts, inherited, memory};
use crate::cli::exit::{FINDINGS, SUCCESS, UNREACHABLE, chain};
use machines::{Templates, Usable, full_clone_bytes};
use proxmox::cloning::asked_by;
use proxmox::{Drive, VmConfig, makes_linked_clones};
use settings::{Addressing, CloneKind, CloudInit, Config, Pool, Seed, TemplateRef, option_privilege};

/// The drive that holds a machine's seed.
const SEED_DRIVE: &str = "ide2";

/// A template that can be cloned.
pub(super) struct Fit {
    pub vm: VmConfig,
    /// The hosts on which the template can be cloned.
    pub reach: BTreeSet<String>,
}

/// Checks the pool's templates first as the daemon does, then for problems that would appear only during
/// cloning.
pub(super) async fn check(pve: &Pve, config: &Config, pool: &Pool, answer: &mut Answer) -> Vec<Fit> {
    let Some(wanted) = &pool.template else { return Vec::new() };
    let general = format!("template {wanted}");
    let alone = Config { pools: vec![pool.clone()], ..config.clone() };
    let templates = Templates::default();
    let looked = templates.refresh(&pve.client, &alone, &pve.seen).await;
    // A template that cannot be read is reported with the other problems below.
    let status = if looked.is_err() { UNREACHABLE } else { FINDINGS };
    let found = templates.all().remove(&pool.name).unwrap_or_default();
    for problem in &found.problems {
        let line = if found.usable.is_empty() { Line::wrong } else { Line::doubtful };
        answer.say(line(general.clone(), problem.clone()).key("template").of(&pool.name), status);
    }
    let mut fit = Vec::new();
    for usable in &found.usable {
        let what = format!("template {}", described(pve, pool, wanted, usable));
        let Some(vmid) = usable.vmid else { continue };
        let vm = match pve.client.config(&usable.host, vmid).await {
            Ok(vm) => vm,
            Err(error) => {
                answer.say(Line::wrong(what, chain(&error)).of(&pool.name), UNREACHABLE);
                continue;
            }
        };
        let mut wrong = unfit(pve, pool, usable, &vm);
        wrong.extend(rights(pve, pool, usable, &vm).await);
        let looked_at = hosts::networks(pool, &[Fit { vm: vm.clone(), reach: BTreeSet::new() }]);
        wrong.extend(cloning::networks(pve, usable, &vm, &looked_at).await);
        let agent = if vm.agent_enabled() { "agent enabled" } else { "no agent" };
        let told = match (&pool.cloud_init, vm.cloudinit_drive()) {
            (CloudInit::Seed(seed), _) => format!("seeds on {}", seed.storage),
            (CloudInit::Drive, Some(drive)) => format!("cloud-init drive {drive}"),
            (CloudInit::Drive, None) => "no cloud-init drive".to_owned(),
        };
        let good = Line::good(what.clone(), format!("{agent}, {told}")).of(&pool.name);
        let usable_all_the_same = wrong.iter().all(|line| line.level != Level::Error);
        let wrong =
            wrong.into_iter().map(|line| Line { what: what.clone(), ..line }.of(&pool.name)).collect();
        answer.say_all(wrong, good, FINDINGS);
        if usable_all_the_same {
            fit.push(Fit { vm, reach: usable.reach.clone() });
        }
    }
    if !fit.is_empty() {
        reach(pve, pool, &general, &fit, answer);
    }
    fit
}

fn described(pve: &Pve, pool: &Pool, wanted: &TemplateRef, usable: &Usable) -> String {
    let name = usable.vmid.and_then(|vmid| pve.seen.guests.get(&vmid)?.name.clone());
    let name = name.unwrap_or_else(|| wanted.to_string());
    let kind = match pool.clone {
        CloneKind::Linked => "linked clone",
        CloneKind::Full => "full clone",
    };
    format!("{name} ({} on {}, {kind})", usable.vmid_text(), usable.host)
}

/// Returns the reasons why creating or configuring a clone would fail. The caller fills in each line's
/// `what`.
fn unfit(pve: &Pve, pool: &Pool, usable: &Usable, vm: &VmConfig) -> Vec<Line> {
    let mut wrong = Vec::new();
    if let Some(lock) = vm.lock() {
        let help = format!(
            "check which task holds the lock; `qm unlock {}` removes a stale lock",
            usable.vmid_text()
        );
        wrong.push(
            Line::wrong("", format!("the template is locked ({lock}) and cannot be cloned")).help(help),
        );
    }
    match pool.clone {
        CloneKind::Linked => linked(pve, usable, vm, &mut wrong),
        CloneKind::Full => full(pve, pool, usable, vm, &mut wrong),
    }
    if let Some(disk) = &pool.disk
        && let Some(has) = vm.drive_size(&disk.device)
        && has > disk.bytes
    {
        let (has, wants) = (binary(has), binary(disk.bytes));
        let line = Line::wrong(
            "",
            format!("the template's disk {} already has {has}, but `disk` is {wants}", disk.device),
        );
        wrong.push(
            line.key("disk").help("a disk can only grow: set `disk` to at least that size, or leave it out"),
        );
    }
    for disk in &pool.extra_disks {
        if vm.get(&disk.device).is_some() {
            let line = Line::wrong("", format!("the template already has a drive {}", disk.device));
            wrong.push(line.key("extra_disks").help("use a different number for the additional disk"));
        }
        if !pve.storages.get(&disk.storage).is_some_and(proxmox::StorageConfig::holds_disks) {
            let message = format!("the token cannot see a storage `{}` that can hold disks", disk.storage);
            let help = "name a different storage, or grant the token Datastore.AllocateSpace and \
                Datastore.Audit on this storage";
            wrong.push(Line::wrong("", message).key("extra_disks").help(help));
        }
    }
    wrong.extend(seeds(pve, pool, Some(vm)));
    wrong.extend(inherited::unfit(pve, pool, usable, vm));
    wrong.extend(memory::unfit(pve, pool, usable, vm));
    if pool.pinning.is_some() && vm.get("affinity").is_some() {
        let help = format!("`qm set {} --delete affinity`", usable.vmid_text());
        let line = Line::wrong(
            "",
            "the template sets `affinity`: its clones cannot be distinguished from machines that are \
                already pinned",
        );
        wrong.push(line.key("pinning").help(help));
    }
    wrong.extend(grow::unfit(pool, usable, vm));
    if vm.get("net0").is_none() {
        let help = format!("`qm set {} --net0 virtio,bridge=vmbr0`", usable.vmid_text());
        wrong.push(Line::wrong("", "the template has no network device net0").help(help));
    }
    wrong
}

/// Checks whether linked clones are possible: the storages must support them, and the template's disks must
/// be base images.
fn linked(pve: &Pve, usable: &Usable, vm: &VmConfig, wrong: &mut Vec<Line>) {
    let mut told = BTreeSet::new();
    // TPM state is always copied, even for a linked clone.
    for disk in vm.disks().filter(|disk| disk.key != "tpmstate0") {
        let volume = disk.volume;
        let (storage, file) = volume.split_once(':').unwrap_or((volume, ""));
        let kind = kind(pve, storage);
        if makes_linked_clones(&kind) == Some(false) {
            if told.insert(storage) {
                let kind = if kind == "lvm" { "LVM, thick".to_owned() } else { kind };
                let line = Line::wrong("", format!("storage `{storage}` ({kind}) cannot make linked clones"));
                let help = match thin(pve, &usable.host) {
                    Some(thin) => {
                        format!("set `clone = \"full\"` for this pool, or move the template to `{thin}`")
                    }
                    None => "set `clone = \"full\"` for this pool".to_owned(),
                };
                wrong.push(line.key("clone").help(help));
            }
            continue;
        }
        let image = file.rsplit('/').next().unwrap_or(file);
        if !image.starts_with("base-") && !image.starts_with("basevol-") {
            let line = Line::wrong(
                "",
                format!("the template's disk `{volume}` is not a base image, which a linked clone needs"),
            );
            let help = format!(
                "the disk was added after the VM had become a template: make a template from a VM that \
                    already has the disk, or run `qm template {} --disk DISK`",
                usable.vmid_text()
            );
            wrong.push(line.key("clone").help(help));
        }
    }
}

/// Checks whether every host has the storages that a full clone needs for its disks, with room for one
/// machine.
fn full(pve: &Pve, pool: &Pool, usable: &Usable, vm: &VmConfig, wrong: &mut Vec<Line>) {
    let wants = full_clone_bytes(pool, vm);
    let targets: BTreeSet<&str> = if pool.storages.is_empty() {
        vm.disks().map(Drive::storage).collect()
    } else {
        pool.storages.iter().map(String::as_str).collect()
    };
    for storage in targets {
        let Some(known) = pve.storages.get(storage) else {
            let line = Line::wrong("", format!("the token cannot see a storage `{storage}`"));
            let names = pve.storages.keys().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
            wrong.push(line.key("storage").help(format!(
                "the token can see only {names}; grant the token Datastore.AllocateSpace on the \
                        missing storage"
            )));
            continue;
        };
        if !known.holds_disks() {
            let line = Line::wrong("", format!("storage `{storage}` accepts no VM disks, or is disabled"));
            wrong.push(line.key("storage").help(format!(
                "add `images` to the storage's content (`pvesm set {storage} --content …,images`) and enable it, \
                 or name another storage"
            )));
        }
        for host in pve.allowed(pool).filter(|host| usable.reach.contains(*host)) {
            if !known.is_on(host) {
                let line =
                    Line::wrong("", format!("storage `{storage}` is not on {host}, which the pool may use"));
                wrong
                    .push(line.key("storage").help("leave the host out of `hosts`, or name another storage"));
                continue;
            }
            if let Some(free) = pve.free(pool, host, storage).filter(|free| *free < wants) {
                let (free, wants) = (binary(free), binary(wants));
                let message =
                    format!("storage `{storage}` on {host} has {free} left, but one machine needs {wants}");
                wrong.push(Line::doubtful("", message).key("storage"));
            }
        }
    }
}

async fn rights(pve: &Pve, pool: &Pool, usable: &Usable, vm: &VmConfig) -> Vec<Line> {
    let mut needs: Vec<Need> = vec![(format!("/vms/{}", usable.vmid_text()), vec!["VM.Clone", "VM.Audit"])];
    needs.extend(cloning::needs(pve, pool, vm));
    let mut storages: BTreeSet<&str> = pool.extra_disks.iter().map(|disk| disk.storage.as_str()).collect();
    if pool.clone == CloneKind::Full {
        storages.extend(pool.storages.iter().map(String::as_str));
    }
    let remembering = memory::storages(pve, pool, vm);
    storages.extend(remembering.iter().map(String::as_str));
    needs.extend(storages.into_iter().map(|storage| -> Need {
        (format!("/storage/{storage}"), vec!["Datastore.AllocateSpace", "Datastore.Audit"])
    }));
    needs.extend(of_machines(pve, pool));
    lacking(pve, needs).await
}

/// A path, and the privileges needed on it.
pub(super) type Need = (String, Vec<&'static str>);

/// A line for each path on which the token lacks privileges.
pub(super) async fn lacking(pve: &Pve, needs: Vec<Need>) -> Vec<Line> {
    // Lists each path once, with all privileges that are needed there.
    let mut paths: BTreeMap<String, Vec<&'static str>> = BTreeMap::new();
    for (path, privileges) in needs {
        let wanted = paths.entry(path).or_default();
        for privilege in privileges {
            if !wanted.contains(&privilege) {
                wanted.push(privilege);
            }
        }
    }
    let mut wrong = Vec::new();
    for (path, wanted) in paths {
        match pve.lacks(&path, &wanted).await {
            Ok(None) => {}
            Ok(Some((lacks, help))) => wrong.push(Line::wrong("", lacks).help(help)),
            Err(error) => wrong.push(Line::wrong("", chain(&error))),
        }
    }
    wrong
}

/// Rights that the token needs for machines, whether they are cloned or boot from the network.
pub(super) fn of_machines(pve: &Pve, pool: &Pool) -> Vec<Need> {
    let mut paths: Vec<Need> = Vec::new();
    let machines = pve.machines_path();
    if let CloudInit::Seed(seed) = &pool.cloud_init {
        let path = format!("/storage/{}", seed.storage);
        // The token uploads seeds and removes them. Removing one requires a right on the storage itself.
        paths.push((path, vec!["Datastore.AllocateTemplate", "Datastore.Allocate", "Datastore.Audit"]));
        paths.push((machines.clone(), vec!["VM.Config.CDROM"]));
    }
    let hotplug = pool.grow.is_some();
    let hardware = |option: &String| option_privilege(option) == Some("VM.Config.HWType");
    if hotplug || !pool.pci.is_empty() || pool.vm_options.keys().any(hardware) {
        paths.push((machines, vec!["VM.Config.HWType"]));
    }
    let asked = pool.vm_options.iter().filter_map(|(option, value)| asked_by(&pve.version, option, value));
    paths.extend(asked.map(|one| (one.path, vec![one.privilege])));
    for one in &pool.pci {
        paths.push((format!("/mapping/pci/{}", one.mapping), vec!["Mapping.Use"]));
    }
    paths
}

/// Reports a problem with the seed: the storage does not accept seeds, a disk occupies the drive for the
/// seed, or the seed has no name servers.
pub(super) fn seeds(pve: &Pve, pool: &Pool, vm: Option<&VmConfig>) -> Option<Line> {
    let CloudInit::Seed(seed) = &pool.cloud_init else { return None };
    let storage = &seed.storage;
    if let Some(disk) = vm.and_then(|vm| vm.disks().find(|disk| disk.key == SEED_DRIVE)) {
        let message = format!(
            "the template's `{SEED_DRIVE}` is the disk {}, but this drive is reserved for the machine's \
                seed",
            disk.volume
        );
        let help = "move the disk to another bus or number in the VM that becomes the template";
        return Some(Line::wrong("", message).key("cloud_init").help(help));
    }
    if pve.storages.get(storage).is_some_and(|one| one.content.iter().any(|kind| kind == "iso")) {
        return without_name_servers(pool, seed);
    }
    let message = format!(
        "the token cannot see the seed storage `{storage}`, or the storage does not accept the content \
            type `iso`"
    );
    let help = format!(
        "add `iso` to the storage's content (`pvesm set {storage} --content …,iso`), or name another storage"
    );
    Some(Line::wrong("", message).key("cloud_init").help(help))
}

/// Warns if a seed has no name servers. Proxmox VE's own cloud-init drive falls back to the host's name
/// servers; a seed does not.
fn without_name_servers(pool: &Pool, seed: &Seed) -> Option<Line> {
    let Addressing::Static { dns, .. } = &pool.addressing else { return None };
    let message = "the pool's machines have no name servers: the pool has no `dns`, and a seed does not \
        contain the host's name servers";
    let help = "set `dns`, or a `network_config` or `user_data` with name servers; ignore this warning \
        if the template sets name servers";
    (dns.is_empty() && seed.network_config.is_none())
        .then(|| Line::doubtful("", message).key("cloud_init").help(help))
}

/// Reports hosts on which no clone can be made.
fn reach(pve: &Pve, pool: &Pool, general: &str, fit: &[Fit], answer: &mut Answer) {
    let reached: BTreeSet<&String> = fit.iter().flat_map(|one| &one.reach).collect();
    let lost: Vec<&str> =
        pve.allowed(pool).filter(|host| !reached.contains(host)).map(String::as_str).collect();
    let what = format!("{general}, hosts");
    if lost.is_empty() {
        let all: Vec<&str> = pve.allowed(pool).map(String::as_str).collect();
        return answer.say(Line::good(what, format!("on {}", all.join(", "))).of(&pool.name), SUCCESS);
    }
    let any = pve.allowed(pool).any(|host| reached.contains(host));
    let verdict = if any { Line::doubtful } else { Line::wrong };
    let message =
        format!("no clone can be made on {}: the template's storage is not available there", lost.join(", "));
    let help = match &pool.template {
        Some(TemplateRef::Name(name)) => {
            format!(
                "put a template called `{name}` on each of these hosts too, move the existing \
                template to a shared storage, or list only hosts with the template in `hosts`"
            )
        }
        _ => "move the template to a shared storage, give the templates on all hosts the same name and \
            set `template` to that name, or list only hosts with the template in `hosts`"
            .to_owned(),
    };
    answer.say(verdict(what, message).key("hosts").help(help).of(&pool.name), FINDINGS);
}

fn kind(pve: &Pve, storage: &str) -> String {
    let seen = || pve.seen.storages.iter().find(|one| one.name == storage).map(|one| one.kind.clone());
    pve.storages.get(storage).map(|one| one.kind.clone()).or_else(seen).unwrap_or_default()
}

/// Returns a storage on this host that accepts disks and supports linked clones.
fn thin<'p>(pve: &'p Pve, host: &str) -> Option<&'p str> {
    let fine = |one: &&proxmox::StorageConfig| {
        one.holds_disks() && one.is_on(host) && makes_linked_clones(&one.kind) == Some(true)
    };
    pve.storages.values().find(fine).map(|one| one.name.as_str())
}

/// Formats a size in the largest binary unit in which the number is at least 1.
pub(super) fn binary(bytes: i64) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20)];
    let (unit, shift) = units.into_iter().find(|(_, shift)| bytes >> shift > 0).unwrap_or(("KiB", 10));
    let tenths = (i128::from(bytes) * 10) >> shift;
    if tenths % 10 == 0 {
        format!("{} {unit}", tenths / 10)
    } else {
        format!("{}.{} {unit}", tenths / 10, tenths % 10)
    }
}

#[cfg(test)]
mod tests {
    use super::binary;

    #[test]
    fn sizes_are_shown_in_binary_units() {
        for (bytes, text) in [
            (10 << 30, "10 GiB"),
            ((3 << 30) + (1 << 29), "3.5 GiB"),
            (512 << 20, "512 MiB"),
            (2 << 40, "2 TiB"),
            (0, "0 KiB"),
        ] {
            assert_eq!(binary(bytes), text);
        }
    }
}
