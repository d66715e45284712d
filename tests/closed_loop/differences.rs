//! Compares the daemon's filters with the scheduler's.

use pve_autoscaler::model::Snapshot;
use pve_autoscaler::{scheduling, snapshot};
use serde_json::Value;

use crate::devices;
use crate::judge::Judge;
use crate::oddities;
use crate::worlds::{self, Draw};

/// Returns the number of pod-node pairs in this seed's world, and the pairs for which the daemon's filters
/// disagree with the scheduler's.
pub fn find(judge: &mut Judge, seed: u64) -> (usize, Vec<String>) {
    let mut cluster = worlds::draw(seed);
    let mut draw = Draw(fastrand::Rng::with_seed(seed.wrapping_add(3 << 32)));
    oddities::add(&mut draw, &mut cluster);
    // Half of the pods are scheduled first. The filters judge the other half, which still waits.
    let late: Vec<_> = cluster.pods.split_off(cluster.pods.len() / 2);
    cluster.schedule(judge, seed);
    oddities::age(&mut draw, &mut cluster);
    cluster.pods.extend(late);
    compare(judge, seed, &cluster.objects(), &cluster.snapshot())
}

/// Like [`find`], but for a cluster with devices and claims.
pub fn find_with_claims(judge: &mut Judge, seed: u64) -> (usize, Vec<String>) {
    let objects = devices::draw(seed);
    let text = objects.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    let (snapshot, _) = snapshot::read(&text).unwrap();
    compare(judge, seed, &objects, &snapshot)
}

fn compare(judge: &mut Judge, seed: u64, objects: &[Value], snapshot: &Snapshot) -> (usize, Vec<String>) {
    let real = judge.verdicts(objects);
    let ours = scheduling::explain(snapshot, None);
    let (mut pairs, mut wrong) = (0, Vec::new());
    if ours.len() != real.pods.len() {
        wrong.push(format!("seed {seed}: {} pods wait, the daemon says {}", real.pods.len(), ours.len()));
    }
    for one in ours {
        let Some(verdict) = real.pods.get(&one.pod) else {
            wrong.push(format!("seed {seed}: {} waits only according to the daemon", one.pod));
            continue;
        };
        for answer in one.nodes {
            pairs += 1;
            let same = match answer.filter {
                None => verdict.feasible.contains(&answer.node),
                Some(filter) => {
                    verdict.all.get(&answer.node).is_some_and(|all| all.iter().any(|one| one == filter))
                }
            };
            if !same {
                let theirs = verdict.all.get(&answer.node);
                wrong.push(format!(
                    "seed {seed}: {} on {}: {:?}, the daemon says {:?}",
                    one.pod, answer.node, theirs, answer.filter
                ));
            }
        }
    }
    (pairs, wrong)
}
