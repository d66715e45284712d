//! Everything that one decision reads, put together: nothing is asked of anybody here.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::Daemon;
use super::inventory::Look;
use crate::config::{Config, Mode};
use crate::machines::{self, Taken};
use crate::model::Snapshot;
use crate::model::machine::{Machine, Phase};
use crate::model::node::Node;
use crate::model::snapshot::{Inventory, POOL_LABEL, UNNEEDED_SINCE};
use crate::model::workload::Backoff;

/// A look at Proxmox that is older than so many scan intervals is not acted on.
const STALE_LOOKS: u32 = 6;

/// A machine for the planner. One that is being made on a host that is offline is nothing to wait for: its slot stays taken
/// until the host is back and it can be seen what is there.
fn seen_with(view: &machines::View, look: Option<&Look>) -> Machine {
    let mut machine = view.machine();
    let offline = |look: &Look| look.seen.hosts.get(&machine.host).is_some_and(|host| !host.online);
    if machine.phase < Phase::Ready && look.is_some_and(offline) {
        machine.phase = Phase::Failed;
    }
    machine
}

/// Timers of nodes in a mode that writes nothing: node → since when unneeded.
pub(super) type Overlay = BTreeMap<String, Timestamp>;

impl Daemon {
    /// The snapshot for a decision at `now`.
    pub(super) fn gather(&mut self, config: &Arc<Config>, now: Timestamp) -> Snapshot {
        let mut snapshot = self.watches.snapshot();
        snapshot.time = now;
        let views = self.registry.all();
        self.only_ours(&mut snapshot, &views);
        let (look, problem) = self.inventory.last();
        match &problem {
            Some(problem) => self.board.problem("proxmox", problem),
            None => self.board.clear("proxmox"),
        }
        let too_old =
            SignedDuration::try_from(config.scan_interval * STALE_LOOKS).unwrap_or(SignedDuration::MAX);
        let fresh = look.as_ref().filter(|look| now.duration_since(look.at) <= too_old);
        let counts_stopped = config.proxmox.as_ref().is_some_and(|proxmox| proxmox.count_stopped);
        snapshot.proxmox = Inventory {
            // Hosts that nobody has seen for long take no machines.
            hosts: Some(fresh.map(|look| look.hosts(counts_stopped)).unwrap_or_default()),
            machines: Some(views.iter().map(|view| seen_with(view, fresh)).collect()),
            templates: self.templates.seen(),
            power: fresh.and_then(|look| {
                let survey = look.survey.as_ref()?;
                Some(survey.facts(&look.seen, &views, &self.templates.seen(), &self.instance))
            }),
        };
        let mut taken = self.taken(&views, &snapshot);
        if let Some(look) = &look {
            taken.vmids.extend(look.seen.guests.keys());
        }
        snapshot.memory = self.memory.now(&snapshot, config);
        snapshot.memory.free_slots = Some(machines::free(config, &taken, |slot| self.registry.freed(slot)));
        snapshot.memory.name_seed = self.random.u64(..);
        self.narrow(config, &mut snapshot, fresh.is_some());
        self.out_of_service(config, &mut snapshot, &views);
        snapshot
    }

    /// A pool's label that somebody else set makes nothing ours: only a Node with a machine of ours behind it is managed.
    fn only_ours(&mut self, snapshot: &mut Snapshot, views: &[machines::View]) {
        let uuids: std::collections::BTreeSet<&str> =
            views.iter().filter_map(|view| view.record.smbios_uuid.as_deref()).collect();
        let observe = self.config.borrow().mode == Mode::Observe;
        for node in &mut snapshot.nodes {
            let labelled = node.labels.contains_key(POOL_LABEL);
            let ours = uuids.contains(node.system_uuid.as_str());
            if labelled && !ours {
                self.said.once(
                    &format!("label {}", node.name),
                    || tracing::warn!(node = %node.name, "the Node has our pool label and no machine of ours behind it: it is left alone"),
                );
                let mut stripped = Node::clone(node);
                stripped.labels.remove(POOL_LABEL);
                *node = Arc::new(stripped);
            } else if let (true, Some(since)) = (observe, self.overlay.get(&node.name)) {
                let mut timed = Node::clone(node);
                timed.annotations.insert(UNNEEDED_SINCE.to_owned(), since.to_string());
                *node = Arc::new(timed);
            }
        }
    }

    fn taken(&self, views: &[machines::View], snapshot: &Snapshot) -> Taken {
        let mut taken = Taken::default();
        for view in views {
            taken.vmids.insert(view.record.slot.vmid);
            taken.addresses.extend(view.record.slot.addresses());
        }
        for node in &snapshot.nodes {
            taken
                .addresses
                .extend(node.internal_ips.iter().filter_map(|ip| ip.parse::<std::net::IpAddr>().ok()));
        }
        taken.vmids.extend(self.mend.closed(self.clock.now()));
        taken
    }

    /// Pools that have no usable template back off; the others get only hosts that a template reaches.
    fn narrow(&self, config: &Config, snapshot: &mut Snapshot, proxmox_seen: bool) {
        let found = self.templates.all();
        let soon = snapshot.time.saturating_add(SignedDuration::from_mins(1)).unwrap_or(Timestamp::MAX);
        // Machines that are there already need neither Proxmox VE nor a template.
        for pool in config.pools.iter().filter(|pool| !pool.is_physical()) {
            let usable = found.get(&pool.name);
            let reach: std::collections::BTreeSet<&String> =
                usable.into_iter().flat_map(|found| &found.usable).flat_map(|one| &one.reach).collect();
            let reason = if !proxmox_seen {
                Some("Proxmox VE cannot be looked at".to_owned())
            } else if reach.is_empty() {
                let problem = usable.and_then(|found| found.problems.first().cloned());
                Some(problem.unwrap_or_else(|| "its template was not found yet".to_owned()))
            } else {
                None
            };
            let memory = snapshot.memory.pools.entry(pool.name.clone()).or_default();
            if let Some(reason) = reason {
                let longer = memory.backoff.as_ref().is_some_and(|backoff| backoff.until > soon);
                if !longer {
                    memory.backoff = Some(Backoff { until: soon, reason, seconds: 0 });
                }
                continue;
            }
            memory.templates = self.templates.prints(&pool.name);
            let own =
                |host: &String| usable.is_some_and(|found| found.usable.iter().any(|one| one.host == *host));
            memory.across = reach.iter().filter(|host| !own(host)).map(|host| (*host).clone()).collect();
            memory.reach = Some(reach.into_iter().cloned().collect());
        }
    }
}
