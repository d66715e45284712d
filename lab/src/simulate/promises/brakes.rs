//! Promises from a run's own settings: when and how many nodes may be removed at a time, how many machines a
//! pool has at which time, how old they get, and what they are created from.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use pve_autoscaler::runtime::clock::Clock as _;
use serde_json::Value;
use stage::Call;

use crate::simulate::checker::objects::is_kept;
use crate::simulate::checker::{Checker, Promise};
use crate::simulate::drawn::pool_shape::PoolShape;
use crate::simulate::drawn::rules::Brakes;

/// A daemon's clock may be wrong by this much, and its decision may be in progress for this long.
const ABOUT: SignedDuration = SignedDuration::from_mins(25);
/// The step when checking whether something is true at all times near now.
const STEP: SignedDuration = SignedDuration::from_mins(5);
/// How much longer an expired node may exist, because it has to wait for its turn.
const TURN: SignedDuration = SignedDuration::from_hours(1);

/// Nodes are removed only when the settings allow it, and no more than they allow.
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

    /// Whether something is true at all times around now.
    fn all_about(&self, holds: impl Fn(Timestamp) -> bool) -> bool {
        let steps = ABOUT.as_mins() / STEP.as_mins();
        (-steps..=steps).all(|step| {
            let by = SignedDuration::from_mins(step * STEP.as_mins());
            self.now().saturating_add(by).is_ok_and(&holds)
        })
    }

    /// The minimum of a pool at this time.
    pub fn minimum(&self, pool: &PoolShape) -> usize {
        pool.minimum(self.now())
    }

    /// The lowest minimum of the pool around now, for any daemon's clock.
    pub fn sure_minimum(&self, pool: &PoolShape) -> usize {
        match &pool.schedule {
            Some((min, hours)) if self.all_about(|time| hours.is_now(time)) => pool.min.max(*min),
            _ => pool.min,
        }
    }

    /// A record is written: the removal of a node must be allowed by each rule that applies.
    pub fn must_not_disrupt(&self, who: &str, call: &Call<'_>) {
        let Some((before, written)) = self.change_of_record(call) else { return };
        if before["intent"]["kind"] != "create"
            || written["intent"]["kind"] != "retire"
            // It was not a node.
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
                self.violated(&format!("{name} is removed ({reason}) although {rule:?} allows no removal"));
            }
            let leave = self.leaving(|pool| rule.is_of(pool));
            if rule.most.is_some_and(|most| leave.len() >= most) {
                self.violated(&format!(
                    "{name} is removed ({reason}) at the same time as {leave:?}, against {rule:?}"
                ));
            }
        }
    }

    /// A node is to be removed: neither too many nodes within the hour, nor too much of its pool.
    fn brakes_hold(&self, name: &Value, pool: &str) {
        let Brakes { in_an_hour, share } = self.world.rules.brakes;
        let gone = self.inner().brakes.one_goes(name.as_str().unwrap_or_default());
        if gone > in_an_hour {
            self.violated(&format!(
                "{name} is removal number {gone} within an hour, and only {in_an_hour} are allowed"
            ));
        }
        let leave = self.leaving(|other| other == pool);
        // A machine whose VM an administrator took away is a Node until the daemon has found out.
        let slots = self.world.pools.iter().filter(|one| one.name == pool).flat_map(|one| one.vmids.clone());
        let serve = slots
            .filter_map(|vmid| self.record(vmid))
            .filter(|record| record["intent"]["kind"] == "create" && record["nodeUid"].is_string());
        let most = ((leave.len() + serve.count()) * share / 100).max(1);
        if leave.len() >= most {
            self.violated(&format!(
                "{name} is removed at the same time as {leave:?}, and only {share} % of its pool may be"
            ));
        }
    }

    /// Machines of these pools that are being removed.
    fn leaving(&self, of: impl Fn(&str) -> bool) -> Vec<String> {
        let records = self.ours().into_iter().filter_map(|vmid| self.record(vmid));
        let leave = records.filter(|record| {
            record["intent"]["kind"] == "retire"
                && record["warm"].is_null()
                && record["pool"].as_str().is_some_and(&of)
        });
        leave.map(|record| format!("{}: {}", record["name"], record["intent"]["reason"])).collect()
    }

    /// An administrator wants other disks for a pool.
    pub fn disks_change(&self, pool: &'static str, gib: u32) {
        self.inner().disks.insert(pool, gib);
        self.is_worth_a_try(pool);
    }

    /// Why a machine should have been replaced by now, if so.
    pub fn overdue(&self, pool: &PoolShape, vmid: u32, node: &Value) -> Option<String> {
        let created = node["metadata"]["creationTimestamp"].as_str()?.parse::<Timestamp>().ok()?;
        let age = self.now().duration_since(created);
        let oldest = pool.oldest.and_then(|oldest: Duration| SignedDuration::try_from(oldest).ok());
        if let Some(oldest) = oldest.filter(|oldest| age > *oldest + TURN) {
            return Some(format!("the Node of VM {vmid} is {age:#} old, and only {oldest:#} is allowed"));
        }
        self.other_disk(pool, vmid).filter(|_| self.world.rules.drift)
    }

    /// A machine's disk, if it differs from what its pool's machines are created with.
    pub fn other_disk(&self, pool: &PoolShape, vmid: u32) -> Option<String> {
        let wanted = self.inner().disks.get(pool.name).map(|gib| format!("size={gib}G"))?;
        let disk = self.world.pve.config_of(vmid, "scsi0")?;
        let same = disk.split(',').any(|part| part == wanted);
        (!same).then(|| format!("VM {vmid} has {disk} instead of {wanted}"))
    }
}

impl PoolShape {
    /// The minimum at a time.
    fn minimum(&self, now: Timestamp) -> usize {
        let more = self.schedule.as_ref().filter(|(_, hours)| hours.is_now(now)).map_or(0, |(min, _)| *min);
        self.min.max(more)
    }
}
