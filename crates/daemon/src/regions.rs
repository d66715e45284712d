//! The Proxmox VE clusters. Each has its own client, observations and limits, so that trouble in one does not
//! delay the others.
//!
//! A machine is only ever read, changed and destroyed through the cluster of its record's region. If the
//! configuration does not contain that region, the machine is left alone. While a cluster cannot be read or
//! is not quorate, its machines keep their last known state, and its pools neither gain machines nor lose
//! nodes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Deps;
use super::inventory::{Inventory, NOT_QUORATE, Observation, Start};
use machines::Templates;
use model::snapshot::TemplateSeen;
use model::{HostKey, Record};
use observability::Problem;
use proxmox::Client;
use runtime::fence::Fence;
use settings::Config;

/// An observation that is older than this many scan intervals is not acted on.
const STALE_LOOKS: u32 = 6;

/// One cluster.
#[derive(Clone)]
pub(super) struct Region {
    /// The prefix of the names of the cluster's hosts ([`HostKey`]); empty for the cluster in `[proxmox]`.
    pub prefix: String,
    pub proxmox: Client,
    pub templates: Templates,
    pub inventory: Inventory,
    /// Limits how many machines are created in the cluster at a time. Each cluster has its own limit, so that
    /// machines waiting for an unavailable cluster do not hold up others.
    pub creating: Arc<Semaphore>,
}

impl Region {
    /// The name under which the status shows the cluster's problems.
    pub fn name(&self) -> String {
        name(&self.prefix)
    }

    /// The problem to report if the daemon cannot act on the cluster.
    pub fn problem(&self) -> Problem {
        if self.prefix.is_empty() { Problem::Proxmox } else { Problem::Region(self.prefix.clone()) }
    }

    /// The cluster's templates, with hosts named by their keys ([`HostKey`]).
    pub fn templates_seen(&self) -> Vec<TemplateSeen> {
        let key = |host: &HostKey| HostKey::new(&self.prefix, host);
        let keyed = |one: TemplateSeen| TemplateSeen {
            host: key(&one.host),
            hosts: one.hosts.iter().map(key).collect(),
            ..one
        };
        self.templates.seen().into_iter().map(keyed).collect()
    }

    /// The last observation, if it is recent enough to act on.
    pub fn fresh(&self, config: &Config, now: Timestamp) -> Option<Observation> {
        self.inventory.last().0.filter(|look| look.is_recent(config.scan_interval * STALE_LOOKS, now))
    }
}

/// The name under which the status shows a cluster's problems.
pub(super) fn name(prefix: &str) -> String {
    if prefix.is_empty() { "proxmox".to_owned() } else { format!("region {prefix}") }
}

/// All clusters, by the prefixes of their hosts' names. Cheap to clone.
#[derive(Clone)]
pub(super) struct Regions {
    all: Arc<BTreeMap<String, Region>>,
    changed: watch::Sender<u64>,
}

impl Regions {
    /// Starts to observe all clusters, with clients that only read.
    pub fn open(deps: &Deps, cancel: &CancellationToken, tasks: &TaskTracker) -> Self {
        let changed = watch::Sender::new(0);
        let several = !deps.regions.is_empty();
        let most = deps.config.borrow().limits.max_parallel_creates as usize;
        let first = std::iter::once((String::new(), &deps.proxmox));
        let all = first.chain(deps.regions.iter().map(|(name, client)| (name.clone(), client)));
        let region = |(prefix, client): (String, &Client)| {
            let (proxmox, templates) = (client.fenced(&Fence::closed()), Templates::default());
            let start = Start {
                prefix: prefix.clone(),
                several,
                proxmox: proxmox.clone(),
                config: deps.config.clone(),
                templates: templates.clone(),
                clock: deps.clock.clone(),
                changed: changed.clone(),
            };
            let inventory = Inventory::start(start, cancel, tasks);
            let creating = Arc::new(Semaphore::new(most));
            (prefix.clone(), Region { prefix, proxmox, templates, inventory, creating })
        };
        Self { all: Arc::new(all.map(region).collect()), changed }
    }

    /// The same clusters for a new term, with clients whose writes must pass this fence.
    pub fn fenced(&self, fence: &Fence, config: &Config) -> Self {
        let most = config.limits.max_parallel_creates as usize;
        let one = |(prefix, region): (&String, &Region)| {
            let creating = Arc::new(Semaphore::new(most));
            let region = Region { proxmox: region.proxmox.fenced(fence), creating, ..region.clone() };
            (prefix.clone(), region)
        };
        Self { all: Arc::new(self.all.iter().map(one).collect()), changed: self.changed.clone() }
    }

    /// All clusters, beginning with that of `[proxmox]`.
    pub fn iter(&self) -> impl Iterator<Item = &Region> {
        self.all.values()
    }

    /// Whether there is more than one cluster.
    pub fn several(&self) -> bool {
        self.all.len() > 1
    }

    /// The cluster with this prefix; `None` if it was not in the configuration at the start.
    pub fn get(&self, prefix: &str) -> Option<&Region> {
        self.all.get(prefix)
    }

    /// The cluster that contains the record's VM.
    pub fn of(&self, config: &Config, record: &Record) -> Option<&Region> {
        self.get(config.prefix(record.region.as_deref()))
    }

    /// The cluster of the host with this key.
    pub fn of_host(&self, key: &HostKey) -> Option<&Region> {
        self.get(key.region())
    }

    /// Returns the reason why the daemon cannot decide about a cluster's pools and machines; `None` if it
    /// can.
    pub fn unseen(&self, config: &Config, prefix: &str, now: Timestamp) -> Option<String> {
        let Some(region) = self.get(prefix) else {
            return Some(format!(
                "region `{prefix}` is not connected: add its table to the configuration and restart the \
                 daemon"
            ));
        };
        let why = match region.inventory.last() {
            (_, Some(problem)) => problem,
            (None, None) => "it has not answered yet".to_owned(),
            (Some(look), None) if region.fresh(config, now).is_none() => {
                format!("it was last read at {}", look.at)
            }
            (Some(_), None) => return None,
        };
        if !self.several() {
            return Some(if why == NOT_QUORATE { why } else { format!("Proxmox VE cannot be read: {why}") });
        }
        let name = config.cluster(prefix).and_then(|one| one.region.as_deref()).unwrap_or(prefix);
        Some(format!("region `{name}` cannot be acted on: {why}"))
    }

    /// Returns the reason why the daemon cannot decide about a machine; `None` if it can. Bare-metal machines
    /// depend on no cluster.
    pub fn unseen_of(&self, config: &Config, record: &Record, now: Timestamp) -> Option<String> {
        if record.is_physical() {
            return None;
        }
        self.unseen(config, config.prefix(record.region.as_deref()), now)
    }

    /// Whether any cluster has been observed.
    pub fn is_any_seen(&self) -> bool {
        self.iter().any(|region| region.inventory.last().0.is_some())
    }

    /// A counter that increases with each change that triggers a round.
    pub fn changed(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Waits for the first observation of each cluster, for at most `limit`.
    pub async fn first(&self, limit: Duration) {
        let looks = self.iter().map(|region| async move {
            if !region.inventory.first(limit).await {
                tracing::warn!(
                    region = region.name(),
                    "Proxmox VE has not been read yet: no machine is created and no node is removed \
                        until it has been read"
                );
            }
        });
        futures::future::join_all(looks).await;
    }
}
