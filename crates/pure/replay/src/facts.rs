//! Determines, in a first pass over the record, how long things take and what happened.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::figures::Figures;
use super::surroundings::Others;
use super::{CREATION, RETIREMENT, WAKING};
use model::machine::{Machine, Phase};
use model::pod::Scheduling;
use model::resources::Resources;
use model::snapshot::POOL_LABEL;
use model::{HostKey, PoolName, Snapshot};
use planning::ready;

/// The maximum number of durations that are kept for each pool.
const MOST: usize = 10_000;
/// If two rounds are further apart than this, the record has a gap between them. It is not known what
/// happened during a gap.
const GAP: SignedDuration = SignedDuration::from_mins(5);

/// The measured durations of one kind of work, in seconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Took(Vec<i64>);

impl Took {
    fn add(&mut self, seconds: i64) {
        if self.0.len() < MOST {
            self.0.push(seconds.max(0));
        }
    }

    /// The median; `None` if nothing was measured.
    pub fn median(&self) -> Option<i64> {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).copied()
    }

    /// The number of measurements.
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

/// A machine's pool, cores and memory in bytes.
type Shape = (PoolName, u32, i64);

/// The facts from a record: its time range and gaps, how long each kind of work took, and what happened.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The time of the first round.
    pub from: Timestamp,
    /// The time of the last round.
    pub to: Timestamp,
    /// The number of rounds.
    pub rounds: u64,
    /// Periods without rounds, about which nothing is known.
    pub gaps: Vec<(Timestamp, Timestamp)>,
    /// How long machines took until their nodes were ready, by pool.
    pub creation: BTreeMap<PoolName, Took>,
    /// How long warm machines took until their nodes were ready, by pool.
    pub waking: BTreeMap<PoolName, Took>,
    /// How long the removal of nodes took, by pool.
    pub retirement: BTreeMap<PoolName, Took>,
    /// The hosts that appear in the record.
    pub hosts: BTreeSet<HostKey>,
    /// What happened.
    pub happened: Figures,
    shapes: BTreeMap<Shape, (Resources, Resources)>,
}

impl Facts {
    /// Returns the time that a machine of the pool takes to become a node. `woken` is true if the machine was
    /// kept warm before.
    pub(super) fn comes_in(&self, pool: &str, woken: bool) -> SignedDuration {
        let (all, default) = if woken { (&self.waking, WAKING) } else { (&self.creation, CREATION) };
        length(all.get(pool), default)
    }

    /// Returns the time that it takes to remove one of the pool's nodes.
    pub(super) fn goes_in(&self, pool: &str) -> SignedDuration {
        length(self.retirement.get(pool), RETIREMENT)
    }

    /// The recorded capacity and allocatable resources of a ready node whose machine has the same pool and
    /// size.
    pub(super) fn shape(&self, machine: &Machine) -> Option<&(Resources, Resources)> {
        self.shapes.get(&(machine.pool.clone(), machine.cores, machine.memory))
    }
}

fn length(took: Option<&Took>, default: std::time::Duration) -> SignedDuration {
    let seconds = took.and_then(Took::median).map(SignedDuration::from_secs);
    seconds.unwrap_or_else(|| SignedDuration::try_from(default).unwrap_or(SignedDuration::MAX))
}

/// Collects the facts in a first pass over the recorded rounds.
#[derive(Debug, Default)]
pub struct Watcher {
    facts: Facts,
    machines: BTreeMap<String, MachineTrace>,
    /// The pending pods that the scheduler refused, by uid, with the time at which each pod became pending.
    waiting: BTreeMap<String, Timestamp>,
    /// The uids of the pods that were on one of the pools' nodes in the last round.
    placed: BTreeSet<String>,
}

/// A machine as it was last seen.
#[derive(Clone, Debug)]
struct MachineTrace {
    pool: PoolName,
    phase: Phase,
    asked: Timestamp,
    /// Whether the machine is kept warm.
    warm: bool,
    /// Whether the machine was kept warm and then asked to join.
    woken: bool,
    /// Whether the record contains rounds from before the machine was ready.
    from_the_start: bool,
    leaves: Option<Timestamp>,
}

impl Watcher {
    /// Reads the next round.
    pub fn round(&mut self, round: &Snapshot) {
        let first = self.facts.rounds == 0;
        let now = round.time;
        if first {
            self.facts.from = now;
        } else if now.duration_since(self.facts.to) > GAP {
            self.facts.gaps.push((self.facts.to, now));
        }
        (self.facts.to, self.facts.rounds) = (now, self.facts.rounds + 1);
        for host in round.proxmox.hosts.iter().flatten() {
            if !self.facts.hosts.contains(&host.name) {
                self.facts.hosts.insert(host.name.clone());
            }
        }
        self.look_at_machines(round, first);
        self.look_at_nodes(round);
        self.look_at_pods(round, first);
        self.facts.happened.now(round, &Others::of_round(round));
        self.facts.happened.decisions += 1;
    }

    /// The complete result.
    pub fn finish(mut self) -> Facts {
        for since in self.waiting.values() {
            self.facts.happened.still.add(self.facts.to.duration_since(*since).as_secs());
        }
        self.facts
    }

    fn look_at_machines(&mut self, round: &Snapshot, first: bool) {
        let now = round.time;
        let mut before = std::mem::take(&mut self.machines);
        for machine in round.proxmox.machines.iter().flatten() {
            let old = before.remove(&machine.name);
            let mut seen = old.clone().unwrap_or_else(|| {
                if !first && machine.warm.is_none() && machine.phase < Phase::Draining {
                    self.facts.happened.pool(&machine.pool).made += 1;
                }
                MachineTrace {
                    pool: machine.pool.clone(),
                    phase: machine.phase,
                    asked: machine.requested.or(machine.since).unwrap_or(now),
                    warm: machine.warm.is_some(),
                    woken: false,
                    from_the_start: machine.phase < Phase::Ready,
                    leaves: None,
                }
            });
            // A gap in the record may hide the phase in which the machine was ready to be woken, so this
            // phase is not required here.
            if seen.warm && machine.warm.is_none() && machine.phase < Phase::Draining {
                self.facts.happened.pool(&machine.pool).made += 1;
                seen.asked = machine.requested.unwrap_or(now);
                seen.woken = true;
            }
            seen.warm = machine.warm.is_some();
            self.look_at_phase(&mut seen, machine, now);
            self.machines.insert(machine.name.clone(), seen);
        }
        for gone in before.into_values() {
            if gone.phase == Phase::Ready {
                self.facts.happened.pool(&gone.pool).removed += 1;
            }
            if let Some(since) = gone.leaves {
                let took = now.duration_since(since).as_secs();
                self.facts.retirement.entry(gone.pool).or_default().add(took);
            }
        }
    }

    fn look_at_phase(&mut self, seen: &mut MachineTrace, machine: &Machine, now: Timestamp) {
        if seen.phase == machine.phase {
            return;
        }
        let since = machine.since.unwrap_or(now);
        let figures = self.facts.happened.pool(&machine.pool);
        match machine.phase {
            Phase::Ready if seen.phase < Phase::Ready && seen.from_the_start => {
                let all = if seen.woken { &mut self.facts.waking } else { &mut self.facts.creation };
                let took = since.duration_since(seen.asked).as_secs();
                all.entry(machine.pool.clone()).or_default().add(took);
            }
            Phase::Failed => figures.failed += 1,
            phase if phase > Phase::Ready && seen.phase == Phase::Ready => {
                figures.removed += 1;
                seen.leaves = Some(since);
            }
            _ => {}
        }
        seen.phase = machine.phase;
    }

    fn look_at_nodes(&mut self, round: &Snapshot) {
        let machines = round.proxmox.machines.iter().flatten().filter(|machine| machine.growing.is_none());
        let machines: BTreeMap<&str, &Machine> =
            machines.filter_map(|machine| Some((machine.node.as_deref()?, machine))).collect();
        for node in &round.nodes {
            let machine = machines.get(node.name.as_str()).filter(|_| ready(node));
            let Some(machine) = machine.filter(|machine| machine.phase == Phase::Ready) else { continue };
            let shape = (machine.pool.clone(), machine.cores, machine.memory);
            // The first ready node of each shape is enough, because nodes with the same shape rarely differ
            // in capacity and allocatable resources.
            self.facts
                .shapes
                .entry(shape)
                .or_insert_with(|| (node.capacity.clone(), node.allocatable.clone()));
        }
    }

    fn look_at_pods(&mut self, round: &Snapshot, first: bool) {
        let pools: BTreeMap<&str, &str> = round
            .nodes
            .iter()
            .filter_map(|node| Some((node.name.as_str(), node.labels.get(POOL_LABEL)?.as_str())))
            .collect();
        let mut placed = BTreeSet::new();
        let mut waiting = std::mem::take(&mut self.waiting);
        for pod in &round.pods {
            let digest = pod.digest();
            if digest.marks.daemon || digest.marks.mirror {
                continue;
            }
            let before = waiting.remove(&pod.uid);
            if digest.marks.waits && !digest.marks.gated {
                let refused = matches!(pod.scheduling, Scheduling::Unschedulable(_));
                let since = before.or_else(|| refused.then(|| pod.created.unwrap_or(round.time)));
                self.waiting.extend(since.map(|since| (pod.uid.clone(), since)));
                continue;
            }
            let waited = before.map(|since| round.time.duration_since(since).as_secs());
            let happened = &mut self.facts.happened;
            let Some(node) = pod.node.as_deref() else {
                happened.without.add_some(waited);
                continue;
            };
            let Some(pool) = pools.get(node) else {
                happened.elsewhere.add_some(waited);
                continue;
            };
            placed.insert(pod.uid.clone());
            if first || self.placed.contains(&pod.uid) {
                continue;
            }
            let figures = happened.pool(pool);
            figures.pods += 1;
            figures.waits.add_some(waited);
        }
        for since in waiting.into_values() {
            self.facts.happened.without.add(round.time.duration_since(since).as_secs());
        }
        self.placed = placed;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use model::machine::WarmState;
    use model::snapshot::Inventory;

    /// The facts from a record in which a machine is kept warm and then asked to join at minute 60. The
    /// machine is ready at minute 61.
    fn watched(rounds: &[(i64, Phase)]) -> Facts {
        let at = |minute: i64| Timestamp::UNIX_EPOCH + SignedDuration::from_mins(minute);
        let mut watcher = Watcher::default();
        watcher.round(&Snapshot { time: at(-1), ..Snapshot::default() });
        for &(minute, phase) in rounds {
            let machine = Machine {
                name: "w-1".to_owned(),
                pool: "w".into(),
                phase,
                warm: (minute < 60).then_some(WarmState::Stopped),
                requested: Some(at(if minute < 60 { 0 } else { 60 })),
                since: Some(at(minute)),
                ..Machine::default()
            };
            let proxmox = Arc::new(Inventory { machines: Some(vec![machine]), ..Inventory::default() });
            watcher.round(&Snapshot { time: at(minute), proxmox, ..Snapshot::default() });
        }
        watcher.finish()
    }

    #[test]
    fn waking_takes_from_the_request_to_join_even_if_the_record_has_a_gap() {
        let (cloning, warm, ready) = ((0, Phase::Cloning), (2, Phase::Warm), (61, Phase::Ready));
        let starting = (60, Phase::Starting);
        for rounds in [&[cloning, warm, starting, ready][..], &[cloning, starting, ready], &[cloning, ready]]
        {
            let facts = watched(rounds);
            let median = |took: &BTreeMap<PoolName, Took>| took.get("w").and_then(Took::median);
            assert_eq!((median(&facts.waking), median(&facts.creation)), (Some(60), None), "{rounds:?}");
            assert_eq!(facts.happened.pools[&PoolName::from("w")].made, 1, "{rounds:?}");
        }
    }
}
