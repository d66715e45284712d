//! Compares the machines with Proxmox VE's list of VMs. Finds VMs that are gone, are off, are on a different
//! host, or have become templates.
//!
//! The list of VMs lags, so if it shows something unexpected, the machine's task checks the VM itself. The
//! first check follows the first such observation, so that changes by other clients are noticed within about
//! twenty seconds. While the list still shows something unexpected, every third observation leads to another
//! check. A move is recorded without a check only if the task cannot run at that time.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::Daemon;
use super::build_snapshot::LISTS_LAG;
use super::inventory::Observation;
use machines::{MachineView, should_run};
use model::machine::{Phase, WarmState};
use model::{MachineId, Record};
use proxmox::Guest;
use settings::Config;

/// While the list shows something unexpected about a VM, the VM is checked again after this many
/// observations.
const ASKED_AGAIN: u64 = 3;
/// The maximum time by which timestamps from a daemon on another host may be ahead of this host's clock.
const CLOCKS_DIFFER: SignedDuration = SignedDuration::from_mins(1);

impl Daemon {
    /// Finds machines whose VM is gone, off, or on another host. A move is recorded even while everything is
    /// paused, because later steps depend on it.
    pub(super) fn hold_against_vms(&mut self, config: &Arc<Config>, now: Timestamp, paused: bool) {
        let looks: BTreeMap<String, Observation> = (self.regions.iter())
            .filter_map(|region| match region.inventory.last() {
                (Some(look), None) => Some((region.prefix.clone(), look)),
                _ => None,
            })
            .collect();
        let mut locked: BTreeMap<MachineId, Timestamp> = BTreeMap::new();
        for view in self.registry.all().into_iter().filter(|view| !view.record.is_physical()) {
            let Some(look) = looks.get(config.prefix(view.record.region.as_deref())) else { continue };
            if view.busy {
                if is_doubtful(&view, look, now) {
                    self.registry.doubt(&view.record.id);
                }
            } else if matches!(view.phase, Phase::Ready | Phase::Warm) {
                self.hold_quiet_against_vm(config, &view, look, now, paused, &mut locked);
            }
        }
        self.reconcile.vm_locked = locked;
    }

    /// Like [`Self::hold_against_vms`], for one machine on which no task is working.
    fn hold_quiet_against_vm(
        &mut self,
        config: &Arc<Config>,
        view: &MachineView,
        look: &Observation,
        now: Timestamp,
        paused: bool,
        locked: &mut BTreeMap<MachineId, Timestamp>,
    ) {
        let patience = SignedDuration::try_from(config.limits.clone).unwrap_or(SignedDuration::MAX);
        let runs = view.record.warm.is_none_or(WarmState::runs);
        let id = &view.record.id;
        let guest = look.seen.guests.get(&view.record.slot.vmid);
        let put_off = self.reconcile.is_put_off(id, now);
        let host_up = look.seen.hosts.get(&view.record.host).is_some_and(|host| host.online);
        if guest.is_some_and(|guest| guest.lock.is_some()) {
            let since = self.reconcile.vm_locked.get(id).copied().unwrap_or(now);
            locked.insert(id.clone(), since);
        }
        // A recent lock means that a task is working on the VM. For a warm machine, a lock of any age may be
        // normal.
        let is_held = || {
            let since = locked.get(id);
            since.is_some_and(|at| view.record.warm.is_some() || now.duration_since(*at) < patience)
        };
        // Whether the VM is gone, was replaced by another VM, or has an unexpected power state. The machine's
        // task finds out which of these is the case.
        let missed = || {
            // A VM without statistics, for example after a restart of pvestatd, is neither `stopped` nor
            // `running`.
            let otherwise = |guest: &Guest| if runs { guest.stopped } else { guest.running };
            let wrong = |guest: &Guest| otherwise(guest) || guest.template || is_other(&view.record, guest);
            host_up && !put_off && !paused && guest.is_none_or(|guest| wrong(guest) && !is_held())
        };
        let elsewhere = guest.map(|guest| &guest.host).filter(|host| **host != view.record.host);
        if elsewhere.is_none() && !missed() {
            self.reconcile.vm_strange.remove(id);
            return;
        }
        // The observation may predate the machine's current phase. While a VM is being cloned, it is on its
        // template's host.
        let too_early = is_too_early(look.at, view.since, now);
        let asked = self.reconcile.vm_strange.get(id).copied();
        if too_early || asked.is_some_and(|at| look.number < at + ASKED_AGAIN) {
            return;
        }
        self.reconcile.vm_strange.insert(id.clone(), look.number);
        // The machine's task also finds out which user moved the VM. If the task cannot run now, the move is
        // only recorded.
        match elsewhere.filter(|_| paused || !host_up || put_off) {
            Some(host) => self.moved(view, host.clone()),
            None => self.missed(config, view),
        }
    }

    /// Starts the machine's task, which finds out whether a VM that is not visible is gone or only hidden.
    fn missed(&mut self, config: &Arc<Config>, view: &MachineView) {
        let Some(context) = self.context(config, &view.record) else { return };
        self.spawn(machines::missed(context, view.stored(), self.reports.clone()));
    }

    /// Records that a machine's VM was moved to another host.
    fn moved(&mut self, view: &MachineView, host: String) {
        tracing::info!(machine = %view.record.name, from = %view.record.host, to = %host, "the VM was moved to another host");
        self.note_on(view, |record| record.follow(host));
    }
}

/// Whether an observation was made too early to reliably show a state that began at `since`. Returns false if
/// `since` is in the future by more than the tolerated clock difference: the clock was then set back, so the
/// times prove nothing.
fn is_too_early(looked: Timestamp, since: Timestamp, now: Timestamp) -> bool {
    looked.duration_since(since) < LISTS_LAG && since.duration_since(now) <= CLOCKS_DIFFER
}

/// Whether an observation shows something unexpected about the VM of a machine on which a task is working.
fn is_doubtful(view: &MachineView, look: &Observation, now: Timestamp) -> bool {
    let record = &view.record;
    let booting = record.entered.get(&Phase::Booting);
    // Before `Booting`, each step checks the VM itself, and the list may not contain it yet.
    let known = booting.is_some_and(|at| !is_too_early(look.at, *at, now));
    let Some(guest) = look.seen.guests.get(&record.slot.vmid) else { return booting.is_some() };
    let host_up = look.seen.hosts.get(&record.host).is_some_and(|host| host.online);
    let off = || host_up && guest.stopped && should_run(record, view.phase);
    known && (guest.host != record.host || guest.template || off())
}

/// Whether a warm machine's VM has a different name, which means that an administrator renamed the VM or
/// replaced it with another one. If a machine has a Node, its Node reveals such a change, so the VM's name is
/// not compared.
fn is_other(record: &Record, guest: &Guest) -> bool {
    record.warm.is_some() && guest.name.as_ref().is_some_and(|name| *name != record.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_is_too_early_for_what_has_just_come_and_not_for_what_a_clock_ahead_has_written() {
        let at = |seconds| Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds);
        for (looked, since, now, expected) in [
            (100, 90, 101, true),
            (100, 80, 101, false),
            // The observation is old because rounds are far apart.
            (100, 900, 1000, true),
            (100, 130, 102, true),
            (100, 7300, 101, false),
        ] {
            assert_eq!(is_too_early(at(looked), at(since), at(now)), expected, "{looked} {since} {now}");
        }
    }
}
