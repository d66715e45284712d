//! Checks where the daemon places machines, based on the settings and on the hosts' sizes at the time of the
//! decision. `room` counts the resources that are in use on a host.

use stage::{Call, Side};

use crate::simulate::checker::memory::{AsOf, GIVEN_UP};
use crate::simulate::checker::objects::{is_kept, newid, vmid};
use crate::simulate::checker::{Checker, Promise};
use crate::simulate::drawn::pool_shape::{Places, PoolShape};

/// A machine is created on a host that has room and is allowed by the settings.
pub struct Placement;

impl Promise for Placement {
    fn on_call(&self, checker: &Checker, who: &str, call: &Call<'_>) {
        checker.must_have_room(who, call);
        checker.must_be_put_where_planned(call);
    }
}

impl Checker {
    /// Called when a record is written: the host must have room for a new machine, or for a warm machine that
    /// is to run.
    pub fn must_have_room(&self, who: &str, call: &Call<'_>) {
        let Some((before, written)) = self.change_of_record(call) else { return };
        let (Some(vmid), Some(host)) = (vmid(&written), written["host"].as_str()) else { return };
        let Some(pool) = self.world.pool_of(vmid) else { return };
        let is_new = call.method == "POST" && before.is_null() && written["intent"]["kind"] == "create";
        let is_asked = is_kept(&before) && !is_kept(&written) && written["intent"]["kind"] == "create";
        let as_of = self.as_of(who, call.sent);
        let in_time = call.sent.elapsed() < GIVEN_UP;
        let lacks = if is_new {
            let lacks = self.refuses(host, pool, Some(as_of), None);
            let starts = || {
                self.lacks(host, &self.leniently(host, pool, as_of), pool.size(), Some(as_of), None)
                    .filter(|_| written["warm"] != "stopped")
            };
            let stores = || self.stores_badly(host, &written, as_of);
            self.record_made(vmid, who, !in_time);
            lacks.or_else(starts).or_else(stores)
        } else if is_asked {
            self.woken(vmid, who);
            let starts = before["warm"] != "booted" && self.is_where_it_was(vmid, host, as_of);
            let lenient = || self.leniently(host, pool, as_of);
            starts.then(|| self.lacks(host, &lenient(), pool.size(), Some(as_of), Some(vmid))).flatten()
        } else {
            None
        };
        if let Some(lacks) = lacks.filter(|_| in_time) {
            let what = if is_new { "is placed" } else { "is woken" };
            self.violated(&format!("{} {what} on {host}, which {lacks}", written["name"]));
        }
    }

    /// Returns a copy of the pool with the most lenient limits of all pools whose machines the same decision
    /// placed on this host. The decision checked each machine only against the machines before it, but the
    /// records may be written in any order.
    fn leniently(&self, host: &str, pool: &PoolShape, as_of: AsOf<'_>) -> PoolShape {
        let mut lenient = pool.clone();
        let with = self.decided_with(as_of);
        let here = with.into_iter().filter(|vmid| self.record(*vmid).is_some_and(|it| it["host"] == host));
        for Places { cpu_halves, memory_halves, reserve, .. } in
            here.filter_map(|vmid| Some(&self.world.pool_of(vmid)?.places))
        {
            lenient.places.cpu_halves = lenient.places.cpu_halves.max(*cpu_halves);
            lenient.places.memory_halves = lenient.places.memory_halves.max(*memory_halves);
            lenient.places.reserve = lenient.places.reserve.min(*reserve);
        }
        lenient
    }

    /// Checks that a machine is cloned to the host and storage that its record names.
    pub fn must_be_put_where_planned(&self, call: &Call<'_>) {
        let parts: Vec<&str> = call.path.trim_start_matches('/').split('/').collect();
        let (Side::Proxmox, "POST", ["nodes", here, "qemu", _, "clone"]) = (call.side, call.method, &*parts)
        else {
            return;
        };
        let body = String::from_utf8_lossy(call.body);
        let field = |name: &str| body.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
        let target = field("target").unwrap_or(here);
        if self.world.rules.closed_host == Some(target) {
            self.violated(&format!("a machine is placed on {target}, which is closed: {body}"));
        }
        let Some(record) = newid(call.body).and_then(|vmid| self.record(vmid)) else { return };
        let stored = record["madeOf"]["stored_on"].as_str();
        if record["host"] != target || field("storage") != stored {
            let (name, host) = (&record["name"], &record["host"]);
            self.violated(&format!(
                "{name} is cloned to {target} with `{body}`, but its record names the host {host} and \
                    the storage {stored:?}"
            ));
        }
    }
}
