//! Determines where the pools' templates are, and on which hosts they can be cloned.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use model::{HostKey, PoolName, Vmid};
use runtime::boxed;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::refused_pools::Refusals;
use super::{host_queries, inherited};
use model::snapshot::TemplateSeen;
use proxmox::property::stem;
use proxmox::{Client, ClusterResources, Error, Guest, Kind, MissingRight, TAG, TagRules, VmConfig};
use settings::{Boot, Bootstrap, CloudInit, Config, Pool, TemplateRef};

/// How often the rules for tags are read. They rarely change.
const TAGS: Duration = Duration::from_mins(10);

/// A template that a pool can clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usable {
    /// The template's VMID; `None` if machines are created without a template.
    pub vmid: Option<Vmid>,
    /// The host that has the template. Only this host can clone it.
    pub host: String,
    /// Hosts on which a clone can be created.
    pub reach: BTreeSet<String>,
    /// The storages of the template's volumes. A storage that is not shared is prefixed with its host
    /// (`pve1/local-lvm`).
    pub sources: BTreeSet<String>,
    /// The size of a full clone in bytes, after its disk has been resized to the pool's size. 0 if the pool
    /// names no storages.
    pub bytes: i64,
    /// A fingerprint that distinguishes the template from every other template, including one that replaces
    /// it with the same name and VMID.
    pub print: String,
    /// The fingerprint as earlier versions of the daemon computed it. Records that those versions wrote
    /// contain this fingerprint.
    pub former_print: String,
}

impl Usable {
    /// The template's VMID as text; `none` if machines are created without a template.
    pub fn vmid_text(&self) -> String {
        self.vmid.map_or_else(|| "none".to_owned(), |vmid| vmid.to_string())
    }

    /// Returns the names of the storages that contain the template's volumes.
    pub fn storages(&self) -> BTreeSet<String> {
        self.sources.iter().filter_map(|source| source.rsplit('/').next()).map(ToOwned::to_owned).collect()
    }
}

/// The templates that were found for one pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolTemplates {
    /// Templates that can be used.
    pub usable: Vec<Usable>,
    /// The problems that were found, as text. If no template is usable, no machine can be created.
    pub problems: Vec<String>,
    /// The reason why no template is cloned at present, if a right is missing for all machines of the pool.
    pub refused: Option<String>,
}

impl PoolTemplates {
    /// Whether a machine can be created.
    pub fn is_fine(&self) -> bool {
        !self.usable.is_empty() && self.refused.is_none()
    }
}

/// A template's fingerprint as this version computes it, and as earlier versions computed it.
type Prints = (String, String);

/// Templates by pool. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Templates {
    by_pool: Arc<Mutex<BTreeMap<PoolName, PoolTemplates>>>,
    /// The fingerprints of templates that were read for clones since the last refresh began, by VMID, with
    /// the time of the query.
    just_read: Arc<Mutex<BTreeMap<Vmid, (Prints, Instant)>>>,
    tags: Arc<Mutex<Option<(TagRules, Instant)>>>,
    refusals: Refusals,
}

impl Templates {
    /// The template for a new machine of the pool on this host. A template on the host itself is preferred.
    pub fn pick(&self, pool: &str, host: &str) -> Option<Usable> {
        let all = self.by_pool.lock().unwrap_or_else(PoisonError::into_inner);
        let found = || all.get(pool).filter(|found| found.refused.is_none());
        let usable = || found().into_iter().flat_map(|found| &found.usable);
        let own = usable().find(|one| one.host == host);
        own.or_else(|| usable().find(|one| one.reach.contains(host))).cloned()
    }

    /// The storages that a template is cloned from. If the template was not read yet, returns a placeholder
    /// with its VMID.
    pub fn sources(&self, template: Vmid) -> BTreeSet<String> {
        let known = self.known(template).map(|usable| usable.sources);
        known.unwrap_or_else(|| BTreeSet::from([format!("template {template}")]))
    }

    fn known(&self, template: Vmid) -> Option<Usable> {
        let all = self.by_pool.lock().unwrap_or_else(PoisonError::into_inner);
        let mut usable = all.values().flat_map(|found| &found.usable);
        usable.find(|usable| usable.vmid == Some(template)).cloned()
    }

    /// The usable templates and the problems that were found, by pool.
    pub fn all(&self) -> BTreeMap<PoolName, PoolTemplates> {
        self.by_pool.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The templates as part of a round's snapshot.
    pub fn seen(&self) -> Vec<TemplateSeen> {
        let one = |pool: &PoolName, usable: &Usable| TemplateSeen {
            pool: pool.clone(),
            vmid: usable.vmid,
            host: usable.host.as_str().into(),
            hosts: usable.reach.iter().map(|host| HostKey::from(host.as_str())).collect(),
        };
        self.all()
            .iter()
            .flat_map(|(pool, found)| found.usable.iter().map(move |usable| one(pool, usable)))
            .collect()
    }

    /// The fingerprints of a pool's current templates; empty if any of them has a problem.
    pub fn prints(&self, pool: &str) -> Vec<String> {
        let all = self.by_pool.lock().unwrap_or_else(PoisonError::into_inner);
        let found = all.get(pool).filter(|found| found.problems.is_empty());
        let usable = found.into_iter().flat_map(|found| &found.usable);
        usable.flat_map(|usable| [usable.print.clone(), usable.former_print.clone()]).collect()
    }

    /// Stores the fingerprint of a template that is about to be cloned and was queried at `asked`, and
    /// returns the fingerprint. The template is read again for each clone, because refreshes are minutes
    /// apart, and the clone's record must contain the current fingerprint.
    pub(super) fn is_now(&self, template: Vmid, vm: &VmConfig, asked: Instant) -> String {
        let prints = (print(template, vm, inherited::tells), print(template, vm, told_before));
        let mut all = self.by_pool.lock().unwrap_or_else(PoisonError::into_inner);
        let usable = all.values_mut().flat_map(|found| &mut found.usable);
        for usable in usable.filter(|usable| usable.vmid == Some(template)) {
            (usable.print, usable.former_print) = prints.clone();
        }
        let now = prints.0.clone();
        self.just_read.lock().unwrap_or_else(PoisonError::into_inner).insert(template, (prints, asked));
        now
    }

    /// Stores the result of a refresh. If a template was read for a clone in the meantime, its fingerprint is
    /// more recent and is kept.
    fn found(&self, mut all: BTreeMap<PoolName, PoolTemplates>, asked: &BTreeMap<Vmid, Instant>) {
        let mut by_pool = self.by_pool.lock().unwrap_or_else(PoisonError::into_inner);
        let mut just_read = self.just_read.lock().unwrap_or_else(PoisonError::into_inner);
        just_read.retain(|vmid, (_, at)| asked.get(vmid).is_some_and(|asked| *asked < *at));
        for usable in all.values_mut().flat_map(|found| &mut found.usable) {
            if let Some((prints, _)) = usable.vmid.and_then(|vmid| just_read.get(&vmid)) {
                (usable.print, usable.former_print) = prints.clone();
            }
        }
        *by_pool = all;
    }

    /// The size of a full clone of the pool's largest template, in bytes; 0 if the pool names no storages.
    pub fn clone_bytes(&self, pool: &str) -> i64 {
        let all = self.by_pool.lock().unwrap_or_else(PoisonError::into_inner);
        let usable = all.get(pool).into_iter().flat_map(|found| &found.usable);
        usable.map(|usable| usable.bytes).max().unwrap_or_default()
    }

    /// The rules that say which tags the token may change; `None` until they have been read.
    pub fn tags(&self) -> Option<TagRules> {
        self.tags.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|(rules, _)| rules.clone())
    }

    /// Reads the rules for tags if they are old or block a pool. If they cannot be read, the known rules are
    /// kept.
    async fn look_at_tags(&self, proxmox: &Client, pools: &[Pool]) {
        let known = self.tags.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let is_enough = known.is_some_and(|(rules, asked)| {
            asked.elapsed() < TAGS && pools.iter().all(|pool| refused_tag(pool, Some(&rules)).is_none())
        });
        if is_enough && !self.has_refusals() {
            return;
        }
        match proxmox.tag_rules().await {
            Ok(rules) => {
                *self.tags.lock().unwrap_or_else(PoisonError::into_inner) = Some((rules, Instant::now()));
            }
            Err(error) => tracing::debug!(%error, "the tag rules cannot be read"),
        }
    }

    /// Notes that the pool's machines are refused because of a missing right. No machine of the pool is
    /// created until that changes. Returns the message.
    pub(super) fn refused(&self, pool: &Pool, right: MissingRight, token: &str) -> String {
        let words = self.refusals.add(pool, right, self.tags(), token);
        let mut all = self.by_pool.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(pool.name.clone()).or_default().refused = Some(words.clone());
        words
    }

    /// Returns the reason why no machines are created in a pool, if a right is missing.
    pub fn refusal(&self, pool: &str) -> Option<String> {
        self.refusals.of(pool)
    }

    /// Whether the machines of at least one pool are refused.
    pub fn has_refusals(&self) -> bool {
        !self.refusals.is_empty()
    }

    /// Reads the templates of all pools again, with one call for each template.
    ///
    /// # Errors
    /// Returns an error if a template could not be read. The problem is then noted for the template's pools,
    /// and all other templates have been read nevertheless. The last known data about the template is kept,
    /// unless the template is gone or the token may not read it.
    #[boxed]
    pub async fn refresh(
        &self,
        proxmox: &Client,
        config: &Config,
        seen: &ClusterResources,
    ) -> Result<(), Error> {
        let (read, ()) = tokio::join!(read(proxmox, config, seen), self.look_at_tags(proxmox, &config.pools));
        let (read, asked) = read;
        let rules = self.tags();
        self.refusals.look(proxmox, &config.pools, rules.as_ref()).await;
        let known = self.all();
        let mut all = BTreeMap::new();
        for pool in &config.pools {
            if pool.boot == Boot::Network {
                let found = PoolTemplates { usable: blank_places(pool, seen), ..PoolTemplates::default() };
                all.insert(pool.name.clone(), found);
            } else if let Some(wanted) = &pool.template {
                let needs = Needs::of(config, pool);
                let found = of_pool(pool, &needs, wanted, seen, &read, known.get(&pool.name));
                all.insert(pool.name.clone(), found);
            }
            if let Some(found) = all.get_mut(&pool.name) {
                found.refused = refused_tag(pool, rules.as_ref()).or_else(|| self.refusal(&pool.name));
            }
        }
        self.found(all, &asked);
        read.into_values().find_map(Result::err).map_or(Ok(()), Err)
    }
}

/// The configurations of templates by VMID, or the errors if they cannot be read.
type Read = BTreeMap<Vmid, Result<VmConfig, Error>>;

/// Reads the templates of all pools on hosts that are online. Also returns when each template was queried.
async fn read(proxmox: &Client, config: &Config, seen: &ClusterResources) -> (Read, BTreeMap<Vmid, Instant>) {
    let cloning = config.pools.iter().filter(|pool| pool.boot != Boot::Network);
    let wanted: Vec<&TemplateRef> = cloning.filter_map(|pool| pool.template.as_ref()).collect();
    let mut by_host: BTreeMap<String, Vec<Vmid>> = BTreeMap::new();
    for guest in seen.guests.values() {
        if is_online(guest, seen) && wanted.iter().any(|wanted| matches(wanted, guest)) {
            by_host.entry(guest.host.clone()).or_default().push(guest.vmid);
        }
    }
    let asked = Mutex::new(BTreeMap::new());
    let note = |vmid| _ = asked.lock().unwrap_or_else(PoisonError::into_inner).insert(vmid, Instant::now());
    let ask = |host: String, vmid: Vmid| {
        note(vmid);
        async move { proxmox.config(&host, vmid).await }
    };
    let answers = host_queries::hosts(by_host, ask).await;
    let read = answers.into_iter().map(|(_, vmid, answer)| (vmid, answer)).collect();
    (read, asked.into_inner().unwrap_or_else(PoisonError::into_inner))
}

fn is_online(guest: &Guest, seen: &ClusterResources) -> bool {
    seen.hosts.get(&guest.host).is_some_and(|host| host.online)
}

fn of_pool(
    pool: &Pool,
    needs: &Needs,
    wanted: &TemplateRef,
    seen: &ClusterResources,
    read: &Read,
    known: Option<&PoolTemplates>,
) -> PoolTemplates {
    let mut found = PoolTemplates::default();
    let candidates: Vec<&Guest> = seen.guests.values().filter(|guest| matches(wanted, guest)).collect();
    if candidates.is_empty() {
        found.problems.push(missing(wanted, seen));
    }
    for guest in candidates {
        if !is_online(guest, seen) {
            found.problems.push(format!("{} cannot be cloned while its host is offline", who(guest)));
            continue;
        }
        if let Some(lock) = &guest.lock {
            found.problems.push(format!(
                "{} cannot be cloned while it is locked ({lock}): check which task is running; if none is, \
                 `qm unlock {}` removes the lock",
                who(guest),
                guest.vmid
            ));
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
                let same = |one: &&Usable| one.vmid == Some(guest.vmid) && one.host == guest.host;
                found.usable.extend(before.filter(same).cloned());
            }
            None => {}
        }
    }
    found
}

/// Returns the reason why no machine of the pool could be configured, if the token may not set one of the
/// tags of the pool's machines.
fn refused_tag(pool: &Pool, rules: Option<&TagRules>) -> Option<String> {
    let mut tags = pool.tags.iter().map(String::as_str).chain([TAG]);
    let rules = rules?;
    let (what, help) = rules.refusal(tags.find(|tag| !rules.allow(tag))?);
    Some(format!("{what}: {help}"))
}

fn who(guest: &Guest) -> String {
    format!("{} ({} on {})", guest.name.as_deref().unwrap_or("?"), guest.vmid, guest.host)
}

/// Placeholder templates, one for each host on which machines of the pool can be created without a template.
fn blank_places(pool: &Pool, seen: &ClusterResources) -> Vec<Usable> {
    let allowed = |host: &&String| pool.hosts.is_empty() || pool.hosts.iter().any(|one| *one == ***host);
    let usable = |host: &String| Usable {
        vmid: None,
        host: host.clone(),
        reach: BTreeSet::from([host.clone()]),
        sources: BTreeSet::new(),
        bytes: 0,
        print: "none".to_owned(),
        former_print: "none".to_owned(),
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

fn missing(wanted: &TemplateRef, seen: &ClusterResources) -> String {
    /// The maximum number of templates that the message names.
    const NAMED: usize = 10;
    let there = seen.guests.values().filter(|guest| guest.template);
    let mut there: Vec<String> = there.map(who).collect();
    let more = there.len().saturating_sub(NAMED);
    there.truncate(NAMED);
    let there = match (there.is_empty(), more) {
        (true, _) => "the token sees no templates at all".to_owned(),
        (false, 0) => format!("the token sees {}", there.join(", ")),
        (false, more) => format!("the token sees {} and {more} more", there.join(", ")),
    };
    let what = match wanted {
        TemplateRef::Vmid(vmid) => format!(
            "the token sees no VM {vmid}: check `template`, and check that the token has VM.Audit and \
                VM.Clone on /vms/{vmid} or the VM's resource pool"
        ),
        TemplateRef::Name(name) => format!(
            "no template is called `{name}`, or the token cannot see it: check `template`, and check \
                that the token has VM.Audit and VM.Clone on the template or its resource pool"
        ),
    };
    format!("{what}; {there}")
}

/// What a pool requires of its template.
struct Needs {
    /// Whether the pool needs the guest agent, to run something in the guest.
    agent: bool,
    /// Whether the pool needs a cloud-init drive, because its guests read their settings from the drive that
    /// Proxmox VE generates.
    drive: bool,
}

impl Needs {
    fn of(config: &Config, pool: &Pool) -> Self {
        let bootstrap = config.bootstrap_of(pool);
        let agent = bootstrap.is_none_or(Bootstrap::needs_agent);
        Self { agent, drive: pool.cloud_init == CloudInit::Drive && (agent || pool.tells_guests()) }
    }
}

fn judge(
    pool: &Pool,
    needs: &Needs,
    guest: &Guest,
    vm: &VmConfig,
    seen: &ClusterResources,
) -> Result<Usable, String> {
    let who = who(guest);
    if !vm.is_template() {
        return Err(format!("{who} is a VM, not a template: convert it with `qm template {}`", guest.vmid));
    }
    if needs.agent && !vm.agent_enabled() {
        return Err(format!(
            "{who} has the guest agent disabled: run `qm set {} --agent enabled=1`",
            guest.vmid
        ));
    }
    if needs.drive && vm.cloudinit_drive().is_none() {
        return Err(format!(
            "{who} has no cloud-init drive: run `qm set {} --ide2 STORAGE:cloudinit`",
            guest.vmid
        ));
    }
    if let Some(refused) = uncloneable(guest.vmid, vm) {
        return Err(format!("{who} {refused}"));
    }
    if let (Some(device), false) = (vm.device_keys().first(), pool.pci.is_empty()) {
        return Err(format!(
            "{who} and the pool both pass host devices through: run `qm set {} --delete {device}`",
            guest.vmid
        ));
    }
    if let Some(disk) = &pool.disk
        && vm.drive_size(&disk.device).is_none()
    {
        return Err(format!("{who} has no disk `{}`: set the pool's `disk_device`", disk.device));
    }
    Ok(Usable {
        vmid: Some(guest.vmid),
        host: guest.host.clone(),
        reach: reach(guest, vm, seen),
        sources: sources(guest, vm, seen),
        bytes: clone_bytes(pool, vm),
        print: print(guest.vmid, vm, inherited::tells),
        former_print: print(guest.vmid, vm, told_before),
    })
}

/// Returns the space that a full clone takes up on the pool's storages, in bytes. Returns 0 if the pool names
/// no storages, which is the case with linked clones.
fn clone_bytes(pool: &Pool, vm: &VmConfig) -> i64 {
    if pool.storages.is_empty() { 0 } else { full_clone_bytes(pool, vm) }
}

/// Returns the space that a full clone takes up, in bytes: all of the template's disks, plus the amount by
/// which its main disk is enlarged.
pub fn full_clone_bytes(pool: &Pool, vm: &VmConfig) -> i64 {
    let growth = pool
        .disk
        .as_ref()
        .map_or(0, |disk| disk.bytes.saturating_sub(vm.drive_size(&disk.device).unwrap_or_default()).max(0));
    vm.full_clone_bytes().saturating_add(growth)
}

/// Returns the reason why no token can clone the template, if the template directly uses devices or drives of
/// its host.
fn uncloneable(vmid: Vmid, vm: &VmConfig) -> Option<String> {
    let real = |key: &&str| {
        let parts = vm.parts(key);
        match stem(key) {
            "hostpci" => parts.get("mapping").is_none(),
            "usb" => parts.get("mapping").is_none() && parts.get("host").is_none_or(|host| !is_spice(host)),
            _ => false,
        }
    };
    if let Some(device) = vm.all().map(|(key, _)| key).find(real) {
        return Some(format!(
            "passes a host device through directly (`{device}`), so no token can clone it: create a \
                resource mapping for the device, or run `qm set {vmid} --delete {device}`"
        ));
    }
    let drive = vm.drives_of_the_host().next()?;
    Some(format!(
        "uses a host drive directly (`{drive}`), which cannot be cloned: run `qm set {vmid} --delete \
            {drive}`"
    ))
}

fn is_spice(host: &str) -> bool {
    host.eq_ignore_ascii_case("spice")
}

/// Whether an option was part of the fingerprint before the daemon had rules for inherited options.
fn told_before(key: &str) -> bool {
    !["cores", "description", "digest", "lock", "memory", "name", "sockets", "tags"].contains(&key)
}

/// Returns the fingerprint: the VMID, and a digest of the options that distinguish templates. A template that
/// replaces another one has a different SMBIOS uuid and different MAC addresses.
fn print(vmid: Vmid, vm: &VmConfig, tells: impl Fn(&str) -> bool) -> String {
    let mut hasher = Sha256::new();
    for (key, value) in vm.all().filter(|(key, _)| tells(key)) {
        hasher.update(format!("{key}: {value}\n"));
    }
    let mut print = format!("{vmid}-");
    for byte in hasher.finalize().iter().take(6) {
        let _ = write!(print, "{byte:02x}");
    }
    print
}

fn sources(guest: &Guest, vm: &VmConfig, seen: &ClusterResources) -> BTreeSet<String> {
    let shared = |name: &str| seen.storages.iter().any(|one| one.name == name && one.size.shared);
    vm.storages()
        .into_iter()
        .map(|name| if shared(name) { name.to_owned() } else { format!("{}/{name}", guest.host) })
        .collect()
}

/// Returns the hosts on which a clone can be created. These are the template's own host and, if all storages
/// of the template's volumes are shared, each host that can access all of them.
fn reach(guest: &Guest, vm: &VmConfig, seen: &ClusterResources) -> BTreeSet<String> {
    let storages = vm.storages();
    let has = |host: &str, storage: &str| {
        seen.storages.iter().any(|one| one.host == host && one.name == storage && one.size.shared)
    };
    let shared = |host: &&String| storages.iter().all(|storage| has(host, storage));
    let mut reach: BTreeSet<String> = seen.hosts.keys().filter(shared).cloned().collect();
    reach.insert(guest.host.clone());
    reach
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vm(options: &[(&str, &str)]) -> VmConfig {
        options.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn only_what_machines_are_made_of_makes_another_template() {
        let plain = [("scsi0", "shared:9000/base-9000-disk-0.qcow2,size=10G"), ("cpu", "host")];
        let before = print(Vmid(9000), &vm(&plain), inherited::tells);
        for (option, value, same) in [
            ("protection", "1", true),
            ("onboot", "1", true),
            ("startup", "order=3", true),
            ("description", "a note", true),
            ("tags", "k8s", true),
            ("vcpus", "1", true),
            ("balloon", "512", true),
            ("lock", "backup", true),
            ("unused0", "shared:9000/vm-9000-disk-1.qcow2", true),
            ("cpulimit", "2", false),
            ("affinity", "0-3", false),
            ("cicustom", "vendor=local:snippets/v.yml", false),
            ("scsi1", "shared:9000/base-9000-disk-1.qcow2,size=10G", false),
            ("something-new", "1", false),
        ] {
            let after = print(Vmid(9000), &vm(&[&plain[..], &[(option, value)]].concat()), inherited::tells);
            assert_eq!(before == after, same, "{option}");
        }
    }

    #[test]
    fn a_look_that_was_under_way_takes_back_nothing_that_a_clone_has_found_out() {
        let was = vm(&[("cpu", "host")]);
        let is = vm(&[("cpu", "x86-64-v3")]);
        let look = || {
            let usable = Usable {
                vmid: Some(Vmid(9000)),
                print: print(Vmid(9000), &was, inherited::tells),
                ..Usable::default()
            };
            BTreeMap::from([("w".into(), PoolTemplates { usable: vec![usable], ..PoolTemplates::default() })])
        };
        let (templates, began) = (Templates::default(), Instant::now());
        let asked = |after| BTreeMap::from([(Vmid(9000), began + Duration::from_secs(after))]);
        templates.found(look(), &asked(0));
        let now = templates.is_now(Vmid(9000), &is, began + Duration::from_secs(2));
        templates.found(look(), &asked(1));
        assert_eq!(templates.prints("w")[0], now, "an older reading replaced the clone's");
        templates.found(look(), &asked(3));
        assert_ne!(templates.prints("w")[0], now, "the newer reading was not stored");
        templates.found(BTreeMap::new(), &BTreeMap::new());
        templates.found(look(), &asked(4));
        assert_ne!(templates.prints("w")[0], now);
    }

    #[test]
    fn devices_and_drives_of_the_host_cannot_be_cloned() {
        for (option, value, refused) in [
            ("usb0", "host=1234:5678", true),
            ("usb0", "1-2,usb3=1", true),
            ("usb0", "spice,usb3=yes", false),
            ("usb1", "usb3=1,host=SPICE", false),
            ("usb0", "mapping=stick", false),
            ("hostpci0", "0000:01:00.0", true),
            ("hostpci0", "pcie=1,host=01:00", true),
            ("hostpci0", "pcie=1,mapping=gpu", false),
            ("scsi1", "/dev/disk/by-id/ata-1,size=4G", true),
            ("ide2", "none,media=cdrom", false),
            ("serial0", "/dev/ttyS0", false),
        ] {
            assert_eq!(
                uncloneable(Vmid(9000), &vm(&[(option, value)])).is_some(),
                refused,
                "{option}: {value}"
            );
        }
    }
}
