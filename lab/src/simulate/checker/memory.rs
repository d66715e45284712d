//! What the checker remembers for its promises.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use tokio::time::Instant;

/// A daemon waits no longer for an answer: what arrives later is of one that may have given up on it.
pub const GIVEN_UP: std::time::Duration = std::time::Duration::from_secs(14);

/// How long what another client did may be unknown to a daemon: between its look and the moment in which what
/// it decided by it is written are the lag of Proxmox VE's lists, calls that have to be repeated, and the
/// decision.
pub const STALE: Duration = Duration::from_mins(2);
/// Changes of the Lease that are remembered.
const REMEMBERED: usize = 200;
/// A term ends if it was not renewed for this long.
const RENEWED: Duration = Duration::from_secs(5);

/// Between a change of the Lease and the moment in which it is noticed here, at most: everything is looked at
/// this often.
const NOTICED: Duration = Duration::from_millis(600);

/// What went this long ago went within the hour, even if the clocks that were asked then and now are both
/// wrong.
const COUNTED: Duration = Duration::from_mins(28);

/// How long after it was first sent the same write may come once more: what it decides was decided before. A
/// daemon repeats it for 15 s, and a call may be held up.
const REPEATED: Duration = Duration::from_secs(40);

/// Storages that lie, or did lately: until when.
#[derive(Default)]
pub struct Lies(pub BTreeMap<String, Option<Instant>>);

impl Lies {
    pub fn knows_nothing_of(&self, storage: &str) -> bool {
        self.0.get(storage).is_some_and(|until| until.is_none_or(|until| Instant::now() < until))
    }
}

/// What is known of the Lease and of the switch.
#[derive(Default)]
pub struct Turns {
    /// Holders, oldest first: since when, who, and the version of the Lease.
    pub held: Vec<(Instant, String, String)>,
    pub paused_since: Option<Instant>,
    /// How often another one took over.
    pub hand_overs: u64,
    /// How often an instance began to lead: after another, or after a time without a renewal.
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

    /// All stood still for this long: so did what says that all is paused.
    pub fn delay_the_pause(&mut self, time: Duration) {
        self.paused_since = self.paused_since.map(|since| since + time);
    }

    /// Why `who` may not have sent a write at this time, if so; its term lasts for this long after a renewal.
    pub fn refusal(&self, who: &str, sent: Instant, term: Duration) -> Option<String> {
        let seen = self.held.iter().take_while(|one| one.0 <= sent + NOTICED);
        let near: Vec<_> = seen.collect();
        // Of those that held it around this time one has to be the writer.
        let current = near.iter().rposition(|one| one.0 <= sent).unwrap_or(0);
        let Some(renewal) = near.iter().skip(current).rev().find(|one| one.1 == who) else {
            let holder = near.last().map_or("no instance", |one| one.1.as_str());
            return Some(format!("{holder} leads"));
        };
        let age = sent.saturating_duration_since(renewal.0);
        (age > term + NOTICED).then(|| format!("its term was over for {:?}", age.saturating_sub(term)))
    }
}

/// When machines were ordered to go, by name.
#[derive(Default)]
pub struct Told(pub BTreeMap<String, Timestamp>);

/// A right that every machine of some pools needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Right {
    /// The one to the machines' tag.
    Tag,
    /// The one to the network with this path.
    Network(String),
}

/// What is missing, and which pools' machines have met that.
#[derive(Default)]
pub struct Missing {
    pub what: Option<Right>,
    /// By the pool: which term it was, and when.
    pub met: BTreeMap<&'static str, (u64, Instant)>,
}

/// What is known of hosts that were asked to go off.
#[derive(Default)]
pub struct Asleep {
    /// Since when they were asked, and since when they have been on since.
    pub asked: std::collections::BTreeMap<String, (Instant, Option<Instant>)>,
}

/// Nodes that were ordered to go.
#[derive(Default)]
pub struct Braked {
    pub gone: BTreeMap<String, Instant>,
    /// What each daemon has written last of each machine, and since when.
    pub written: BTreeMap<(String, String), (Value, Instant)>,
}

impl Braked {
    /// This one goes: how many there are now within the time that is an hour by any daemon's clock, whichever
    /// daemons counted them. Each counts once, for the call that says so may have to be repeated.
    pub fn one_goes(&mut self, name: &str) -> usize {
        self.gone.retain(|_, at| at.elapsed() < COUNTED);
        self.gone.insert(name.to_owned(), Instant::now());
        self.gone.len()
    }

    /// Whether a daemon has written the same a moment ago.
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
    /// Hosts of whose VMs and storages nothing is known.
    pub silent: BTreeMap<String, Instant>,
    /// What is used on storages by others than machines whose clones are put there.
    pub others: BTreeMap<(String, String), VecDeque<(Instant, u64)>>,
    /// When that was last looked at.
    pub weighed: Option<Instant>,
    /// The changes of VMs with which `guests` was made.
    pub as_of: Option<u64>,
    /// When the token last had no rights over VMs: it does not see those of others then.
    pub blind: Option<Instant>,
    /// Which daemon made a record, and when; none if the answer to that was lost: then others may be made in
    /// its place, and it is dropped untouched once it is found.
    pub written: BTreeMap<u32, Option<(String, Instant)>>,
    /// Which daemon asked a machine to join that was kept warm, and when.
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

/// A daemon that decided something, and when it wrote that down.
#[derive(Clone, Copy)]
pub struct AsOf<'a> {
    /// The daemon.
    pub who: &'a str,
    /// When it sent it.
    pub sent: Instant,
    /// For how long all stood still shortly before.
    pub stood: Duration,
}

impl AsOf<'_> {
    /// Whether it knew what has been so since then.
    pub fn knew(self, since: Instant) -> bool {
        since + STALE + self.stood <= self.sent
    }
}

/// When all stood still last: when that ended, and for how long it was.
#[derive(Default)]
pub struct Stood(pub Vec<(Instant, Duration)>);

/// VMs that others hold, or held a moment ago.
#[derive(Default)]
pub struct Touched {
    /// These cannot be destroyed, since when.
    pub protected: BTreeMap<u32, Instant>,
    /// In no pool; until when, if it was put back.
    pub outside: BTreeMap<u32, Option<Instant>>,
}

/// As of when what takes long to look at was looked at: as long as nothing of it changes, there is nothing
/// new to see.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct LookedAt {
    pub nodes: u64,
    pub addresses: u64,
    /// VMs and pools.
    pub guests: Option<[u64; 2]>,
    /// The Lease and the switch.
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
    /// Clones that were asked for.
    pub clones: u64,
    /// Destructions that were asked for.
    pub destructions: u64,
    /// Evictions that were asked for.
    pub evictions: u64,
    /// Machines that were to grow.
    pub growths: u64,
    /// Hosts that were asked to shut down, and that were woken.
    pub sleeps: u64,
    /// The latter.
    pub wakes: u64,
    /// VMs in whose place an administrator made another.
    pub taken: u64,
}
