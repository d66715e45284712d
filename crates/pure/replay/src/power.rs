//! Simulates switching hosts off and on: provides the facts about hosts that a decision reads, and carries
//! out the decision's verdicts. The steps are the same as the daemon's, but none of them fails.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::cluster::Simulation;
use super::{SHUTDOWN, STARTUP};
use model::machine::Host;
use model::plan::Plan;
use model::power::{HostFacts, HostOutcome, HostVerdict, PowerFacts, PowerMemory, PowerStep};
use model::snapshot::HostMemory;
use model::{HostKey, PoolName, Snapshot};

/// Changes a recorded round so that hosts that the daemon had switched off appear as switched on, with their
/// resources. Returns the names of these hosts.
pub(super) fn switch_on(round: &mut Snapshot) -> BTreeSet<HostKey> {
    let mut switched = BTreeSet::new();
    for host in Arc::make_mut(&mut round.proxmox).hosts.iter_mut().flatten().filter(|host| !host.online) {
        let power = round.memory.hosts.get(&host.name).and_then(|memory| memory.power.as_ref());
        let Some(power) = power.filter(|power| power.step > PowerStep::Emptying) else { continue };
        let Some(room) = &power.room else { continue };
        *host = Host { online: true, maintenance: false, ..room.clone() };
        switched.insert(host.name.clone());
        for name in &power.reached_by {
            let Some(pool) = round.memory.pools.get_mut(name) else { continue };
            if let Some(reach) = pool.reach.as_mut().filter(|reach| !reach.contains(&host.name)) {
                reach.push(host.name.clone());
            }
            if power.across.contains(name) && !pool.across.contains(&host.name) {
                pool.across.push(host.name.clone());
            }
        }
    }
    switched
}

impl Simulation {
    fn is_switched(&self, host: &str) -> bool {
        self.config.hosts.get(host).is_some_and(|own| own.power.is_some())
    }

    /// At the start of a simulation, keeps the recorded data about hosts that may be switched off, except for
    /// back-offs after failed creations. Drops the data about all other hosts, because these hosts are never
    /// switched.
    pub(super) fn begin_hosts(&mut self) {
        let mut hosts = std::mem::take(&mut self.memory.hosts);
        hosts.retain(|host, _| self.is_switched(host));
        for memory in hosts.values_mut() {
            memory.backoff = None;
        }
        self.memory.hosts = hosts;
    }

    fn power(&self, host: &str) -> Option<&PowerMemory> {
        self.memory.hosts.get(host)?.power.as_ref()
    }

    /// The time at which a host completes the shutdown or start that was requested last.
    fn switched_at(&self, power: &PowerMemory) -> Option<Timestamp> {
        let settings = &self.config.power;
        let took = match power.step {
            PowerStep::Emptying | PowerStep::Off => return None,
            PowerStep::ShuttingDown => SHUTDOWN.min(settings.shutdown_time),
            PowerStep::Waking => STARTUP.min(settings.wake_time),
        };
        power.since.saturating_add(signed(took)).ok()
    }

    /// Whether the simulation has switched a host off.
    pub(super) fn is_off(&self, host: &str, now: Timestamp) -> bool {
        let Some(power) = self.power(host) else { return false };
        let done = self.switched_at(power).is_none_or(|at| at <= now);
        match power.step {
            PowerStep::Emptying => false,
            PowerStep::ShuttingDown => done,
            PowerStep::Off => true,
            PowerStep::Waking => !done,
        }
    }

    /// The facts that decide whether hosts stay on. If the record contains no facts about a host, these facts
    /// are derived from the resources that are assigned to the host's guests.
    pub(super) fn power_facts(&self, hosts: &[Host]) -> Option<PowerFacts> {
        let recorded = self.around.proxmox.power.as_ref();
        let ours = hosts.iter().filter(|host| self.is_switched(&host.name));
        let facts = ours.map(|host| {
            let known = recorded.and_then(|facts| facts.hosts.get(&host.name));
            let mut facts = match known.filter(|_| !self.switched_off.contains(&host.name)) {
                Some(known) => HostFacts { going: BTreeSet::new(), ..known.clone() },
                None => {
                    HostFacts { answers: true, stays_on: self.stays_on(&host.name), ..HostFacts::default() }
                }
            };
            facts.answers &= host.online;
            (host.name.clone(), facts)
        });
        let facts: std::collections::BTreeMap<HostKey, HostFacts> = facts.collect();
        let votes = recorded.map(|facts| facts.votes.clone()).filter(|votes| !votes.is_empty());
        let mut votes = votes.unwrap_or_else(|| hosts.iter().map(|host| (host.name.clone(), 1)).collect());
        votes.retain(|host, _| !self.what_if.without.contains(host));
        (!facts.is_empty()).then_some(PowerFacts { votes, hosts: facts })
    }

    /// Returns the reason why a host without recorded power facts stays on, based on the resources that are
    /// assigned to its guests.
    fn stays_on(&self, host: &str) -> Option<String> {
        let why = if !self.others.assigned_known {
            "the recorded rounds do not contain the resources assigned to its guests"
        } else if self.others.of(host) != (0, 0) {
            "unmanaged guests run on this host"
        } else {
            return None;
        };
        Some(why.to_owned())
    }

    /// Carries out the plan's verdicts on hosts.
    pub(super) fn switch_hosts(&mut self, plan: &Plan, snapshot: &Snapshot) {
        let now = snapshot.time;
        for one in &plan.hosts {
            let mut memory = self.memory.hosts.remove(&one.host).unwrap_or_default();
            memory.idle_since = one.since.filter(|_| one.verdict == HostOutcome::Idle);
            self.step(one, &mut memory, snapshot);
            self.memory.hosts.insert(one.host.clone(), memory);
        }
        let powers = self.memory.hosts.values().filter_map(|memory| memory.power.as_ref());
        let switched = powers.filter_map(|power| self.switched_at(power));
        let verdicts = plan.hosts.iter().filter_map(|one| one.due);
        self.due = switched.chain(verdicts).filter(|due| *due > now).chain(self.due).min();
    }

    fn step(&self, one: &HostVerdict, memory: &mut HostMemory, snapshot: &Snapshot) {
        let now = snapshot.time;
        let step = memory.power.as_ref().map(|power| power.step);
        match one.verdict {
            HostOutcome::Emptied if step.is_none() => {
                memory.power = Some(PowerMemory { since: now, ..PowerMemory::default() });
            }
            HostOutcome::SwitchOff => memory.power = Some(shutting_down(snapshot, &one.host)),
            HostOutcome::Off if step == Some(PowerStep::ShuttingDown) => {
                memory.emptying_backoff = None;
                if let Some(power) = &mut memory.power {
                    (power.step, power.since) = (PowerStep::Off, now);
                }
            }
            HostOutcome::Wake => {
                if let Some(power) = &mut memory.power {
                    if power.step != PowerStep::Waking {
                        (power.step, power.since) = (PowerStep::Waking, now);
                    }
                    power.asked = Some(now);
                }
            }
            HostOutcome::Needed | HostOutcome::Idle | HostOutcome::NotOurs | HostOutcome::GivenUp => {
                let in_vain = matches!(one.verdict, HostOutcome::Needed | HostOutcome::GivenUp);
                if in_vain && step == Some(PowerStep::Emptying) {
                    let before = memory.emptying_backoff.take();
                    let next = planning::emptied_in_vain(before.as_ref(), &one.message, &self.config, now);
                    memory.emptying_backoff = Some(next);
                }
                memory.power = None;
            }
            HostOutcome::Emptied | HostOutcome::GoingOff | HostOutcome::Off | HostOutcome::Waking => {}
        }
    }
}

/// Returns the power data to remember about a host that is being shut down.
fn shutting_down(snapshot: &Snapshot, host: &str) -> PowerMemory {
    let with = |has: fn(&model::snapshot::PoolMemory) -> Option<&Vec<HostKey>>| {
        let pools = snapshot.memory.pools.iter();
        let there =
            pools.filter(|(_, pool)| has(pool).is_some_and(|hosts| hosts.iter().any(|one| one == host)));
        there.map(|(name, _)| name.clone()).collect::<BTreeSet<PoolName>>()
    };
    PowerMemory {
        step: PowerStep::ShuttingDown,
        since: snapshot.time,
        asked: None,
        room: snapshot.proxmox.hosts.iter().flatten().find(|one| one.name == host).cloned(),
        reached_by: with(|pool| pool.reach.as_ref()),
        across: with(|pool| Some(&pool.across)),
    }
}

fn signed(time: Duration) -> SignedDuration {
    SignedDuration::try_from(time).unwrap_or(SignedDuration::MAX)
}
