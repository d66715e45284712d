//! Promises about hosts that may be switched off. Each shutdown and each wake-up of a host is checked.

use std::time::Duration;

use stage::{Call, Side};
use tokio::time::Instant;

use crate::simulate::checker::memory::AsOf;
use crate::simulate::checker::{Checker, Promise};

/// Once a host has been on again for this long, the checker forgets that a daemon shut it down.
const FORGOTTEN: Duration = Duration::from_mins(10);

/// The time from the shutdown call until the host is off.
const GOES: Duration = Duration::from_mins(1);

/// Hosts are switched off only if no machine uses them.
pub struct Power;

impl Promise for Power {
    fn on_call(&self, checker: &Checker, who: &str, call: &Call<'_>) {
        checker.must_switch_rightly(who, call);
    }

    fn throughout(&self, checker: &Checker) {
        checker.look_at_sleepers();
    }
}

impl Checker {
    /// Whether a daemon has switched this host off.
    pub fn is_asleep(&self, host: &str) -> bool {
        self.inner().asleep.asked.contains_key(host) && !self.world.pve.is_online(host)
    }

    /// Forgets hosts that have been on again for a while, no matter which client switched them on.
    pub fn look_at_sleepers(&self) {
        if self.world.rules.power.is_none() {
            return;
        }
        let now = Instant::now();
        let mut inner = self.inner();
        inner.asleep.asked.retain(|host, (asked, on)| {
            if !self.world.pve.is_online(host) || asked.elapsed() <= FORGOTTEN {
                *on = None;
                return true;
            }
            on.get_or_insert(now).elapsed() < FORGOTTEN
        });
    }

    /// Called when a host is asked to shut down or is woken.
    pub fn must_switch_rightly(&self, who: &str, call: &Call<'_>) {
        let parts: Vec<&str> = call.path.trim_start_matches('/').split('/').collect();
        match (call.side, call.method, &*parts) {
            (Side::Proxmox, "POST", ["nodes", host, "status"]) => {
                if let Some(why) = self.stays_on(host, self.as_of(who, call.sent)) {
                    self.violated(&format!("{host} is shut down, but {why}"));
                }
                let mut inner = self.inner();
                inner.figures.sleeps += 1;
                inner.asleep.asked.insert((*host).to_owned(), (Instant::now(), None));
            }
            (Side::Proxmox, "POST", ["nodes", host, "wakeonlan"]) => {
                let ours = self.inner().asleep.asked.contains_key(*host);
                if !ours {
                    self.violated(&format!("{host} is woken, although another client switched it off"));
                }
                self.inner().figures.wakes += 1;
            }
            _ => {}
        }
    }

    /// The reason why a host must not be shut down, if any.
    fn stays_on(&self, host: &str, as_of: AsOf<'_>) -> Option<String> {
        let Some(power) = &self.world.rules.power else { return Some("no host may be shut down".to_owned()) };
        if !power.hosts.contains(&host) {
            return Some("this host has no `power` setting".to_owned());
        }
        if let Some(what) = self.is_used_by(host, as_of) {
            return Some(format!("{what} still uses this host"));
        }
        let (going, dark) = {
            let inner = self.inner();
            let going = |name: &str| {
                let asked = inner.asleep.asked.get(name).filter(|_| name != host);
                asked.is_some_and(|(asked, _)| asked.elapsed() < GOES || !self.world.pve.is_online(name))
            };
            let dark = inner.no_quorum_since.is_some_and(|since| as_of.knew(since));
            (self.world.hosts.iter().filter(|name| going(name)).cloned().collect::<Vec<_>>(), dark)
        };
        if dark && !self.world.pve.is_quorate() {
            return Some("there is no quorum".to_owned());
        }
        let all = self.world.hosts.len();
        let stays = |name: &&String| **name != host && !going.contains(name) && self.seems_on(name, as_of);
        let on = self.world.hosts.iter().filter(stays).count();
        if on * 2 <= all {
            return Some(format!("only {on} of {all} votes would remain, which is not a majority"));
        }
        if on < power.min_on {
            return Some(format!("only {on} hosts would stay on, but at least {} must", power.min_on));
        }
        let off = going.len();
        power
            .max_off
            .filter(|most| off >= *most)
            .map(|most| format!("{going:?} are off or shutting down, and at most {most} hosts may be off"))
    }
}
