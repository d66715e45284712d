//! `[power]`: when hosts are switched off, and how long switching them off and on may take. These settings
//! apply to hosts whose `[[host]]` sets `power`. `[host.redfish]`: the management controller that switches a
//! host on.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use model::HostKey;
use serde::Deserialize;
use toml::Spanned;

use super::hosts::HostSettings;
use super::proxmox::{ProxmoxTrust, trust};
use super::secret::{self, SecretSource};
use super::values::Checker;

/// How a host is switched on. It is always shut down through Proxmox VE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Power {
    /// With a magic packet that another host sends (`POST /nodes/{node}/wakeonlan`).
    WakeOnLan,
    /// Through the host's management controller.
    Redfish(Box<Redfish>),
}

/// Checked `[host.redfish]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redfish {
    /// The controller's base URL.
    pub endpoint: String,
    /// The path of the host's system on the controller; `None`: the controller has only one system.
    pub system: Option<String>,
    /// The user.
    pub user: String,
    /// The user's password.
    pub password: SecretSource,
    /// What the controller's certificate is verified against.
    pub trust: ProxmoxTrust,
    /// The time limit for one call to the controller.
    pub timeout: Duration,
}

impl Redfish {
    /// Whether this table and `other` may describe the same system. A table without `system` refers to the
    /// controller's only system.
    pub fn may_be(&self, other: &Self) -> bool {
        let path = |redfish: &Self| redfish.system.as_ref().map(|path| path.trim_end_matches('/').to_owned());
        let same = path(self).zip(path(other)).is_none_or(|(one, other)| one == other);
        self.place() == other.place() && same
    }

    fn place(&self) -> String {
        let endpoint = self.endpoint.trim_end_matches('/').to_ascii_lowercase();
        endpoint.strip_suffix(":443").map_or(endpoint.clone(), ToOwned::to_owned)
    }
}

/// The Redfish systems of hosts and bare-metal machines. Each system must belong to only one host or machine,
/// so that the daemon never switches off the wrong one.
#[derive(Default)]
pub(super) struct Systems(Vec<(String, Redfish)>);

impl Systems {
    /// The systems of all hosts.
    pub(super) fn of_hosts(hosts: &BTreeMap<HostKey, HostSettings>) -> Self {
        let of_host = |(name, host): (&HostKey, &HostSettings)| match &host.power {
            Some(Power::Redfish(redfish)) => Some((format!("host `{name}`"), Redfish::clone(redfish))),
            _ => None,
        };
        Self(hosts.iter().filter_map(of_host).collect())
    }

    /// Adds the system of `who`, and reports it if it may already belong to another host or machine.
    pub(super) fn claim(&mut self, who: String, redfish: &Redfish, at: Range<usize>, checker: &mut Checker) {
        if let Some((other, _)) = self.0.iter().find(|(_, other)| other.may_be(redfish)) {
            let title = format!("{who} uses the same Redfish system as {other}");
            let help = "if a management controller has several systems, set a different `system` for \
                each host and machine";
            checker.wrong(title, at, "already taken", help);
        }
        self.0.push((who, redfish.clone()));
    }
}

/// [`Power`] as written in the configuration file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Way {
    WakeOnLan,
    Redfish,
}

/// `[host.redfish]` as written in the configuration file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenRedfish {
    endpoint: Spanned<String>,
    system: Option<Spanned<String>>,
    user: String,
    password_file: Option<Spanned<String>>,
    password_credential: Option<Spanned<String>>,
    ca_file: Option<Spanned<String>>,
    ca_credential: Option<Spanned<String>>,
    ca: Option<Spanned<String>>,
    fingerprint: Option<Spanned<String>>,
    timeout: Option<Spanned<String>>,
}

impl WrittenRedfish {
    pub(super) fn check(table: &Spanned<Self>, checker: &mut Checker) -> Option<Redfish> {
        let (this, span) = (table.get_ref(), Spanned::new(table.span(), ()));
        // Every call contains the password, so the connection must be encrypted.
        if !this.endpoint.get_ref().starts_with("https://") {
            let help = "e.g. \"https://10.0.0.13\"";
            checker.wrong(
                "`endpoint` is not encrypted".to_owned(),
                this.endpoint.span(),
                "must begin with `https://`",
                help,
            );
        }
        if let Some(system) = this.system.as_ref().filter(|path| !path.get_ref().starts_with("/redfish/")) {
            let title = "`system` is not a Redfish path".to_owned();
            checker.wrong(
                title,
                system.span(),
                "must begin with `/redfish/`",
                "e.g. \"/redfish/v1/Systems/1\"",
            );
        }
        let (file, credential) = (this.password_file.as_ref(), this.password_credential.as_ref());
        let password = secret::source(checker, &span, "password", file, credential);
        let ways = [
            ("ca_file", &this.ca_file),
            ("ca_credential", &this.ca_credential),
            ("fingerprint", &this.fingerprint),
            ("ca", &this.ca),
        ];
        let help = "most controllers use a self-signed certificate: set its `fingerprint`";
        let trust = trust(ways, help, checker, &span);
        let timeout = checker.positive("timeout", this.timeout.as_ref(), Duration::from_secs(30));
        Some(Redfish {
            endpoint: this.endpoint.get_ref().clone(),
            system: this.system.as_ref().map(|path| path.get_ref().clone()),
            user: this.user.clone(),
            password: password?,
            trust: trust?,
            timeout,
        })
    }
}

/// Checked `[power]`.
#[derive(Clone, Debug)]
pub struct PowerSettings {
    /// A host is shut down once it has not been needed for this long.
    pub idle_for: Duration,
    /// Time limit for moving all machines off a host that is to be switched off.
    pub empty_time: Duration,
    /// A host must be off within this time after it was asked to shut down.
    pub shutdown_time: Duration,
    /// A host must be on, and its API must answer, within this time after it was woken.
    pub wake_time: Duration,
    /// Minimum number of hosts in the cluster that stay on.
    pub min_hosts_on: usize,
    /// Maximum number of hosts that the daemon keeps switched off at the same time; `None`: as many as the
    /// other settings allow.
    pub max_hosts_off: Option<usize>,
}

/// `[power]` as written in the configuration file.
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
                "at least one host must stay on to send the packets that wake the others",
            ),
            max_hosts_off: self.max_hosts_off.as_ref().map(|written| {
                checker.count(
                    "max_hosts_off",
                    Some(written),
                    1,
                    "to leave all hosts on, remove `power` from each `[[host]]`",
                )
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::{Needs, Power, parse};

    #[test]
    fn no_host_is_switched_off_unless_its_own_table_says_so() {
        let bare = parse("c.toml", "[[host]]\nname = \"a\"\n", Needs::Plan).unwrap();
        assert_eq!(bare.hosts["a"].power, None);
        let text = "[power]\nidle_for = \"1h\"\n[[host]]\nname = \"a\"\npower = \"wake-on-lan\"\n";
        let config = parse("c.toml", text, Needs::Plan).unwrap();
        assert_eq!(config.hosts["a"].power, Some(Power::WakeOnLan));
        assert_eq!((config.power.idle_for, config.power.min_hosts_on), (Duration::from_hours(1), 1));
    }

    const CONTROLLER: &str =
        "endpoint = \"https://10.0.0.13\"\nuser = \"power\"\npassword_file = \"/x\"\nca = \"system\"\n";

    #[test]
    fn a_controller_is_taken_where_the_host_names_one() {
        let text = format!("[[host]]\nname = \"a\"\npower = \"redfish\"\n[host.redfish]\n{CONTROLLER}");
        let config = parse("c.toml", &text, Needs::Plan).unwrap();
        let Some(Power::Redfish(redfish)) = &config.hosts["a"].power else { panic!("no controller") };
        assert_eq!((redfish.system.as_deref(), redfish.timeout), (None, Duration::from_secs(30)));
        for (from, to, expected) in [
            ("https:", "http:", "`endpoint` is not encrypted"),
            ("ca =", "system = \"1\"\nca =", "`system` is not a Redfish path"),
            ("password_file = \"/x\"\n", "", "neither `password_file` nor `password_credential` is given"),
            ("ca = \"system\"\n", "", "set its `fingerprint`"),
            (
                "[host.redfish]",
                "[power]\nidle_for = \"1h\"\n[[host]]\nname = \"b\"\n[host.redfish]",
                "`power` of host `a` needs a `[host.redfish]` table",
            ),
            ("power = \"redfish\"", "power = \"wake-on-lan\"", "`[host.redfish]` of host `a` is not used"),
        ] {
            let report = parse("c.toml", &text.replace(from, to), Needs::Plan).unwrap_err().plain();
            assert!(report.contains(expected), "no {expected:?} in\n{report}");
        }
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
