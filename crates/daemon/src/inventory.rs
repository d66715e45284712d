//! The state of a Proxmox VE cluster. It is read every `scan_interval`, concurrently with the rounds, so that
//! a slow Proxmox VE does not delay them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use model::Vmid;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::host_power_survey::{self, Survey};
use super::regions;
use machines::{DeviceSurvey, Devices, PoolTemplates, Templates};
use model::machine::Host;
use proxmox::{Client, ClusterResources, Error, Guest, Kind, TAG};
use runtime::clock::SharedClock;
use settings::Config;

/// How often templates are read again if none has a problem.
const TEMPLATES: Duration = Duration::from_mins(5);
/// How often templates are read again if a pool's template has a problem.
const TEMPLATES_WITH_PROBLEMS: Duration = Duration::from_secs(30);

/// If the last observation is older than this, a host may have been off in the meantime.
const BLIND: Duration = Duration::from_mins(1);

/// The result of one observation of a cluster.
#[derive(Clone, Debug)]
pub(super) struct Observation {
    pub seen: Arc<ClusterResources>,
    /// What was found out about the hosts that may be switched off. `None` if there are no such hosts, or if
    /// nothing is known about them yet.
    pub survey: Option<Arc<Survey>>,
    /// The PCI devices that pools assign to machines.
    pub devices: Arc<Devices>,
    pub at: Timestamp,
    /// The time of the observation on a monotonic clock, from which its age is calculated.
    pub taken: Instant,
    /// When each online host came online. Every observation since then has shown the host as online.
    pub online: Arc<BTreeMap<String, Timestamp>>,
    /// The number of earlier observations.
    pub number: u64,
}

impl Observation {
    /// Whether the observation is at most this old, both by the monotonic clock and by the wall clock. The
    /// wall clock is needed because the monotonic clock stands still while this host sleeps.
    pub fn is_recent(&self, limit: Duration, now: Timestamp) -> bool {
        let limit_of_day = SignedDuration::try_from(limit).unwrap_or(SignedDuration::MAX);
        self.taken.elapsed() <= limit && now.duration_since(self.at) <= limit_of_day
    }

    /// The hosts in the planner's form. If `counts_stopped`, the CPUs and memory assigned to stopped guests
    /// that another client may start at any time are included.
    pub fn hosts(&self, counts_stopped: bool) -> Vec<Host> {
        let mut hosts = self.seen.hosts(counts_stopped);
        self.devices.give(&mut hosts);
        hosts
    }
}

#[derive(Debug, Default)]
struct Known {
    look: Option<Observation>,
    problem: Option<String>,
}

/// The parameters of [`Inventory::start`].
pub(super) struct Start {
    /// The prefix that distinguishes this cluster's host names from those of other clusters.
    pub prefix: String,
    /// Whether there are other clusters. If so, the daemon continues with them while this one cannot be read.
    pub several: bool,
    pub proxmox: Client,
    pub config: watch::Receiver<Arc<Config>>,
    pub templates: Templates,
    pub clock: SharedClock,
    /// A counter that increases with each change that triggers a round.
    pub changed: watch::Sender<u64>,
}

/// The last observation of one cluster. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Inventory {
    known: Arc<Mutex<Known>>,
    changed: watch::Sender<u64>,
    region: Arc<str>,
    /// Whether there are other clusters. If so, the daemon does not wait for this one once an observation of
    /// it has failed.
    several: bool,
}

impl Inventory {
    /// Starts the task that observes the cluster periodically.
    pub fn start(start: Start, cancel: &CancellationToken, tasks: &TaskTracker) -> Self {
        let region = regions::name(&start.prefix).into();
        let several = start.several;
        let inventory = Self { known: Arc::default(), changed: start.changed.clone(), region, several };
        let (this, cancel) = (inventory.clone(), cancel.clone());
        tasks.spawn(async move {
            tokio::select! {
                biased;
                () = cancel.cancelled() => {}
                () = this.watch(start) => {}
            }
        });
        inventory
    }

    async fn watch(&self, start: Start) {
        let Start { prefix, several, proxmox, mut config, templates, clock, .. } = start;
        let mut templates_due = Instant::now();
        let mut templates_seen: Option<Instant> = None;
        let mut survey_due = Instant::now();
        let mut surveyed: Option<Arc<Survey>> = None;
        let mut device_survey = DeviceSurvey::default();
        loop {
            let settings = config.borrow_and_update().alone(&prefix);
            match look(&proxmox, several).await {
                Ok((seen, problem)) => {
                    let last = self.last().0;
                    let seen = match last {
                        Some(last) if seen.silent().next().is_some() => seen.with_known(&last.seen),
                        _ => seen,
                    };
                    // The observation is dated to the time at which the list was read, even though the
                    // queries below come later.
                    let (at, taken) = (clock.now(), Instant::now());
                    let seen = Arc::new(seen);
                    if self.hosts_differ(&seen) {
                        templates_due = Instant::now();
                        survey_due = Instant::now();
                    }
                    // Templates are read again if a template's lock has changed, for example the lock that a
                    // backup holds for some minutes.
                    if self.locks_differ(&seen) {
                        templates_due = Instant::now();
                    }
                    // A right that was missing may have been granted since.
                    if templates.has_refusals()
                        && templates_seen.is_none_or(|seen| seen.elapsed() >= TEMPLATES_WITH_PROBLEMS)
                    {
                        templates_due = Instant::now();
                    }
                    if Instant::now() >= templates_due {
                        templates_seen = Some(Instant::now());
                        match templates.refresh(&proxmox, &settings, &seen).await {
                            Ok(()) => {
                                let all = templates.all();
                                let fine = all.values().all(PoolTemplates::is_fine);
                                templates_due =
                                    Instant::now() + if fine { TEMPLATES } else { TEMPLATES_WITH_PROBLEMS };
                            }
                            Err(error) => {
                                tracing::warn!(%error, "a template cannot be read");
                                templates_due = Instant::now() + TEMPLATES_WITH_PROBLEMS;
                            }
                        }
                    }
                    let looked = device_survey.look(&proxmox, &settings, &seen).await;
                    let devices = looked.unwrap_or_else(|error| {
                        tracing::warn!(%error, "PCI devices cannot be read");
                        device_survey.found(&seen)
                    });
                    let look = Observation {
                        seen: seen.clone(),
                        survey: surveyed.clone(),
                        devices: Arc::new(devices),
                        at,
                        taken,
                        online: Arc::default(),
                        number: 0,
                    };
                    self.saw(look, problem);
                    let awaits = surveyed.as_ref().is_some_and(|survey| survey.awaits(&seen));
                    if awaits || Instant::now() >= survey_due {
                        let at_home = config.borrow().is_at_home(&prefix);
                        surveyed = Survey::make(&proxmox, &settings, &seen, at_home).await;
                        survey_due = Instant::now() + host_power_survey::AGAIN;
                        self.surveyed(surveyed.clone());
                    }
                }
                Err(error) => self.missed(&error),
            }
            tokio::select! {
                biased;
                changed = config.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    templates_due = Instant::now();
                    survey_due = Instant::now();
                }
                () = tokio::time::sleep(settings.scan_interval) => {}
            }
        }
    }

    /// Whether a host was added or removed, went on- or offline, or entered or left maintenance. Changes of
    /// load are frequent and trigger no round.
    fn hosts_differ(&self, seen: &ClusterResources) -> bool {
        let hosts = |seen: &ClusterResources| -> Vec<(String, bool, bool)> {
            seen.hosts.values().map(|host| (host.name.clone(), host.online, host.maintenance)).collect()
        };
        self.last().0.is_none_or(|look| hosts(&look.seen) != hosts(seen))
    }

    /// Whether a template was locked or unlocked. Locked templates are not cloned.
    fn locks_differ(&self, seen: &ClusterResources) -> bool {
        self.last().0.is_none_or(|look| !locks(&look.seen).eq(locks(seen)))
    }

    fn saw(&self, mut look: Observation, problem: Option<String>) {
        let (last, trouble) = self.last();
        look.online = Arc::new(online_since(&look, last.as_ref()));
        let other =
            last.is_some_and(|last| last.devices != look.devices || has_lost_some(&last.seen, &look.seen));
        let free = self.locks_differ(&look.seen) || self.hosts_differ(&look.seen);
        let different = other || free || trouble.is_some() != problem.is_some();
        {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            let number = known.look.as_ref().map_or(0, |look| look.number + 1);
            match (&known.problem, &problem) {
                (Some(_), None) => tracing::info!(region = %self.region, "Proxmox VE answers again"),
                (None, Some(problem)) => {
                    tracing::warn!(region = %self.region, problem, "Proxmox VE cannot be used; doing nothing in this cluster");
                }
                _ => {}
            }
            known.problem = problem;
            known.look = Some(Observation { number, ..look });
        }
        if different {
            self.changed.send_modify(|count| *count += 1);
        }
    }

    /// Stores a survey. If it differs from the last one, a round is triggered.
    fn surveyed(&self, survey: Option<Arc<Survey>>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(look) = known.look.as_mut().filter(|look| look.survey != survey) else { return };
        look.survey = survey;
        drop(known);
        self.changed.send_modify(|count| *count += 1);
    }

    fn missed(&self, error: &Error) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.problem.is_none() {
            tracing::warn!(region = %self.region, %error, "Proxmox VE cannot be read");
        }
        let first = known.problem.replace(error.to_string()).is_none();
        drop(known);
        if first {
            self.changed.send_modify(|count| *count += 1);
        }
    }

    /// Returns the last observation, and the problem that has occurred since, if any.
    pub fn last(&self) -> (Option<Observation>, Option<String>) {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        (known.look.clone(), known.problem.clone())
    }

    /// Waits for the first observation, for at most `limit`. Returns whether there was one. With several
    /// clusters, the daemon does not wait for one that fails.
    pub async fn first(&self, limit: Duration) -> bool {
        let mut changed = self.changed.subscribe();
        let looked = async {
            loop {
                let (look, problem) = self.last();
                if look.is_some() || (self.several && problem.is_some()) || changed.changed().await.is_err() {
                    return look.is_some();
                }
            }
        };
        tokio::time::timeout(limit, looked).await.unwrap_or(false)
    }
}

/// The VMIDs of the templates that are locked.
fn locks(seen: &ClusterResources) -> impl Iterator<Item = Vmid> {
    let locked = |guest: &&Guest| guest.template && guest.lock.is_some();
    seen.guests.values().filter(locked).map(|guest| guest.vmid)
}

/// Whether one of the managed VMs has disappeared, stopped, moved to another host or become a template since
/// the last observation. Another client may have caused this.
fn has_lost_some(before: &ClusterResources, now: &ClusterResources) -> bool {
    let mut ours = before.guests.values().filter(|guest| guest.tags.iter().any(|tag| tag == TAG));
    ours.any(|then| {
        now.guests.get(&then.vmid).is_none_or(|guest| {
            let off = guest.stopped && then.running;
            off || guest.host != then.host || guest.template != then.template
        })
    })
}

/// Returns when each online host came online. If the last observation was too long ago, all hosts count as
/// having come online now, because they may have been off in the meantime.
fn online_since(look: &Observation, last: Option<&Observation>) -> BTreeMap<String, Timestamp> {
    let last = last.filter(|last| look.taken.duration_since(last.taken) < BLIND);
    let since = |host: &String| last.and_then(|last| last.online.get(host).copied());
    let online = look.seen.hosts.values().filter(|host| host.online);
    online.map(|host| (host.name.clone(), since(&host.name).unwrap_or(look.at))).collect()
}

/// The problem text for a cluster without quorum, on which the daemon does not act: its VMs can be stopped,
/// but no VM can be created, started or destroyed.
pub(super) const NOT_QUORATE: &str = "the cluster is not quorate";

/// Returns the cluster's list, and the reason why the daemon cannot act on the cluster (`None` if it can).
/// The cluster counts as quorate if the token may not read the quorum, or if the query fails and there is
/// only one cluster. In these cases, the daemon only notices a lost quorum when an action fails.
async fn look(proxmox: &Client, several: bool) -> Result<(ClusterResources, Option<String>), Error> {
    let seen = proxmox.resources().await?;
    match proxmox.quorate().await {
        Ok(true) => Ok((seen, None)),
        Ok(false) => Ok((seen, Some(NOT_QUORATE.to_owned()))),
        Err(error) if error.kind == Kind::Forbidden || !several => Ok((seen, None)),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_look_grows_old_even_if_the_clock_was_set_back() {
        let at = Timestamp::UNIX_EPOCH + SignedDuration::from_hours(24);
        let look = Observation {
            seen: Arc::default(),
            survey: None,
            devices: Arc::default(),
            at,
            taken: Instant::now(),
            online: Arc::default(),
            number: 0,
        };
        let limit = Duration::from_mins(1);
        let mut passed = 0;
        for (seconds, by_the_clock, expected) in [
            (50, 50, true),
            (50, -3600, true),
            (70, 70, false),
            (70, -3600, false),
            // This host has slept, or its clock was set forward.
            (70, 3600, false),
        ] {
            tokio::time::advance(Duration::from_secs(seconds - passed)).await;
            passed = seconds;
            let now = at + SignedDuration::from_secs(by_the_clock);
            assert_eq!(look.is_recent(limit, now), expected, "{seconds} s, {by_the_clock} s by the clock");
        }
    }
}
