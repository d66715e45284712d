//! The Proxmox side, looked at every `scan_interval` with one call, so that a slow Proxmox delays no round.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::survey::{self, Survey};
use crate::clock::SharedClock;
use crate::config::Config;
use crate::machines::{DeviceSurvey, Devices, Templates};
use crate::model::machine::Host;
use crate::proxmox::{Client, Seen};

/// Templates are looked at again after this time, sooner where one has a problem.
const TEMPLATES: Duration = Duration::from_mins(5);
/// The same, where a pool's template has a problem.
const TEMPLATES_WITH_PROBLEMS: Duration = Duration::from_secs(30);

/// A look at PCI devices that takes longer is gone on with by the next; what was known counts until then.
const DEVICES: Duration = Duration::from_secs(20);

/// One look.
#[derive(Clone, Debug)]
pub(super) struct Look {
    pub seen: Arc<Seen>,
    /// What speaks against switching hosts off, where any may be.
    pub survey: Option<Arc<Survey>>,
    /// The PCI devices that pools give to machines.
    pub devices: Arc<Devices>,
    pub at: Timestamp,
    /// How many looks came before.
    pub number: u64,
}

impl Look {
    /// The hosts as the planner wants them.
    pub fn hosts(&self, counts_stopped: bool) -> Vec<Host> {
        let mut hosts = self.seen.hosts(counts_stopped);
        self.devices.give(&mut hosts);
        hosts
    }
}

#[derive(Debug, Default)]
struct Known {
    look: Option<Look>,
    problem: Option<String>,
}

/// The last look at Proxmox. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Inventory {
    known: Arc<Mutex<Known>>,
    changed: watch::Sender<u64>,
}

impl Inventory {
    /// Starts looking.
    pub fn start(
        proxmox: &Client,
        config: watch::Receiver<Arc<Config>>,
        templates: &Templates,
        clock: SharedClock,
        cancel: &CancellationToken,
        tasks: &TaskTracker,
    ) -> Self {
        let inventory = Self { known: Arc::default(), changed: watch::Sender::new(0) };
        let (this, proxmox, templates, cancel) =
            (inventory.clone(), proxmox.clone(), templates.clone(), cancel.clone());
        tasks.spawn(async move {
            tokio::select! {
                biased;
                () = cancel.cancelled() => {}
                () = this.watch(&proxmox, config, &templates, &clock) => {}
            }
        });
        inventory
    }

    async fn watch(
        &self,
        proxmox: &Client,
        mut config: watch::Receiver<Arc<Config>>,
        templates: &Templates,
        clock: &SharedClock,
    ) {
        let mut templates_due = Instant::now();
        let mut survey_due = Instant::now();
        let mut surveyed: Option<Arc<Survey>> = None;
        let (mut device_survey, mut devices) = (DeviceSurvey::default(), Arc::default());
        loop {
            let settings = config.borrow_and_update().clone();
            match proxmox.resources().await {
                Ok(seen) => {
                    let seen = Arc::new(seen);
                    if self.hosts_differ(&seen) {
                        templates_due = Instant::now();
                        survey_due = Instant::now();
                    }
                    if Instant::now() >= templates_due {
                        match templates.refresh(proxmox, &settings, &seen).await {
                            Ok(()) => {
                                let all = templates.all();
                                let fine = all.values().all(|found| !found.usable.is_empty());
                                templates_due =
                                    Instant::now() + if fine { TEMPLATES } else { TEMPLATES_WITH_PROBLEMS };
                            }
                            Err(error) => tracing::warn!(%error, "a template cannot be looked at"),
                        }
                    }
                    let looking = device_survey.look(proxmox, &settings, &seen);
                    match tokio::time::timeout(DEVICES, looking).await {
                        Ok(Ok(found)) => devices = Arc::new(found),
                        Ok(Err(error)) => tracing::warn!(%error, "PCI devices cannot be looked at"),
                        Err(elapsed) => tracing::warn!(%elapsed, "PCI devices cannot be looked at"),
                    }
                    self.saw(seen.clone(), surveyed.clone(), devices.clone(), clock.now());
                    let awaits = surveyed.as_ref().is_some_and(|survey| survey.awaits(&seen));
                    if awaits || Instant::now() >= survey_due {
                        surveyed = Survey::make(proxmox, &settings, &seen).await;
                        survey_due = Instant::now() + survey::AGAIN;
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

    /// Loads change all the time; what is worth a round of its own is a host that came or went.
    fn hosts_differ(&self, seen: &Seen) -> bool {
        let hosts = |seen: &Seen| -> Vec<(String, bool, bool)> {
            seen.hosts.values().map(|host| (host.name.clone(), host.online, host.maintenance)).collect()
        };
        self.last().0.is_none_or(|look| hosts(&look.seen) != hosts(seen))
    }

    fn saw(&self, seen: Arc<Seen>, survey: Option<Arc<Survey>>, devices: Arc<Devices>, at: Timestamp) {
        let other = |look: Look| look.devices != devices;
        let different = self.hosts_differ(&seen) || self.last().0.is_some_and(other);
        {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            let number = known.look.as_ref().map_or(0, |look| look.number + 1);
            if known.problem.take().is_some() {
                tracing::info!("Proxmox VE answers again");
            }
            known.look = Some(Look { seen, survey, devices, at, number });
        }
        if different {
            self.changed.send_modify(|count| *count += 1);
        }
    }

    /// A survey that found something else than the one before is worth a round.
    fn surveyed(&self, survey: Option<Arc<Survey>>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(look) = known.look.as_mut().filter(|look| look.survey != survey) else { return };
        look.survey = survey;
        drop(known);
        self.changed.send_modify(|count| *count += 1);
    }

    fn missed(&self, error: &crate::proxmox::Error) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.problem.is_none() {
            tracing::warn!(%error, "Proxmox VE cannot be looked at");
        }
        known.problem = Some(error.to_string());
    }

    /// The last look, and what is wrong since, if anything.
    pub fn last(&self) -> (Option<Look>, Option<String>) {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        (known.look.clone(), known.problem.clone())
    }

    /// A number that grows with each change that is worth a round.
    pub fn changed(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Waits for the first look, for `limit` at most.
    pub async fn first(&self, limit: Duration) {
        let mut changed = self.changed.subscribe();
        let looked = async {
            while self.last().0.is_none() {
                if changed.changed().await.is_err() {
                    return;
                }
            }
        };
        if tokio::time::timeout(limit, looked).await.is_err() {
            tracing::warn!("Proxmox VE was not seen yet: nothing can be made until it is");
        }
    }
}
