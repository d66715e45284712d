//! The pods of a simulation: recorded units, multiplied according to the demand.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use model::devices::{ClaimSource, PodClaim};
use model::plan::PodOutcome;
use model::pod::{Pod, PodPhase, Scheduling, Volume, VolumeSource};

/// Identifies a pod of the simulation: the number of its unit, and the number of the copy (0 is the
/// original).
pub(super) type Id = (u64, u32);

/// A pod of the simulation.
#[derive(Clone, Debug)]
pub(super) struct Member {
    /// Its current state.
    pub pod: Arc<Pod>,
    /// When the pod last became pending.
    pub since: Timestamp,
    /// Whether the pod has stayed pending after an attempt to place it.
    pub waited: bool,
    /// Whether the pod is pending only because the simulation starts, so that its wait does not count.
    pub at_first: bool,
    /// When the pod got its node.
    pub bound: Option<Timestamp>,
    /// When it finishes.
    pub ends: Option<Timestamp>,
    /// How long the pod runs, once that is known.
    pub runs: Option<SignedDuration>,
    /// Verdicts that denied the pod a machine.
    pub refused: BTreeSet<PodOutcome>,
}

impl Member {
    /// Whether the pod is pending.
    pub fn waits(&self) -> bool {
        self.pod.digest().marks.waits && !self.pod.digest().marks.gated
    }

    /// The time for which the pod has been pending, in seconds. `None` if it got a node immediately, or if
    /// its wait does not count.
    pub fn wait_that_counts(&self, now: Timestamp) -> Option<i64> {
        (self.waited && !self.at_first).then(|| now.duration_since(self.since).as_secs())
    }

    /// Makes the pod pending from now on, and removes it from its node.
    pub fn wait(&mut self, now: Timestamp) {
        (self.since, self.waited, self.bound, self.ends) = (now, false, None, None);
        self.pod = Arc::new(waiting(&self.pod, now));
    }

    /// Puts the pod on a node.
    pub fn bind(&mut self, node: &str, now: Timestamp) {
        (self.bound, self.waited, self.at_first) = (Some(now), false, false);
        self.ends = self.runs.and_then(|runs| now.saturating_add(runs).ok());
        self.pod = Arc::new(running(&self.pod, node, now));
    }
}

/// Returns the pod in its pending state: refused by the scheduler, or held back by a gate.
fn waiting(pod: &Pod, now: Timestamp) -> Pod {
    let gated = pod.scheduling == Scheduling::Gated;
    Pod {
        node: None,
        nominated_node: None,
        deletion: None,
        started: None,
        phase: PodPhase::Pending,
        scheduling: if gated { Scheduling::Gated } else { Scheduling::Unschedulable(Some(now)) },
        refusal: String::new(),
        ready: false,
        ..pod.clone()
    }
}

/// Returns the pod in its running state, on the given node.
pub(super) fn running(pod: &Pod, node: &str, now: Timestamp) -> Pod {
    Pod {
        node: Some(node.to_owned()),
        nominated_node: None,
        started: Some(now),
        phase: PodPhase::Running,
        scheduling: Scheduling::Scheduled,
        refusal: String::new(),
        ready: true,
        ..pod.clone()
    }
}

/// Half a pod, in thousandths. The first controller starts with this remainder, so that fractions are rounded
/// to the nearest integer.
const HALF: u32 = 500;
/// The difference between the starting remainders of two successive controllers, modulo 1000. This value is
/// derived from the golden ratio and spreads the remainders evenly. If all controllers started with the same
/// remainder, controllers with one pod each, such as Jobs, would either all be rounded up or all be rounded
/// down.
const APART: u32 = 618;

/// The number of copies of each unit.
#[derive(Clone, Debug)]
pub(super) struct Scale {
    /// Demand in thousandths.
    demand: u32,
    /// The remainder of each controller, in thousandths of a pod.
    rest: BTreeMap<String, u32>,
    /// The remainder with which the next controller starts.
    beginning: u32,
    copies: BTreeMap<u64, u32>,
}

impl Scale {
    pub fn new(demand: u32) -> Self {
        Self { demand, rest: BTreeMap::new(), beginning: HALF, copies: BTreeMap::new() }
    }

    /// Returns the number of copies of a new unit. Rounding errors even out over the pods of a controller and
    /// over all controllers.
    pub fn born(&mut self, unit: u64, pod: &Pod) -> u32 {
        let owner = pod.owner.as_ref().map_or_else(|| pod.id(), |owner| owner.uid.clone());
        let rest = self.rest.entry(owner).or_insert_with(|| {
            let own = self.beginning;
            self.beginning = (own + APART) % 1000;
            own
        });
        let sum = *rest + self.demand;
        *rest = sum % 1000;
        if sum / 1000 != 1 {
            self.copies.insert(unit, sum / 1000);
        }
        sum / 1000
    }

    /// The ids of a unit's pods.
    pub fn of(&self, unit: u64) -> impl Iterator<Item = Id> + use<> {
        (0..self.copies.get(&unit).copied().unwrap_or(1)).map(move |copy| (unit, copy))
    }

    /// Gives the unit exactly one pod, regardless of the demand.
    pub fn one(&mut self, unit: u64) {
        self.copies.remove(&unit);
    }

    /// Forgets a unit that is no longer wanted.
    pub fn gone(&mut self, unit: u64) {
        self.copies.remove(&unit);
    }
}

/// Returns the copy of a unit's pod with the given number. Number 0 is the pod itself.
pub(super) fn copy(pod: &Arc<Pod>, number: u32) -> Arc<Pod> {
    if number == 0 {
        return pod.clone();
    }
    let mut copy = Pod::clone(pod);
    copy.name = format!("{}-copy-{number}", copy.name);
    copy.uid = format!("{}-{number}", copy.uid);
    copy.node = None;
    // The original pod's own volumes would tie the copy to the original's node, so they are left out.
    copy.volumes.retain(|volume| !is_own(volume, &pod.name));
    copy.resource_claims
        .retain(|claim| !matches!(claim, PodClaim { source: ClaimSource::Template { .. }, .. }));
    Arc::new(copy)
}

/// Whether a volume belongs to this pod alone: an ephemeral volume, or one from a claim template of the pod's
/// StatefulSet (`TEMPLATE-POD`).
fn is_own(volume: &Volume, pod: &str) -> bool {
    let VolumeSource::Claim { name, ephemeral, .. } = &volume.source else { return false };
    *ephemeral || name.strip_suffix(pod).is_some_and(|template| template.ends_with('-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_as_many_pods_as_asked_for_by_controller() {
        for (demand, expected) in
            [(1000, [1, 1, 1, 1]), (2000, [2, 2, 2, 2]), (1500, [2, 1, 2, 1]), (250, [0, 1, 0, 0])]
        {
            let mut scale = Scale::new(demand);
            let pod = Pod::default();
            let counts: Vec<u32> = (0..4).map(|unit| scale.born(unit, &pod)).collect();
            assert_eq!(counts, expected, "{demand}");
            for (unit, count) in (0..).zip(expected) {
                assert_eq!(scale.of(unit).count(), count as usize);
            }
        }
    }

    #[test]
    fn there_are_as_many_pods_as_asked_for_of_jobs_of_one_pod_each() {
        for demand in [250, 500, 1000, 1400, 1500, 3000] {
            let mut scale = Scale::new(demand);
            let one = |unit: u64| Pod { name: format!("job-{unit}"), ..Pod::default() };
            let pods: u32 = (0..1000).map(|unit| scale.born(unit, &one(unit))).sum();
            assert!(pods.abs_diff(demand) <= 2, "{pods} of {demand}");
        }
    }

    #[test]
    fn a_copy_has_nothing_that_is_its_originals_alone() {
        let claim = |name: &str, ephemeral| Volume {
            name: name.to_owned(),
            source: VolumeSource::Claim { name: name.to_owned(), ephemeral, read_only: false },
        };
        let mut pod = Pod { name: "db-0".to_owned(), ..Pod::default() };
        pod.volumes = vec![claim("data-db-0", false), claim("shared", false), claim("db-0-scratch", true)];
        let made = ClaimSource::Template {
            template: "gpu".to_owned(),
            made: model::devices::Made::As("db-0-gpu".to_owned()),
        };
        let named = ClaimSource::Named("all".to_owned());
        let claims =
            [("own", made), ("all", named)].map(|(name, source)| PodClaim { name: name.to_owned(), source });
        pod.resource_claims = claims.into();
        let copy = copy(&Arc::new(pod), 1);
        let volumes: Vec<&str> = copy.volumes.iter().map(|volume| volume.name.as_str()).collect();
        let claims: Vec<&str> = copy.resource_claims.iter().map(|claim| claim.name.as_str()).collect();
        assert_eq!((volumes, claims, copy.id().as_str()), (vec!["shared"], vec!["all"], "/db-0-copy-1"));
    }
}
