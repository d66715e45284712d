//! What the checker remembers in order to check the promises.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use tokio::time::Instant;

/// The longest time that a daemon waits for an answer. If a call arrives later, its sender may have stopped
/// waiting.
pub const GIVEN_UP: std::time::Duration = std::time::Duration::from_secs(14);

/// How long a daemon may be unaware of another client's change. Between the daemon's read and the resulting
/// write, Proxmox VE's lists lag, calls are repeated, and the daemon decides.
pub const STALE: Duration = Duration::from_mins(2);
/// How many changes of the Lease are remembered.
const REMEMBERED: usize = 200;
/// A term ends if the Lease was not renewed for this long.
const RENEWED: Duration = Duration::from_secs(5);

/// The longest time between a change of the Lease and the checker's next look at the Lease.
const NOTICED: Duration = Duration::from_millis(600);

/// How long a removal counts towards the hourly limit. This is less than an hour, so that the removal is
/// within the last hour by every daemon's clock, even if two clocks are wrong.
const COUNTED: Duration = Duration::from_mins(28);

/// How long a write may be repeated for the same decision after it was first sent. A daemon repeats the write
/// for 15 s, and a call may be delayed.
const REPEATED: Duration = Duration::from_secs(40);

/// Storages that report wrong numbers, or did so recently. The value is the time until which the daemon may
/// still believe the wrong numbers, or `None` while the storage still reports them.
#[derive(Default)]
pub struct Lies(pub BTreeMap<String, Option<Instant>>);

impl Lies {
    pub fn knows_nothing_of(&self, storage: &str) -> bool {
        self.0.get(storage).is_some_and(|until| until.is_none_or(|until| Instant::now() < until))
    }
}

/// What is known about the Lease and the pause switch.
#[derive(Default)]
pub struct Turns {
    /// The holders of the Lease, oldest first. Each entry contains the time at which the checker first saw
    /// a version of the Lease, the instance that held it, and the version.
    pub held: Vec<(Instant, String, String)>,
    pub paused_since: Option<Instant>,
    /// How many times another instance took over.
    pub hand_overs: u64,
    /// How many times an instance began to lead, either after another instance or after a time without a
    /// renewal.
    pub terms: u64,
}

impl Turns {
    pub fn renewed(&mut self, holder: &str, version: &str) {
        let last = self.held.last();
        if last.is_some_and(|last| last.1 == holder && last.2 == version) {
            return;
        }
        let before = self.held.iter().rev().find(|one| !one.1.is_empty());
        let lapsed = last.is_none_or(|last| last.0.elapsed() > RENEWED);
        self.terms += u64::from(last.is_none_or(|last| last.1 != holder) || lapsed);
        self.hand_overs += u64::from(!holder.is_empty() && before.is_some_and(|one| one.1 != holder));
        if self.held.len() >= REMEMBERED {
            self.held.drain(..REMEMBERED / 2);
        }
        self.held.push((Instant::now(), holder.to_owned(), version.to_owned()));
    }

    /// Delays the recorded start of the pause by the time for which everything was frozen, because the daemon
    /// could not notice the pause during that time.
    pub fn delay_the_pause(&mut self, time: Duration) {
        self.paused_since = self.paused_since.map(|since| since + time);
    }

    /// The reason why `who` was not allowed to send a write at the time `sent`, if any. `term` is how long a
    /// term lasts after a renewal.
    pub fn refusal(&self, who: &str, sent: Instant, term: Duration) -> Option<String> {
        let seen = self.held.iter().take_while(|one| one.0 <= sent + NOTICED);
        let near: Vec<_> = seen.collect();
        // One of the holders around the time `sent` must be the writer.
        let current = near.iter().rposition(|one| one.0 <= sent).unwrap_or(0);
        let Some(renewal) = near.iter().skip(current).rev().find(|one| one.1 == who) else {
            let holder = near.last().map_or("no instance", |one| one.1.as_str());
            return Some(format!("{holder} leads"));
        };
        let age = sent.saturating_duration_since(renewal.0);
        (age > term + NOTICED).then(|| format!("its term had ended {:?} earlier", age.saturating_sub(term)))
    }
}

/// The time at which the removal of each machine was ordered, by the machine's name.
#[derive(Default)]
pub struct Told(pub BTreeMap<String, Timestamp>);

/// A right that all machines of some pools need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Right {
    /// The right to use the machines' tag.
    Tag,
    /// The right to use the network with this path.
    Network(String),
}

/// The right that is missing, and the pools whose machines were refused because of it.
#[derive(Default)]
pub struct Missing {
    pub what: Option<Right>,
    /// For each pool, the term in which a machine was refused, and the time of the refusal.
    pub met: BTreeMap<&'static str, (u64, Instant)>,
}

/// What is known about hosts that were asked to shut down.
#[derive(Default)]
pub struct Asleep {
    /// For each host, the time at which it was asked to shut down, and the time since which it has been on
    /// again, if it is on.
    pub asked: std::collections::BTreeMap<String, (Instant, Option<Instant>)>,
}

/// The latest removals, by which the limits on removals are checked.
#[derive(Default)]
pub struct Braked {
    pub gone: BTreeMap<String, Instant>,
    /// What each daemon last wrote about each machine, and when.
    pub written: BTreeMap<(String, String), (Value, Instant)>,
}

impl Braked {
    /// Counts the removal of the machine with this name. Returns the number of removals that are within the
    /// last hour by every daemon's clock. Each machine counts once, because the daemon may have to repeat the
    /// call.
    pub fn one_goes(&mut self, name: &str) -> usize {
        self.gone.retain(|_, at| at.elapsed() < COUNTED);
        self.gone.insert(name.to_owned(), Instant::now());
        self.gone.len()
    }

    /// Whether the daemon wrote the same record a moment ago.
    pub fn repeats(&mut self, who: &str, record: &Value) -> bool {
        let key = (who.to_owned(), record["name"].to_string());
        if self.written.get(&key).is_some_and(|(before, at)| before == record && at.elapsed() < REPEATED) {
            return true;
        }
        self.written.insert(key, (record.clone(), Instant::now()));
        false
    }
}

/// The location and state of VMs, hosts and storages, and the time since which each state has lasted.
#[derive(Default)]
pub struct Sights {
    pub guests: BTreeMap<u32, Sight>,
    /// Hosts in maintenance.
    pub kept_empty: BTreeMap<String, Instant>,
    /// Hosts that are off.
    pub off: BTreeMap<String, Instant>,
    /// Hosts whose VMs and storages are not known.
    pub silent: BTreeMap<String, Instant>,
    /// The used bytes of each storage that a pool names, not including the clones of machines. The key is the
    /// storage and the host.
    pub others: BTreeMap<(String, String), VecDeque<(Instant, u64)>>,
    /// When `others` was last updated.
    pub weighed: Option<Instant>,
    /// The version of the VMs from which `guests` was derived.
    pub as_of: Option<u64>,
    /// The time at which the token last had no rights over VMs. Without those rights, the daemon cannot see
    /// other clients' VMs.
    pub blind: Option<Instant>,
    /// For each VMID, which daemon created the record, and when. `None` if the API server's answer was lost.
    /// Even the daemon that sent the call may then not know of the record. The daemon may create other
    /// records instead, and drops the unused record once it finds it.
    pub written: BTreeMap<u32, Option<(String, Instant)>>,
    /// For each VMID, which daemon asked the warm machine to join, and when.
    pub woken: BTreeMap<u32, (String, Instant)>,
}

/// The state of a VM, and since when it has been in that state.
pub struct Sight {
    pub node: String,
    pub running: bool,
    pub since: Instant,
    /// When the VM was moved to this host, if its record named another host.
    pub moved: Option<Instant>,
    /// How many times the VM was started.
    pub starts: u32,
    /// The VM's number of vCPUs and its memory in bytes.
    pub size: (u32, u64),
    /// The time since which the VM has had this size.
    pub sized: Instant,
}

/// A daemon that made a decision, and when it sent the resulting write.
#[derive(Clone, Copy)]
pub struct AsOf<'a> {
    /// The host of the daemon.
    pub who: &'a str,
    /// When the write was sent.
    pub sent: Instant,
    /// How long everything was frozen shortly before the write.
    pub stood: Duration,
}

impl AsOf<'_> {
    /// Whether a state that began at `since` began early enough for the daemon to know about it.
    pub fn knew(self, since: Instant) -> bool {
        since + STALE + self.stood <= self.sent
    }
}

/// The most recent periods during which everything was frozen, each as its end and its duration.
#[derive(Default)]
pub struct Stood(pub Vec<(Instant, Duration)>);

/// VMs that other clients protect or hide, or did so a moment ago.
#[derive(Default)]
pub struct Touched {
    /// VMs that are protected from removal, and since when.
    pub protected: BTreeMap<u32, Instant>,
    /// VMs that were removed from their resource pool, each with the time at which it was put back, or `None`
    /// if it has not been put back.
    pub outside: BTreeMap<u32, Option<Instant>>,
}

/// The versions of the objects at the last run of each expensive check. A check is skipped while its objects
/// do not change.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct LookedAt {
    pub nodes: u64,
    pub addresses: u64,
    /// The versions of VMs and pools.
    pub guests: Option<[u64; 2]>,
    /// The versions of the Lease and the pause switch.
    pub turns: [u64; 2],
    /// The versions of VMs, volumes and records.
    pub disks: Option<[u64; 3]>,
    pub secrets: (u64, usize),
    /// The versions of Secrets, records and VMs.
    pub tokens: Option<[u64; 3]>,
}

/// The number of actions in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Clones that were requested.
    pub clones: u64,
    /// Requests to destroy a VM.
    pub destructions: u64,
    /// Evictions that were requested.
    pub evictions: u64,
    /// Machines that were asked to grow.
    pub growths: u64,
    /// Hosts that were asked to shut down.
    pub sleeps: u64,
    /// Hosts that were woken.
    pub wakes: u64,
    /// VMs that an administrator replaced with others.
    pub taken: u64,
}
