//! Compares records, VMs and Nodes, and fixes or reports mismatches.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::Daemon;
use kubernetes::{Records, Versioned};
use machines::{Ending, MachineReport, MachineView};
use model::machine::{Intent, Phase};
use model::node::Node;
use model::{MachineId, Record, Vmid};
use observability::Problem;
use settings::{Config, Mode, Pool, ZoneLabels};

/// How often all records are read again.
const READ_RECORDS: SignedDuration = SignedDuration::from_mins(5);
/// The time for which a slot is left alone if another VM or Node occupies it.
const CLOSED: SignedDuration = SignedDuration::from_mins(5);
/// The first and the longest time after which a stuck machine is tried again. The time doubles with each try.
const STUCK: (SignedDuration, SignedDuration) =
    (SignedDuration::from_secs(20), SignedDuration::from_mins(10));
/// The first and the longest pause between two tries to read the records.
pub(super) const TRIES: (std::time::Duration, std::time::Duration) =
    (std::time::Duration::from_secs(1), std::time::Duration::from_secs(30));

/// What reconciliation remembers between rounds.
#[derive(Debug, Default)]
pub(super) struct State {
    /// VMIDs that are occupied by VMs or Nodes of other owners. Maps each cluster prefix and VMID to the time
    /// until which the VMID is left alone.
    closed: BTreeMap<(String, Vmid), Timestamp>,
    /// For each stuck machine, the time of the next try, and the pause before it.
    pub stuck: BTreeMap<MachineId, (Timestamp, SignedDuration)>,
    /// Machines whose VMs look wrong in the cluster's list, each with the number of the observation after
    /// which the VM itself was last checked.
    pub vm_strange: BTreeMap<MachineId, u64>,
    /// Machines whose VM is locked, and when the lock was first seen.
    pub vm_locked: BTreeMap<MachineId, Timestamp>,
    /// Machines whose Node is missing.
    node_missing: BTreeMap<MachineId, Missing>,
    /// Whether all records were read once in this term. If a record is found only after that, earlier rounds
    /// did not count its machine.
    begun: bool,
    /// VMIDs of unreadable records. Their slots are closed.
    unreadable: Vec<Vmid>,
    /// Whether there are unreadable records, including those whose names do not show the VMID.
    has_unreadable: bool,
    read: Option<Timestamp>,
}

/// A machine whose Node is missing.
#[derive(Debug)]
struct Missing {
    since: Timestamp,
    /// The `systemUUID` of another Node with the machine's name, if the VM was checked because of that Node.
    looked: Option<String>,
}

impl State {
    /// Whether any record cannot be read.
    pub fn has_unreadable(&self) -> bool {
        self.has_unreadable
    }

    /// The VMIDs that no machine of the cluster with this prefix can use now. VMIDs of unreadable records are
    /// closed in every cluster, because it is unknown to which cluster they belong.
    pub fn closed(&self, prefix: &str, now: Timestamp) -> impl Iterator<Item = Vmid> {
        let here = move |((at, vmid), until): (&(String, Vmid), &Timestamp)| {
            (at == prefix && waits(*until, CLOSED, now)).then_some(*vmid)
        };
        self.closed.iter().filter_map(here).chain(self.unreadable.iter().copied())
    }

    /// Whether all records are to be read again, because they were last read too long ago or a stuck machine
    /// is due for another try. The stuck machine's entry is kept, so that its next pause can be computed.
    fn is_due(&self, now: Timestamp) -> bool {
        // If the time is in the future, the clock was set back.
        let Some(read) = self.read.filter(|read| *read <= now) else { return true };
        now.duration_since(read) >= READ_RECORDS
            || self.stuck.values().any(|(when, _)| read < *when && *when <= now)
    }

    /// Whether it is too early to try a stuck machine again.
    pub fn is_put_off(&self, id: &MachineId, now: Timestamp) -> bool {
        self.stuck.get(id).is_some_and(|(when, pause)| waits(*when, *pause, now))
    }

    /// Causes the next round to read all records again.
    pub fn read_again(&mut self) {
        self.read = None;
    }

    /// Whether all records were read once in this term.
    pub fn has_begun(&self) -> bool {
        self.begun
    }

    /// Forgets what is remembered about machines whose records are gone.
    fn forget_all_but(&mut self, known: &BTreeSet<MachineId>) {
        self.stuck.retain(|id, _| known.contains(id));
        self.vm_strange.retain(|id, _| known.contains(id));
        self.node_missing.retain(|id, _| known.contains(id));
    }

    pub fn heard(&mut self, told: &MachineReport, config: &Config) {
        let id = told.record.id.clone();
        let now = told.at;
        match &told.ending {
            Ending::SlotTaken(what) => {
                let vmid = told.record.slot.vmid;
                tracing::warn!(
                    vmid = vmid.0,
                    pool = told.record.pool.as_str(),
                    what,
                    "another VM or Node occupies the slot: not using the slot for a while"
                );
                let prefix = config.prefix(told.record.region.as_deref()).to_owned();
                self.closed.insert((prefix, vmid), now.saturating_add(CLOSED).unwrap_or(Timestamp::MAX));
            }
            Ending::Stuck(_) => {
                let pause = self.stuck.get(&id).map_or(STUCK.0, |(_, pause)| (*pause * 2).min(STUCK.1));
                self.stuck.insert(id, (now.saturating_add(pause).unwrap_or(Timestamp::MAX), pause));
            }
            Ending::Failed { .. } | Ending::Touched(_) => {}
            Ending::Ready
            | Ending::Warm
            | Ending::Grown
            | Ending::NotGrown(_)
            | Ending::Removed
            | Ending::Discarded
            | Ending::GivenUp(_)
            | Ending::LookedAfter(_) => {
                self.stuck.remove(&id);
            }
        }
    }
}

impl Daemon {
    /// Reads all records, with retries until that succeeds, and resumes every machine in its phase.
    pub(super) async fn read_records(&mut self) {
        let mut pause = TRIES.0;
        loop {
            match self.kubernetes.list_records().await {
                Ok(records) => {
                    self.take_up(records);
                    self.reconcile.begun = true;
                    return;
                }
                Err(error) => {
                    tracing::warn!(%error, "the machine records cannot be read yet");
                    self.board.problem(&Problem::Kubernetes, &error.to_string());
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(TRIES.1);
                }
            }
        }
    }

    /// Compares records, VMs and Nodes. The only request that this function itself sends is for a list of the
    /// records, every few minutes.
    pub(super) async fn reconcile(&mut self, config: &Arc<Config>) {
        let now = self.clock.now();
        if self.reconcile.is_due(now) {
            match self.kubernetes.list_records().await {
                Ok(records) => self.take_up(records),
                Err(error) => tracing::debug!(%error, "the machine records cannot be read at the moment"),
            }
        }
        if config.mode == Mode::Active && self.watches.is_current() {
            let paused = self.switch.paused().is_some();
            self.hold_against_vms(config, now, paused);
            self.hold_against_power(now);
            if !paused {
                self.hold_against_nodes(config, now);
            }
        }
    }

    pub(super) fn take_up(&mut self, records: Records) {
        let now = self.clock.now();
        self.reconcile.read = Some(now);
        self.reconcile.has_unreadable = !records.unreadable.is_empty();
        self.reconcile.unreadable = records.unreadable.iter().filter_map(|one| one.vmid).collect();
        for one in &records.unreadable {
            self.said.once(&format!("record {}", one.name), || {
                tracing::error!(config_map = %one.name, reason = %one.reason,
                    "a machine record cannot be read: its slot stays closed until the ConfigMap is \
                        fixed. If the VM no longer exists, delete the ConfigMap");
            });
        }
        let known: BTreeSet<MachineId> = records.readable.iter().map(|one| one.record.id.clone()).collect();
        self.reconcile.forget_all_but(&known);
        for view in self.registry.all() {
            if !view.busy && !known.contains(&view.record.id) {
                tracing::warn!(machine = %view.record.name, "another client removed the machine's \
                    record: the VM is no longer managed");
                self.registry.forget(&view.record.id, now);
            }
        }
        let config = self.config.borrow().clone();
        for stored in records.readable {
            self.take_up_one(&config, stored, now);
        }
    }

    fn take_up_one(&mut self, config: &Arc<Config>, stored: Versioned<Record>, now: Timestamp) {
        let active = config.mode == Mode::Active;
        let id = stored.record.id.clone();
        if self.registry.get(&id).is_some_and(|view| view.busy) {
            return;
        }
        if self.reconcile.is_put_off(&id, now) {
            return;
        }
        let node = machines::node_of(&self.watches, &stored.record);
        let settled = stored.record.intent == Intent::Create
            && stored.record.tokens().next().is_none()
            && stored.record.node_uid.is_some();
        let mut view = MachineView::found(&stored, node.map(|node| node.name.clone()), now);
        // For a warm machine, `hold_against_vms` checks whether the VM exists.
        if stored.record.intent == Intent::Create
            && stored.record.warm.is_some()
            && stored.record.entered.contains_key(&Phase::Warm)
        {
            self.registry.put(view.waiting());
            return;
        }
        if settled {
            // The machine's Node may be missing briefly, or not ready yet after registering again:
            // `hold_against_nodes` decides.
            view.phase = Phase::Ready;
            self.registry.put(view);
            let growing = stored.record.growing.is_some() && active;
            if let Some(context) = growing.then(|| self.context(config, &stored.record)).flatten() {
                self.spawn(machines::adopt(context, stored, self.reports.clone()));
            }
            return;
        }
        let new = self.registry.get(&id).is_none();
        self.registry.put(view.clone());
        if active && new && self.reconcile.begun && is_untouched(&stored.record) {
            // Earlier rounds did not count this machine. They may have created others in its place, so the
            // pool may be full.
            return self.discard(
                config,
                &view,
                "the response to the request that created its record was lost",
            );
        }
        if active {
            if new {
                tracing::info!(machine = %stored.record.name, intent = ?stored.record.intent, "resuming a machine");
            }
            let Some(context) = self.context(config, &stored.record) else { return };
            self.spawn(machines::adopt(context, stored, self.reports.clone()));
        }
    }

    /// Checks the Nodes of ready machines. A machine whose Node has been gone for longer than a node may take
    /// to register is removed. The labels and taints of a Node that has lost them are restored, and zone
    /// labels follow the VM if the pool is configured that way.
    fn hold_against_nodes(&mut self, config: &Arc<Config>, now: Timestamp) {
        let patience =
            SignedDuration::try_from(config.scale_up.max_node_provision_time).unwrap_or(SignedDuration::MAX);
        for view in self.registry.all().into_iter().filter(|view| !view.busy && view.phase == Phase::Ready) {
            let id = view.record.id.clone();
            let prefix = config.prefix(view.record.region.as_deref());
            let unseen = self.regions.unseen_of(config, &view.record, now).is_some();
            if let Some(node) = machines::node_of(&self.watches, &view.record) {
                self.reconcile.node_missing.remove(&id);
                let put_off = self.reconcile.is_put_off(&id, now);
                let bare = machines::is_bare(&view.record, &node);
                let at_home = |pool: &Pool| pool.name == view.record.pool && pool.prefix == prefix;
                let known = config.pools.iter().any(at_home);
                let follows = known && !bare && follows(config, &view.record, &node);
                if (bare || follows) && known && !put_off {
                    if let Some(context) = self.context(config, &view.record) {
                        self.spawn(machines::restore(context, view.stored(), self.reports.clone()));
                    }
                } else if view.node.as_deref() != Some(node.name.as_str()) {
                    self.registry.put(MachineView { node: Some(node.name.clone()), ..view });
                }
                continue;
            }
            if unseen {
                // Resets the time for which the Node has been missing, so that the machine is not discarded
                // while it cannot be checked.
                self.reconcile.node_missing.remove(&id);
                continue;
            }
            let name = view.node.as_ref().unwrap_or(&view.record.name);
            let namesake = self.watches.node(name).filter(|_| !view.record.is_physical());
            let missing =
                self.reconcile.node_missing.entry(id.clone()).or_insert(Missing { since: now, looked: None });
            let is_over = now.duration_since(missing.since) >= patience;
            match namesake {
                None if is_over => {
                    self.reconcile.node_missing.remove(&id);
                    self.discard(config, &view, "its Node was deleted and did not come back");
                }
                Some(node) if is_over && machines::is_silent(&node) => {
                    self.reconcile.node_missing.remove(&id);
                    let reason = "the Node with the machine's name does not belong to the machine's VM, \
                        and no longer reports";
                    self.discard(config, &view, reason);
                }
                // The machine's VM may have a new UUID. As long as the Node with the machine's name reports,
                // the VM is not stopped.
                Some(node) if is_over || missing.looked.as_ref() != Some(&node.system_uuid) => {
                    *missing = Missing { since: now, looked: Some(node.system_uuid.clone()) };
                    tracing::warn!(machine = %view.record.name, system_uuid = node.system_uuid,
                        "the systemUUID of the Node with the machine's name is not that of the \
                            machine's VM; checking the VM");
                    if let Some(context) = self.context(config, &view.record) {
                        self.spawn(machines::missed(context, view.stored(), self.reports.clone()));
                    }
                }
                _ => {}
            }
        }
    }

    fn discard(&mut self, config: &Arc<Config>, view: &MachineView, reason: &str) {
        let Some(context) = self.context(config, &view.record) else { return };
        tracing::warn!(machine = %view.record.name, reason, "removing a machine");
        self.board.decided(self.clock.now(), format!("- {}: {reason}", view.record.name));
        self.spawn(machines::discard(context, view.stored(), reason.to_owned(), self.reports.clone()));
    }

    /// Changes the record of a machine on which no task is working.
    pub(super) fn note_on(&mut self, view: &MachineView, change: impl FnOnce(&mut Record)) {
        let (kubernetes, registry, mut stored, mut view) =
            (self.kubernetes.clone(), self.registry.clone(), view.stored(), view.clone());
        change(&mut stored.record);
        self.spawn(async move {
            match kubernetes.update_record(&mut stored).await {
                Ok(()) if registry.get(&stored.record.id).is_some_and(|now| !now.busy) => {
                    view.version = (stored.resource_version, stored.uid);
                    view.record = stored.record;
                    registry.put(view);
                }
                Ok(()) => {}
                Err(error) => tracing::debug!(%error, "a machine's record could not be updated yet"),
            }
        });
    }
}

/// Whether a pause with this end and length is still running. If its end is further ahead than its length,
/// the clock was set back after the pause began, and the pause counts as over.
fn waits(until: Timestamp, pause: SignedDuration, now: Timestamp) -> bool {
    let left = until.duration_since(now);
    left.is_positive() && left <= pause
}

/// Whether a Node's labels have to follow the VM's host and zone, but do not match them.
fn follows(config: &Config, record: &Record, node: &Node) -> bool {
    let pool = config.pools.iter().find(|pool| pool.name == record.pool);
    let pool = pool.filter(|pool| pool.zone_labels == ZoneLabels::Follow);
    pool.is_some_and(|pool| !machines::astray(record, pool, node).is_empty())
}

/// Whether no work was started for the machine.
fn is_untouched(record: &Record) -> bool {
    record.intent == Intent::Create
        && record.task.is_none()
        && record.smbios_uuid.is_none()
        && record.entered.keys().all(|phase| *phase == Phase::Requested)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_that_was_begun_before_the_clock_was_set_back_is_over() {
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        for (now, expected) in [(99, false), (100, true), (159, true), (160, false)] {
            assert_eq!(waits(at(160), SignedDuration::from_secs(60), at(now)), expected, "{now}");
        }
    }

    #[test]
    fn nothing_is_kept_of_machines_that_are_gone() {
        let both = ["gone", "there"].map(MachineId::from);
        let at = Timestamp::UNIX_EPOCH;
        let mut state = State {
            stuck: both.iter().map(|id| (id.clone(), (at, STUCK.0))).collect(),
            vm_strange: both.iter().map(|id| (id.clone(), 7)).collect(),
            node_missing: both.iter().map(|id| (id.clone(), Missing { since: at, looked: None })).collect(),
            ..State::default()
        };
        state.forget_all_but(&BTreeSet::from(["there".into()]));
        assert_eq!(state.stuck.keys().collect::<Vec<_>>(), ["there"]);
        assert_eq!(state.vm_strange.keys().collect::<Vec<_>>(), ["there"]);
        assert_eq!(state.node_missing.keys().collect::<Vec<_>>(), ["there"]);
    }

    #[test]
    fn a_machine_that_got_stuck_has_all_records_read_once_when_its_time_has_come() {
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        let stuck = BTreeMap::from([(MachineId::from("m1"), (at(120), STUCK.0))]);
        for (read, now, due) in [
            (None, 100, true),
            (Some(100), 119, false),
            (Some(100), 120, true),
            (Some(120), 130, false),
            (Some(130), 429, false),
            (Some(130), 430, true),
            (Some(3730), 130, true),
        ] {
            let state = State { read: read.map(at), stuck: stuck.clone(), ..State::default() };
            assert_eq!(state.is_due(at(now)), due, "read at {read:?}, now {now}");
        }
    }

    #[test]
    fn a_machine_that_got_stuck_before_the_clock_was_set_back_is_looked_after_and_not_in_each_round() {
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        let stuck = BTreeMap::from([(MachineId::from("m1"), (at(3700), STUCK.0))]);
        let state = |read| State { read: Some(at(read)), stuck: stuck.clone(), ..State::default() };
        assert!(!state(100).is_put_off(&MachineId::from("m1"), at(101)), "the clock was set back");
        assert!(state(100).is_put_off(&MachineId::from("m1"), at(3690)));
        assert!(!state(100).is_due(at(101)), "the records were read after the clock was set back");
        assert!(state(3690).is_due(at(101)), "the records were read before the clock was set back");
    }
}
