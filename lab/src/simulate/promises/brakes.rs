//! Promises that follow from a run's own settings: when nodes may be removed and how many at a time, how many
//! machines a pool has, how old machines may be, and the settings from which they are created.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use pve_autoscaler::runtime::clock::Clock as _;
use serde_json::Value;
use stage::Call;

use crate::simulate::checker::objects::is_kept;
use crate::simulate::checker::{Checker, Promise};
use crate::simulate::drawn::pool_shape::PoolShape;
use crate::simulate::drawn::rules::Brakes;

/// The maximum error of a daemon's clock, plus the maximum duration of a decision.
const ABOUT: SignedDuration = SignedDuration::from_mins(25);
/// The interval at which a condition is checked, from `ABOUT` before now until `ABOUT` after now.
const STEP: SignedDuration = SignedDuration::from_mins(5);
/// By how much a node may exceed its maximum age. An expired node may have to wait before it can be replaced.
const TURN: SignedDuration = SignedDuration::from_hours(1);

/// Nodes are removed only at the times and in the numbers that the settings allow.
pub struct Disruption;

impl Promise for Disruption {
    fn on_call(&self, checker: &Checker, who: &str, call: &Call<'_>) {
        checker.must_not_disrupt(who, call);
    }
}

impl Checker {
    fn now(&self) -> Timestamp {
        self.world.clock.now()
    }

    /// Whether the condition is met at every checked time from `ABOUT` before now until `ABOUT` after now.
    fn all_about(&self, holds: impl Fn(Timestamp) -> bool) -> bool {
        let steps = ABOUT.as_mins() / STEP.as_mins();
        (-steps..=steps).all(|step| {
            let by = SignedDuration::from_mins(step * STEP.as_mins());
            self.now().saturating_add(by).is_ok_and(&holds)
        })
    }

    /// The current minimum of a pool.
    pub fn minimum(&self, pool: &PoolShape) -> usize {
        pool.minimum(self.now())
    }

    /// The lowest minimum of the pool from `ABOUT` before now until `ABOUT` after now, because a daemon's
    /// clock may be wrong.
    pub fn sure_minimum(&self, pool: &PoolShape) -> usize {
        match &pool.schedule {
            Some((min, hours)) if self.all_about(|time| hours.is_now(time)) => pool.min.max(*min),
            _ => pool.min,
        }
    }

    /// Called when a record is written. If it orders the removal of a node, each rule that applies must allow
    /// the removal.
    pub fn must_not_disrupt(&self, who: &str, call: &Call<'_>) {
        let Some((before, written)) = self.change_of_record(call) else { return };
        if before["intent"]["kind"] != "create"
            || written["intent"]["kind"] != "retire"
            // A warm machine is not a node yet.
            || is_kept(&before)
        {
            return;
        }
        let (name, pool) = (&written["name"], written["pool"].as_str().unwrap_or_default());
        let reason = written["intent"]["reason"].as_str().unwrap_or_default();
        self.begins_to_go(name.as_str().unwrap_or_default());
        if self.inner().brakes.repeats(who, &written) {
            return;
        }
        self.brakes_hold(name, pool);
        for rule in self.world.rules.about(pool, reason) {
            if self.all_about(|time| rule.is_shut(time)) {
                self.violated(&format!(
                    "{name} is removed ({reason}) although {rule:?} allows no \
                    removals at this time"
                ));
            }
            let leave = self.leaving(|pool| rule.is_of(pool));
            if rule.most.is_some_and(|most| leave.len() >= most) {
                self.violated(&format!(
                    "{name} is removed ({reason}) at the same time as {leave:?}, which {rule:?} does not allow"
                ));
            }
        }
    }

    /// Checks that the removal of a node exceeds neither the maximum number of removals within an hour nor
    /// the maximum percentage of its pool.
    fn brakes_hold(&self, name: &Value, pool: &str) {
        let Brakes { in_an_hour, share } = self.world.rules.brakes;
        let gone = self.inner().brakes.one_goes(name.as_str().unwrap_or_default());
        if gone > in_an_hour {
            self.violated(&format!(
                "the removal of {name} is number {gone} within an hour, but only {in_an_hour} are \
                    allowed"
            ));
        }
        let leave = self.leaving(|other| other == pool);
        // If an administrator removed a machine's VM, the machine counts as a node until the daemon notices.
        let slots = self.world.pools.iter().filter(|one| one.name == pool).flat_map(|one| one.vmids.clone());
        let serve = slots
            .filter_map(|vmid| self.record(vmid))
            .filter(|record| record["intent"]["kind"] == "create" && record["nodeUid"].is_string());
        let most = ((leave.len() + serve.count()) * share / 100).max(1);
        if leave.len() >= most {
            self.violated(&format!(
                "{name} is removed at the same time as {leave:?}, but only {share} % of its pool may be removed at a \
                time"
            ));
        }
    }

    /// The machines that are being removed from the given pools.
    fn leaving(&self, of: impl Fn(&str) -> bool) -> Vec<String> {
        let records = self.ours().into_iter().filter_map(|vmid| self.record(vmid));
        let leave = records.filter(|record| {
            record["intent"]["kind"] == "retire"
                && record["warm"].is_null()
                && record["pool"].as_str().is_some_and(&of)
        });
        leave.map(|record| format!("{}: {}", record["name"], record["intent"]["reason"])).collect()
    }

    /// Called when an administrator changes the disk size of a pool.
    pub fn disks_change(&self, pool: &'static str, gib: u32) {
        self.inner().disks.insert(pool, gib);
        self.is_worth_a_try(pool);
    }

    /// The reason why a machine should have been replaced by now, if any.
    pub fn overdue(&self, pool: &PoolShape, vmid: u32, node: &Value) -> Option<String> {
        let created = node["metadata"]["creationTimestamp"].as_str()?.parse::<Timestamp>().ok()?;
        let age = self.now().duration_since(created);
        let oldest = pool.oldest.and_then(|oldest: Duration| SignedDuration::try_from(oldest).ok());
        if let Some(oldest) = oldest.filter(|oldest| age > *oldest + TURN) {
            return Some(format!("the Node of VM {vmid} is {age:#} old, but its maximum age is {oldest:#}"));
        }
        self.other_disk(pool, vmid).filter(|_| self.world.rules.drift)
    }

    /// Describes a machine's disk if its size differs from the size in its pool's settings.
    pub fn other_disk(&self, pool: &PoolShape, vmid: u32) -> Option<String> {
        let wanted = self.inner().disks.get(pool.name).map(|gib| format!("size={gib}G"))?;
        let disk = self.world.pve.config_of(vmid, "scsi0")?;
        let same = disk.split(',').any(|part| part == wanted);
        (!same).then(|| format!("the disk of VM {vmid} is `{disk}`, but should have {wanted}"))
    }
}

impl PoolShape {
    /// The pool's minimum at this time.
    fn minimum(&self, now: Timestamp) -> usize {
        let more = self.schedule.as_ref().filter(|(_, hours)| hours.is_now(now)).map_or(0, |(min, _)| *min);
        self.min.max(more)
    }
}
