//! Determines on which hosts a pool's machines can be created. These are the hosts to which one of the pool's
//! templates can be cloned. If no template can be cloned now, determines the reason.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::Daemon;
use super::build_snapshot::Looks;
use super::silent_hosts::silence;
use machines::PoolTemplates;
use model::snapshot::PoolMemory;
use model::workload::Backoff;
use model::{PoolName, Snapshot};
use observability::Problem;
use settings::{Config, Pool};

impl Daemon {
    /// Makes pools back off if no machine can be created in them now. Records which hosts the templates of
    /// each pool reach, as far as known.
    pub(super) fn narrow(&self, config: &Config, snapshot: &mut Snapshot, looks: &Looks) {
        self.say_refusals(config);
        self.say_clocks();
        let found: BTreeMap<&str, BTreeMap<PoolName, PoolTemplates>> =
            self.regions.iter().map(|region| (region.prefix.as_str(), region.templates.all())).collect();
        let now = snapshot.time;
        let soon = snapshot.time.saturating_add(SignedDuration::from_mins(1)).unwrap_or(Timestamp::MAX);
        // Bare-metal machines need neither Proxmox VE nor a template.
        for pool in config.pools.iter().filter(|pool| !pool.is_physical()) {
            let found = found.get(pool.prefix.as_str()).and_then(|found| found.get(&pool.name));
            let out_of_sight = self.regions.unseen(config, &pool.prefix, now);
            let were_asked = self.strangers.were_asked(&pool.prefix);
            let is_known = out_of_sight.is_none() && looks.contains_key(&pool.prefix) && were_asked;
            let has_template = found.is_some_and(|found| !found.usable.is_empty());
            let reason = if let Some(why) = &out_of_sight {
                Some(why.clone())
            } else if !looks.contains_key(&pool.prefix) {
                Some("Proxmox VE cannot be read".to_owned())
            } else if !were_asked {
                Some("waiting to learn the addresses of unmanaged VMs".to_owned())
            } else {
                let refused = found.and_then(|found| found.refused.clone());
                refused.or_else(|| (!has_template).then(|| without_template(pool, found, looks)))
            };
            let is_refused = found.is_some_and(|found| found.refused.is_some());
            let memory = snapshot.memory.pools.entry(pool.name.clone()).or_default();
            memory.out_of_sight = out_of_sight;
            // The hosts that the templates reach are recorded even if a template cannot be cloned now,
            // because a host that is switched off later is only woken for pools that are known to reach it.
            if let Some(found) = found.filter(|_| has_template) {
                reach(pool, found, memory);
            }
            if let Some(reason) = reason {
                let longer = memory.backoff.as_ref().is_some_and(|backoff| backoff.until > soon);
                if !longer {
                    memory.backoff = Some(Backoff { until: soon, reason, seconds: 0 });
                    memory.without_template = is_known && !has_template && !is_refused;
                }
                continue;
            }
            if let Some(region) = self.regions.get(&pool.prefix) {
                memory.templates = region.templates.prints(&pool.name);
                memory.clone_bytes = region.templates.clone_bytes(&pool.name);
            }
        }
    }

    /// Reports a missing right as a problem if, without it, no machine can be created in a pool.
    fn say_refusals(&self, config: &Config) {
        let of = |pool: &Pool| {
            let words = self.regions.get(&pool.prefix)?.templates.refusal(&pool.name)?;
            Some(format!("cannot create machines in pool {}: {words}", pool.name))
        };
        let said: Vec<String> = config.pools.iter().filter_map(of).collect();
        if said.is_empty() {
            self.board.clear(&Problem::Rights);
        } else {
            self.board.problem(&Problem::Rights, &said.join("; "));
        }
    }
}

/// Returns the reason why no template of a pool can be used.
fn without_template(pool: &Pool, found: Option<&PoolTemplates>, looks: &Looks) -> String {
    let silent = looks.get(&pool.prefix).and_then(|look| look.seen.silent().next());
    let silent = silent.map(|host| silence(&host.name));
    // Both the first problem and a silent host are named, because either may be the cause.
    let problem = found.and_then(|found| found.problems.first().cloned());
    let problems: Vec<String> = problem.into_iter().chain(silent).collect();
    if problems.is_empty() { "its template has not been found yet".to_owned() } else { problems.join("; ") }
}

/// Records which hosts the pool's templates reach.
fn reach(pool: &Pool, found: &PoolTemplates, memory: &mut PoolMemory) {
    let reach: BTreeSet<&String> = found.usable.iter().flat_map(|one| &one.reach).collect();
    let own = |host: &String| found.usable.iter().any(|one| one.host == *host);
    memory.across = reach.iter().filter(|host| !own(host)).map(|host| pool.host_key(host)).collect();
    memory.reach = Some(reach.into_iter().map(|host| pool.host_key(host)).collect());
}

/// A host is woken for the pools whose templates reached it when it was switched off. This function also adds
/// pools that were configured since then, if they have the same template as one of those pools and thus reach
/// the same hosts. While a pool's reach is unknown, the hosts that it may reach stay on.
pub(super) fn see_to_hosts(config: &Config, snapshot: &mut Snapshot) {
    let memory = &mut snapshot.memory;
    for power in memory.hosts.values_mut().filter_map(|host| host.power.as_mut()) {
        let alike = |pool: &Pool, known: &BTreeSet<PoolName>| {
            let mut others = config.pools.iter().filter(|other| known.contains(&other.name));
            others.any(|other| {
                (&other.template, other.boot, &other.prefix) == (&pool.template, pool.boot, &pool.prefix)
            })
        };
        let later = |known: &BTreeSet<PoolName>| {
            let pools = config.pools.iter().filter(|pool| !power.reached_by.contains(&pool.name));
            pools
                .filter(|pool| alike(pool, known))
                .map(|pool| pool.name.clone())
                .collect::<BTreeSet<PoolName>>()
        };
        let (reached, across) = (later(&power.reached_by), later(&power.across));
        power.reached_by.extend(reached);
        power.across.extend(across);
    }
    let awaited = |pool: &Pool| {
        let mut off = memory.hosts.values().filter_map(|host| host.power.as_ref());
        off.any(|power| power.reached_by.contains(&pool.name))
    };
    let is_known = |pool: &Pool| {
        memory.pools.get(&pool.name).is_some_and(|memory| memory.reach.is_some()) || awaited(pool)
    };
    let unknown: Vec<&Pool> =
        config.pools.iter().filter(|pool| !pool.is_physical() && !is_known(pool)).collect();
    let proxmox = Arc::make_mut(&mut snapshot.proxmox);
    let hosts = proxmox.power.iter_mut().flat_map(|facts| &mut facts.hosts);
    for (host, own) in hosts {
        let Some(pool) = unknown.iter().find(|pool| pool.may_be_on(host)) else { continue };
        let name = &pool.name;
        let why = memory.pools.get(name).and_then(|memory| memory.backoff.as_ref());
        let why = why.map(|backoff| format!(": {}", backoff.reason)).unwrap_or_default();
        own.stays_on.get_or_insert_with(|| {
            format!("it is not known whether machines of pool {name} can be created on this host{why}")
        });
    }
}
