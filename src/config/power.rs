//! `[power]`: when hosts whose `[[host]]` has a `power` are switched off, and what is asked of them.

use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;

use super::values::Checker;

/// How a host is switched on again. It is shut down through Proxmox VE in any case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Power {
    /// With a magic packet that another host sends (`POST /nodes/{node}/wakeonlan`).
    WakeOnLan,
}

/// The same as it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Way {
    WakeOnLan,
}

/// Checked `[power]`.
#[derive(Clone, Debug)]
pub struct PowerSettings {
    /// A host goes once it could have been done without for so long.
    pub idle_for: Duration,
    /// The last machine has to have left a host within this time.
    pub empty_time: Duration,
    /// A host has to be off within this time after it was asked.
    pub shutdown_time: Duration,
    /// A host has to be on, and its API has to answer, within this time after it was asked.
    pub wake_time: Duration,
    /// So many hosts of the cluster stay on.
    pub min_hosts_on: usize,
    /// At most so many hosts are off at a time through us; `None`: as many as the rest allows.
    pub max_hosts_off: Option<usize>,
}

/// `[power]` as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    idle_for: Option<Spanned<String>>,
    empty_time: Option<Spanned<String>>,
    shutdown_time: Option<Spanned<String>>,
    wake_time: Option<Spanned<String>>,
    min_hosts_on: Option<Spanned<usize>>,
    max_hosts_off: Option<Spanned<usize>>,
}

#[cfg(test)]
pub(super) const KEYS: &[&str] =
    &["idle_for", "empty_time", "shutdown_time", "wake_time", "min_hosts_on", "max_hosts_off"];

impl Written {
    pub(super) fn check(&self, checker: &mut Checker) -> PowerSettings {
        let minutes = |minutes: u64| Duration::from_secs(minutes * 60);
        PowerSettings {
            idle_for: checker.positive("idle_for", self.idle_for.as_ref(), minutes(30)),
            empty_time: checker.positive("empty_time", self.empty_time.as_ref(), minutes(60)),
            shutdown_time: checker.positive("shutdown_time", self.shutdown_time.as_ref(), minutes(10)),
            wake_time: checker.positive("wake_time", self.wake_time.as_ref(), minutes(10)),
            min_hosts_on: checker.count(
                "min_hosts_on",
                self.min_hosts_on.as_ref(),
                1,
                "one host sends the packets that wake the others",
            ),
            max_hosts_off: self.max_hosts_off.as_ref().map(|written| {
                checker.count(
                    "max_hosts_off",
                    Some(written),
                    1,
                    "without `power` in a `[[host]]` none is switched off",
                )
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::config::{Needs, Power, parse};

    #[test]
    fn no_host_is_switched_off_unless_its_own_table_says_so() {
        let bare = parse("c.toml", "[[host]]\nname = \"a\"\n", Needs::Plan).unwrap();
        assert_eq!(bare.hosts["a"].power, None);
        let text = "[power]\nidle_for = \"1h\"\n[[host]]\nname = \"a\"\npower = \"wake-on-lan\"\n";
        let config = parse("c.toml", text, Needs::Plan).unwrap();
        assert_eq!(config.hosts["a"].power, Some(Power::WakeOnLan));
        assert_eq!((config.power.idle_for, config.power.min_hosts_on), (Duration::from_hours(1), 1));
    }

    #[test]
    fn what_is_wrong_with_power_is_said() {
        for (text, expected) in [
            ("[power]\nidle_for = \"0s\"", "`idle_for` must be longer than zero"),
            ("[power]\nmin_hosts_on = 0", "`min_hosts_on` is zero"),
            ("[power]\nmax_hosts_off = 0", "`max_hosts_off` is zero"),
            ("[[host]]\nname = \"a\"\npower = \"wol\"", "unknown variant `wol`"),
        ] {
            let report = parse("c.toml", &format!("{text}\n"), Needs::Plan).unwrap_err().plain();
            assert!(report.contains(expected), "no {expected:?} in\n{report}");
        }
    }
}
