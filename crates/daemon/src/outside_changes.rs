//! Detects changes by other clients to machines' VMs that the cluster's list does not show: a reset, a
//! rollback, a new name, protection.
//!
//! Once per `scan_interval`, concurrently with the rounds, this module reads the cluster's latest tasks and
//! the configurations of a few machines. If there are not too many machines, each is checked within half a
//! minute. The module never changes VMs. A lasting change, such as a new name, is a problem in `status` until
//! it is undone; the problem names the command that undoes it. A single action, such as a reset, is reported
//! once, with the user who requested it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::sync::watch;
use tokio::time::Instant;

use super::inventory::Observation;
use super::regions::{Region, Regions};
use machines::{MachineView, Owner, Registry, ask_hosts_in_time, by_others, deed, is_ours, seconds_ahead};
use model::Record;
use model::machine::{Intent, Phase};
use observability::{Board, Problem};
use proxmox::{Guest, TaskRow, VmConfig};
use runtime::clock::SharedClock;
use settings::{Config, Mode};

/// The maximum number of VM configurations that are read per cluster and `scan_interval`.
const AT_A_TIME: usize = 20;
/// The time after which a configuration is read again. If `scan_interval` is ten seconds, this happens after
/// thirty seconds at the latest.
const AGAIN: Duration = Duration::from_secs(20);
/// The maximum age of a task that is reported.
const LATELY: SignedDuration = SignedDuration::from_mins(10);
/// The names of the tasks that change a configuration. If an option such as the name is changed in Proxmox
/// VE's web interface or with `qm set`, no task is created.
const CONFIGURED: &[&str] = &["qmconfig"];

/// What is remembered about one machine.
#[derive(Debug)]
struct Known {
    due: Instant,
    /// What is wrong with the machine's VM, in words.
    wrong: Vec<String>,
}

/// Watches machines' VMs for changes by other clients.
pub(super) struct Touched {
    regions: Regions,
    registry: Registry,
    config: watch::Receiver<Arc<Config>>,
    clock: SharedClock,
    board: Board,
    /// What is remembered about each machine, by the machine's name.
    known: BTreeMap<String, Known>,
    /// Tasks that were already seen, by cluster prefix.
    tasks: BTreeMap<String, BTreeSet<String>>,
}

impl Touched {
    /// A watcher that has seen nothing yet.
    pub fn new(
        regions: Regions,
        registry: Registry,
        config: watch::Receiver<Arc<Config>>,
        clock: SharedClock,
        board: Board,
    ) -> Self {
        Self { regions, registry, config, clock, board, known: BTreeMap::new(), tasks: BTreeMap::new() }
    }

    /// Checks the VMs periodically; never returns.
    pub async fn watch(mut self) {
        // Clears the problems of an earlier term, because their machines may be gone by now.
        self.board.clear_machines();
        loop {
            let config = self.config.borrow().clone();
            if config.mode == Mode::Active {
                let views = self.registry.all();
                self.forget_others(&views);
                for region in self.regions.clone().iter() {
                    self.look(region, &config, &views).await;
                }
            } else {
                self.forget_others(&[]);
                self.tasks.clear();
            }
            tokio::time::sleep(config.scan_interval).await;
        }
    }

    fn forget_others(&mut self, views: &[MachineView]) {
        let names: BTreeSet<&str> = views.iter().map(|view| view.record.name.as_str()).collect();
        let board = &self.board;
        self.known.retain(|name, _| {
            let is_there = names.contains(name.as_str());
            if !is_there {
                board.clear(&problem(name));
            }
            is_there
        });
    }

    async fn look(&mut self, region: &Region, config: &Config, views: &[MachineView]) {
        let Some(look) = region.fresh(config, self.clock.now()) else { return };
        let here = |view: &&MachineView| {
            !view.record.is_physical() && config.prefix(view.record.region.as_deref()) == region.prefix
        };
        let views: Vec<&MachineView> = views.iter().filter(here).collect();
        if views.is_empty() {
            return;
        }
        let own = config.cluster(&region.prefix).map(|cluster| cluster.token_id.clone()).unwrap_or_default();
        self.hear_tasks(region, &own, &views).await;
        self.read_some(region, config, (&look, &own), &views).await;
    }

    /// Reports other clients' changes to machines' VMs that only a task in Proxmox VE shows. Without
    /// `Sys.Audit` on `/`, the token cannot see the tasks of other users.
    async fn hear_tasks(&mut self, region: &Region, own: &str, views: &[&MachineView]) {
        let Ok(rows) = region.proxmox.cluster_tasks().await else { return };
        let old = self.clock.now().saturating_sub(LATELY).unwrap_or(Timestamp::MIN);
        let before =
            self.tasks.insert(region.prefix.clone(), rows.iter().map(|row| row.upid.to_string()).collect());
        // Tasks from before the first observation were already reported by the leader at that time.
        let Some(before) = before else { return };
        let is_new = |row: &&TaskRow| row.user != own && !before.contains(&row.upid.to_string());
        // Each host's clock is read only once, so that a hanging host delays this check by at most one time
        // limit.
        let mut ahead: BTreeMap<&str, i64> = BTreeMap::new();
        for row in rows.iter().filter(is_new) {
            let about = |view: &&&MachineView| row.about == view.record.slot.vmid.to_string();
            let Some(view) = views.iter().find(about) else { continue };
            let Some(what) = deed(row.upid.kind()) else { continue };
            let host = row.upid.node();
            if !ahead.contains_key(host) {
                ahead.insert(host, seconds_ahead(&region.proxmox, host, &self.clock).await);
            }
            let since = view.record.created.max(old).as_second();
            if row.started < since.saturating_add(ahead.get(host).copied().unwrap_or(0)) {
                continue;
            }
            let follows = match row.upid.kind() {
                "qmreset" | "qmreboot" => {
                    "its guest restarts, and its node is not ready until the guest is up"
                }
                "qmrollback" => {
                    "its guest loses all changes since the snapshot; the VM is started again if it is \
                        off"
                }
                "qmpause" => "its node stops reporting until the VM is resumed",
                // Other changes are found by the machine's task, or shown by the cluster's list.
                _ => {
                    self.registry.doubt(&view.record.id);
                    continue;
                }
            };
            self.say(view, &format!("{} {what}: {follows}", row.user));
        }
    }

    fn say(&self, view: &MachineView, what: &str) {
        tracing::warn!(machine = %view.record.name, what, "a machine's VM was changed from outside");
        self.board.decided(self.clock.now(), format!("! {}: {what}", view.record.name));
    }

    /// Reads the configurations that are due.
    async fn read_some(
        &mut self,
        region: &Region,
        config: &Config,
        (look, own): (&Observation, &str),
        views: &[&MachineView],
    ) {
        let online = |host: &str| look.seen.hosts.get(host).is_some_and(|host| host.online);
        let now = Instant::now();
        let owner = Owner { cluster: config.cluster.clone(), kubernetes: None };
        let due =
            |view: &&MachineView| self.known.get(&view.record.name).is_none_or(|known| known.due <= now);
        let is_there = |view: &&MachineView| {
            let phase = view.phase;
            let configured = matches!(phase, Phase::Warm | Phase::Failed)
                || (Phase::Booting..=Phase::Deleting).contains(&phase);
            configured && online(&view.record.host)
        };
        let mut wanted: Vec<&MachineView> = views.iter().copied().filter(is_there).filter(due).collect();
        // The machine that has waited longest comes first.
        wanted.sort_by_key(|view| self.known.get(&view.record.name).map(|known| known.due));
        wanted.truncate(AT_A_TIME);
        let mut by_host: BTreeMap<String, Vec<&MachineView>> = BTreeMap::new();
        for view in wanted {
            by_host.entry(view.record.host.clone()).or_default().push(view);
        }
        let ask = |host: String, view: &MachineView| {
            let vmid = view.record.slot.vmid;
            async move { region.proxmox.config(&host, vmid).await }
        };
        for (_, view, answer) in ask_hosts_in_time(by_host, ask).await {
            let Some(Ok(read)) = answer else {
                self.put_off(&view.record.name);
                continue;
            };
            if read.is_template() {
                self.registry.doubt(&view.record.id);
            }
            // If the VM no longer belongs to this machine, the machine's task finds that out.
            let is_same = is_ours(&owner, &view.record, &read);
            let guest = look.seen.guests.get(&view.record.slot.vmid);
            let pool = config.cluster(&region.prefix).and_then(|one| one.resource_pool.as_deref());
            self.registry.protect(&view.record.id, is_same && read.is_set("protection"));
            let mut wrong = if is_same { oddities(&view.record, &read) } else { Vec::new() };
            let pool = pool.filter(|_| view.record.intent == Intent::Create);
            wrong.extend(pool.and_then(|pool| has_left(&view.record, pool, guest, look)));
            self.note(region, own, view, wrong).await;
        }
    }

    /// Postpones a VM that could not be read, so that VMs on a hanging host do not delay other VMs.
    fn put_off(&mut self, name: &str) {
        let due = Instant::now() + AGAIN;
        let known = self.known.entry(name.to_owned()).or_insert_with(|| Known { due, wrong: Vec::new() });
        known.due = due;
    }

    /// Shows what is currently wrong with a machine's VM. Reports new findings with the user who caused them,
    /// if known.
    async fn note(&mut self, region: &Region, own: &str, view: &MachineView, wrong: Vec<String>) {
        let record = &view.record;
        let due = Instant::now() + AGAIN;
        let before = self.known.insert(record.name.clone(), Known { due, wrong: wrong.clone() });
        let before = before.map(|known| known.wrong).unwrap_or_default();
        if wrong.is_empty() {
            // An earlier term may have shown problems as well.
            self.board.clear(&problem(&record.name));
            return;
        }
        self.board.problem(&problem(&record.name), &wrong.join("; "));
        let new: Vec<&String> = wrong.iter().filter(|one| !before.contains(one)).collect();
        if new.is_empty() {
            return;
        }
        let since = self.clock.now().saturating_sub(LATELY).unwrap_or(Timestamp::MIN).as_second();
        let since = since.saturating_add(seconds_ahead(&region.proxmox, &record.host, &self.clock).await);
        let by = by_others(&region.proxmox, &record.host, (record.slot.vmid, own), since, CONFIGURED).await;
        let by = by.map(|row| format!(" (the last to change it was {})", row.user)).unwrap_or_default();
        for what in new {
            self.say(view, &format!("{what}{by}"));
        }
    }
}

/// The problem under which `status` shows what is wrong with a machine's VM.
fn problem(name: &str) -> Problem {
    Problem::Machine(name.to_owned())
}

/// Returns what is wrong with a VM's configuration, and the consequences.
fn oddities(record: &Record, config: &VmConfig) -> Vec<String> {
    let (host, vmid) = (&record.host, record.slot.vmid);
    let mut all = Vec::new();
    let name = config.get("name").unwrap_or_default();
    let leaves = record.intent != Intent::Create;
    if name != record.name && !leaves {
        all.push(format!(
            "VM {vmid} was renamed to `{name}`: it stays in service, but at the next start its guest \
                may take the new name and register as a different Node; to restore the old name, on \
                {host}: qm set {vmid} --name {}",
            record.name
        ));
    }
    if config.is_set("protection") {
        let so = if leaves {
            "its machine is to be removed, but the VM is neither stopped nor destroyed while it is protected"
        } else {
            "it stays in service, but can be neither destroyed nor replaced"
        };
        all.push(format!("VM {vmid} is protected: {so}; on {host}: qm set {vmid} --protection 0"));
    }
    all
}

/// Returns the problem text if a VM is in a resource pool other than `pool`, or in none. If the list shows no
/// VM in `pool`, no problem is reported, because the token may lack the right to see pools.
fn has_left(record: &Record, pool: &str, guest: Option<&Guest>, look: &Observation) -> Option<String> {
    let is_in = |guest: &Guest| guest.pool.as_deref() == Some(pool);
    let guest = guest.filter(|guest| !is_in(guest))?;
    look.seen.guests.values().find(|guest| is_in(guest))?;
    let vmid = record.slot.vmid;
    let now = guest
        .pool
        .as_deref()
        .map_or_else(|| "or in any other".to_owned(), |other| format!("but in `{other}`"));
    Some(format!(
        "VM {vmid} is no longer in the resource pool `{pool}` {now}: the token's rights on the pool no \
         longer cover this VM; to put it back: pvesh set /pools/{pool} --vms {vmid}"
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_vm_that_was_renamed_or_protected_is_told_with_the_command() {
        let record = Record::example();
        let read = |value: serde_json::Value| oddities(&record, &VmConfig::read(&value).unwrap());
        assert!(read(json!({"name": record.name, "protection": 0})).is_empty());
        let all = read(json!({"name": "web", "protection": 1}));
        let (name, vmid) = (&record.name, record.slot.vmid);
        assert!(all[0].contains(&format!("qm set {vmid} --name {name}")), "{all:?}");
        assert!(all[1].contains(&format!("qm set {vmid} --protection 0")), "{all:?}");
        assert!(all[1].contains("it stays in service"), "{all:?}");
        let intent = Intent::Discard { reason: String::new(), since: jiff::Timestamp::UNIX_EPOCH };
        let leaves = Record { intent, ..record };
        let read = VmConfig::read(&json!({"name": "web", "protection": 1})).unwrap();
        let all = oddities(&leaves, &read);
        assert!(matches!(&all[..], [one] if one.contains("neither stopped nor destroyed")), "{all:?}");
    }
}
