//! What the checker remembers for the promises.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use tokio::time::Instant;

/// A daemon waits no longer than this for an answer: the sender of a call that arrives later may have given
/// it up.
pub const GIVEN_UP: std::time::Duration = std::time::Duration::from_secs(14);

/// How long a daemon may not know about another client's change. The time between its look and the resulting
/// write includes the lag of Proxmox VE's lists, repeated calls, and the decision.
pub const STALE: Duration = Duration::from_mins(2);
/// How many changes of the Lease are remembered.
const REMEMBERED: usize = 200;
/// A term ends if it was not renewed for this long.
const RENEWED: Duration = Duration::from_secs(5);

/// The longest time between a change of the Lease and its detection here: everything is checked this often.
const NOTICED: Duration = Duration::from_millis(600);

/// A removal this long ago counts as within the hour, even if both clocks that were used are wrong.
const COUNTED: Duration = Duration::from_mins(28);

/// For how long the same write may be repeated after it was first sent, for an earlier decision. A daemon
/// repeats it for 15 s, and a call may be delayed.
const REPEATED: Duration = Duration::from_secs(40);

/// Storages that lie or lied recently, and until when.
#[derive(Default)]
pub struct Lies(pub BTreeMap<String, Option<Instant>>);

impl Lies {
    pub fn knows_nothing_of(&self, storage: &str) -> bool {
        self.0.get(storage).is_some_and(|until| until.is_none_or(|until| Instant::now() < until))
    }
}

/// What is known of the Lease and of the pause switch.
#[derive(Default)]
pub struct Turns {
    /// Holders, oldest first: since when, which instance, and the version of the Lease.
    pub held: Vec<(Instant, String, String)>,
    pub paused_since: Option<Instant>,
    /// How many times another instance took over.
    pub hand_overs: u64,
    /// How many times an instance began to lead: after another, or after a time without a renewal.
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

    /// Everything was frozen for this long, and so was the order to pause.
    pub fn delay_the_pause(&mut self, time: Duration) {
        self.paused_since = self.paused_since.map(|since| since + time);
    }

    /// Why `who` may not have sent a write at this time, if so; its term lasts for this long after a renewal.
    pub fn refusal(&self, who: &str, sent: Instant, term: Duration) -> Option<String> {
        let seen = self.held.iter().take_while(|one| one.0 <= sent + NOTICED);
        let near: Vec<_> = seen.collect();
        // One of the holders around this time must be the writer.
        let current = near.iter().rposition(|one| one.0 <= sent).unwrap_or(0);
        let Some(renewal) = near.iter().skip(current).rev().find(|one| one.1 == who) else {
            let holder = near.last().map_or("no instance", |one| one.1.as_str());
            return Some(format!("{holder} leads"));
        };
        let age = sent.saturating_duration_since(renewal.0);
        (age > term + NOTICED).then(|| format!("its term has been over for {:?}", age.saturating_sub(term)))
    }
}

/// When the removal of machines was ordered, by name.
#[derive(Default)]
pub struct Told(pub BTreeMap<String, Timestamp>);

/// A right that all machines of some pools need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Right {
    /// The right to the machines' tag.
    Tag,
    /// The right to the network with this path.
    Network(String),
}

/// Which right is missing, and which pools' machines were refused for it.
#[derive(Default)]
pub struct Missing {
    pub what: Option<Right>,
    /// By the pool: which term it was, and when.
    pub met: BTreeMap<&'static str, (u64, Instant)>,
}

/// What is known of hosts that were asked to shut down.
#[derive(Default)]
pub struct Asleep {
    /// Since when they were asked, and since when they have been on since.
    pub asked: std::collections::BTreeMap<String, (Instant, Option<Instant>)>,
}

/// Nodes whose removal was ordered.
#[derive(Default)]
pub struct Braked {
    pub gone: BTreeMap<String, Instant>,
    /// What each daemon last wrote about each machine, and when.
    pub written: BTreeMap<(String, String), (Value, Instant)>,
}

impl Braked {
    /// Counts a removal: returns how many there are within an hour by any daemon's clock, no matter which
    /// daemons counted them. Each counts once, because the call may have to be repeated.
    pub fn one_goes(&mut self, name: &str) -> usize {
        self.gone.retain(|_, at| at.elapsed() < COUNTED);
        self.gone.insert(name.to_owned(), Instant::now());
        self.gone.len()
    }

    /// Whether a daemon wrote the same a moment ago.
    pub fn repeats(&mut self, who: &str, record: &Value) -> bool {
        let key = (who.to_owned(), record["name"].to_string());
        if self.written.get(&key).is_some_and(|(before, at)| before == record && at.elapsed() < REPEATED) {
            return true;
        }
        self.written.insert(key, (record.clone(), Instant::now()));
        false
    }
}

/// Where everything is, and since when.
#[derive(Default)]
pub struct Sights {
    pub guests: BTreeMap<u32, Sight>,
    /// Hosts in maintenance.
    pub kept_empty: BTreeMap<String, Instant>,
    /// Hosts that are off.
    pub off: BTreeMap<String, Instant>,
    /// Hosts whose VMs and storages are not known.
    pub silent: BTreeMap<String, Instant>,
    /// What others use on storages that machines' clones are put on.
    pub others: BTreeMap<(String, String), VecDeque<(Instant, u64)>>,
    /// When that was last checked.
    pub weighed: Option<Instant>,
    /// The version of the VMs from which `guests` was derived.
    pub as_of: Option<u64>,
    /// When the token last had no rights over VMs: it cannot see other clients' VMs then.
    pub blind: Option<Instant>,
    /// Which daemon created a record, and when; none if the answer was lost: then others may be created
    /// instead, and it is dropped untouched once it is found.
    pub written: BTreeMap<u32, Option<(String, Instant)>>,
    /// Which daemon asked a warm machine to join, and when.
    pub woken: BTreeMap<u32, (String, Instant)>,
}

/// A VM as it has been since some time.
pub struct Sight {
    pub node: String,
    pub running: bool,
    pub since: Instant,
    /// When it was moved there, if its record did not have it.
    pub moved: Option<Instant>,
    /// How often it was started.
    pub starts: u32,
    /// vCPUs and bytes of memory that it has.
    pub size: (u32, u64),
    /// Since when.
    pub sized: Instant,
}

/// A daemon that decided something, and when it wrote that.
#[derive(Clone, Copy)]
pub struct AsOf<'a> {
    /// The daemon.
    pub who: &'a str,
    /// When it sent it.
    pub sent: Instant,
    /// For how long everything was frozen shortly before.
    pub stood: Duration,
}

impl AsOf<'_> {
    /// Whether the daemon knew something that has been true since then.
    pub fn knew(self, since: Instant) -> bool {
        since + STALE + self.stood <= self.sent
    }
}

/// The last time that everything was frozen: when it ended, and how long it took.
#[derive(Default)]
pub struct Stood(pub Vec<(Instant, Duration)>);

/// VMs that others hold, or held a moment ago.
#[derive(Default)]
pub struct Touched {
    /// Since when these cannot be destroyed.
    pub protected: BTreeMap<u32, Instant>,
    /// VMs in no resource pool; until when, if they were put back.
    pub outside: BTreeMap<u32, Option<Instant>>,
}

/// The versions at which expensive checks were last made: as long as nothing changes, there is nothing new to
/// see.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct LookedAt {
    pub nodes: u64,
    pub addresses: u64,
    /// VMs and pools.
    pub guests: Option<[u64; 2]>,
    /// The Lease and the pause switch.
    pub turns: [u64; 2],
    /// VMs, volumes and records.
    pub disks: Option<[u64; 3]>,
    pub secrets: (u64, usize),
    /// Secrets, records and VMs.
    pub tokens: Option<[u64; 3]>,
}

/// What was done in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Clones that were requested.
    pub clones: u64,
    /// Destructions that were requested.
    pub destructions: u64,
    /// Evictions that were requested.
    pub evictions: u64,
    /// Machines that were to grow.
    pub growths: u64,
    /// Hosts that were asked to shut down.
    pub sleeps: u64,
    /// Hosts that were woken.
    pub wakes: u64,
    /// VMs that an administrator replaced by others.
    pub taken: u64,
}
