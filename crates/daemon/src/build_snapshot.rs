//! Assembles the input of one decision from data that has already been read. This module queries no system.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::Daemon;
use super::inventory::Observation;
use super::reach::see_to_hosts;
use super::regions::Region;
use machines::{MachineView, Promise};
use model::machine::{Host, Intent, Machine, Phase, WarmState};
use model::node::Node;
use model::pci::Held;
use model::power::PowerFacts;
use model::snapshot::{Inventory, POOL_LABEL, UNNEEDED_SINCE, VM_PROTECTED};
use model::{HostKey, Record, Snapshot};
use planning::slots::{self, Taken};
use settings::{Config, Mode, Pool};

/// The maximum age of the contents of Proxmox VE's lists, which `pvestatd` updates every ten seconds.
pub(super) const LISTS_LAG: SignedDuration = SignedDuration::from_secs(20);

/// How long after coming online a host may still be starting its `onboot` VMs.
const STARTS_WITH_HOST: SignedDuration = SignedDuration::from_mins(2);

/// The last observation of each cluster, by the cluster's prefix. Observations that are too old to act on are
/// left out.
pub(super) type Looks = BTreeMap<String, Observation>;

/// Converts a machine to the planner's form. The planner does not wait for a machine that is being created on
/// an offline host, but the machine's slot stays occupied until the host can be read again. With several
/// clusters, the same applies to a machine whose cluster cannot be read.
fn seen_with(view: &machines::MachineView, config: &Config, looks: &Looks, several: bool) -> Machine {
    let mut machine = view.machine(config);
    let look = looks.get(config.prefix(view.record.region.as_deref()));
    machine.just_stored = look.is_some_and(|look| just_stored(view, look.at));
    let offline =
        |look: &Observation| look.seen.hosts.get(&view.record.host).is_some_and(|host| !host.online);
    let lost = look.map_or(several, offline);
    if machine.phase < Phase::Ready && lost && !view.record.is_physical() {
        machine.phase = Phase::Failed;
    }
    let elsewhere = look.and_then(|look| elsewhere(&view.record, look));
    machine.seen_on = elsewhere.map(|host| config.host_key(view.record.region.as_deref(), host));
    machine
}

/// Whether a machine may have written to storage too recently for the observation's storage figures to
/// include it. `pvestatd` updates these figures only every ten seconds. A machine writes when its disks are
/// resized during configuration, and when its memory is suspended to disk.
fn just_stored(view: &MachineView, looked: Timestamp) -> bool {
    let entered = &view.record.entered;
    let configured = entered.range(Phase::Warm..).map(|(_, at)| at).min();
    let suspended = entered.get(&Phase::Warm).filter(|_| view.record.warm == Some(WarmState::Suspended));
    let stored = configured.max(suspended);
    !view.phase.is_over() && stored.is_some_and(|at| looked.duration_since(*at) < LISTS_LAG)
}

/// Returns the host of a machine's VM according to the observation, if the record names a different host. In
/// that case, an administrator has moved the VM, and the record had not been updated when the VM was
/// observed. New clones are left out, because the lists may still show them on their template's host.
fn elsewhere<'a>(record: &Record, look: &'a Observation) -> Option<&'a str> {
    record.smbios_uuid.as_ref()?;
    let cloned = record.entered.get(&Phase::Configuring).unwrap_or(&record.created);
    let shown = look.seen.guests.get(&record.slot.vmid)?.host.as_str();
    (shown != record.host && look.at.duration_since(*cloned) >= LISTS_LAG).then_some(shown)
}

/// The hosts of one cluster, named by their keys ([`HostKey`]). A host's own figures do not include machines
/// that started after the observation, so these machines are added from their records.
fn hosts(
    config: &Config,
    prefix: &str,
    look: &Observation,
    views: &[MachineView],
    promised: &[(String, Promise)],
) -> Vec<Host> {
    let counts_stopped = config.cluster(prefix).is_some_and(|cluster| cluster.count_stopped);
    let mut hosts = look.hosts(counts_stopped);
    let runs = |vmid| look.seen.guests.get(&vmid).is_some_and(|guest| guest.running);
    let unseen = |view: &&MachineView| {
        config.prefix(view.record.region.as_deref()) == prefix
            && is_on(view, look)
            && !runs(view.record.slot.vmid)
    };
    for MachineView { record, .. } in views.iter().filter(unseen) {
        let Some(host) = hosts.iter_mut().find(|host| host.online && *host.name == *record.host) else {
            continue;
        };
        let had = record.growing.as_ref().map(|before| (before.cores, before.memory));
        let (cores, memory) = had.unwrap_or((record.cores, record.memory));
        host.cores_assigned = host.cores_assigned.saturating_add(cores);
        host.memory_assigned = host.memory_assigned.saturating_add(memory);
        host.memory_used = host.memory_used.saturating_add(memory);
        let known = host.pci.held.iter().any(|held| held.vmid == record.slot.vmid);
        host.pci.held.extend(devices(config, record).filter(|_| !known));
    }
    // Other daemons' machines that have not started yet are counted at the size that was assigned to them,
    // not at what they currently use.
    for (name, promise) in promised {
        let Some(host) = hosts.iter_mut().find(|host| *host.name == **name) else { continue };
        host.cores_assigned = host.cores_assigned.saturating_add(promise.cores);
        host.memory_assigned = host.memory_assigned.saturating_add(promise.memory);
        host.memory_used = host.memory_used.saturating_add(promise.memory);
    }
    for host in &mut hosts {
        host.name = HostKey::new(prefix, &host.name);
    }
    hosts
}

/// The devices that a machine's VM was created with, if its pool still assigns the same ones.
fn devices<'a>(config: &'a Config, record: &'a Record) -> impl Iterator<Item = Held> + 'a {
    let own =
        |pool: &&Pool| pool.name == record.pool && record.made_of.get("pci") == pool.made_of().get("pci");
    let given = config.pools.iter().find(own).into_iter().flat_map(|pool| &pool.pci);
    given.flat_map(|one| {
        let held = Held { vmid: record.slot.vmid, mapping: Some(one.mapping.clone()), address: None };
        std::iter::repeat_n(held, one.count as usize)
    })
}

/// Whether a machine's VM counts as running. This is the case if the VM was started and has not been stopped
/// since. It is also the case if the VM may yet be started, or if it was stopped so recently that the
/// observation may not show the stop.
fn is_on(view: &MachineView, look: &Observation) -> bool {
    let started = match view.phase {
        // Unless the record shows that the machine is being removed, a new leader would continue to create
        // the machine.
        Phase::Failed if view.record.intent == Intent::Create => view.record.warm.is_none_or(WarmState::runs),
        Phase::Stopping | Phase::Failed => may_run(view, look),
        Phase::Warm => view.record.warm.is_some_and(WarmState::runs),
        phase => (Phase::Booting..=Phase::Draining).contains(&phase),
    };
    started && !view.record.is_physical()
}

/// Whether a machine that is being removed may be running even though the inventory does not show it as
/// running. A VM that is missing from the inventory may exist, because the token may lack the right to see
/// it. The VM may run even if the record does not show that it was started, because the daemon may have been
/// killed before it recorded the start. A warm machine may have been discarded because its VM was running. A
/// configured VM may start with its host.
fn may_run(view: &MachineView, look: &Observation) -> bool {
    let MachineView { record, .. } = view;
    let has_been = |phase: Phase| record.entered.contains_key(&phase);
    let late = look.at.duration_since(view.since) < LISTS_LAG;
    let unseen = !look.seen.guests.contains_key(&record.slot.vmid);
    let online = look.online.get(&record.host);
    let comes_up = online.is_some_and(|since| look.at.duration_since(*since) < STARTS_WITH_HOST);
    let started = has_been(Phase::Starting);
    ((started || has_been(Phase::Warm)) && late)
        || (unseen && (started || record.smbios_uuid.is_some()))
        || (has_been(Phase::Configuring) && comes_up)
}

/// Timers of unneeded nodes that are not in the Nodes' annotations, because `mode = "observe"` is set or
/// because the annotations could not be written yet. Maps each node to the time at which it became unneeded,
/// or to `None` if it is needed.
pub(super) type Overlay = BTreeMap<String, Option<Timestamp>>;

/// Returns the time at which a node became unneeded, according to its annotation.
pub(super) fn shown_timer(node: &Node) -> Option<Timestamp> {
    node.annotations.get(UNNEEDED_SINCE)?.parse().ok()
}

impl Daemon {
    /// The snapshot for a decision at `now`.
    pub(super) fn gather(&mut self, config: &Arc<Config>, now: Timestamp) -> Snapshot {
        let mut snapshot = self.watches.snapshot();
        snapshot.time = now;
        let views = self.registry.all();
        self.only_ours(&mut snapshot, &views);
        self.mark_protected(&mut snapshot, &views);
        for region in self.regions.iter() {
            match region.inventory.last().1 {
                Some(problem) => self.board.problem(&region.problem(), &problem),
                None => self.board.clear(&region.problem()),
            }
        }
        let fresh = |region: &Region| Some((region.prefix.clone(), region.fresh(config, now)?));
        let looks: Looks = self.regions.iter().filter_map(fresh).collect();
        let several = self.regions.several();
        let proxmox = Inventory {
            // Hosts whose cluster was last observed too long ago are left out: no machines are created on
            // them.
            hosts: Some(
                looks
                    .iter()
                    .flat_map(|(prefix, look)| {
                        let promised = self.promised_to_others(config, prefix, look);
                        hosts(config, prefix, look, &views, &promised)
                    })
                    .collect(),
            ),
            machines: Some(views.iter().map(|view| seen_with(view, config, &looks, several)).collect()),
            templates: self.regions.iter().flat_map(Region::templates_seen).collect(),
            power: self.power(config, &looks, &views),
        };
        snapshot.proxmox = Arc::new(proxmox);
        let mut taken = self.taken(config, &views, &snapshot);
        taken.addresses.extend(self.meet_strangers(config, &views, &snapshot));
        self.judge_orphans(config, &views, &snapshot);
        self.look_at_zones(config, &views);
        snapshot.memory = self.memory.now(&snapshot, config);
        snapshot.memory.free_slots =
            Some(slots::free(config, &taken, |pool, slot| self.registry.freed(pool, slot)));
        snapshot.memory.name_seed = self.random.u64(..);
        self.hold_silent_hosts(&mut snapshot, &looks);
        self.narrow(config, &mut snapshot, &looks);
        see_to_hosts(config, &mut snapshot);
        self.out_of_service(config, &mut snapshot, &views);
        snapshot
    }

    /// The facts about all hosts that may be switched off, across all clusters.
    fn power(&self, config: &Config, looks: &Looks, views: &[MachineView]) -> Option<PowerFacts> {
        let mut all: Option<PowerFacts> = None;
        for (prefix, look) in looks {
            let (Some(survey), Some(region)) = (&look.survey, self.regions.get(prefix)) else { continue };
            let here = |view: &&MachineView| config.prefix(view.record.region.as_deref()) == prefix;
            let views: Vec<MachineView> = views.iter().filter(here).cloned().collect();
            let old = look.at.saturating_sub(LISTS_LAG).unwrap_or(Timestamp::MIN);
            let pools = config.pools.iter().filter(|pool| pool.prefix == *prefix);
            let gone = pools.flat_map(|pool| self.registry.freed_since(&pool.name, old)).collect();
            let templates = region.templates.seen();
            let found = survey.facts(&look.seen, &views, &gone, &templates, &self.instance);
            let all = all.get_or_insert_default();
            all.votes.extend(found.votes.into_iter().map(|(host, own)| (HostKey::new(prefix, &host), own)));
            all.hosts.extend(found.hosts.into_iter().map(|(host, own)| (HostKey::new(prefix, &host), own)));
        }
        all
    }

    /// Removes the pool label, in the snapshot only, from Nodes that do not belong to managed machines,
    /// because another client has set that label. Adds the timers that are missing from managed Nodes'
    /// annotations.
    fn only_ours(&mut self, snapshot: &mut Snapshot, views: &[machines::MachineView]) {
        let uuids: BTreeSet<&str> =
            views.iter().filter_map(|view| view.record.smbios_uuid.as_deref()).collect();
        let observe = self.config.borrow().mode == Mode::Observe;
        let timers = if observe { &mut self.overlay } else { &mut self.unshown };
        let mut before = std::mem::take(timers);
        let mut unknown = BTreeSet::new();
        for node in &mut snapshot.nodes {
            let labelled = node.labels.contains_key(POOL_LABEL);
            let ours = uuids.contains(node.system_uuid.as_str());
            if labelled && !ours {
                if self.labelled.has_met(&node.uid) {
                    self.said.once(
                        &format!("label {}", node.name),
                        || tracing::warn!(node = %node.name, "the Node has a pool label but belongs to no managed machine: it is left alone"),
                    );
                }
                unknown.insert(node.uid.clone());
                let mut stripped = Node::clone(node);
                stripped.labels.remove(POOL_LABEL);
                *node = Arc::new(stripped);
            } else if let Some(since) =
                before.remove(&node.name).filter(|since| observe || shown_timer(node) != *since)
            {
                timers.insert(node.name.clone(), since);
                let mut timed = Node::clone(node);
                timed.annotations.remove(UNNEEDED_SINCE);
                timed.annotations.extend(since.map(|since| (UNNEEDED_SINCE.to_owned(), since.to_string())));
                *node = Arc::new(timed);
            }
        }
        self.labelled.see(unknown);
    }

    /// Marks the Nodes whose VMs an administrator has protected, because these VMs cannot be destroyed.
    /// Silent Nodes are not marked, because their pods may no longer be running and have to be placed
    /// elsewhere.
    fn mark_protected(&self, snapshot: &mut Snapshot, views: &[MachineView]) {
        let protected = views.iter().filter(|view| self.registry.is_protected(&view.record.id));
        let uuids: BTreeSet<&str> = protected.filter_map(|view| view.record.smbios_uuid.as_deref()).collect();
        for node in &mut snapshot.nodes {
            let is_protected = uuids.contains(node.system_uuid.as_str()) && !machines::is_silent(node);
            // Only the VM's own setting counts, not an annotation by another client.
            if is_protected != node.annotations.contains_key(VM_PROTECTED) {
                let annotations = &mut Arc::make_mut(node).annotations;
                annotations.remove(VM_PROTECTED);
                annotations.extend(is_protected.then(|| (VM_PROTECTED.to_owned(), "true".to_owned())));
            }
        }
    }

    fn taken(&self, config: &Config, views: &[MachineView], snapshot: &Snapshot) -> Taken {
        let mut taken = Taken::default();
        let now = self.clock.now();
        for region in self.regions.iter() {
            let vmids = taken.vmids.entry(region.prefix.clone()).or_default();
            vmids.extend(self.reconcile.closed(&region.prefix, now));
            let look = region.inventory.last().0;
            vmids.extend(look.iter().flat_map(|look| look.seen.guests.keys()));
        }
        for view in views {
            let vmid = view.record.slot.vmid;
            let prefix = config.prefix(view.record.region.as_deref()).to_owned();
            taken.vmids.entry(prefix).or_default().insert(vmid);
            // A record's name contains its pool and VMID, but not its region. So if the pool has moved to
            // another region, the VMID counts as taken in that region, too.
            if let Some(pool) = config.pools.iter().find(|pool| pool.name == view.record.pool) {
                taken.vmids.entry(pool.prefix.clone()).or_default().insert(vmid);
            }
            taken.addresses.extend(view.record.slot.addresses());
        }
        for node in &snapshot.nodes {
            taken
                .addresses
                .extend(node.internal_ips.iter().filter_map(|ip| ip.parse::<std::net::IpAddr>().ok()));
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machines::Devices;
    use proxmox::ClusterResources;

    fn record(intent: Intent, warm: Option<WarmState>) -> Record {
        Record { intent, warm, ..Record::example() }
    }

    #[test]
    fn what_was_stored_is_in_doubt_until_the_lists_are_newer() {
        use Phase::{Booting, Clearing, Cloning, Failed, Ready, Starting, Warm};
        let at = |seconds| Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds);
        let (stopped, suspended) = (Some(WarmState::Stopped), Some(WarmState::Suspended));
        for (warm, phase, entered, looked, expected) in [
            (None, Cloning, &[(Cloning, 0)][..], 30, false),
            (None, Starting, &[(Cloning, 0), (Starting, 30)], 25, true),
            (None, Booting, &[(Cloning, 0), (Starting, 30), (Booting, 31)], 49, true),
            (None, Ready, &[(Cloning, 0), (Starting, 30), (Ready, 60)], 61, false),
            (None, Failed, &[(Cloning, 0), (Failed, 30)], 31, true),
            (None, Clearing, &[(Cloning, 0), (Failed, 30)], 31, false),
            (suspended, Booting, &[(Starting, 30), (Booting, 31)], 55, false),
            (suspended, Warm, &[(Starting, 30), (Warm, 90)], 95, true),
            (suspended, Warm, &[(Starting, 30), (Warm, 90)], 110, false),
            (stopped, Warm, &[(Starting, 30), (Warm, 90)], 49, true),
        ] {
            let entered = entered.iter().map(|&(phase, seconds)| (phase, at(seconds))).collect();
            let record = Record { entered, ..record(Intent::Create, warm) };
            let view = MachineView { phase, ..MachineView::requested(record, at(0)) };
            assert_eq!(just_stored(&view, at(looked)), expected, "{warm:?} {phase:?} {looked}");
        }
        // When a warm machine is asked to join, the phases in its record start over. They then no longer show
        // when the machine's disks were written, which may have been very recently.
        let entered = [(Phase::Requested, at(32)), (Starting, at(33))].into();
        let record = Record { entered, asked: Some(at(32)), ..record(Intent::Create, None) };
        assert!(just_stored(
            &MachineView { phase: Starting, ..MachineView::requested(record, at(32)) },
            at(35)
        ));
    }

    #[test]
    fn a_machine_that_is_given_up_takes_its_room_until_its_record_says_so() {
        let now = Timestamp::UNIX_EPOCH;
        let look = Observation {
            seen: Arc::new(ClusterResources::default()),
            survey: None,
            devices: Arc::new(Devices::default()),
            at: now,
            taken: tokio::time::Instant::now(),
            online: Arc::default(),
            number: 0,
        };
        let discard = Intent::Discard { reason: "its disk was full".to_owned(), since: now };
        let (stopped, booted) = (Some(WarmState::Stopped), Some(WarmState::Booted));
        let made = Some("6f1e0f2c".to_owned());
        for (intent, warm, smbios_uuid, expected) in [
            (Intent::Create, None, None, true),
            (Intent::Create, booted, None, true),
            (Intent::Create, stopped, None, false),
            (discard.clone(), None, None, false),
            (discard.clone(), booted, None, false),
            // The VM is not visible, and may have been started.
            (discard, None, made, true),
        ] {
            let record = Record { smbios_uuid, ..record(intent, warm) };
            let view = MachineView { phase: Phase::Failed, ..MachineView::requested(record, now) };
            assert_eq!(is_on(&view, &look), expected, "{:?} {warm:?}", view.record.intent);
        }
    }
}
