//! Operators' orders for single nodes. An order can be given to any instance. The instance writes it to the
//! Node, so that the order survives restarts and changes of the leader. The leader reads it from the Node.

use jiff::Timestamp;

use super::{Daemon, Switch};
use machines::MachineView;
use model::machine::{Intent, Phase};
use model::node::Node;
use model::snapshot::{PINNED, PINNED_WHY, POOL_LABEL, RETIRE};
use model::{Record, Snapshot};
use runtime::error_chain::chain;
use settings::{Config, Mode};

/// The maximum length of a reason that is written to the Node, in characters.
const LONGEST: usize = 200;

impl Switch {
    /// Drains a node and destroys its machine, as soon as the pool no longer needs it.
    pub(super) async fn retire(&self, name: &str, reason: &str) -> Result<(), String> {
        let node = self.node(name).await?;
        let status = self.board.status();
        if status.mode == "observe" {
            return Err("the daemon only observes (`mode = \"observe\"`)".to_owned());
        }
        if let Some(pause) = &status.paused {
            return Err(format!("everything is paused ({}): run `resume` first", pause.words()));
        }
        if let Some(key) = planning::disabled(&node) {
            return Err(format!(
                "`{name}` is kept by its annotation {key}: run `unpin` or remove the \
                annotation first"
            ));
        }
        // Without this check, a replacement might be created even though this machine has to stay.
        if let Some(why) = self.board.hinders(name) {
            return Err(format!("`{name}` cannot be drained: {why}"));
        }
        let words = in_short(reason).unwrap_or_else(|| "an operator asked for it".to_owned());
        self.annotate(name, RETIRE, Some(&words)).await
    }

    /// Keeps a node. If its drain has begun, the drain is abandoned. Once the node's VM is being stopped, the
    /// order is refused.
    pub(super) async fn pin(&self, name: &str, reason: &str) -> Result<(), String> {
        let node = self.node(name).await?;
        self.not_stopped(&node).await?;
        self.annotate(name, RETIRE, None).await?;
        let words = in_short(reason);
        self.annotate(name, PINNED_WHY, words.as_deref()).await?;
        self.annotate(name, PINNED, Some("true")).await?;
        // The task that stops the machine first writes this to the record, then reads the Node again. So
        // either the task sees the pin, or the check below sees the changed record.
        if let Err(late) = self.not_stopped(&node).await {
            self.annotate(name, PINNED, node.annotations.get(PINNED).map(String::as_str)).await?;
            self.annotate(name, PINNED_WHY, node.annotations.get(PINNED_WHY).map(String::as_str)).await?;
            return Err(late);
        }
        self.noted(format!("{name} is pinned: {}", words.as_deref().unwrap_or("no reason was given")));
        Ok(())
    }

    /// Adds an order to the history, if this instance leads, because only the leader keeps the history.
    fn noted(&self, what: String) {
        if self.board.status().leads {
            self.board.decided(self.clock.now(), what);
        }
    }

    /// Returns an error if the removal of the Node's machine cannot be undone. The machine's record shows
    /// this, whichever instance leads.
    async fn not_stopped(&self, node: &Node) -> Result<(), String> {
        let records = self.kubernetes.list_records().await.map_err(|error| chain(&error))?;
        let mut readable = records.readable.iter().map(|one| &one.record);
        let Some(record) = readable.find(|record| is_its(record, node)) else { return Ok(()) };
        let name = &node.name;
        if [Phase::Stopping, Phase::Deleting].iter().any(|phase| record.entered.contains_key(phase)) {
            return Err(format!("`{name}` is already drained, and its machine is being stopped"));
        }
        match &record.intent {
            Intent::Discard { reason, .. } => {
                Err(format!("the machine of `{name}` has already been given up: {reason}"))
            }
            Intent::Create | Intent::Retire { .. } => Ok(()),
        }
    }

    pub(super) async fn unpin(&self, name: &str) -> Result<(), String> {
        let node = self.node(name).await?;
        self.annotate(name, PINNED, None).await?;
        self.annotate(name, PINNED_WHY, None).await?;
        if node.annotations.contains_key(PINNED) {
            self.noted(format!("{name} is no longer pinned"));
        }
        match planning::disabled(&node).filter(|key| *key != PINNED) {
            Some(key) => Err(format!(
                "the node is still kept by its annotation {key}, which another \
                client has set"
            )),
            None => Ok(()),
        }
    }

    /// The Node, if it belongs to a pool.
    async fn node(&self, name: &str) -> Result<Node, String> {
        let found = self.kubernetes.get_node(name).await.map_err(|error| chain(&error))?;
        let node = found.ok_or_else(|| format!("there is no node `{name}`"))?;
        if node.labels.contains_key(POOL_LABEL) {
            Ok(node)
        } else {
            Err(format!("`{name}` belongs to no pool"))
        }
    }

    async fn annotate(&self, node: &str, key: &str, value: Option<&str>) -> Result<(), String> {
        self.kubernetes.annotate_node(node, key, value).await.map_err(|error| chain(&error))
    }
}

impl Daemon {
    /// Returns the machines that an operator wants removed and that can be removed now, with the operator's
    /// reasons. The pool must keep its minimum of ready nodes, and the pods must fit elsewhere. If necessary,
    /// the planner creates another node first.
    pub(super) fn wishes(&mut self, config: &Config, snapshot: &Snapshot) -> Vec<(MachineView, String)> {
        self.waiting_wishes.clear();
        if config.mode == Mode::Observe {
            return Vec::new();
        }
        let wished = |node: &&std::sync::Arc<Node>| node.annotations.contains_key(RETIRE);
        let mut found = Vec::new();
        for node in snapshot.nodes.iter().filter(wished) {
            let view = self.registry.of_node(&node.name).filter(|view| !view.busy);
            let Some(view) = view.filter(|view| view.phase == Phase::Ready) else { continue };
            if self.retires_enough(config, &view.record, &[], snapshot.time) {
                let most = config.limits.max_parallel_retires;
                self.waits(
                    snapshot.time,
                    &node.name,
                    &format!("{most} other nodes are already being removed"),
                );
                continue;
            }
            let pool = config.pools.iter().find(|pool| pool.name == view.record.pool);
            let (min, max) = pool.map_or((0, 0), |pool| (pool.min, pool.max));
            if let Some(why) = planning::stays(node) {
                self.waits(snapshot.time, &node.name, &why);
                continue;
            }
            if let Some(why) = self.regions.unseen_of(config, &view.record, snapshot.time) {
                self.waits(snapshot.time, &node.name, &why);
                continue;
            }
            if let Some(why) = planning::wish_rests(snapshot, config, node) {
                self.waits(snapshot.time, &node.name, &why);
                continue;
            }
            if let Some(why) = kept_by(snapshot, config, &node.name, &view.record.pool, (min, max)) {
                self.waits(snapshot.time, &node.name, &why);
                continue;
            }
            let reason = node.annotations.get(RETIRE).cloned().unwrap_or_default();
            found.push((view, reason));
            // The next order is judged in a later round, in which this node no longer counts.
            break;
        }
        found
    }

    fn waits(&mut self, now: Timestamp, node: &str, why: &str) {
        let words = format!("{node} is waiting to be retired: {why}");
        self.waiting_wishes.insert(node.to_owned(), why.to_owned());
        let board = self.board.clone();
        self.said.once(&format!("retire {node}"), || {
            tracing::info!(node, why, "a node is waiting to be retired");
            board.decided(now, words);
        });
    }
}

/// The reason, trimmed and cut to the maximum length; `None` if it is empty.
fn in_short(reason: &str) -> Option<String> {
    Some(reason.trim().chars().take(LONGEST).collect()).filter(|words: &String| !words.is_empty())
}

/// Whether the Node belongs to the record's machine.
fn is_its(record: &Record, node: &Node) -> bool {
    if record.is_physical() {
        return record.name == node.name;
    }
    record.smbios_uuid.as_deref().is_some_and(|uuid| uuid == node.system_uuid)
}

/// Returns why a node that is to be retired cannot be removed yet.
fn kept_by(
    snapshot: &Snapshot,
    config: &Config,
    node: &str,
    pool: &str,
    (min, max): (u32, u32),
) -> Option<String> {
    if others_ready(snapshot, pool) < min as usize {
        let way = if min < max {
            "another node is created first"
        } else {
            "`max` allows no other node: raise it, or lower `min`"
        };
        return Some(format!("its pool is at its minimum of {min}; {way}"));
    }
    let pod = planning::homeless(snapshot, config, node)?;
    Some(format!("{pod} does not fit on another node yet"))
}

/// The number of ready nodes of a pool that are not being removed. A node whose removal was just decided is
/// left out, even if it has no taint yet.
fn others_ready(snapshot: &Snapshot, pool: &str) -> usize {
    let of_pool = |node: &&std::sync::Arc<Node>| node.labels.get(POOL_LABEL).is_some_and(|one| one == pool);
    let leaving = planning::leaving(snapshot);
    let stays = |node: &&std::sync::Arc<Node>| {
        planning::ready(node) && !planning::being_deleted(node) && !leaving.contains(node.name.as_str())
    };
    snapshot.nodes.iter().filter(of_pool).filter(stays).count()
}
