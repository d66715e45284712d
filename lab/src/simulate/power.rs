//! Whole hosts that may be switched off: which, and how many stay on, drawn from the seed; and what is looked
//! at when one is asked to shut down or woken.

use std::fmt::Write as _;
use std::time::Duration;

use fastrand::Rng;
use stage::{Call, Side};
use tokio::time::Instant;
use world::proxmox::spec::{ClusterSpec, Grant};

use super::checker::Checker;
use super::room::AsOf;

/// The hosts that may be: the first one has templates that others' machines are clones of.
const HOSTS: [&str; 2] = ["pve2", "pve3"];
/// One that another client has switched on again is taken for any other's after this time.
const FORGOTTEN: Duration = Duration::from_mins(10);

/// From the call to the end of the power.
const GOES: Duration = Duration::from_mins(1);

/// What the settings say of it.
#[derive(Clone, Debug)]
pub struct Power {
    /// Hosts with a `power`.
    pub hosts: Vec<&'static str>,
    /// `min_hosts_on`.
    pub min_on: usize,
    /// `max_hosts_off`.
    pub max_off: Option<usize>,
    idle_for: &'static str,
    empty_time: &'static str,
}

impl Power {
    /// The table of what holds for all of them.
    pub fn written(&self) -> String {
        let Self { min_on, max_off, idle_for, empty_time, .. } = self;
        let mut text = format!(
            "[power]\nidle_for = \"{idle_for}\"\nempty_time = \"{empty_time}\"\nmin_hosts_on = {min_on}\n"
        );
        if let Some(most) = max_off {
            let _ = writeln!(text, "max_hosts_off = {most}");
        }
        text
    }
}

/// Draws it, for a third of the seeds.
pub fn draw(random: &mut Rng) -> Option<Power> {
    let drawn = random.u8(..3) == 0;
    let mut hosts = HOSTS.to_vec();
    if random.u8(..3) == 0 {
        hosts.swap_remove(random.usize(..HOSTS.len()));
    }
    let min_on = random.usize(1..=3);
    let max_off = random.bool().then(|| random.usize(1..=2));
    let (idle_for, empty_time) = (["5m", "15m", "40m"][random.usize(..3)], ["10m", "1h"][random.usize(..2)]);
    drawn.then_some(Power { hosts, min_on, max_off, idle_for, empty_time })
}

/// Gives the token what it needs to switch hosts.
pub fn allow(cluster: &mut ClusterSpec) {
    let access = &mut cluster.access;
    access.roles.insert("Power".into(), vec!["Sys.PowerMgmt".into()]);
    access.roles.insert("See".into(), vec!["VM.Audit".into()]);
    for who in ["autoscaler@pve", ClusterSpec::DEMO_TOKEN] {
        for (path, role) in [("/nodes", "Power"), ("/vms", "See")] {
            let (path, who, role) = (path.to_owned(), who.to_owned(), role.to_owned());
            access.grants.push(Grant { path, who, role, propagate: true });
        }
    }
}

/// What is known of hosts that were asked to go off.
#[derive(Default)]
pub struct Asleep {
    /// Since when they were asked, and since when they have been on since.
    asked: std::collections::BTreeMap<String, (Instant, Option<Instant>)>,
}

impl Checker {
    /// Whether a daemon has switched this host off.
    pub(super) fn is_asleep(&self, host: &str) -> bool {
        self.inner().asleep.asked.contains_key(host) && !self.world.pve.is_online(host)
    }

    /// Hosts that are on again, by whichever client, are no longer asleep.
    pub(super) fn look_at_sleepers(&self) {
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

    /// A host is asked to shut down or woken.
    pub(super) fn must_switch_rightly(&self, who: &str, call: &Call<'_>) {
        let parts: Vec<&str> = call.path.trim_start_matches('/').split('/').collect();
        match (call.side, call.method, &*parts) {
            (Side::Proxmox, "POST", ["nodes", host, "status"]) => {
                if let Some(why) = self.stays_on(host, self.as_of(who, call.sent)) {
                    self.violated(&format!("{host} is shut down, and {why}"));
                }
                let mut inner = self.inner();
                inner.figures.sleeps += 1;
                inner.asleep.asked.insert((*host).to_owned(), (Instant::now(), None));
            }
            (Side::Proxmox, "POST", ["nodes", host, "wakeonlan"]) => {
                let ours = self.inner().asleep.asked.contains_key(*host);
                if !ours {
                    self.violated(&format!("{host} is woken, which another client has switched off"));
                }
                self.inner().figures.wakes += 1;
            }
            _ => {}
        }
    }

    /// Why a host must not be shut down, if so.
    fn stays_on(&self, host: &str, as_of: AsOf<'_>) -> Option<String> {
        let Some(power) = &self.world.rules.power else { return Some("none may be".to_owned()) };
        if !power.hosts.contains(&host) {
            return Some("it has no `power`".to_owned());
        }
        if let Some(what) = self.is_used_by(host, as_of) {
            return Some(format!("{what} is there"));
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
            return Some(format!("{on} of {all} votes are no majority"));
        }
        if on < power.min_on {
            return Some(format!("{on} of {} hosts stay on", power.min_on));
        }
        let off = going.len();
        power.max_off.filter(|most| off >= *most).map(|most| format!("{going:?} are off, and {most} may be"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_drawn_is_written_as_the_settings_have_it() {
        let drawn: Vec<Power> = (0..60).filter_map(|seed| draw(&mut Rng::with_seed(seed))).collect();
        assert!(drawn.len() > 10 && drawn.len() < 40, "{}", drawn.len());
        assert!(
            drawn.iter().any(|power| power.hosts.len() == 1)
                && drawn.iter().any(|power| power.hosts.len() == 2)
        );
        for power in drawn {
            assert_eq!(power.written().contains("max_hosts_off"), power.max_off.is_some());
        }
    }
}
