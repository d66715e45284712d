//! Randomly drawn settings for hosts that may be switched off.

use std::fmt::Write as _;

use fastrand::Rng;
use world::proxmox::spec::{ClusterSpec, Grant};

/// The hosts that may be switched off. The first one has templates from which machines on other hosts are
/// cloned.
const HOSTS: [&str; 2] = ["pve2", "pve3"];

/// The power settings.
#[derive(Clone, Debug)]
pub struct Power {
    /// Hosts with a `power` setting.
    pub hosts: Vec<&'static str>,
    /// `min_hosts_on`.
    pub min_on: usize,
    /// `max_hosts_off`.
    pub max_off: Option<usize>,
    idle_for: &'static str,
    empty_time: &'static str,
}

impl Power {
    /// The `[power]` table of the settings, which applies to all hosts with a `power` setting.
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

/// Draws the power settings, for a third of the seeds.
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

/// Grants the token the rights to switch hosts on and off.
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
