//! Machines that are kept ahead of demand: which of them may be asked to join, how many are to be created,
//! and which are no longer kept.
//!
//! * A warm machine counts towards `max` and occupies its slot and, if it runs, room on its host. It does not
//!   count towards the minimum. No pod is placed on it before it is asked to join; from then on it is treated
//!   like any machine that is being created.
//! * Pending pods come first: warm machines are created only in rounds in which no other machine is created.
//! * A machine is never asked to join if it has other settings, another size or an old template, or if other
//!   VMs have its devices. Nor is it asked to join if its host is in maintenance (with
//!   `replace.maintenance`), closed, to be switched off, or, after a move, not one of its pool's hosts. Such
//!   a machine is replaced by a new one: one at a time in each pool, and only while no other is being
//!   created.
//! * A machine that cannot be started, because its host has no room, is removed if pods are pending and only
//!   this machine keeps its pool from creating one elsewhere.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::capacity::{NoRoom, Place, Rooms};
use super::device_room::DeviceRoom;
use super::facts::{host::is_emptied, machine::is_kept};
use super::view::View;
use super::{names, replacement_due};
use model::machine::{Machine, Phase, WarmState};
use model::plan::{NewMachine, Plan, PodVerdict, PoolGrowth, PoolReason, Unkept};
use model::{HostKey, PoolName, Snapshot, Vmid, quantity};
use settings::{Config, Pool};

/// A warm machine that may be asked to join.
#[derive(Clone, Debug)]
pub(super) struct Woken {
    pub name: String,
    pub vmid: Vmid,
    pub host: HostKey,
    pub state: WarmState,
    cores: u32,
    memory: i64,
    /// Whether the machine's room on the host is already counted, because the machine runs. The setting
    /// `count_stopped` does not change this: it applies only to unmanaged guests.
    pub has_room: bool,
}

impl Woken {
    /// Whether the machine has the size of this pool (or of this offer of a pool), and the pool may use its
    /// host.
    pub(super) fn suits(&self, pool: &Pool) -> bool {
        (self.cores, self.memory) == (pool.cores, pool.memory) && pool.may_be_on(&self.host)
    }
}

/// Returns the machines that may be asked to join, by pool and ordered by name.
pub(super) fn waiting(snapshot: &Snapshot, config: &Config) -> BTreeMap<PoolName, VecDeque<Woken>> {
    let mut waiting: BTreeMap<PoolName, VecDeque<Woken>> = BTreeMap::new();
    for machine in snapshot.proxmox.machines.iter().flatten() {
        let Some(state) = machine.warm.filter(|_| machine.phase == Phase::Warm) else { continue };
        let Some(pool) = config.pools.iter().find(|pool| pool.name == machine.pool) else { continue };
        if unfit(snapshot, config, pool, machine).is_none() {
            waiting.entry(pool.name.clone()).or_default().push_back(Woken {
                name: machine.name.clone(),
                vmid: machine.vmid,
                host: machine.host.clone(),
                state,
                cores: machine.cores,
                memory: machine.memory,
                has_room: state.runs(),
            });
        }
    }
    waiting
}

/// Returns the reason why a machine may no longer become a node, or `None` if it may.
fn unfit(snapshot: &Snapshot, config: &Config, pool: &Pool, machine: &Machine) -> Option<String> {
    let differs = replacement_due::differences(snapshot, (pool, &pool.made_of()), machine);
    if !differs.is_empty() {
        return Some(differs.join(", "));
    }
    if !pool.sizes.iter().any(|size| (size.cores, size.memory) == (machine.cores, machine.memory)) {
        return Some("the pool no longer creates machines of this size".to_owned());
    }
    let host = &machine.host;
    if is_emptied(snapshot, host) {
        return Some(format!("its host {host} is to be switched off"));
    }
    if !pool.may_be_on(host) {
        return Some(format!("its host {host} is not among its pool's `hosts`"));
    }
    if config.hosts.get(host).is_some_and(|own| own.closed) {
        return Some(format!("its host {host} is closed"));
    }
    let here = snapshot.proxmox.hosts.iter().flatten().find(|one| one.name == *host && one.online)?;
    if config.replace.maintenance && here.maintenance {
        return Some(format!("its host {host} is in maintenance"));
    }
    // Devices are checked only for a machine that has not started: a running one already has its devices.
    let starts = machine.warm == Some(WarmState::Stopped) && !pool.pci.is_empty();
    let machines = || snapshot.proxmox.machines.as_deref().unwrap_or_default();
    (starts && DeviceRoom::new(here, machines(), &config.pools).overdrawn(pool))
        .then(|| format!("other VMs use its devices on its host {host}"))
}

/// Adds to a plan the machines to create ahead of demand, and those that are no longer kept. `rooms` is the
/// room that the plan leaves.
pub(super) fn provide(view: &View, mut rooms: Rooms, plan: &mut Plan) {
    let woken: BTreeSet<&str> = machines(&plan.scale_up)
        .filter(|machine| machine.woken.is_some())
        .filter_map(|machine| machine.name.as_deref())
        .collect();
    let kept: Vec<&Machine> = view
        .snapshot
        .proxmox
        .machines
        .iter()
        .flatten()
        .filter(|machine| is_kept(machine) && !woken.contains(machine.name.as_str()))
        .collect();
    let mut unkept = kept_no_longer(view, &kept);
    let mut stuck = in_the_way(view, &kept, &rooms, &plan.pods);
    stuck.retain(|one| unkept.iter().all(|other| other.pool != one.pool));
    unkept.append(&mut stuck);
    // Machines that replace nodes are not subtracted from `rooms`. Therefore, a round that creates such
    // machines creates none ahead of demand.
    let busy = machines(&plan.scale_up).any(|machine| machine.woken.is_none());
    let (keep, refused) = if busy { Default::default() } else { to_keep(view, &kept, &mut rooms) };
    (plan.keep, plan.keep_refused, plan.unkept) = (keep, refused, unkept);
}

fn machines(growth: &[PoolGrowth]) -> impl Iterator<Item = &NewMachine> {
    growth.iter().flat_map(|pool| &pool.machines)
}

fn kept_no_longer(view: &View, kept: &[&Machine]) -> Vec<Unkept> {
    let mut all = Vec::new();
    let mut by_pool: BTreeMap<&str, Vec<&Machine>> = BTreeMap::new();
    for machine in kept {
        by_pool.entry(&machine.pool).or_default().push(machine);
    }
    for (name, machines) in by_pool {
        let memory = view.snapshot.memory.pools.get(name);
        if memory.is_some_and(|memory| memory.out_of_sight.is_some()) {
            continue;
        }
        let pool = view.config.pools.iter().find(|pool| pool.name == name);
        let mut unkept = |machine: &Machine, reason: String| {
            let (machine, pool) = (machine.name.clone(), machine.pool.clone());
            all.push(Unkept { machine, pool, reason });
        };
        let waits = |machine: &&&Machine| machine.phase == Phase::Warm;
        let Some(pool) = pool else {
            for machine in machines.iter().filter(waits) {
                unkept(machine, "its pool is no longer in the configuration".to_owned());
            }
            continue;
        };
        let why = |machine: &Machine| {
            let state = machine.warm.filter(|state| *state != pool.warm.state);
            let other = state.map(|state| {
                format!("kept {}, but its pool keeps {} machines", state.name(), pool.warm.state.name())
            });
            unfit(view.snapshot, view.config, pool, machine).or(other)
        };
        let (unfit, fit): (Vec<&Machine>, Vec<&Machine>) =
            machines.iter().copied().partition(|machine| why(machine).is_some());
        let surplus = machines.len().saturating_sub(pool.warm.count as usize);
        // Machines that are no longer suitable are removed first. A machine that is still being created is
        // not removed yet.
        let going = unfit.iter().chain(fit.iter().rev()).filter(waits).take(surplus);
        for machine in going {
            let reason = format!("its pool keeps only {} warm", pool.warm.count);
            unkept(machine, why(machine).unwrap_or(reason));
        }
        if surplus == 0
            && !is_one_leaving(view, pool)
            && machines.iter().all(|machine| machine.phase == Phase::Warm)
        {
            for machine in unfit.iter().take(1) {
                unkept(machine, why(machine).unwrap_or_default());
            }
        }
    }
    all
}

/// Whether a warm machine of the pool is being removed.
fn is_one_leaving(view: &View, pool: &Pool) -> bool {
    let mut machines = view.snapshot.proxmox.machines.iter().flatten();
    let leaves = |one: &Machine| one.phase >= Phase::Draining && !one.phase.is_over();
    machines.any(|one| one.pool == pool.name && one.warm.is_some() && leaves(one))
}

/// Returns at most one machine of each pool: a warm machine that cannot be started because its host has no
/// room. It is returned only if pods are pending because the pool is at its maximum or has no free slot, and
/// if another host has room for a machine of the pool.
fn in_the_way(view: &View, kept: &[&Machine], rooms: &Rooms, pods: &[PodVerdict]) -> Vec<Unkept> {
    let full = |pool: &Pool| {
        let mut reasons = pods.iter().flat_map(PodVerdict::reasons);
        reasons.any(|one| one.pool == pool.name && NoRoom::NEEDS_A_PLACE.contains(&one.reason))
    };
    let stuck = view.config.pools.iter().filter_map(|pool| {
        let rests = |machine: &&&Machine| {
            machine.pool == pool.name
                && machine.phase == Phase::Warm
                && machine.warm.is_some_and(|state| !state.runs())
        };
        let mut resting = kept.iter().filter(rests).peekable();
        // Most pools have no such machine. For them, the verdicts of all pods are not looked at.
        resting.peek().filter(|_| full(pool) && !is_one_leaving(view, pool))?;
        let machine = resting.find(|machine| rooms.runs_elsewhere(pool, &machine.host))?;
        let reason = format!(
            "its host {} has no room to run it, and a machine on another host could take pending pods",
            machine.host
        );
        Some(Unkept { machine: machine.name.clone(), pool: pool.name.clone(), reason })
    });
    stuck.collect()
}

/// Returns the machines to create, and the reasons why some pools get fewer than their settings ask for.
fn to_keep(view: &View, kept: &[&Machine], rooms: &mut Rooms) -> (Vec<PoolGrowth>, Vec<PoolReason>) {
    let (mut all, mut refused) = (Vec::new(), Vec::new());
    for pool in view.config.pools.iter().filter(|pool| pool.warm.count > 0) {
        let here = kept.iter().filter(|machine| machine.pool == pool.name).count();
        let missing = (pool.warm.count as usize).saturating_sub(here);
        let mut machines = Vec::new();
        for _ in 0..missing {
            let offers = view.offers.iter().filter(|offer| {
                (&offer.name, offer.cores, offer.memory) == (&pool.name, pool.cores, pool.memory)
            });
            let mut why = None;
            let places = offers.filter_map(|offer| match rooms.next_kept(offer, pool.warm.state) {
                Ok(place) => Some((offer, place)),
                Err(full) => {
                    why.get_or_insert(full);
                    None
                }
            });
            let Some((offer, place)) = places.min_by_key(|(_, place)| place.rank) else {
                refused.extend(why.map(|full| full.of(pool.name.clone())));
                break;
            };
            rooms.keep(offer, &place, pool.warm.state);
            machines.push(kept_there(view, offer, &place));
        }
        if !machines.is_empty() {
            all.push(PoolGrowth { pool: pool.name.clone(), machines });
        }
    }
    (all, refused)
}

fn kept_there(view: &View, pool: &Pool, place: &Place) -> NewMachine {
    let slot = place.slot.as_ref();
    let seed = view.snapshot.memory.name_seed;
    NewMachine {
        name: slot.map(|slot| names::machine_name(&pool.name, seed, slot)),
        vmid: slot.map(|slot| slot.vmid),
        address: slot.and_then(|slot| slot.address),
        further_addresses: slot.map(|slot| slot.further.clone()).unwrap_or_default(),
        host: place.host.clone(),
        storage: place.storage.clone(),
        cores: pool.cores,
        memory: quantity::binary(pool.memory),
        memory_bytes: pool.memory,
        pods: Vec::new(),
        woken: None,
    }
}
