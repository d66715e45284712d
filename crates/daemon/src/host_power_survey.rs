//! Finds the reasons why hosts must not be switched off. This needs additional queries to Proxmox VE, which
//! are only sent if a `[[host]]` has `power`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use machines::{MachineView, answering_hosts};
use model::machine::Phase;
use model::power::{HostFacts, PowerFacts};
use model::snapshot::TemplateSeen;
use model::{HostKey, Vmid};
use proxmox::{Client, ClusterResources, Guest, HostSurvey, PowerSurvey};
use runtime::error_chain::chain;
use settings::{Config, Power};

/// The time between two surveys. If a host that is on does not answer, the survey is repeated with each
/// observation.
pub(super) const AGAIN: Duration = Duration::from_mins(1);
/// If a survey takes longer, no host is switched off.
const LIMIT: Duration = Duration::from_secs(20);

/// The result of a survey.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Survey {
    found: PowerSurvey,
    /// Whether this daemon runs on a host of the cluster; `None` if unknown.
    at_home: Option<bool>,
}

impl Survey {
    /// Surveys the hosts that may be switched off; `None` if there are none.
    pub async fn make(
        proxmox: &Client,
        config: &Config,
        seen: &ClusterResources,
        at_home: Option<bool>,
    ) -> Option<Arc<Self>> {
        let hosts: Vec<(&str, bool, bool)> = config
            .hosts
            .iter()
            .filter_map(|(name, own)| {
                let by_packet = *own.power.as_ref()? == Power::WakeOnLan;
                Some((name.as_str(), seen.hosts.get(name.as_str())?.online, by_packet))
            })
            .collect();
        if hosts.is_empty() {
            return None;
        }
        // Whether each host answers is determined separately, so that the daemon knows this even if the
        // survey fails.
        let on = hosts.iter().filter(|(_, on, _)| *on).map(|(name, ..)| *name);
        let answering = answering_hosts(proxmox, on).await;
        let hosts: Vec<(&str, bool, bool)> =
            (hosts.iter()).map(|&(name, _, by_packet)| (name, answering.contains(name), by_packet)).collect();
        let found = match tokio::time::timeout(LIMIT, proxmox.power_survey(&hosts)).await {
            Ok(Ok(found)) => found,
            failed => {
                let why = match failed {
                    Ok(Err(error)) => chain(&error),
                    _ => format!("no answer within {} s", LIMIT.as_secs()),
                };
                let why = Some(format!("could not determine whether it can be switched off: {why}"));
                let unknown = |&(name, answers, _): &(&str, bool, bool)| {
                    (name.to_owned(), HostSurvey { answers, stays_on: why.clone() })
                };
                PowerSurvey { hosts: hosts.iter().map(unknown).collect(), ..PowerSurvey::default() }
            }
        };
        Some(Arc::new(Self { found, at_home }))
    }

    /// Whether a host that is on did not answer.
    pub fn awaits(&self, seen: &ClusterResources) -> bool {
        let on = |name: &String| seen.hosts.get(name).is_some_and(|host| host.online);
        self.found.hosts.iter().any(|(name, found)| !found.answers && on(name))
    }

    /// Returns the facts for the planner. Adds what only the daemon knows: its machines, those removed a
    /// moment ago, its templates, and its own host.
    pub fn facts(
        &self,
        seen: &ClusterResources,
        views: &[MachineView],
        gone: &BTreeSet<Vmid>,
        templates: &[TemplateSeen],
        instance: &str,
    ) -> PowerFacts {
        let ours: BTreeSet<Vmid> = views.iter().map(|view| view.record.slot.vmid).collect();
        let migrating = seen.migrating();
        let facts = |(name, found): (&String, &HostSurvey)| {
            let here = seen.guests.values().filter(|guest| guest.host == *name && stands_against(guest));
            let ha = self.found.ha.get(name).into_iter().flatten().copied();
            let not_ours = here.map(|guest| guest.vmid).chain(ha).filter(|vmid| !ours.contains(vmid));
            let (going, others) = not_ours.partition(|vmid| gone.contains(vmid));
            let own = (name == super::host_of(instance)).then_some(self.at_home);
            let own = own.and_then(of_own_name);
            let stays_on = found.stays_on.clone().or(own).or_else(|| holds_template(name, templates, views));
            let (answers, migrating) = (found.answers, migrating.clone());
            (HostKey::from(name.as_str()), HostFacts { answers, others, going, migrating, stays_on })
        };
        let votes = self.found.votes.iter().map(|(host, votes)| (HostKey::from(host.as_str()), *votes));
        PowerFacts { votes: votes.collect(), hosts: self.found.hosts.iter().map(facts).collect() }
    }
}

/// Returns why a host with the same name as this daemon's own host stays on; `None` if nothing keeps it on.
fn of_own_name(at_home: Option<bool>) -> Option<String> {
    match at_home {
        Some(true) => Some("this daemon runs on it".to_owned()),
        Some(false) => None,
        None => Some(
            "this daemon runs on a host with this name, but the `endpoints` settings do not show which \
                region that host is in: put https://127.0.0.1:8006 first in the `endpoints` of that \
                region"
                .to_owned(),
        ),
    }
}

/// Whether an unmanaged guest keeps its host on: it may be running, or an administrator may be working on it.
fn stands_against(guest: &Guest) -> bool {
    !guest.template && (!guest.stopped || guest.lock.is_some())
}

/// Returns the reason if a template or a clone keeps a host on; otherwise `None`. A template is always cloned
/// by its own host, even if the clone is for another host.
fn holds_template(host: &str, templates: &[TemplateSeen], views: &[MachineView]) -> Option<String> {
    let beyond = |one: &&TemplateSeen| one.host == host && one.hosts.iter().any(|other| other != host);
    let template = templates.iter().filter(beyond).find_map(|one| one.vmid);
    let clones = |view: &&MachineView| view.record.template_host == host && view.phase < Phase::Configuring;
    template.map(|vmid| format!("machines on other hosts are cloned from its template {vmid}")).or_else(
        || views.iter().find(clones).map(|view| format!("{} is being cloned on it", view.record.name)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guest(vmid: Vmid, host: &str) -> Guest {
        Guest { vmid, host: host.to_owned(), ..Guest::default() }
    }

    #[test]
    fn only_guests_that_surely_rest_and_templates_let_their_host_go() {
        let mut seen = ClusterResources::default();
        for one in [
            Guest { running: true, ..guest(Vmid(101), "a") },
            Guest { stopped: true, ..guest(Vmid(102), "a") },
            Guest { stopped: true, lock: Some("backup".to_owned()), ..guest(Vmid(103), "a") },
            // A new VM, which the statistics do not include yet.
            guest(Vmid(104), "a"),
            Guest { template: true, ..guest(Vmid(105), "a") },
            Guest { running: true, ..guest(Vmid(106), "b") },
        ] {
            seen.guests.insert(one.vmid, one);
        }
        let hosts = ["a", "b"].map(|name| (name.to_owned(), HostSurvey { answers: true, stays_on: None }));
        // The HA manager may start VM 107 at any time.
        let ha = [("b".to_owned(), BTreeSet::from([Vmid(107)]))].into();
        let found = PowerSurvey { hosts: hosts.into(), ha, ..PowerSurvey::default() };
        let survey = Survey { found, at_home: Some(true) };
        let facts = survey.facts(&seen, &[], &BTreeSet::new(), &[], "c");
        let others = |host: &str| facts.hosts[host].others.iter().copied().collect::<Vec<_>>();
        assert_eq!(
            (others("a"), others("b")),
            (vec![Vmid(101), Vmid(103), Vmid(104)], vec![Vmid(106), Vmid(107)])
        );
        assert_eq!(facts.hosts["a"].stays_on, None);
        // A VM that was managed until a moment ago is listed separately, because it may be gone.
        let facts = survey.facts(&seen, &[], &BTreeSet::from([Vmid(101)]), &[], "c");
        assert_eq!(facts.hosts["a"].others, BTreeSet::from([Vmid(103), Vmid(104)]));
        assert_eq!(facts.hosts["a"].going, BTreeSet::from([Vmid(101)]));
        // The kernel's name for the host may include a domain; Proxmox VE's name never does.
        for instance in ["a", "a.example.com"] {
            let own = survey.facts(&seen, &[], &BTreeSet::new(), &[], instance);
            assert_eq!(own.hosts["a"].stays_on.as_deref(), Some("this daemon runs on it"), "{instance}");
            assert_eq!(own.hosts["b"].stays_on, None, "{instance}");
        }
        // Another cluster may have a host of the same name.
        for (at_home, expected) in
            [(Some(false), None), (None, Some("the `endpoints` settings do not show which region"))]
        {
            let other = Survey { at_home, ..survey.clone() }.facts(&seen, &[], &BTreeSet::new(), &[], "a");
            let why = other.hosts["a"].stays_on.as_deref();
            assert_eq!(why.is_some(), expected.is_some(), "{at_home:?}");
            assert!(expected.is_none_or(|words| why.unwrap().contains(words)), "{at_home:?}: {why:?}");
        }
    }

    #[test]
    fn a_template_that_others_clone_keeps_its_host_on() {
        let template = |hosts: &[&str]| TemplateSeen {
            pool: "w".into(),
            vmid: Some(Vmid(9000)),
            host: "a".into(),
            hosts: hosts.iter().map(|host| (*host).into()).collect(),
        };
        assert!(holds_template("a", &[template(&["a", "b"])], &[]).is_some());
        assert!(holds_template("a", &[template(&["a"])], &[]).is_none());
        assert!(holds_template("b", &[template(&["a", "b"])], &[]).is_none());
    }
}
