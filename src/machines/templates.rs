//! Where the pools' templates are, and on which hosts a clone of them can be made.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};

use sha2::{Digest, Sha256};

use super::asking;
use crate::config::{Boot, Bootstrap, CloudInit, Config, Pool, TemplateRef};
use crate::model::snapshot::TemplateSeen;
use crate::proxmox::{Client, Error, Guest, Kind, Seen, VmConfig};

/// A template that a pool can clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usable {
    /// Its VMID; 0 stands for none, where machines are made anew.
    pub vmid: u32,
    /// The host that holds it: only this one can clone it.
    pub host: String,
    /// Hosts on which a clone of it can be made.
    pub reach: BTreeSet<String>,
    /// Storages that its volumes are on, with the host (`pve1/local-lvm`) where hosts do not share them.
    pub sources: BTreeSet<String>,
    /// What tells it from every other, and from one that is made anew under its name and VMID.
    pub print: String,
}

impl Usable {
    /// The names of the storages that its volumes are on.
    pub fn storages(&self) -> BTreeSet<String> {
        self.sources.iter().filter_map(|source| source.rsplit('/').next()).map(ToOwned::to_owned).collect()
    }
}

/// What was found for one pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Templates that can be used.
    pub usable: Vec<Usable>,
    /// What is wrong, in words: the pool cannot grow where nothing is usable.
    pub problems: Vec<String>,
}

/// Templates by pool. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Templates(Arc<Mutex<BTreeMap<String, Found>>>);

impl Templates {
    /// The template for a new machine of the pool on this host: its own before another's.
    pub fn pick(&self, pool: &str, host: &str) -> Option<Usable> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let usable = || all.get(pool).into_iter().flat_map(|found| &found.usable);
        let own = usable().find(|one| one.host == host);
        own.or_else(|| usable().find(|one| one.reach.contains(host))).cloned()
    }

    /// The storages that a template is cloned from; its own name stands for those of one that was not looked at yet.
    pub fn sources(&self, template: u32) -> BTreeSet<String> {
        let known = self.known(template).map(|usable| usable.sources);
        known.unwrap_or_else(|| BTreeSet::from([format!("template {template}")]))
    }

    fn known(&self, template: u32) -> Option<Usable> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut usable = all.values().flat_map(|found| &found.usable);
        usable.find(|usable| usable.vmid == template).cloned()
    }

    /// What was found for each pool.
    pub fn all(&self) -> BTreeMap<String, Found> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// As a snapshot carries them.
    pub fn seen(&self) -> Vec<TemplateSeen> {
        let one = |pool: &String, usable: &Usable| TemplateSeen {
            pool: pool.clone(),
            vmid: usable.vmid,
            host: usable.host.clone(),
            hosts: usable.reach.iter().cloned().collect(),
            bytes: 0,
            storage: String::new(),
        };
        self.all()
            .iter()
            .flat_map(|(pool, found)| found.usable.iter().map(move |usable| one(pool, usable)))
            .collect()
    }

    /// What tells a pool's present templates from others; nothing while one of them cannot be looked at.
    pub fn prints(&self, pool: &str) -> Vec<String> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = all.get(pool).filter(|found| found.problems.is_empty());
        found.into_iter().flat_map(|found| &found.usable).map(|usable| usable.print.clone()).collect()
    }

    /// Looks at the templates of all pools again: one call for each template.
    ///
    /// # Errors
    /// A template could not be read: its pools are told, what was known of it stays, and all others were looked at.
    pub async fn refresh(&self, proxmox: &Client, config: &Config, seen: &Seen) -> Result<(), Error> {
        let read = read(proxmox, config, seen).await;
        let known = self.all();
        let mut all = BTreeMap::new();
        for pool in &config.pools {
            if pool.boot == Boot::Network {
                let found = Found { usable: anew(pool, seen), problems: Vec::new() };
                all.insert(pool.name.clone(), found);
            } else if let Some(wanted) = &pool.template {
                let needs = Needs::of(config, pool);
                let found = of_pool(pool, &needs, wanted, (seen, &read), known.get(&pool.name));
                all.insert(pool.name.clone(), found);
            }
        }
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = all;
        read.into_values().find_map(Result::err).map_or(Ok(()), Err)
    }
}

/// Configurations of templates, or why they cannot be read, by VMID.
type Read = BTreeMap<u32, Result<VmConfig, Error>>;

/// Reads the templates of all pools whose hosts are online.
async fn read(proxmox: &Client, config: &Config, seen: &Seen) -> Read {
    let cloning = config.pools.iter().filter(|pool| pool.boot != Boot::Network);
    let wanted: Vec<&TemplateRef> = cloning.filter_map(|pool| pool.template.as_ref()).collect();
    let mut by_host: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for guest in seen.guests.values() {
        if is_online(guest, seen) && wanted.iter().any(|wanted| matches(wanted, guest)) {
            by_host.entry(guest.host.clone()).or_default().push(guest.vmid);
        }
    }
    let ask = |host: String, vmid: u32| async move { proxmox.config(&host, vmid).await };
    asking::hosts(by_host, ask).await.into_iter().map(|(_, vmid, answer)| (vmid, answer)).collect()
}

fn is_online(guest: &Guest, seen: &Seen) -> bool {
    seen.hosts.get(&guest.host).is_some_and(|host| host.online)
}

fn of_pool(
    pool: &Pool,
    needs: &Needs,
    wanted: &TemplateRef,
    (seen, read): (&Seen, &Read),
    known: Option<&Found>,
) -> Found {
    let mut found = Found::default();
    let candidates: Vec<&Guest> = seen.guests.values().filter(|guest| matches(wanted, guest)).collect();
    if candidates.is_empty() {
        found.problems.push(missing(wanted));
    }
    for guest in candidates {
        if !is_online(guest, seen) {
            found.problems.push(format!("{} cannot be cloned while its host is offline", who(guest)));
            continue;
        }
        match read.get(&guest.vmid) {
            Some(Ok(vm)) => match judge(pool, needs, guest, vm, seen) {
                Ok(usable) => found.usable.push(usable),
                Err(problem) => found.problems.push(problem),
            },
            Some(Err(error)) => {
                found.problems.push(format!("{} cannot be read: {error}", who(guest)));
                let gone = matches!(error.kind, Kind::Forbidden | Kind::NotFound);
                let before = known.filter(|_| !gone).into_iter().flat_map(|known| &known.usable);
                let same = |one: &&Usable| one.vmid == guest.vmid && one.host == guest.host;
                found.usable.extend(before.filter(same).cloned());
            }
            None => {}
        }
    }
    found
}

fn who(guest: &Guest) -> String {
    format!("{} ({} on {})", guest.name.as_deref().unwrap_or("?"), guest.vmid, guest.host)
}

/// What stands for a template on each host where machines of the pool can be made anew.
fn anew(pool: &Pool, seen: &Seen) -> Vec<Usable> {
    let allowed = |host: &&String| pool.hosts.is_empty() || pool.hosts.contains(host);
    let usable = |host: &String| Usable {
        vmid: 0,
        host: host.clone(),
        reach: BTreeSet::from([host.clone()]),
        sources: BTreeSet::new(),
        print: "none".to_owned(),
    };
    seen.hosts
        .iter()
        .filter(|(_, one)| one.online)
        .map(|(host, _)| host)
        .filter(allowed)
        .map(usable)
        .collect()
}

fn matches(wanted: &TemplateRef, guest: &Guest) -> bool {
    match wanted {
        TemplateRef::Vmid(vmid) => guest.vmid == *vmid,
        TemplateRef::Name(name) => guest.template && guest.name.as_deref() == Some(name),
    }
}

fn missing(wanted: &TemplateRef) -> String {
    match wanted {
        TemplateRef::Vmid(vmid) => format!(
            "there is no VM {vmid} that the token may see: check `template`, and VM.Audit and VM.Clone on /vms/{vmid} or its pool"
        ),
        TemplateRef::Name(name) => format!(
            "no template is called `{name}`, or the token may not see it: check `template`, and VM.Audit and VM.Clone on it or its pool"
        ),
    }
}

/// What a pool needs of its template.
struct Needs {
    /// Something is run in the guest.
    agent: bool,
    /// Somebody has to tell the guest what it is, and Proxmox VE's own drive is to do so.
    drive: bool,
}

impl Needs {
    fn of(config: &Config, pool: &Pool) -> Self {
        let bootstrap = config.bootstrap_of(pool);
        let agent = bootstrap.is_none_or(Bootstrap::needs_agent);
        Self { agent, drive: pool.cloud_init == CloudInit::Drive && (agent || pool.tells_guests()) }
    }
}

fn judge(pool: &Pool, needs: &Needs, guest: &Guest, vm: &VmConfig, seen: &Seen) -> Result<Usable, String> {
    let who = who(guest);
    if !vm.is_template() {
        return Err(format!("{who} is a VM, not a template: convert it with `qm template {}`", guest.vmid));
    }
    if needs.agent && !vm.agent_enabled() {
        return Err(format!(
            "{who} has the guest agent switched off: `qm set {} --agent enabled=1`",
            guest.vmid
        ));
    }
    if needs.drive && vm.cloudinit_drive().is_none() {
        return Err(format!(
            "{who} has no cloud-init drive: `qm set {} --ide2 STORAGE:cloudinit`",
            guest.vmid
        ));
    }
    if let (Some(device), false) = (vm.device_keys().first(), pool.pci.is_empty()) {
        return Err(format!(
            "{who} has a device of its host itself, and the pool gives its machines some: `qm set {} --delete {device}`",
            guest.vmid
        ));
    }
    if let Some(disk) = &pool.disk
        && vm.drive_size(&disk.device).is_none()
    {
        return Err(format!("{who} has no disk `{}`: set `disk_device` of the pool", disk.device));
    }
    Ok(Usable {
        vmid: guest.vmid,
        host: guest.host.clone(),
        reach: reach(guest, vm, seen),
        sources: sources(guest, vm, seen),
        print: print(guest.vmid, vm),
    })
}

/// The VMID, and a digest of what a clone inherits. A template that is made anew has another SMBIOS uuid and other MACs.
fn print(vmid: u32, vm: &VmConfig) -> String {
    /// What each machine has of its own, and what says nothing of a clone.
    const OTHERS: [&str; 8] = ["cores", "description", "digest", "lock", "memory", "name", "sockets", "tags"];
    let mut hasher = Sha256::new();
    for (key, value) in vm.all().filter(|(key, _)| !OTHERS.contains(key)) {
        hasher.update(format!("{key}: {value}\n"));
    }
    let mut print = format!("{vmid}-");
    for byte in hasher.finalize().iter().take(6) {
        let _ = write!(print, "{byte:02x}");
    }
    print
}

fn sources(guest: &Guest, vm: &VmConfig, seen: &Seen) -> BTreeSet<String> {
    let shared = |name: &str| seen.storages.iter().any(|one| one.name == name && one.size.shared);
    vm.storages()
        .into_iter()
        .map(|name| if shared(name) { name.to_owned() } else { format!("{}/{name}", guest.host) })
        .collect()
}

/// Its own host, and all others if every volume is on a storage that they share.
fn reach(guest: &Guest, vm: &VmConfig, seen: &Seen) -> BTreeSet<String> {
    let storages = vm.storages();
    let has = |host: &str, storage: &str| {
        seen.storages.iter().any(|one| one.host == host && one.name == storage && one.size.shared)
    };
    let shared = |host: &&String| storages.iter().all(|storage| has(host, storage));
    let mut reach: BTreeSet<String> = seen.hosts.keys().filter(shared).cloned().collect();
    reach.insert(guest.host.clone());
    reach
}
