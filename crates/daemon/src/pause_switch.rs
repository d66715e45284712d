//! The switch that stops everything: nothing new is begun while it is on.
//!
//! It is kept in Kubernetes, so that it outlives restarts and hand-overs and can be turned at any instance.
//! Who leads reads it every `scan_interval`, when it was turned at this very instance, and before anything is
//! begun.
//!
//! Machines that are being made are finished; those whose clone was not begun wait. Drains are given up and
//! their nodes serve again; VMs that are being shut down or destroyed are finished. Timers of unneeded nodes
//! stand still.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::BoxFuture;
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::Instant;

use super::Daemon;
use kubernetes::Cluster;
use machines::MachineView;
use model::MachineId;
use model::workload::Backoff;
use model::{Pause, Record, Retry};
use observability::{Board, Order, Orders};
use runtime::clock::SharedClock;
use runtime::error_chain::chain;
use settings::Mode;

/// The operator's hand on the switch.
#[derive(Clone)]
pub struct Switch {
    pub(super) kubernetes: Cluster,
    pub(super) clock: SharedClock,
    instance: String,
    pub(super) board: Board,
}

impl std::fmt::Debug for Switch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Switch").field("instance", &self.instance).finish_non_exhaustive()
    }
}

impl Switch {
    /// The switch as it is reached from this instance.
    pub fn new(kubernetes: Cluster, clock: SharedClock, instance: &str, board: Board) -> Self {
        Self { kubernetes, clock, instance: instance.to_owned(), board }
    }

    async fn carry_out(&self, order: Order) -> Result<(), String> {
        match order {
            Order::Pause { reason } => {
                let (since, by) = (Some(self.clock.now()), self.instance.clone());
                self.turn(Some(Pause { since, by, reason })).await?;
            }
            Order::Resume => self.turn(None).await?,
            Order::Retry { name } => self.retry(name).await?,
            Order::Retire { node, reason } => self.retire(&node, &reason).await?,
            Order::Pin { node, reason } => self.pin(&node, &reason).await?,
            Order::Unpin { node } => self.unpin(&node).await?,
            // The leader does, with every order.
            Order::Reread => {}
        }
        self.board.poke();
        Ok(())
    }

    /// The leader reads it from Kubernetes. Only the leader knows which hosts and pools there are.
    async fn retry(&self, name: Option<String>) -> Result<(), String> {
        let status = self.board.status();
        if let Some(name) = name.as_ref().filter(|_| status.leads) {
            let pools: Vec<&str> = status.pools.iter().map(|pool| pool.name.as_str()).collect();
            let hosts: Vec<&str> = status.hosts.iter().map(|host| host.name.as_str()).collect();
            if !pools.iter().chain(&hosts).any(|one| one == name) {
                let (pools, hosts) = (pools.join(", "), hosts.join(", "));
                return Err(format!("there is no pool or host `{name}`; pools: {pools}; hosts: {hosts}"));
            }
        }
        let retry = Retry { name, by: self.instance.clone() };
        self.kubernetes.ask_retry(&retry).await.map_err(|error| chain(&error))
    }

    async fn turn(&self, pause: Option<Pause>) -> Result<(), String> {
        let turned = self.kubernetes.set_pause(pause.as_ref()).await;
        if turned.is_ok() && self.board.status().leads {
            // The next client that asks sees it, however long the round under way takes.
            self.board.paused(pause.as_ref());
        }
        turned.map_err(|error| {
            // No instance acts without the API for longer than a term.
            format!(
                "{}; `systemctl stop pve-autoscaler` on each host stops it without Kubernetes",
                chain(&error)
            )
        })
    }
}

impl Orders for Switch {
    fn follow(&self, order: Order) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(self.carry_out(order))
    }
}

/// What is known of the switch.
pub(super) struct PauseState {
    pause: watch::Sender<Option<Arc<Pause>>>,
    read: Option<Instant>,
    pokes: watch::Receiver<u64>,
    /// Machines that were busy when their growth was to be tried again: until when each was to be left alone,
    /// as it was then.
    growths: BTreeMap<MachineId, Timestamp>,
}

impl PauseState {
    pub fn new(board: &Board) -> Self {
        Self { pause: watch::Sender::new(None), read: None, pokes: board.pokes(), growths: BTreeMap::new() }
    }

    /// For machines' tasks.
    pub fn watch(&self) -> watch::Receiver<Option<Arc<Pause>>> {
        self.pause.subscribe()
    }

    /// Why nothing is begun now, if so.
    pub fn paused(&self) -> Option<Arc<Pause>> {
        self.pause.borrow().clone()
    }
}

impl Daemon {
    /// Reads the switch if it was not for a while.
    pub(super) async fn look_at_switch(&mut self) {
        let old = self.config.borrow().scan_interval;
        let fresh = self.switch.read.is_some_and(|read| read.elapsed() < old);
        let poked = self.switch.pokes.has_changed().unwrap_or(false);
        if poked {
            self.reconcile.read_again();
        }
        if !fresh || poked {
            self.read_switch().await;
        }
        self.end_put_off_backoffs().await;
    }

    /// Whether something new may be begun now, as the switch is at this moment.
    pub(super) async fn may_begin(&mut self) -> bool {
        self.read_switch().await && self.switch.paused().is_none()
    }

    /// False if it cannot be read: it stays as it was.
    pub(super) async fn read_switch(&mut self) -> bool {
        self.switch.pokes.mark_unchanged();
        let (pause, retry) = match self.kubernetes.orders().await {
            Ok((pause, retry)) => (pause.map(Arc::new), retry),
            Err(error) => {
                tracing::debug!(%error, "the switch cannot be read for the moment");
                return false;
            }
        };
        // Back-offs of machines are in their records: until those are read no word is taken, and the first
        // round comes back to it.
        let waits = retry && !self.reconcile.has_begun();
        self.switch.read = Some(Instant::now()).filter(|_| !waits);
        self.board.paused(pause.as_deref());
        self.switch.pause.send_if_modified(|before| {
            if *before == pause {
                return false;
            }
            if let Some(pause) = &pause {
                tracing::warn!(by = pause.by, reason = pause.words(), "paused: nothing new is begun");
            } else {
                tracing::info!("resumed");
            }
            *before = pause;
            true
        });
        if retry && !waits {
            self.retry().await;
        }
        true
    }

    /// Ends the back-offs that operators want ended. They are taken first, so that each word counts once.
    async fn retry(&mut self) {
        let retries = match self.kubernetes.take_retries().await {
            Ok(retries) => retries,
            Err(error) => return tracing::warn!(%error, "what is to be tried again could not be taken"),
        };
        let now = self.clock.now();
        for Retry { name, by } in retries {
            let mut ended = self.memory.retry(name.as_deref(), now);
            ended.extend(self.end_growth_backoffs(name.as_deref(), now).await);
            let name = name.as_deref().unwrap_or("all hosts and pools");
            tracing::info!(name, by, ended = ended.len(), "an operator ends back-offs");
            for what in ended {
                self.board.decided(now, what);
            }
        }
    }

    /// Each machine that could not grow has a back-off of its own, in its record. Returns what was left
    /// alone, each with why.
    async fn end_growth_backoffs(&mut self, pool: Option<&str>, now: Timestamp) -> Vec<String> {
        let mut ended = Vec::new();
        if self.config.borrow().mode != Mode::Active {
            return ended;
        }
        let meant = |view: &MachineView| pool.is_none_or(|pool| pool == view.record.pool);
        for view in self.registry.all().into_iter().filter(meant) {
            let Some(until) = left_alone(&view.record, now).map(|backoff| backoff.until) else { continue };
            match self.end_growth_backoff(&view).await {
                Some(what) => ended.push(what),
                None => _ = self.switch.growths.insert(view.record.id, until),
            }
        }
        ended
    }

    /// The same of machines that were busy then, or whose records could not be written. What a later failure
    /// has begun is not meant.
    async fn end_put_off_backoffs(&mut self) {
        let now = self.clock.now();
        let put_off = std::mem::take(&mut self.switch.growths);
        if self.config.borrow().mode != Mode::Active {
            return;
        }
        for (id, until) in put_off {
            let Some(view) = self.registry.get(&id) else { continue };
            if left_alone(&view.record, now).is_none_or(|backoff| backoff.until != until) {
                continue;
            }
            match self.end_growth_backoff(&view).await {
                Some(what) => self.board.decided(now, what),
                None => _ = self.switch.growths.insert(id, until),
            }
        }
    }

    /// Ends the back-off of one machine; in words. `None` if that has to wait: a task has the machine's
    /// record in hand.
    async fn end_growth_backoff(&self, view: &MachineView) -> Option<String> {
        let mut stored = view.stored();
        let record = &mut stored.record;
        let backoff = record.grow_backoff.take().filter(|_| !view.busy)?;
        let what =
            format!("growing {} is tried again: it was left alone, since {}", record.name, backoff.reason);
        (record.takes_no_cpus, record.takes_no_memory) = (false, false);
        if let Err(error) = self.kubernetes.update_record(&mut stored).await {
            tracing::debug!(machine = %view.record.name, %error, "its back-off could not be ended yet");
            return None;
        }
        if self.registry.get(&stored.record.id).is_some_and(|now| !now.busy) {
            let version = (stored.resource_version, stored.uid);
            self.registry.put(MachineView { version, record: stored.record, ..view.clone() });
        }
        Some(what)
    }
}

/// Why a machine is not given more for now, or takes no more of something at all.
fn left_alone(record: &Record, now: Timestamp) -> Option<&Backoff> {
    let refuses = record.takes_no_cpus || record.takes_no_memory;
    record.grow_backoff.as_ref().filter(|backoff| refuses || backoff.runs(now))
}
