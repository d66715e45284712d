//! Compares the predictions behind decisions with what happened, and reports each wrong prediction once.

use super::Daemon;
use model::plan::MissedPrediction;
use model::prediction::{Moved, Predictions};
use model::{Plan, Snapshot};
use observability::{GaugeValues, names, number};
use settings::Config;

impl Daemon {
    /// Remembers the predictions of the last decision, and reports those that were wrong.
    pub(super) fn look_at_outcomes(&mut self, config: &Config, snapshot: &Snapshot, plan: &Plan) {
        let after = planning::follow(snapshot, plan, config);
        let before = &snapshot.memory.predictions;
        for missed in &after.missed {
            let is_new = before.missed.iter().all(|one| (&one.kind, one.at) != (&missed.kind, missed.at));
            if is_new {
                let (pod, pool) = (missed.pod.as_str(), missed.pool.clone().unwrap_or_default());
                let words = MissedPrediction::of(missed).words();
                let until = missed.backoff.until;
                tracing::warn!(pod, pool = pool.as_str(), %until, "a prediction was wrong: {words}");
                self.board.decided(snapshot.time, format!("! {pod}: a prediction was wrong: {words}"));
                self.board.metrics().missed(&pool);
            }
        }
        for moved in &after.moved {
            let is_known = |one: &&Moved| one.node == moved.node && one.at == moved.at;
            let known = before.moved.iter().find(is_known).is_some_and(|one| one.missed.is_some());
            if let Some(missed) = moved.missed.as_ref().filter(|_| !known) {
                let pool = &moved.pool;
                tracing::warn!(pool = pool.as_str(), "removing no more nodes for now: {missed}");
                self.board
                    .decided(snapshot.time, format!("! removing no more nodes of {pool} for now: {missed}"));
                self.board.metrics().missed(pool);
            }
        }
        self.memory.predicted(after, snapshot.time);
    }
}

/// Sets a metric for each pool: how many wrong predictions currently keep the daemon from changing the pool.
/// The metric counts the kinds of pods for which no machine is created in the pool, and the removed nodes
/// whose pods did not start elsewhere.
pub(super) fn measure(config: &Config, snapshot: &Snapshot, seen: &mut GaugeValues) {
    for pool in &config.pools {
        let held = in_words(&snapshot.memory.predictions, &pool.name, snapshot.time).len();
        seen.put(names::MISSED_NOW, &[&pool.name], number(i64::try_from(held).unwrap_or(i64::MAX)));
    }
}

/// Describes the wrong predictions that currently keep the daemon from changing a pool.
pub(super) fn in_words(predictions: &Predictions, pool: &str, now: jiff::Timestamp) -> Vec<String> {
    let missed = predictions.missed.iter().filter(|one| one.pool.as_deref() == Some(pool));
    let missed = missed.filter(|one| one.backoff.runs(now)).map(|one| {
        let words = MissedPrediction::of(one).words();
        format!("no machine for pods like {} until {}: {words}", one.pod, one.backoff.until)
    });
    let moved = predictions.moved.iter().filter(|one| one.pool == pool);
    let moved = moved.filter_map(|one| one.missed.as_ref());
    missed.chain(moved.map(|one| format!("removing no more nodes for now: {one}"))).collect()
}
