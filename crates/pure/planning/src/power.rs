//! Decides which hosts can be switched off and which have to be woken. Only hosts whose `[[host]]` sets
//! `power` are considered.
//!
//! ```text
//!  Needed ─> Idle ──(idle_for)──> Emptied ──> SwitchOff ──> GoingOff ──> Off ──> Wake ──> Waking ─┐
//!    ^         ^ └───────────── a reason to stay ─┘                       (asked again each minute) │
//!    └─────────┴──────────────────────── it is on, and its API answers ──────────────────────────────┘
//! ```
//!
//! * [`PowerMemory`] contains the step that a host is at; this module only decides what comes next. If
//!   nothing is remembered about a host that is off, another client switched it off, and the daemon leaves it
//!   alone.
//! * A host is switched off only if nothing but managed machines runs there, every pod on them has a place
//!   elsewhere, each pool keeps its minimum, the remaining hosts have a majority of **all** votes, and
//!   `min_hosts_on` and `max_hosts_off` allow it. All of this is checked again in each round until the host is
//!   empty. If one condition fails, the host is used as before.
//! * Only one host at a time is emptied or shut down. Hosts are woken one after the other too: when the next
//!   one is considered, those before it count as on.
//! * The nodes of a host that is being emptied are replaced like those of a host in maintenance
//!   ([`super::replacement_due`]): the new nodes come first, and the same limits apply.
//! * A host is woken for pods without room, and for machines that pools lack for their minimum, if these
//!   would find room with the host on. A host that is off is assumed to have the room that it had when it was
//!   empty.

mod waking;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::allowance::Allowance;
use super::budgets::Budgets;
use super::drain::Rules;
use super::facts::{
    host::is_up,
    node::{pool_of, stays},
    time::{after, watched_since},
};
use super::pods_by_node::PodsByNode;
use super::scale_up;
use super::view::View;
use model::machine::{Host, Machine, Phase};
use model::plan::{Plan, PodOutcome, PodVerdict};
use model::pod::Pod;
use model::power::{HostOutcome, HostVerdict, PowerMemory, PowerStep};
use model::workload::Backoff;
use model::{HostKey, Snapshot};
use settings::{Config, Pool, PowerSettings};

/// If a host that was asked to start is not on yet, it is asked again at this interval. The packet may have
/// been lost, and a host that is still shutting down does not receive it.
const ASK_AGAIN: Duration = Duration::from_mins(1);
/// Why a host is not needed.
const PLACE_ELSEWHERE: &str = "everything on it fits elsewhere";
/// Maximum number of guests that a reason names.
const NAMED: usize = 3;

/// Returns a verdict for each host that may be switched off, ordered by host name.
pub(super) fn decide(
    snapshot: &Snapshot,
    pods: &PodsByNode,
    config: &Config,
    offers: &[Pool],
    plan: &Plan,
    allowance: &Allowance,
) -> Vec<HostVerdict> {
    let Some(hosts) = &snapshot.proxmox.hosts else { return Vec::new() };
    let ours = |host: &&Host| config.hosts.get(&host.name).is_some_and(|own| own.power.is_some());
    let mut ours: Vec<&Host> = hosts.iter().filter(ours).collect();
    ours.sort_by(|a, b| a.name.cmp(&b.name));
    if ours.is_empty() {
        return Vec::new();
    }
    let allowance = allowance.of_power();
    let short = shortage(snapshot, pods, config, offers, &BTreeSet::new(), &allowance);
    let desk = HostPowerRules { snapshot, pods, config, offers, plan, short, allowance };
    let mut verdicts: Vec<HostVerdict> = ours.iter().map(|host| desk.judge(host)).collect();
    desk.begin_one(&mut verdicts);
    desk.wake_one(&mut verdicts);
    verdicts
}

/// Returns the number of pods that would be left pending in this cluster, plus the number of machines that
/// the pools would lack to reach their minimum. `gone` are nodes that no longer exist. Returns `None` if not
/// all pending pods were looked at.
fn shortage(
    snapshot: &Snapshot,
    pods: &PodsByNode,
    config: &Config,
    offers: &[Pool],
    gone: &BTreeSet<&str>,
    allowance: &Allowance,
) -> Option<usize> {
    let allowance = allowance.of_growth();
    let growth = scale_up::decide(&mut View::without(snapshot, pods, config, offers, gone, &allowance));
    let stuck = |one: &&PodVerdict| {
        use PodOutcome::{BackingOff, NoHostCapacity, NoPoolFits, PoolAtMax};
        matches!(one.verdict, NoPoolFits | PoolAtMax | NoHostCapacity | BackingOff)
            || one.awaits_room_with_gang()
    };
    let waiting = growth.verdicts.iter().filter(stuck).count();
    let missing = config.pools.iter().map(|pool| pool.min.saturating_sub(growth.rooms.staying(&pool.name)));
    if growth.cut || growth.unfinished.is_some() {
        return None;
    }
    Some(waiting + growth.homeless.len() + missing.map(|count| count as usize).sum::<usize>())
}

/// The inputs for the verdicts of one round.
struct HostPowerRules<'a> {
    snapshot: &'a Snapshot,
    pods: &'a PodsByNode<'a>,
    config: &'a Config,
    offers: &'a [Pool],
    plan: &'a Plan,
    /// The current shortage, if it is known.
    short: Option<usize>,
    allowance: Allowance,
}

impl HostPowerRules<'_> {
    fn settings(&self) -> &PowerSettings {
        &self.config.power
    }

    fn memory(&self, host: &str) -> Option<&PowerMemory> {
        self.snapshot.memory.hosts.get(host)?.power.as_ref()
    }

    /// Why a host is left alone after a failure.
    fn backoff(&self, host: &str) -> Option<&str> {
        let backoff = self.snapshot.memory.hosts.get(host)?.backoff.as_ref()?;
        backoff.runs(self.snapshot.time).then_some(backoff.reason.as_str())
    }

    /// The verdict on a host before the hosts are compared with each other.
    fn judge(&self, host: &Host) -> HostVerdict {
        let Some(memory) = self.memory(&host.name) else {
            return if host.online {
                self.used(host)
            } else {
                verdict(host, HostOutcome::NotOurs, "it is off, but the daemon did not switch it off")
            };
        };
        let now = self.snapshot.time;
        let by = |limit: Duration| after(memory.since, limit);
        let asked = |outcome, message: &str, limit| HostVerdict {
            since: Some(memory.since),
            due: Some(by(limit)),
            ..verdict(host, outcome, message)
        };
        let settings = self.settings();
        match (memory.step, host.online) {
            (PowerStep::Emptying, true) => self.emptied(host, memory),
            (PowerStep::Emptying, false) => verdict(
                host,
                HostOutcome::NotOurs,
                "it went down while it was being emptied, but the daemon did not switch it off",
            ),
            (PowerStep::ShuttingDown, false) => self.off(host, now),
            (PowerStep::ShuttingDown, true) if by(settings.shutdown_time) > now => {
                asked(HostOutcome::GoingOff, "it was asked to shut down", settings.shutdown_time)
            }
            (PowerStep::ShuttingDown, true) => {
                verdict(host, HostOutcome::GivenUp, "it did not turn off within `power.shutdown_time`")
            }
            (PowerStep::Off, false) => self.off(host, memory.since),
            // Either another client switched the host on, or the host started after `power.wake_time`.
            (PowerStep::Off, true) => self.used(host),
            (PowerStep::Waking, _) if is_up(self.snapshot, &host.name) => self.used(host),
            (PowerStep::Waking, _) if by(settings.wake_time) <= now => {
                verdict(host, HostOutcome::GivenUp, "it did not start within `power.wake_time`")
            }
            (PowerStep::Waking, true) => {
                asked(HostOutcome::Waking, "it is on, but its API does not answer yet", settings.wake_time)
            }
            (PowerStep::Waking, false) => {
                let again = memory.asked.is_none_or(|asked| after(asked, ASK_AGAIN) <= now);
                let outcome = if again { HostOutcome::Wake } else { HostOutcome::Waking };
                asked(outcome, "it was asked to start", settings.wake_time)
            }
        }
    }

    fn off(&self, host: &Host, since: Timestamp) -> HostVerdict {
        let message = match self.backoff(&host.name) {
            Some(why) => format!("it will not be woken for a while because of a failure: {why}"),
            None => "it is off until it is needed".to_owned(),
        };
        HostVerdict { since: Some(since), ..verdict(host, HostOutcome::Off, &message) }
    }

    /// The verdict on a host that is on and used normally.
    fn used(&self, host: &Host) -> HostVerdict {
        if let Some(why) = self.stays(host).or_else(|| self.needs(host)) {
            return verdict(host, HostOutcome::Needed, &why);
        }
        let since = self.snapshot.memory.hosts.get(&host.name).and_then(|memory| memory.idle_since);
        let since = since.filter(|since| *since <= self.snapshot.time);
        let since =
            since.map_or(self.snapshot.time, |since| watched_since(self.snapshot, self.config, since));
        let due = after(since, self.settings().idle_for);
        let (due, message) = match self.in_vain(&host.name) {
            Some(backoff) => (
                due.max(backoff.until),
                format!("{PLACE_ELSEWHERE}; an earlier attempt to empty it failed: {}", backoff.reason),
            ),
            None => (due, PLACE_ELSEWHERE.to_owned()),
        };
        HostVerdict { since: Some(since), due: Some(due), ..verdict(host, HostOutcome::Idle, &message) }
    }

    /// The back-off after the daemon gave up emptying the host. While it runs, the host is not emptied again.
    fn in_vain(&self, host: &str) -> Option<&Backoff> {
        let backoff = self.snapshot.memory.hosts.get(host)?.emptying_backoff.as_ref()?;
        backoff.runs(self.snapshot.time).then_some(backoff)
    }

    fn emptied(&self, host: &Host, memory: &PowerMemory) -> HostVerdict {
        if let Some(why) = self.stays(host).or_else(|| self.needs(host)) {
            return verdict(host, HostOutcome::Needed, &why);
        }
        // Pods that are pending now may be waiting for the room of this host.
        let short = self.short.filter(|short| *short > 0);
        if short.is_some_and(|short| self.short_with(&[&host.name]).is_some_and(|with| with < short)) {
            return verdict(host, HostOutcome::Needed, "its room is needed");
        }
        let since = Some(memory.since);
        let left = self.left(&host.name);
        let waits = self.migration(&host.name).filter(|_| left == 0);
        if left == 0 && waits.is_none() {
            return HostVerdict { since, ..verdict(host, HostOutcome::SwitchOff, "nothing is left on it") };
        }
        let due = after(memory.since, self.settings().empty_time);
        if due <= self.snapshot.time {
            return verdict(host, HostOutcome::GivenUp, "it could not be emptied within `power.empty_time`");
        }
        let message = waits.unwrap_or_else(|| format!("still in use by {left} of the daemon's machines"));
        HostVerdict { since, due: Some(due), ..verdict(host, HostOutcome::Emptied, &message) }
    }

    /// Managed machines on the host, including warm ones and those that are being removed.
    fn machines<'s>(&'s self, host: &'s str) -> impl Iterator<Item = &'s Machine> {
        let machines = self.snapshot.proxmox.machines.iter().flatten();
        machines.filter(move |machine| machine.host == host && machine.phase != Phase::Gone)
    }

    /// Returns the number of managed machines on the host. VMs that were machines until recently are
    /// included, because an outdated list of guests may still contain them.
    fn left(&self, host: &str) -> usize {
        let facts = self.snapshot.proxmox.power.as_ref().and_then(|facts| facts.hosts.get(host));
        self.machines(host).count() + facts.map_or(0, |facts| facts.going.len())
    }

    /// The reason to wait, if a migration may be moving a guest to this host.
    fn migration(&self, host: &str) -> Option<String> {
        let vmid = self.snapshot.proxmox.power.as_ref()?.hosts.get(host)?.migrating.first()?;
        Some(format!("waiting for guest {vmid}, which is being migrated"))
    }

    /// The reason to wait, if leftovers have to be removed from the host first. Once the host is off, they
    /// cannot be removed.
    fn remains(&self, host: &str) -> Option<String> {
        let over = self.machines(host).find(|machine| machine.phase.is_over())?;
        Some(format!("waiting for the leftovers of {} to be removed from this host", over.name))
    }

    /// Why a host stays on, whatever the managed machines need.
    fn stays(&self, host: &Host) -> Option<String> {
        let name = &host.name;
        let Some(facts) = &self.snapshot.proxmox.power else {
            return Some("it is not known yet whether the host has to stay on".to_owned());
        };
        let Some(own) = facts.hosts.get(name) else {
            return Some("it is not known yet whether the host has to stay on".to_owned());
        };
        if let Some(why) = &own.stays_on {
            return Some(why.clone());
        }
        if !own.answers {
            return Some("its API does not answer".to_owned());
        }
        if host.maintenance {
            return Some("it is in maintenance".to_owned());
        }
        if !own.others.is_empty() {
            let named: Vec<String> = own.others.iter().take(NAMED).map(ToString::to_string).collect();
            let more = if own.others.len() > NAMED { " and more" } else { "" };
            return Some(format!("unmanaged guests run on this host: {}{more}", named.join(", ")));
        }
        if let Some(why) = self.backoff(name) {
            return Some(format!("it is left alone after a failure: {why}"));
        }
        self.too_few(name, &facts.votes)
    }

    /// Why the host stays on, if too few hosts or votes would be left without it, or too many hosts are off.
    fn too_few(&self, name: &HostKey, votes: &BTreeMap<HostKey, u32>) -> Option<String> {
        let all = || self.snapshot.proxmox.hosts.iter().flatten();
        // A host that was asked to shut down does not count as staying on, even if it should have been off by
        // now.
        let going = |host: &Host| {
            let step = self.memory(&host.name).map(|memory| memory.step);
            matches!(step, Some(PowerStep::ShuttingDown | PowerStep::Off))
        };
        let stay: Vec<&Host> =
            all().filter(|host| host.online && host.name != *name && !going(host)).collect();
        if stay.len() < self.settings().min_hosts_on {
            return Some(format!("`power.min_hosts_on` keeps {} hosts on", self.settings().min_hosts_on));
        }
        let ours = |host: &&Host| {
            host.name != *name
                && self.memory(&host.name).is_some_and(|memory| memory.step != PowerStep::Emptying)
        };
        let off = all().filter(ours).count();
        if let Some(most) = self.settings().max_hosts_off.filter(|most| off >= *most) {
            return Some(format!("`power.max_hosts_off` allows {most} to be off at a time"));
        }
        // Each cluster has its own quorum.
        let here = |other: &HostKey| other.region() == name.region();
        let expected: u32 = votes.iter().filter(|(host, _)| here(host)).map(|(_, votes)| votes).sum();
        let kept = stay.iter().filter(|host| here(&host.name));
        let kept: u32 = kept.filter_map(|host| votes.get(&host.name)).sum();
        (kept * 2 <= expected).then(|| {
            format!("the cluster would have {kept} of {expected} votes left, which is not a majority")
        })
    }

    /// Why the managed machines need the host, if they do.
    fn needs(&self, host: &Host) -> Option<String> {
        let made = self
            .machines(&host.name)
            .find(|machine| machine.phase < Phase::Ready && machine.phase != Phase::Warm);
        if let Some(machine) = made {
            return Some(format!("{} is being created on this host", machine.name));
        }
        let growth = self.plan.scale_up.iter().chain(&self.plan.keep).flat_map(|pool| &pool.machines);
        if growth.into_iter().any(|machine| machine.host == host.name) {
            return Some("a machine is being placed on this host".to_owned());
        }
        let nodes = self.nodes(&host.name);
        if !nodes.is_empty() && !self.config.scale_down.enabled {
            return Some("removals are switched off (`scale_down.enabled`)".to_owned());
        }
        self.holds(&nodes).or_else(|| {
            let without = self.without(&host.name, &nodes);
            let short = shortage(&without, self.pods, self.config, self.offers, &nodes, &self.allowance);
            let found = match (short, self.short) {
                (Some(0), _) => true,
                (Some(short), Some(now)) => short <= now,
                (None, _) | (_, None) => {
                    return Some(
                        "it is not known whether the host is needed, because the round has reached its \
                            limit"
                            .to_owned(),
                    );
                }
            };
            (!found).then(|| "what runs on this host would not find room elsewhere".to_owned())
        })
    }

    /// The nodes whose machines are on the host.
    fn nodes(&self, host: &str) -> BTreeSet<&str> {
        let named = self.machines(host).filter_map(|machine| machine.node.as_deref());
        let named: BTreeSet<&str> = named.collect();
        let nodes = self.snapshot.nodes.iter().map(|node| node.name.as_str());
        nodes.filter(|name| named.contains(name)).collect()
    }

    /// Why one of these nodes has to stay, if any does.
    fn holds(&self, nodes: &BTreeSet<&str>) -> Option<String> {
        let (rules, budgets) =
            (Rules::new(self.snapshot, &self.config.scale_down), Budgets::new(self.snapshot));
        for node in self.snapshot.nodes.iter().filter(|node| nodes.contains(node.name.as_str())) {
            if let Some(why) = stays(node) {
                return Some(format!("{} is kept: {why}", node.name));
            }
            if pool_of(node).is_none_or(|name| !self.config.pools.iter().any(|pool| pool.name == name)) {
                return Some(format!("{} belongs to no pool", node.name));
            }
            let mut pods: Vec<&Arc<Pod>> =
                self.pods.all().iter().filter(|pod| pod.node.as_deref() == Some(&*node.name)).collect();
            pods.sort_by_cached_key(|pod| pod.id());
            if let Err(blocker) = rules.drain(pods, &budgets) {
                return Some(format!("{} keeps {} ({})", blocker.pod, node.name, blocker.reason));
            }
        }
        None
    }

    /// The snapshot without the host, its machines, and these nodes.
    fn without(&self, host: &str, nodes: &BTreeSet<&str>) -> Snapshot {
        let mut snapshot = self.snapshot.clone();
        snapshot.nodes.retain(|node| !nodes.contains(node.name.as_str()));
        let proxmox = Arc::make_mut(&mut snapshot.proxmox);
        proxmox.machines.iter_mut().for_each(|all| all.retain(|machine| machine.host != host));
        proxmox.hosts.iter_mut().for_each(|all| all.retain(|one| one.name != host));
        snapshot
    }

    /// The shortage if these hosts were on and open.
    fn short_with(&self, names: &[&str]) -> Option<usize> {
        let mut snapshot = self.snapshot.clone();
        for name in names {
            open(&mut snapshot, name);
        }
        shortage(&snapshot, self.pods, self.config, self.offers, &BTreeSet::new(), &self.allowance)
    }

    /// Begins to empty the idle host that is due and has the fewest machines, unless another host is being
    /// emptied, switched off or woken.
    fn begin_one(&self, verdicts: &mut [HostVerdict]) {
        use HostOutcome::{Emptied, GoingOff, Idle, SwitchOff, Wake, Waking};
        let busy = verdicts
            .iter()
            .find(|one| matches!(one.verdict, Emptied | SwitchOff | GoingOff | Wake | Waking))
            .map(|one| one.host.clone());
        let now = self.snapshot.time;
        let due = |one: &HostVerdict| one.verdict == Idle && one.due.is_some_and(|due| due <= now);
        let held = match busy {
            Some(host) => Some(format!("waiting for its turn, after {host}")),
            None => (self.short != Some(0)).then(|| "waiting until pending pods have room".to_owned()),
        };
        let held = |host: &str| held.clone().or_else(|| self.migration(host)).or_else(|| self.remains(host));
        let first = (0..verdicts.len())
            .filter(|at| due(&verdicts[*at]) && held(&verdicts[*at].host).is_none())
            .min_by_key(|at| (self.machines(&verdicts[*at].host).count(), std::cmp::Reverse(*at)));
        for (at, one) in verdicts.iter_mut().enumerate().filter(|(_, one)| due(one)) {
            if let Some(why) = held(&one.host) {
                one.message.push_str("; ");
                one.message.push_str(&why);
            } else if Some(at) == first {
                let left = self.left(&one.host);
                (one.since, one.due) = (Some(now), None);
                (one.verdict, one.message) = match left {
                    0 => (SwitchOff, "nothing runs on it".to_owned()),
                    _ => (
                        Emptied,
                        format!("{PLACE_ELSEWHERE}; {left} of the daemon's machines will be removed from it"),
                    ),
                };
            } else {
                one.message.push_str("; waiting for its turn");
            }
        }
    }
}

/// Makes a host that the daemon has switched off or is emptying look like any other in the snapshot.
fn open(snapshot: &mut Snapshot, name: &str) {
    let Some(memory) = snapshot.memory.hosts.get_mut(name).and_then(|memory| memory.power.take()) else {
        return;
    };
    let mut hosts = Arc::make_mut(&mut snapshot.proxmox).hosts.iter_mut().flatten();
    let Some(host) = hosts.find(|host| host.name == *name) else {
        return;
    };
    if host.online && memory.step == PowerStep::Emptying {
        return;
    }
    if let Some(room) = memory.room {
        *host = room;
    }
    (host.online, host.maintenance) = (true, false);
    for pool in &memory.reached_by {
        let Some(known) = snapshot.memory.pools.get_mut(pool.as_str()) else { continue };
        let across = memory.across.contains(pool);
        if known.without_template {
            // New machines on this host would be cloned from another host's template. That template is
            // missing, so the back-off remains.
            if across {
                continue;
            }
            // This host may have the template that the other hosts lack, so the pool's back-off does not
            // apply.
            known.backoff = None;
            known.reach.get_or_insert_default();
        }
        if let Some(reach) = &mut known.reach {
            reach.push(name.into());
        }
        if across {
            known.across.push(name.into());
        }
    }
}

fn verdict(host: &Host, verdict: HostOutcome, message: &str) -> HostVerdict {
    HostVerdict { host: host.name.clone(), verdict, message: message.to_owned(), since: None, due: None }
}
