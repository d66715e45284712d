//! The power states of bare-metal machines, polled concurrently with the rounds, so that a slow controller
//! does not delay a round.
//!
//! A polled power state alone never causes a machine to be switched on or off: the machine's task first reads
//! the power state again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use tokio::sync::{Notify, watch};

use super::Daemon;
use machines::{Controllers, MachineReport, MachineView};
use model::Snapshot;
use model::machine::{Intent, Phase};
use observability::Problem;
use proxmox::redfish::PowerState;
use runtime::error_chain::chain;
use runtime::fence::Fence;
use settings::{Config, PhysicalMachine, Pool};

/// The time between two readings of all machines' power states.
const LOOKS: Duration = Duration::from_secs(30);
/// How many controllers are queried at a time.
const AT_A_TIME: usize = 8;

/// A controller's last answer, or the reason why it did not answer.
type PowerReading = Result<PowerState, String>;

/// The last readings, by machine name. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct BareMetalPower {
    known: Arc<Mutex<BTreeMap<String, PowerReading>>>,
    changed: watch::Sender<u64>,
    again: Arc<Notify>,
}

impl Default for BareMetalPower {
    fn default() -> Self {
        Self { known: Arc::default(), changed: watch::Sender::new(0), again: Arc::default() }
    }
}

impl BareMetalPower {
    /// Queries all machines' controllers periodically.
    pub async fn watch(self, mut config: watch::Receiver<Arc<Config>>, controllers: Controllers) {
        loop {
            let settings = config.borrow_and_update().clone();
            let machines: Vec<PhysicalMachine> =
                settings.pools.iter().flat_map(|pool| pool.machines.iter().cloned()).collect();
            let looks = machines.into_iter().map(|machine| look(&controllers, machine));
            let mut looks = futures::stream::iter(looks).buffer_unordered(AT_A_TIME);
            let mut named = BTreeSet::new();
            while let Some((name, seen)) = looks.next().await {
                named.insert(name.clone());
                self.saw(name, seen);
            }
            drop(looks);
            self.known().retain(|name, _| named.contains(name));
            tokio::select! {
                biased;
                changed = config.changed() => if changed.is_err() { return },
                () = self.again.notified() => {}
                () = tokio::time::sleep(LOOKS) => {}
            }
        }
    }

    /// Stores a reading. If it differs from the last one, a round is triggered.
    fn saw(&self, name: String, seen: PowerReading) {
        let before = self.known().insert(name, seen.clone());
        if before.as_ref() != Some(&seen) {
            self.changed.send_modify(|count| *count += 1);
        }
    }

    /// To be called when a machine's task has ended. Discards the machine's last reading, which is outdated,
    /// and requests a new one.
    pub fn heard(&self, told: &MachineReport) {
        if told.record.is_physical() {
            self.known().remove(&told.record.name);
            self.again.notify_one();
        }
    }

    /// A counter that increases with each change that triggers a round.
    pub fn changed(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    fn known(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, PowerReading>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last power state that a machine's controller reported, if any.
    fn power(&self, name: &str) -> Option<PowerState> {
        self.known().get(name)?.as_ref().ok().copied()
    }

    /// The pool's machines that have no record and must not be switched on now, each with a reason that is
    /// worded to follow the machine's name.
    fn out_of_service(
        &self,
        pool: &Pool,
        ours: &BTreeSet<&str>,
        snapshot: &Snapshot,
    ) -> BTreeMap<String, Why> {
        let known = self.known();
        let why = |machine: &PhysicalMachine| {
            let why = match known.get(&machine.name) {
                None => return Some(Why::Unknown),
                Some(Err(why)) => format!("cannot be queried: {why}"),
                Some(Ok(PowerState::Off)) => {
                    let there = snapshot.nodes.iter().any(|node| node.name == machine.name);
                    return there.then(|| {
                        Why::Said(
                            "is off, but a Node with its name belongs to no managed machine: delete the \
                                Node"
                                .to_owned(),
                        )
                    });
                }
                Some(Ok(PowerState::On | PowerState::PoweringOn)) => {
                    "was not switched on by the daemon, and is left alone".to_owned()
                }
                Some(Ok(power)) => format!("is neither on nor off ({power:?})"),
            };
            Some(Why::Said(why))
        };
        let others = pool.machines.iter().filter(|machine| !ours.contains(machine.name.as_str()));
        others.filter_map(|machine| Some((machine.name.clone(), why(machine)?))).collect()
    }
}

/// Why a machine must not be switched on.
enum Why {
    /// The machine's controller has not been queried since the machine's last task ended, or since this term
    /// began.
    Unknown,
    /// A reason that an operator should know.
    Said(String),
}

async fn look(controllers: &Controllers, machine: PhysicalMachine) -> (String, PowerReading) {
    let seen = match controllers(&machine.redfish) {
        // This client is read-only, so its fence is closed.
        Ok(client) => client.fenced(&Fence::closed()).power().await.map_err(|error| chain(&error)),
        Err(why) => Err(why),
    };
    (machine.name, seen)
}

impl Daemon {
    /// Records which managed machines another client has switched off, and which of those are back in
    /// service.
    pub(super) fn hold_against_power(&mut self, now: Timestamp) {
        // A machine that is being switched on is still off at first.
        let quiet = |view: &MachineView| {
            let made = view.phase == Phase::Ready || view.record.intent != Intent::Create;
            !view.busy && made && view.record.is_physical()
        };
        for view in self.registry.all().into_iter().filter(quiet) {
            let Some(power) = self.physical.power(&view.record.name) else { continue };
            let node = machines::node_of(&self.watches, &view.record);
            let seen = machines::seen_off(&view.record, power, node.as_deref(), now);
            if seen != view.record.seen_off {
                let off = seen.is_some();
                tracing::info!(machine = %view.record.name, off, "another client switched a managed machine on or off");
                self.note_on(&view, |record| record.seen_off = seen);
            }
        }
    }

    /// Lists in the snapshot the machines that must not be switched on, and reports the reasons that an
    /// operator should know.
    pub(super) fn out_of_service(&self, config: &Config, snapshot: &mut Snapshot, views: &[MachineView]) {
        let ours: BTreeSet<&str> = views.iter().map(|view| view.record.name.as_str()).collect();
        let mut said = Vec::new();
        for pool in config.pools.iter().filter(|pool| pool.is_physical()) {
            let mut all = BTreeMap::new();
            for (name, why) in self.physical.out_of_service(pool, &ours, snapshot) {
                let closed = pool.physical(&name).is_some_and(|machine| machine.closed);
                let words = match why {
                    Why::Unknown => "has not been queried yet".to_owned(),
                    Why::Said(words) => {
                        said.extend((!closed).then(|| format!("{name} {words}")));
                        words
                    }
                };
                all.insert(name, words);
            }
            snapshot.memory.pools.entry(pool.name.clone()).or_default().out_of_service = all;
        }
        if said.is_empty() {
            self.board.clear(&Problem::Machines);
        } else {
            self.board.problem(&Problem::Machines, &said.join("; "));
        }
    }
}
