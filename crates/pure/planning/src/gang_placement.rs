//! Places pods so that each gang ([`super::gangs`]) gets its minimum or nothing.
//!
//! * First, all pods are placed together, as if there were no gangs. If a gang gets less than its minimum,
//!   placement is repeated without the later gangs that need machines. (More important gangs come first, then
//!   older ones.) If that does not help, placement is repeated without the gangs that got too little, and
//!   finally without any gang. So if two gangs took each other's room, one of them gets its minimum. At the
//!   end, the omitted gangs are tried one by one, and keep their places only if they reach their minimum.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::all_or_nothing::Tried;
use super::class::Class;
use super::gangs::{Gang, put_off};
use super::packer::Packer;
use super::pod_place::PodPlace;
use super::pod_verdict::why_nowhere;
use super::priorities::Priorities;
use model::plan::WhyPending;
use model::pod::{Pod, Volume};
use model::pod_spec::PodSpec;
use model::prediction::kind;

/// Maximum number of attempts to place all pods together. After that, every gang is tried separately.
const RUNS: usize = 3;

/// The minimum of a gang, how many of its pods have a node, and the number of its other pods of each kind.
type Alike = (usize, usize, Vec<(String, usize)>);

impl<'a> Packer<'_, 'a> {
    /// Places all pods so that each gang gets its minimum or nothing. Returns the classes of imagined pods,
    /// which are placed later.
    pub(super) fn place_with_gangs(
        &mut self,
        samples: &[&'a Arc<Pod>],
        priorities: &Priorities,
    ) -> Vec<Class<'a>> {
        if self.gangs.all.is_empty() {
            return self.place_real(samples, priorities).0;
        }
        self.view.allowance.spend(10 * (self.view.world.nodes().len() + self.view.pods.len()));
        let before = (self.view.world.clone(), self.rooms.clone());
        let spent = self.view.allowance.effort().spent();
        let (mut imagined, mut apart) = self.place_real(samples, priorities);
        let cost = self.view.allowance.effort().spent() - spent;
        for run in 0..RUNS {
            let broken = self.broken_gangs();
            if broken.is_empty() {
                break;
            }
            if self.view.allowance.left() < cost {
                self.drop_gangs(&broken);
                return imagined;
            }
            let all = self.gangs.all.len();
            let rivals: Vec<usize> =
                (broken[0] + 1..all).filter(|&other| self.asks_for_machines(other)).collect();
            let out = match run {
                0 if !rivals.is_empty() => rivals,
                0 | 1 => broken,
                _ => (0..all).collect(),
            };
            for number in out {
                self.gangs.all[number].apart = true;
            }
            self.start_over(before.clone());
            (imagined, apart) = self.place_real(samples, priorities);
        }
        self.try_gangs(apart);
        imagined
    }

    /// Gangs that were placed together with all other pods, but of which fewer pods than the minimum were
    /// placed.
    fn broken_gangs(&self) -> Vec<usize> {
        let all = self.gangs.all.iter().enumerate();
        all.filter(|(number, gang)| !gang.apart && !self.is_whole(*number))
            .map(|(number, _)| number)
            .collect()
    }

    /// Whether fewer pods than the gang's minimum were placed, or some of its pods were placed on new
    /// machines of this plan.
    fn asks_for_machines(&self, gang: usize) -> bool {
        let is_new = |pod: &usize| match self.spots[*pod] {
            PodPlace::Node(node) => self.machine_at(node).is_some(),
            PodPlace::None => false,
        };
        !self.is_whole(gang) || self.gangs.all[gang].members.iter().any(is_new)
    }

    fn is_whole(&self, gang: usize) -> bool {
        self.placed_of(gang) >= self.gangs.all[gang].minimum
    }

    /// How many pods of a gang have a node or have been placed on one.
    fn placed_of(&self, gang: usize) -> usize {
        let gang = &self.gangs.all[gang];
        gang.bound + gang.members.iter().filter(|&&pod| self.spots[pod] != PodPlace::None).count()
    }

    /// Tries gangs separately, one after the other.
    fn try_gangs(&mut self, mut classes: BTreeMap<usize, Vec<Class<'a>>>) {
        let mut failed: BTreeMap<Alike, WhyPending> = BTreeMap::new();
        for gang in
            (0..self.gangs.all.len()).filter(|&number| self.gangs.all[number].apart).collect::<Vec<_>>()
        {
            let mut own = classes.remove(&gang).unwrap_or_default();
            if self.view.allowance.is_spent() || own.is_empty() && !self.is_whole(gang) {
                put_off(&mut self.pods, &self.gangs.all[gang].members);
                continue;
            }
            let members = self.gangs.all[gang].members.clone();
            let alike = self.alike(gang, &own);
            if let Some(why) = alike.as_ref().and_then(|alike| failed.get(alike)) {
                self.unplace_nominated(&members);
                let waits = self.gangs.all[gang].as_other(why);
                self.gangs.settle(&mut self.pods, &members, waits);
                continue;
            }
            let mut why = None;
            let tried = self.all_or_nothing(&mut own, true, |packer, _| {
                let whole = packer.is_whole(gang);
                why = (!whole).then(|| packer.why_broken(gang));
                whole
            });
            match why {
                Some(why) if tried == Tried::TakenBack && !self.view.allowance.is_spent() => {
                    self.unplace_nominated(&members);
                    failed.extend(alike.map(|alike| (alike, self.gangs.all[gang].as_other(&why))));
                    self.gangs.settle(&mut self.pods, &members, why);
                }
                _ if tried == Tried::Kept => {}
                _ => put_off(&mut self.pods, &members),
            }
        }
    }

    /// Returns what determines whether a gang finds room. If a gang finds no room, later gangs with the same
    /// [`Alike`] find none either, because room only shrinks from one gang to the next. Returns `None` if
    /// gangs with the same value may have different results. This is the case if a gang's pods depend on
    /// other pods, are spread, or have volumes that restrict their place.
    fn alike(&self, gang: usize, classes: &[Class<'a>]) -> Option<Alike> {
        let Gang { minimum, bound, .. } = &self.gangs.all[gang];
        self.view.allowance.spend(100 * classes.len());
        let social = classes.iter().any(|class| {
            let PodSpec { affinity, spread, volumes, .. } = &*class.sample.spec;
            !affinity.pods.is_empty() || !spread.is_empty() || volumes.iter().any(Volume::decides_place)
        });
        let kinds = || classes.iter().map(|class| (kind(class.sample), class.left())).collect();
        (!social).then(|| (*minimum, *bound, kinds()))
    }

    /// Why fewer pods of a gang than its minimum were placed. The reasons are those of the gang's first
    /// unplaced pod.
    fn why_broken(&self, number: usize) -> WhyPending {
        let gang = &self.gangs.all[number];
        let first = gang.members.iter().find(|&&pod| self.spots[pod] == PodPlace::None);
        let why = first.map(|&pod| why_nowhere(self, &self.pods[pod]));
        let fit = self.placed_of(number);
        let fit = if fit == 0 { "none would fit".to_owned() } else { format!("only {fit} would fit") };
        let message = format!("its gang needs {} pods to run at the same time, but {fit}", gang.minimum);
        let waits = gang.without_room(message);
        match why {
            Some(nowhere) => WhyPending { gang: waits.gang, ..(*nowhere.why).clone() },
            None => waits,
        }
    }

    /// Postpones these gangs to a later round, together with the gangs that would be tried separately. This
    /// happens if the allowance is too small to place all pods once more.
    fn drop_gangs(&mut self, gangs: &[usize]) {
        for gang in self.gangs.all.iter().filter(|gang| gang.apart) {
            put_off(&mut self.pods, &gang.members);
        }
        let mut without: BTreeSet<usize> = BTreeSet::new();
        for &gang in gangs {
            let members = self.gangs.all[gang].members.clone();
            for &pod in &members {
                if let PodPlace::Node(node) = std::mem::replace(&mut self.spots[pod], PodPlace::None) {
                    without.extend(self.machine_at(node));
                }
            }
            put_off(&mut self.pods, &members);
        }
        for spot in &self.spots {
            if let PodPlace::Node(node) = spot
                && let Some(machine) = self.machine_at(*node)
            {
                without.remove(&machine);
            }
        }
        without.retain(|machine| *machine >= self.of_minimum);
        self.dropped = without;
        self.cut = true;
    }

    /// Removes pods from the nodes on which preemption was expected to make room for them. Without the rest
    /// of their gang, these pods are not placed there.
    fn unplace_nominated(&mut self, members: &[usize]) {
        for &pod in members {
            if let PodPlace::Node(node) = std::mem::replace(&mut self.spots[pod], PodPlace::None) {
                self.view.world.remove(self.pods[pod].pod, node);
            }
        }
    }
}
