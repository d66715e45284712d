//! Switches hosts off and on, as the plan says ([`model::power`]).
//!
//! * Before the first request to a host, the daemon stores that it is switching the host off or on, so that
//!   the next leader knows that the daemon itself switched the host off. If this cannot be stored, no request
//!   is sent.
//! * Just before a host is shut down, it is asked which VMs, containers and tasks it runs. The host's own
//!   answer is current, while the cluster's lists lag.
//! * The answer to a request proves little, so the plan relies on the observed state of the host. A host that
//!   takes too long to switch off or on is left alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::Daemon;
use model::machine::Host;
use model::plan::Plan;
use model::power::{HostOutcome, HostVerdict, PowerMemory, PowerStep};
use model::{HostKey, PoolName, Snapshot};
use proxmox::redfish::{self, Reset};
use proxmox::{Client, Error, Kind};
use runtime::error_chain::chain;
use settings::{Config, Power};

/// The time limit for a shutdown request, including all queries before it.
const LIMIT: Duration = Duration::from_mins(2);
/// The time limit for all queries to a host and its cluster before a shutdown. If they took longer, the first
/// answers would be outdated.
const SURE: Duration = Duration::from_secs(5);
/// The maximum number of attempts to complete the queries within `SURE`.
const TRIES: u32 = 3;

/// Pending requests to hosts, and the results of finished ones.
#[derive(Debug, Default)]
pub(super) struct Asked {
    under_way: BTreeSet<String>,
    refused: Arc<Mutex<BTreeMap<String, Option<String>>>>,
}

impl Asked {
    /// Returns the results since the last call: for each host, the reason why the request failed, or `None`
    /// if it succeeded.
    fn answers(&mut self) -> BTreeMap<String, Option<String>> {
        let answers = std::mem::take(&mut *self.refused.lock().unwrap_or_else(PoisonError::into_inner));
        self.under_way.retain(|host| !answers.contains_key(host));
        answers
    }
}

/// Whether the plan empties, switches off or wakes any host. If so, the pause switch is read again first.
pub(super) fn begins(plan: &Plan) -> bool {
    let begin = |one: &HostVerdict| {
        matches!(one.verdict, HostOutcome::Emptied | HostOutcome::SwitchOff | HostOutcome::Wake)
    };
    plan.hosts.iter().any(begin)
}

impl Daemon {
    /// Remembers when hosts became idle. If the daemon only observes, this is all that it does about hosts.
    pub(super) fn remember_idle_hosts(&mut self, plan: &Plan, now: Timestamp) {
        for one in &plan.hosts {
            let since = one.since.filter(|_| one.verdict == HostOutcome::Idle);
            self.memory.host(&one.host, now, |host| host.idle_since = since);
        }
    }

    /// Carries out the plan for hosts.
    pub(super) async fn switch_hosts(&mut self, config: &Config, snapshot: &Snapshot, plan: &Plan) {
        let now = snapshot.time;
        self.forget_unset(config, snapshot);
        let answers = self.asked.answers();
        self.remember_idle_hosts(plan, now);
        for one in &plan.hosts {
            let host = one.host.as_str();
            let step = snapshot
                .memory
                .hosts
                .get(host)
                .and_then(|memory| memory.power.as_ref())
                .map(|power| power.step);
            if let Some(Some(why)) = answers.get(host) {
                // A host that did not receive the shutdown request, or refused it, is still on, so it does
                // not count as switched off by the daemon.
                let ours = matches!(step, Some(PowerStep::Off | PowerStep::Waking));
                self.leave_alone(config, host, ours, why, now);
                continue;
            }
            match one.verdict {
                HostOutcome::Needed | HostOutcome::Idle | HostOutcome::NotOurs => {
                    let resting = snapshot.memory.hosts.get(host).and_then(|memory| memory.backoff.as_ref());
                    let resting = resting.is_some_and(|backoff| backoff.runs(now));
                    self.as_any_other(one, step, resting, now);
                    if step == Some(PowerStep::Emptying) && one.verdict == HostOutcome::Needed {
                        self.memory.emptied_in_vain(host, &one.message, config, now);
                    }
                }
                HostOutcome::Emptied if step.is_none() => {
                    self.note(
                        host,
                        format!("is being emptied before it is switched off: {}", one.message),
                        now,
                    );
                    let power =
                        PowerMemory { step: PowerStep::Emptying, since: now, ..PowerMemory::default() };
                    self.memory.host(host, now, |memory| memory.power = Some(power));
                }
                HostOutcome::SwitchOff => self.switch_off(config, snapshot, &one.host).await,
                HostOutcome::Wake => self.wake_host(config, one, step, now).await,
                HostOutcome::Off if step == Some(PowerStep::ShuttingDown) => {
                    self.note(host, "is off".to_owned(), now);
                    self.memory.host(host, now, |memory| {
                        memory.emptying_backoff = None;
                        if let Some(power) = &mut memory.power {
                            (power.step, power.since) = (PowerStep::Off, now);
                        }
                    });
                }
                HostOutcome::GivenUp if step == Some(PowerStep::Emptying) => {
                    // The host is in working order, so new machines may be placed on it.
                    self.as_any_other(one, step, false, now);
                    self.memory.emptied_in_vain(host, &one.message, config, now);
                }
                HostOutcome::GivenUp => {
                    let online =
                        snapshot.proxmox.hosts.iter().flatten().any(|one| one.name == host && one.online);
                    // A host that was asked to shut down may still do so. A host that was not woken is still
                    // off.
                    let ours =
                        step == Some(PowerStep::ShuttingDown) || (step == Some(PowerStep::Waking) && !online);
                    self.leave_alone(config, host, ours, &one.message, now);
                }
                HostOutcome::Emptied | HostOutcome::GoingOff | HostOutcome::Off | HostOutcome::Waking => {}
            }
        }
    }

    fn note(&self, host: &str, what: String, now: Timestamp) {
        tracing::info!(host, "{what}");
        self.board.decided(now, format!("{host} {what}"));
    }

    /// Forgets the power state of hosts that are on and no longer have a `power` setting, so that they are
    /// used like any other host. A host that the daemon has switched off stays off.
    fn forget_unset(&mut self, config: &Config, snapshot: &Snapshot) {
        for (name, memory) in &snapshot.memory.hosts {
            let set = config.hosts.get(name).is_some_and(|own| own.power.is_some());
            let on = snapshot.proxmox.hosts.iter().flatten().any(|host| host.name == *name && host.online);
            if !set && on && memory.power.is_some() {
                self.memory.host(name, snapshot.time, |memory| memory.power = None);
            }
        }
    }

    fn as_any_other(&mut self, one: &HostVerdict, step: Option<PowerStep>, resting: bool, now: Timestamp) {
        let Some(step) = step else { return };
        match step {
            // The host was asked to shut down and took too long. It is left alone, but may still shut down,
            // and then counts as switched off by the daemon.
            PowerStep::Off if resting => return,
            PowerStep::Waking => self.note(&one.host, "has come up".to_owned(), now),
            _ => self.note(&one.host, format!("is not switched off: {}", one.message), now),
        }
        self.memory.host(&one.host, now, |memory| {
            memory.power = None;
            if step == PowerStep::Waking {
                memory.backoff = None;
            }
        });
    }

    /// Leaves a host alone for a while, because a request to it failed or must not be sent. If `ours`, the
    /// host counts as switched off by the daemon.
    fn leave_alone(&mut self, config: &Config, host: &str, ours: bool, why: &str, now: Timestamp) {
        tracing::warn!(host, why, "not switching a host on or off");
        self.board.decided(now, format!("{host} is left alone: {why}"));
        self.memory.host_failed(host, why, config, now);
        self.memory.host(host, now, |memory| match &mut memory.power {
            Some(power) if ours => (power.step, power.since, power.asked) = (PowerStep::Off, now, None),
            power => *power = None,
        });
    }

    /// Stores that a host is being switched off, checks it again, and asks it to shut down.
    async fn switch_off(&mut self, config: &Config, snapshot: &Snapshot, host: &HostKey) {
        if self.asked.under_way.contains(host.as_str()) {
            return;
        }
        let now = snapshot.time;
        let reached = |across: bool| {
            let pools = snapshot.memory.pools.iter().filter(move |(_, pool)| {
                let hosts = if across { Some(&pool.across) } else { pool.reach.as_ref() };
                hosts.is_some_and(|hosts| hosts.iter().any(|one| one == host))
            });
            pools.map(|(name, _)| name.clone()).collect::<BTreeSet<PoolName>>()
        };
        let power = PowerMemory {
            step: PowerStep::ShuttingDown,
            since: now,
            asked: None,
            room: snapshot.proxmox.hosts.iter().flatten().find(|one| one.name == *host).cloned(),
            reached_by: reached(false),
            across: reached(true),
        };
        let before = snapshot.memory.hosts.get(host).and_then(|memory| memory.power.clone());
        self.memory.host(host, now, |memory| memory.power = Some(power));
        if !self.memory.store_now(now).await {
            tracing::warn!(host = host.as_str(), "cannot record the shutdown; leaving the host on");
            self.memory.host(host, now, |memory| memory.power = before);
            return;
        }
        self.note(host, "is being shut down: no guest runs on it".to_owned(), now);
        let Some(region) = self.regions.of_host(host) else { return };
        let (proxmox, name) = (region.proxmox.clone(), host.host().to_owned());
        let goes = |other: &Host| {
            let memory = snapshot.memory.hosts.get(&other.name).and_then(|memory| memory.power.as_ref());
            memory.is_some_and(|power| matches!(power.step, PowerStep::ShuttingDown | PowerStep::Off))
        };
        let here = |other: &&Host| other.online && !goes(other) && other.name.region() == region.prefix;
        let others: Vec<String> = (snapshot.proxmox.hosts.iter().flatten().filter(here))
            .map(|other| other.name.host().to_owned())
            .collect();
        let controller = self.controller(config, host);
        self.ask(host, async move {
            // After a timeout, the host may still have received the request, so the plan waits for the
            // result.
            let asked = tokio::time::timeout(LIMIT, shut_down(&proxmox, &name, &others, controller));
            asked.await.unwrap_or_default()
        });
    }

    /// Stores that a host is being woken, and sends the wake request. The plan repeats the request from time
    /// to time until the host is up.
    async fn wake_host(
        &mut self,
        config: &Config,
        one: &HostVerdict,
        step: Option<PowerStep>,
        now: Timestamp,
    ) {
        let host = &one.host;
        if self.asked.under_way.contains(host.as_str()) {
            return;
        }
        let first = step != Some(PowerStep::Waking);
        let mut before = None;
        self.memory.host(host, now, |memory| {
            before.clone_from(&memory.power);
            if let Some(power) = &mut memory.power {
                if first {
                    (power.step, power.since) = (PowerStep::Waking, now);
                }
                power.asked = Some(now);
            }
        });
        if first {
            if !self.memory.store_now(now).await {
                tracing::warn!(host = host.as_str(), "cannot record the wake-up; leaving the host off");
                self.memory.host(host, now, |memory| memory.power = before);
                return;
            }
            self.note(host, format!("is being woken: {}", one.message), now);
        }
        let Some(region) = self.regions.of_host(host) else { return };
        let (proxmox, name) = (region.proxmox.clone(), host.host().to_owned());
        let controller = self.controller(config, host);
        self.ask(host, async move {
            if let Some(controller) = controller {
                return switch_on(controller).await;
            }
            match proxmox.wake_host(&name).await {
                Ok(()) => None,
                // The plan repeats the request. A second request does no harm.
                Err(error) if error.kind == Kind::OutcomeUnknown => None,
                Err(error) => Some(format!("it could not be woken: {}", chain(&error))),
            }
        });
    }

    /// Returns a client for a host's management controller, if the host has one.
    fn controller(&self, config: &Config, host: &str) -> Option<Result<redfish::Client, String>> {
        match config.hosts.get(host)?.power.as_ref()? {
            Power::WakeOnLan => None,
            Power::Redfish(settings) => {
                Some((self.controllers)(settings).map(|client| client.fenced(&self.fence)))
            }
        }
    }

    fn ask(&mut self, host: &str, question: impl Future<Output = Option<String>> + Send + 'static) {
        self.asked.under_way.insert(host.to_owned());
        let (refused, host) = (self.asked.refused.clone(), host.to_owned());
        self.spawn(async move {
            let answer = question.await;
            refused.lock().unwrap_or_else(PoisonError::into_inner).insert(host, answer);
        });
    }
}

/// Switches a host on through its controller. Returns the reason if that failed. A request that may not have
/// arrived is not a failure: the plan repeats it.
async fn switch_on(controller: Result<redfish::Client, String>) -> Option<String> {
    let asked = match controller {
        Ok(client) => client.reset(Reset::On).await,
        Err(why) => return Some(format!("it could not be woken: {why}")),
    };
    match asked {
        Ok(_) => None,
        Err(error) if matches!(error.kind, redfish::Kind::OutcomeUnknown | redfish::Kind::Unreachable) => {
            tracing::warn!(%error, "a host's controller does not answer");
            None
        }
        Err(error) => Some(format!("it could not be woken: {}", chain(&error))),
    }
}

/// Asks a host to shut down. Returns the reason if the request was not sent or was refused; `None` if it was
/// sent, even without an answer.
async fn shut_down(
    proxmox: &Client,
    host: &str,
    others: &[String],
    controller: Option<Result<redfish::Client, String>>,
) -> Option<String> {
    // A host is not shut down if its controller could not switch it on again later.
    match controller {
        None => {}
        Some(Err(why)) => return Some(format!("it could not be woken after a shutdown: {why}")),
        Some(Ok(client)) => {
            if let Err(error) = client.power().await {
                return Some(format!("it could not be woken after a shutdown: {}", chain(&error)));
            }
        }
    }
    let asked = async {
        // The request waits for its turn in the host's queue first, so that the shutdown is sent immediately
        // after the checks.
        let placed = proxmox.in_line(host).await;
        for _ in 0..TRIES {
            let begun = Instant::now();
            if let Some(why) = speaks_against(&placed, host, others).await? {
                return Ok(Some(why));
            }
            if begun.elapsed() > SURE {
                continue;
            }
            return match placed.shut_down_host(host).await {
                // The host may have shut down before it could answer.
                Err(error) if error.kind == Kind::OutcomeUnknown => Ok(None),
                outcome => outcome.map(|()| None),
            };
        }
        Ok(Some("Proxmox VE is too slow for a safe check".to_owned()))
    };
    match asked.await {
        Ok(refused) => refused,
        Err(error) => Some(chain(&error)),
    }
}

/// Returns the reason why a host must not be shut down now, if any.
async fn speaks_against(proxmox: &Client, host: &str, others: &[String]) -> Result<Option<String>, Error> {
    let running = proxmox.running_on(host).await?;
    if let Some(vmid) = running.first() {
        return Ok(Some(format!("guest {vmid} runs on it")));
    }
    let tasks = proxmox.tasks_running_on(host).await?;
    if let Some(kind) = tasks.first() {
        return Ok(Some(format!("a task runs on it: {kind}")));
    }
    // A guest that is migrating to this host is listed on its old host until the migration is complete.
    if let Some(vmid) = proxmox.resources().await?.migrating().first() {
        return Ok(Some(format!("guest {vmid} is being migrated, perhaps to this host")));
    }
    let status = proxmox.cluster_status().await?;
    if !status.quorate {
        return Ok(Some("the cluster is not quorate".to_owned()));
    }
    // The plan relies on the votes of these other hosts, so all of them must still be members of the cluster.
    let gone = others.iter().find(|other| status.hosts.get(*other) != Some(&true));
    Ok(gone.map(|other| format!("{other} is no longer a member of the cluster")))
}
