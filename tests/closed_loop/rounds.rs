//! Rounds of a cluster: the daemon plans, machines come and go, and the scheduler places pods as it likes.

use std::collections::BTreeSet;
use std::fmt;

use pve_autoscaler::planning::plan;

use crate::cluster::Cluster;
use crate::judge::Judge;
use crate::worlds;

/// A cluster that still changes after this many rounds does not settle.
const ROUNDS: usize = 25;

/// The results of the worlds.
#[derive(Debug, Default)]
pub struct Tally {
    pub worlds: usize,
    /// Machines in the first plans.
    pub planned: usize,
    /// Machines created in total.
    pub made: usize,
    /// Worlds in which more machines were created than the first plan had.
    pub longer: Vec<u64>,
    /// Machines on which nothing runs at the end.
    pub idle: usize,
    pub removed: usize,
    /// Worlds in which a pod of a removed node found no place.
    pub unlucky: Vec<u64>,
    /// Events that must not happen.
    pub faults: Vec<String>,
}

impl Tally {
    pub fn add(&mut self, other: Self) {
        self.worlds += other.worlds;
        self.planned += other.planned;
        self.made += other.made;
        self.longer.extend(other.longer);
        self.idle += other.idle;
        self.removed += other.removed;
        self.unlucky.extend(other.unlucky);
        self.faults.extend(other.faults);
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { worlds, planned, made, idle, removed, .. } = self;
        #[expect(clippy::cast_precision_loss, reason = "for people")]
        let share = *made as f64 / *planned as f64;
        write!(
            f,
            "{worlds} worlds: {planned} machines in first plans, {made} made in all ({share:.3}), {idle} of them idle; \
             {removed} nodes removed; more than planned in {:?}; pods of removed nodes wait in {:?}",
            self.longer, self.unlucky
        )
    }
}

/// Plays the world of this seed: first it grows, then some of its pods end, and it shrinks.
pub fn play(judge: &mut Judge, seed: u64) -> Tally {
    let mut cluster = worlds::draw(seed);
    let mut tally = Tally { worlds: 1, ..Tally::default() };
    grow(&mut cluster, judge, seed, &mut tally);
    if tally.faults.is_empty() {
        shrink(&mut cluster, judge, seed, &mut tally);
    }
    tally
}

fn grow(cluster: &mut Cluster, judge: &mut Judge, seed: u64, tally: &mut Tally) {
    let mut draw = fastrand::Rng::with_seed(seed.wrapping_add(1 << 32));
    let alone = std::env::var("LOOP_SEED").is_ok() && std::env::var("LOOP_WORLDS").is_err();
    if alone {
        let objects: Vec<String> = cluster.objects().iter().map(ToString::to_string).collect();
        std::fs::write(format!("closed-loop-{seed}.json"), objects.join("\n")).unwrap();
    }
    // Machines usually do not become ready at the same moment. In half of the worlds, they do.
    let together = draw.bool();
    cluster.schedule(judge, seed);
    for round in 0.. {
        if round == ROUNDS {
            tally.faults.push(format!("seed {seed}: machines are made for ever"));
            return;
        }
        let plan = plan(&cluster.snapshot(), &cluster.config);
        let mut machines = Cluster::machines(&plan);
        if round == 0 {
            tally.planned = machines.len();
        }
        if machines.is_empty() {
            break;
        }
        tally.made += machines.len();
        draw.shuffle(&mut machines);
        for pool in machines {
            cluster.add(&pool);
            if !together {
                cluster.schedule(judge, seed);
            }
        }
        cluster.schedule(judge, seed);
        if alone {
            eprintln!("round {round}: {:?}\nwaiting: {:?}", plan.scale_up, cluster.waiting());
        }
    }
    if tally.made > tally.planned {
        tally.longer.push(seed);
    }
    let lost = taken_by_another(cluster, judge, seed);
    tally.faults.extend(lost.into_iter().map(|lost| format!("seed {seed}: {lost}")));
    tally.idle = cluster.idle();
}

/// Finds waiting pods that would fit one more machine of a pool, although the last plan creates no machine.
fn taken_by_another(cluster: &Cluster, judge: &mut Judge, seed: u64) -> Vec<String> {
    let before = cluster.waiting();
    if before.is_empty() {
        return Vec::new();
    }
    let pools = cluster.pools.iter();
    pools
        .filter_map(|pool| {
            let mut larger = cluster.clone();
            larger.add(&pool.name);
            larger.schedule(judge, seed);
            let after = larger.waiting();
            let taken: Vec<&String> = before.difference(&after).collect();
            (!taken.is_empty()).then(|| format!("a further machine of {} would take {taken:?}", pool.name))
        })
        .collect()
}

fn shrink(cluster: &mut Cluster, judge: &mut Judge, seed: u64, tally: &mut Tally) {
    let mut draw = fastrand::Rng::with_seed(seed.wrapping_add(2 << 32));
    let stays = draw.u32(10..=100);
    cluster.pods.retain(|pod| {
        draw.u32(..100) < stays || pod["metadata"]["ownerReferences"][0]["kind"] == "DaemonSet"
    });
    cluster.schedule(judge, seed);
    for round in 0.. {
        if round == ROUNDS {
            tally.faults.push(format!("seed {seed}: nodes are removed for ever"));
            return;
        }
        let before = cluster.waiting();
        let plan = plan(&cluster.snapshot(), &cluster.config);
        let gone: BTreeSet<&str> = plan.scale_down.iter().map(|removal| removal.node.as_str()).collect();
        if gone.is_empty() {
            return;
        }
        tally.removed += gone.len();
        cluster.remove(&gone);
        cluster.schedule(judge, seed);
        if !cluster.waiting().is_subset(&before) {
            tally.unlucky.push(seed);
            return;
        }
    }
}
