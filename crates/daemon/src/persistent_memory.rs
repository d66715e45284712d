//! The state that is remembered between rounds and stored in Kubernetes, so that a restart loses nothing:
//! cool-downs, back-offs, learned node sizes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::backoffs;
use kubernetes::{Cluster, ErrorKind, MemoryVersion};
use machines::{BackoffTarget, Ending, MachineReport};
use model::prediction::Predictions;
use model::snapshot::{Decision, HostMemory, Memory};
use model::unfinished::Unfinished;
use model::workload::Backoff;
use model::{HostKey, PoolName, Snapshot};
use settings::Config;

/// Important changes are stored after this delay, so that several changes are stored together.
const STORE_SOON: Duration = Duration::from_secs(1);
/// The interval at which the time of the last round is stored if nothing else changes.
const STORE_ANYWAY: SignedDuration = SignedDuration::from_mins(1);
/// The time limit for storing the memory immediately and at the end of a term. If it is exceeded, the
/// previous version of the memory may remain stored.
const STORE_LAST: Duration = Duration::from_secs(2);
/// The first back-off of a pool after a failed creation for which neither the pool nor the host is to blame.
/// It is short because the cause may be temporary.
const NO_FAULT: Duration = Duration::from_secs(10);

/// The memory between rounds, and the handles for storing it.
pub(super) struct Remembered {
    memory: Memory,
    /// The time at which the memory was last handed to the task that stores it.
    stored_at: Option<Timestamp>,
    /// Whether something was learned that is not stored yet.
    learnt: bool,
    kubernetes: Cluster,
    store: Shared,
    to_store: watch::Sender<Option<Memory>>,
}

impl Remembered {
    /// Starts the task that stores the memory.
    pub fn start(kubernetes: &Cluster, cancel: &CancellationToken, tasks: &TaskTracker) -> Self {
        let store = Shared::default();
        let (to_store, receiver) = watch::channel(None);
        let (keeper, cancel) = (keep(kubernetes.clone(), store.clone(), receiver), cancel.clone());
        tasks.spawn(async move {
            tokio::select! {
                biased;
                () = cancel.cancelled() => {}
                () = keeper => {}
            }
        });
        Self {
            memory: Memory::default(),
            stored_at: None,
            learnt: false,
            kubernetes: kubernetes.clone(),
            store,
            to_store,
        }
    }

    /// Loads the memory that an earlier run has stored. Unreadable contents are overwritten, with a warning.
    pub async fn load(&mut self, kubernetes: &Cluster) {
        let mut pause = Duration::from_secs(1);
        loop {
            match kubernetes.load_memory().await {
                Ok((memory, version)) => {
                    self.memory = memory;
                    self.store.lock().await.version = version;
                    return;
                }
                Err(error) if error.kind() == ErrorKind::Unusable => {
                    tracing::warn!(%error, "the stored state cannot be read: starting without the \
                        stored cool-downs and back-offs");
                    return;
                }
                Err(error) => {
                    tracing::warn!(%error, "the stored state cannot be read yet");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_secs(30));
                }
            }
        }
    }

    /// Returns the current memory, after learning from the nodes in this snapshot.
    pub fn now(&mut self, snapshot: &Snapshot, config: &Config) -> Memory {
        self.learnt |= planning::learn(&mut self.memory, snapshot, config);
        self.learnt |= backoffs::shorten(&mut self.memory, config);
        self.memory.clone()
    }

    /// To be called after each decision. Drops removals older than an hour, and stores the memory if anything
    /// was dropped or learned.
    pub fn seen(&mut self, now: Timestamp) {
        let before = self.memory.removals.len();
        let hour = SignedDuration::from_hours(1);
        self.memory.removals.retain(|time| now.duration_since(*time).abs() < hour);
        let changed = std::mem::take(&mut self.learnt) || self.memory.removals.len() != before;
        if changed {
            self.store(now);
        }
    }

    /// To be called when a round has reached its decision, and has written its timers or is about to write
    /// them. Only this function sets the time of the last round. If the gap until the next round is too long,
    /// that round shifts the timers that it reads by the gap.
    pub fn counted(&mut self, config: &Config, now: Timestamp) {
        planning::watched(&mut self.memory, config, now);
        let before = self.memory.last_round.replace(now);
        // If a time is in the future, the clock was set back after it was stored.
        let old = |time: Timestamp| time > now || now.duration_since(time) >= STORE_ANYWAY;
        if before.is_none_or(old) || self.stored_at.is_none_or(old) {
            self.store(now);
        }
    }

    /// Earlier decisions and events, oldest first.
    pub fn decisions(&self) -> &[Decision] {
        &self.memory.decisions
    }

    /// Adds recent decisions and events.
    pub fn decided(&mut self, decisions: Vec<Decision>, now: Timestamp) {
        if self.memory.decisions != decisions {
            self.memory.decisions = decisions;
            self.store(now);
        }
    }

    /// Remembers the predictions about kube-scheduler, and which of them were wrong.
    pub fn predicted(&mut self, predictions: Predictions, now: Timestamp) {
        let old = std::mem::replace(&mut self.memory.predictions, predictions);
        let new = &self.memory.predictions;
        // New predictions about pods do not cause the memory to be stored, because most come true
        // immediately. They are stored with the next important change.
        if (&old.made, &old.missed, &old.moved) != (&new.made, &new.missed, &new.moved) {
            self.store(now);
        }
    }

    /// Remembers what the round could not consider, so that the next round continues with it. This change
    /// alone does not cause the memory to be stored.
    pub fn left_over(&mut self, unfinished: Unfinished) {
        self.memory.unfinished = unfinished;
    }

    /// Remembers that machines of a pool are being requested now.
    pub fn grew(&mut self, pool: &str, now: Timestamp) {
        self.memory.pools.entry(pool.into()).or_default().last_add = Some(now);
        self.store(now);
    }

    /// Counts removals towards the hourly limit before they begin, and stores the count immediately. Returns
    /// false if it could not be stored in time; in that case, the removals do not count and must not begin.
    pub async fn shrinks(&mut self, removals: usize, now: Timestamp) -> bool {
        let before = self.memory.removals.len();
        self.memory.removals.extend(std::iter::repeat_n(now, removals));
        let stored = self.store_now(now).await;
        if !stored {
            self.memory.removals.truncate(before);
            self.store(now);
        }
        stored
    }

    /// The time at which the latest collection of an orphan began.
    pub fn orphan_collected(&self) -> Option<Timestamp> {
        self.memory.orphan_collected
    }

    /// Records that the collection of an orphan begins now, and stores this immediately. Returns false if it
    /// could not be stored in time; in that case, the orphan must not be collected.
    pub async fn collects(&mut self, now: Timestamp) -> bool {
        let before = self.memory.orphan_collected.replace(now);
        let stored = self.store_now(now).await;
        if !stored {
            self.memory.orphan_collected = before;
            self.store(now);
        }
        stored
    }

    /// Changes what is remembered about a host.
    pub fn host(&mut self, host: &str, now: Timestamp, change: impl FnOnce(&mut HostMemory)) {
        let before = self.memory.hosts.get(host).cloned().unwrap_or_default();
        let mut after = before.clone();
        change(&mut after);
        if before != after {
            self.memory.hosts.insert(host.into(), after);
            self.store(now);
        }
    }

    /// To be called if a host could not be switched on or off. The host is then left alone for a time that
    /// becomes longer with each failure.
    pub fn host_failed(&mut self, host: &str, reason: &str, config: &Config, now: Timestamp) {
        self.host(host, now, |memory| {
            memory.backoff = Some(doubled(memory.backoff.as_ref(), reason, config, now));
        });
    }

    /// To be called if a host was emptied before a shutdown but stays on. Emptying a host creates and removes
    /// machines, so the host is not emptied again for a time that becomes longer with each failure.
    pub fn emptied_in_vain(&mut self, host: &str, reason: &str, config: &Config, now: Timestamp) {
        self.host(host, now, |memory| {
            let before = memory.emptying_backoff.take();
            memory.emptying_backoff = Some(planning::emptied_in_vain(before.as_ref(), reason, config, now));
        });
    }

    /// To be called if the removal of a node was abandoned. The next attempt has to wait for a time that
    /// becomes longer with each failure.
    pub fn stays(&mut self, node: &str, pool: &PoolName, why: &str, config: &Config, now: Timestamp) {
        let memory = self.memory.nodes.entry(node.to_owned()).or_default();
        memory.pool.clone_from(pool);
        let before = memory.removal_backoff.take();
        memory.removal_backoff = Some(planning::removal_given_up(before.as_ref(), why, config, now));
        self.store(now);
    }

    /// Ends back-offs at an operator's request: those of the named host or pool, or all if `name` is `None`.
    /// Returns a text about each ended back-off.
    pub fn retry(&mut self, name: Option<&str>, now: Timestamp) -> Vec<String> {
        let ended = backoffs::end(&mut self.memory, name, now);
        self.store(now);
        ended
    }

    /// Stores the memory immediately. Returns false if this did not succeed in time; in that case, it is
    /// unknown whether the memory was stored.
    pub async fn store_now(&mut self, now: Timestamp) -> bool {
        self.store(now);
        let tries = async {
            stored(&self.kubernetes, &self.store, &self.memory).await
                || stored(&self.kubernetes, &self.store, &self.memory).await
        };
        matches!(tokio::time::timeout(STORE_LAST, tries).await, Ok(true))
    }

    /// How many removals began within the last hour.
    pub fn removals(&self) -> usize {
        self.memory.removals.len()
    }

    /// Processes a report from a machine's task. `others_failed`: whether other machines of the same pool
    /// recently failed to grow.
    pub fn heard(&mut self, told: &MachineReport, others_failed: bool, config: &Config, now: Timestamp) {
        let pool = told.record.pool.clone();
        match &told.ending {
            Ending::Ready => {
                let host = config.host_key(told.record.region.as_deref(), &told.record.host);
                let pool = self.memory.pools.entry(pool).or_default();
                pool.backoff = None;
                pool.failed_on.remove(&host);
                if let Some(host) = self.memory.hosts.get_mut(&host) {
                    host.backoff = None;
                }
            }
            Ending::Grown => self.memory.pools.entry(pool).or_default().grow_backoff = None,
            // The machine has a back-off of its own. The pool only backs off if other machines failed to grow
            // too.
            Ending::NotGrown(_) if !others_failed => return,
            Ending::NotGrown(reason) => {
                let place = &mut self.memory.pools.entry(pool).or_default().grow_backoff;
                *place = Some(doubled(place.as_ref(), reason, config, now));
            }
            // The removed machine was a warm machine, not a node of the pool.
            Ending::Removed if told.record.warm.is_some() => return,
            Ending::Failed { reason, blame } => self.back_off(told, blame, reason, config, now),
            Ending::Removed => self.memory.pools.entry(pool).or_default().last_removal = Some(now),
            Ending::GivenUp(_) => self.memory.pools.entry(pool).or_default().last_removal_failure = Some(now),
            Ending::Warm
            | Ending::SlotTaken(_)
            | Ending::Discarded
            | Ending::LookedAfter(_)
            | Ending::Touched(_)
            | Ending::Stuck(_) => return,
        }
        self.store(now);
    }

    /// Stores the changes that are not stored yet. To be called once the task that usually stores changes has
    /// ended. A failed attempt, such as a version conflict, is repeated once. If the API cannot be reached,
    /// or another instance leads, nothing is stored.
    pub async fn finish(&self) {
        let Some(memory) = self.to_store.borrow().clone() else { return };
        if self.store.lock().await.memory.as_ref() == Some(&memory) {
            return;
        }
        let tries = async {
            stored(&self.kubernetes, &self.store, &memory).await
                || stored(&self.kubernetes, &self.store, &memory).await
        };
        if !matches!(tokio::time::timeout(STORE_LAST, tries).await, Ok(true)) {
            tracing::warn!("the most recent state could not be stored");
        }
    }

    fn back_off(
        &mut self,
        told: &MachineReport,
        blame: &BackoffTarget,
        reason: &str,
        config: &Config,
        now: Timestamp,
    ) {
        let record = &told.record;
        let host = config.host_key(record.region.as_deref(), &record.host);
        let pool = self.memory.pools.entry(record.pool.clone()).or_default();
        pool.failed_on.retain(|_, until| *until > now);
        let mut same = Vec::new();
        if *blame == BackoffTarget::HostOrPool {
            same = same_on(&pool.failed_on, &self.memory.hosts, (&host, reason));
            // If the same failure occurs on several hosts, the hosts are not to blame, so other pools may use
            // them.
            for other in &same {
                self.memory.hosts.entry(other.clone()).or_default().backoff = None;
            }
        }
        if matches!(blame, BackoffTarget::Pool | BackoffTarget::HostOrPool) {
            let longest = config.scale_up.backoff_max.saturating_mul(2);
            pool.failed_on.insert(host.clone(), now.saturating_add(longest).unwrap_or(Timestamp::MAX));
        }
        let (place, reason) = match blame {
            BackoffTarget::HostOrPool if !same.is_empty() => {
                (&mut pool.backoff, format!("{reason}; the same happened on {}", same.join(", ")))
            }
            BackoffTarget::Host | BackoffTarget::HostOrPool => {
                (&mut self.memory.hosts.entry(host).or_default().backoff, reason.to_owned())
            }
            BackoffTarget::Pool | BackoffTarget::Other => (&mut pool.backoff, reason.to_owned()),
        };
        // If neither the pool nor the host is to blame, the first back-off is short. It doubles like any
        // other, because the cause may last, for example a missing right in Kubernetes or a blocked network.
        let first = if *blame == BackoffTarget::Other { NO_FAULT } else { config.scale_up.backoff_initial };
        *place = Some(Backoff::next(place.as_ref(), &reason, (first, config.scale_up.backoff_max), now));
    }

    fn store(&mut self, now: Timestamp) {
        self.stored_at = Some(now);
        self.to_store.send_replace(Some(self.memory.clone()));
    }
}

/// Returns the other hosts that are backing off because the same failure occurred there in the same pool.
fn same_on(
    failed_on: &BTreeMap<HostKey, Timestamp>,
    hosts: &BTreeMap<HostKey, HostMemory>,
    (host, reason): (&str, &str),
) -> Vec<HostKey> {
    let is_same = |other: &&HostKey| {
        let backoff = hosts.get(*other).and_then(|other| other.backoff.as_ref());
        backoff.is_some_and(|backoff| gist(&backoff.reason, other).eq(gist(reason, host)))
    };
    failed_on.keys().filter(|other| ***other != *host).filter(is_same).cloned().collect()
}

/// Returns the words of a failure that do not differ between machines. Words that contain a digit, such as
/// task ids and VMIDs, and words that contain the host's name are left out.
fn gist<'a>(reason: &'a str, host: &'a str) -> impl Iterator<Item = &'a str> {
    let (_, host) = HostKey::split(host);
    let is_common = move |word: &&str| !word.contains(|one: char| one.is_ascii_digit()) && !names(word, host);
    reason.split_whitespace().filter(is_common)
}

/// Whether a word contains the host's full name, delimited on both sides. Without the delimiters, a short
/// name would also match parts of unrelated words.
fn names(word: &str, host: &str) -> bool {
    let ends = |next: Option<char>| next.is_none_or(|next| !next.is_alphanumeric());
    word.match_indices(host).any(|(at, name)| {
        ends(word[..at].chars().next_back()) && ends(word[at + name.len()..].chars().next())
    })
}

/// The next back-off, with the durations set in `[scale_up]`.
fn doubled(before: Option<&Backoff>, reason: &str, config: &Config, now: Timestamp) -> Backoff {
    Backoff::next(before, reason, (config.scale_up.backoff_initial, config.scale_up.backoff_max), now)
}

/// The state of the stored object, as far as known.
#[derive(Default)]
struct Stored {
    version: Option<MemoryVersion>,
    memory: Option<Memory>,
}

type Shared = Arc<tokio::sync::Mutex<Stored>>;

async fn keep(kubernetes: Cluster, store: Shared, mut wanted: watch::Receiver<Option<Memory>>) {
    let mut pause = STORE_SOON;
    while wanted.changed().await.is_ok() {
        tokio::time::sleep(STORE_SOON).await;
        loop {
            let mut store = store.lock().await;
            // The contents are read while the lock is held, because they may have changed while this task
            // waited for the lock.
            let Some(memory) = wanted.borrow_and_update().clone() else { break };
            let stored = write(&kubernetes, &mut store, &memory).await;
            drop(store);
            if stored {
                pause = STORE_SOON;
                break;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(30));
        }
    }
}

async fn stored(kubernetes: &Cluster, store: &Shared, memory: &Memory) -> bool {
    write(kubernetes, &mut *store.lock().await, memory).await
}

/// Tries once to store the memory. Returns whether that succeeded. If the stored version has changed, either
/// the answer to an earlier try was lost, or another client removed the object. The next try then overwrites
/// the object, because this memory is newer.
async fn write(kubernetes: &Cluster, store: &mut Stored, memory: &Memory) -> bool {
    match kubernetes.store_memory(memory, store.version.as_ref()).await {
        Ok(new) => {
            *store = Stored { version: Some(new), memory: Some(memory.clone()) };
            return true;
        }
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::Conflict | ErrorKind::AlreadyExists | ErrorKind::NotFound
            ) =>
        {
            if let Ok(stored) = kubernetes.memory_version().await {
                store.version = stored;
            }
        }
        Err(error) => tracing::debug!(%error, "the state cannot be stored yet"),
    }
    false
}

#[cfg(test)]
mod tests {
    use model::Vmid;

    use super::*;

    #[test]
    fn back_offs_double_up_to_their_maximum_and_count_once_while_they_run() {
        let config = settings::parse("c", "", settings::Needs::Plan).unwrap();
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        let first = doubled(None, "x", &config, at(0));
        assert_eq!((first.seconds, first.until), (300, at(300)));
        let same = doubled(Some(&first), "y", &config, at(10));
        assert_eq!((same.seconds, same.until, same.reason.as_str()), (300, at(300), "y"));
        let second = doubled(Some(&first), "x", &config, at(400));
        assert_eq!((second.seconds, second.until), (600, at(1000)));
        let last =
            (0..9).fold(second, |before, n| doubled(Some(&before), "x", &config, at(100_000 * (n + 1))));
        assert_eq!(last.seconds, 1800);
    }

    #[test]
    fn a_back_off_that_was_begun_before_the_clock_was_set_back_is_over() {
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        let backoff = |seconds| Backoff { until: at(1000), reason: String::new(), seconds };
        for (seconds, now, expected) in
            [(300, 699, false), (300, 700, true), (300, 999, true), (300, 1000, false), (0, 1, true)]
        {
            assert_eq!(backoff(seconds).runs(at(now)), expected, "{seconds} s, now {now}");
        }
    }

    #[test]
    fn a_hosts_short_name_is_left_out_as_a_word_and_not_as_a_part_of_words() {
        let kept =
            |reason: &'static str, host: &'static str| gist(reason, host).collect::<Vec<_>>().join(" ");
        assert_eq!(kept("a storage on a: (UPID:a:x) `a` a-b", "a"), "storage on");
        assert_eq!(kept("no answer from no", "no"), "answer from");
        assert_eq!(kept("pve answers: pvestatd pve-node", "pve"), "answers: pvestatd");
    }

    #[test]
    fn the_same_failure_is_known_on_another_host_whatever_its_numbers() {
        let said = |host: &str, vmid: Vmid, what: &str| {
            format!(
                "the start failed: the start (UPID:{host}:0000A{vmid}::qmstart:{vmid}:a@pve!t:): start of {vmid} on {host}: {what}"
            )
        };
        let until = Timestamp::from_second(100).unwrap();
        let backoff = |reason| Some(Backoff { until, reason, seconds: 100 });
        let (mtu, memory) = ("MTU 9000 is bigger than the bridge MTU 1500", "Cannot allocate memory");
        let hosts: BTreeMap<HostKey, HostMemory> =
            [("alpha", 9100, mtu), ("west/beta", 9101, memory), ("gamma", 9102, mtu)]
                .map(|(host, vmid, what)| {
                    let backoff = backoff(said(HostKey::split(host).1, Vmid(vmid), what));
                    (HostKey::from(host), HostMemory { backoff, ..HostMemory::default() })
                })
                .into();
        let failed_on = ["alpha", "west/beta"].map(|host| (HostKey::from(host), until)).into();
        let same = |host: &str, what| {
            same_on(&failed_on, &hosts, (host, &said(HostKey::split(host).1, Vmid(9103), what)))
        };
        assert_eq!(same("delta", mtu), ["alpha"]);
        assert_eq!(same("delta", memory), ["west/beta"]);
        assert_eq!(same("delta", "no such bridge"), [""; 0]);
        assert_eq!(same("alpha", mtu), [""; 0], "a second failure on the same host proves nothing");
    }

    #[test]
    fn what_is_no_fault_of_pool_or_host_backs_off_from_ten_seconds_on() {
        let (at, most) = (|seconds| Timestamp::from_second(seconds).unwrap(), Duration::from_mins(30));
        let first = Backoff::next(None, "x", (NO_FAULT, most), at(0));
        let second = Backoff::next(Some(&first), "x", (NO_FAULT, most), at(20));
        assert_eq!((first.seconds, second.seconds), (10, 20));
        // If the pool is to blame, its first back-off is long, even if a short back-off is already running.
        let blamed = Backoff::next(Some(&second), "y", (Duration::from_mins(5), most), at(30));
        assert_eq!((blamed.seconds, blamed.until), (300, at(330)));
    }
}
