//! The switch that pauses the daemon: while it is on, nothing new is started.
//!
//! The switch is kept in Kubernetes, so that it survives restarts and changes of the leader, and any instance
//! can turn it on or off. The leader reads it every `scan_interval`, after each order that its own instance
//! receives, and before it starts anything.
//!
//! During a pause, machines whose cloning has begun are completed, and other new machines wait. Drains are
//! abandoned, and their nodes return to service. If the shutdown or destruction of a VM has begun, it is
//! completed. The timers of unneeded nodes do not advance.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::BoxFuture;
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::Instant;

use super::Daemon;
use kubernetes::Cluster;
use machines::MachineView;
use model::workload::Backoff;
use model::{MachineId, Pause, Record, Retry};
use observability::{Board, Order, Orders};
use runtime::clock::SharedClock;
use runtime::error_chain::chain;
use settings::Mode;

/// Carries out operators' orders, such as `pause`.
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
    /// Carries out the orders that operators give to `instance`.
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
            // After each order, the leader reads the switch and the records again.
            Order::Reread => {}
        }
        self.board.poke();
        Ok(())
    }

    /// Stores a request in Kubernetes to end back-offs. The leader reads the request from there. Only the
    /// leader checks the name, because the status of other instances lists no hosts and pools.
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
            // Updates the status immediately, however long the current round takes.
            self.board.paused(pause.as_ref());
        }
        turned.map_err(|error| {
            // Without the API, the lease cannot be renewed, and soon no instance acts.
            format!(
                "{}; to stop the daemon without Kubernetes, run `systemctl stop pve-autoscaler` on each host",
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

/// The position of the switch, as last read by the leader.
pub(super) struct PauseState {
    pause: watch::Sender<Option<Arc<Pause>>>,
    read: Option<Instant>,
    pokes: watch::Receiver<u64>,
    /// Back-offs that an operator asked to end and that could not be ended yet. Maps each back-off's machine
    /// to the time at which the back-off ends by itself.
    growths: BTreeMap<MachineId, Timestamp>,
}

impl PauseState {
    pub fn new(board: &Board) -> Self {
        Self { pause: watch::Sender::new(None), read: None, pokes: board.pokes(), growths: BTreeMap::new() }
    }

    /// A receiver of the current pause, for machines' tasks.
    pub fn watch(&self) -> watch::Receiver<Option<Arc<Pause>>> {
        self.pause.subscribe()
    }

    /// The current pause, if there is one.
    pub fn paused(&self) -> Option<Arc<Pause>> {
        self.pause.borrow().clone()
    }
}

impl Daemon {
    /// Reads the switch if it has not been read for a while.
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

    /// Reads the switch; returns whether something new may be started now.
    pub(super) async fn may_begin(&mut self) -> bool {
        self.read_switch().await && self.switch.paused().is_none()
    }

    /// Reads the switch. Returns false if it cannot be read; the last known position then still applies.
    pub(super) async fn read_switch(&mut self) -> bool {
        self.switch.pokes.mark_unchanged();
        let (pause, retry) = match self.kubernetes.orders().await {
            Ok((pause, retry)) => (pause.map(Arc::new), retry),
            Err(error) => {
                tracing::debug!(%error, "the pause switch cannot be read at the moment");
                return false;
            }
        };
        // The back-offs of machines are in their records. Until the records have been read, a request to end
        // back-offs stays in Kubernetes, and the first round reads the switch again.
        let waits = retry && !self.reconcile.has_begun();
        self.switch.read = Some(Instant::now()).filter(|_| !waits);
        self.board.paused(pause.as_deref());
        self.switch.pause.send_if_modified(|before| {
            if *before == pause {
                return false;
            }
            if let Some(pause) = &pause {
                tracing::warn!(by = pause.by, reason = pause.words(), "paused: starting nothing new");
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

    /// Ends the back-offs that operators asked to end. The requests are first removed from Kubernetes, so
    /// that each takes effect only once.
    async fn retry(&mut self) {
        let retries = match self.kubernetes.take_retries().await {
            Ok(retries) => retries,
            Err(error) => return tracing::warn!(%error, "the requests to end back-offs could not be fetched"),
        };
        let now = self.clock.now();
        for Retry { name, by } in retries {
            let mut ended = self.memory.retry(name.as_deref(), now);
            ended.extend(self.end_growth_backoffs(name.as_deref(), now).await);
            let name = name.as_deref().unwrap_or("all hosts and pools");
            tracing::info!(name, by, ended = ended.len(), "an operator ended back-offs");
            for what in ended {
                self.board.decided(now, what);
            }
        }
    }

    /// Ends the back-offs of machines that could not grow. Each machine has its own back-off in its record.
    /// Returns a text about each ended back-off, with its cause.
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

    /// Ends back-offs that an operator asked to end earlier. They could not be ended at that time, because
    /// the machines were busy or their records could not be written. Back-offs from later failures are not
    /// affected.
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

    /// Ends the back-off of one machine. Returns a text about the ended back-off, or `None` if the back-off
    /// cannot be ended yet, because a task is working on the machine or the record could not be written.
    async fn end_growth_backoff(&self, view: &MachineView) -> Option<String> {
        let mut stored = view.stored();
        let record = &mut stored.record;
        let backoff = record.grow_backoff.take().filter(|_| !view.busy)?;
        let what = format!("growing {}: back-off ended; its cause was: {}", record.name, backoff.reason);
        (record.takes_no_cpus, record.takes_no_memory) = (false, false);
        if let Err(error) = self.kubernetes.update_record(&mut stored).await {
            tracing::debug!(machine = %view.record.name, %error, "the machine's back-off could not be ended yet");
            return None;
        }
        if self.registry.get(&stored.record.id).is_some_and(|now| !now.busy) {
            let version = (stored.resource_version, stored.uid);
            self.registry.put(MachineView { version, record: stored.record, ..view.clone() });
        }
        Some(what)
    }
}

/// The back-off of a machine that does not grow for now, or that no longer accepts more CPUs or memory.
fn left_alone(record: &Record, now: Timestamp) -> Option<&Backoff> {
    let refuses = record.takes_no_cpus || record.takes_no_memory;
    record.grow_backoff.as_ref().filter(|backoff| refuses || backoff.runs(now))
}
