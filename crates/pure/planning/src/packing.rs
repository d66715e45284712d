//! Plans new machines. First come pods that other pods attract or repel, which are placed one at a time. Then
//! come all other pods, which are placed one class at a time.
//!
//! Plain pods are not placed one at a time. Instead, it is computed which pods fill one node
//! ([`super::packing_drafts`]). The same filling is then repeated as long as enough pods and room are left.

use super::class::Class;
use super::expander::Ranked;
use super::one_per_node::Loners;
use super::packer::Packer;
use super::pod_place::PodPlace;
use super::waiting_stock::{Item, Stock};

impl<'a> Packer<'_, 'a> {
    /// Plans machines for the unplaced pods of the classes.
    ///
    /// Pods with spread constraints are placed early, together with pods that attract or repel others.
    /// However, a machine that is planned later may add a topology domain. kube-scheduler might then refuse
    /// to put these pods where they were placed. In that case, everything is packed again. Within each
    /// priority, pods with spread constraints then come last.
    pub(super) fn pack(&mut self, classes: &mut [Class<'a>]) {
        if !classes.iter().any(|class| class.left() > 0 && is_spread(class)) {
            return self.pack_some(classes, |_| true);
        }
        let done: Vec<usize> = classes.iter().map(|class| class.done).collect();
        let before = (self.view.world.clone(), self.rooms.clone(), self.spots.clone());
        let machines = self.planned.len();
        self.pack_some(classes, |_| true);
        if !self.exceeds_spread(classes, &done) {
            return;
        }
        (self.view.world, self.rooms, self.spots) = before;
        self.planned.truncate(machines);
        for (class, done) in classes.iter_mut().zip(&done) {
            class.done = *done;
        }
        let mut priorities: Vec<i32> = classes.iter().map(|class| class.priority).collect();
        priorities.dedup();
        for priority in priorities {
            self.pack_some(classes, |class| class.priority == priority && !is_spread(class));
            self.pack_some(classes, |class| class.priority == priority);
        }
        self.pack_some(classes, |_| true);
    }

    /// Whether a pod that was placed on a new machine now violates its own spread constraints.
    fn exceeds_spread(&self, classes: &[Class], done: &[usize]) -> bool {
        let spread = classes.iter().zip(done).filter(|(class, done)| class.done > **done && is_spread(class));
        spread.into_iter().any(|(class, done)| {
            let prepared = self.view.world.prepare(class.sample);
            class.pods[*done..class.done].iter().any(|&index| match self.spots[index] {
                PodPlace::Node(at) => {
                    at >= self.view.existing && self.view.world.exceeds_spread(&prepared, at)
                }
                PodPlace::None => false,
            })
        })
    }

    /// Plans machines for the unplaced pods of the classes that `these` selects.
    fn pack_some(&mut self, classes: &mut [Class<'a>], these: impl Fn(&Class) -> bool) {
        let left = |classes: &[Class]| classes.iter().map(Class::left).sum::<usize>();
        loop {
            let before = left(classes);
            if before == 0 || self.view.allowance.is_spent() {
                return;
            }
            let mut loners = None;
            for number in self.social_first_loners(classes) {
                if !these(&classes[number]) || self.view.allowance.is_spent() {
                    continue;
                }
                self.pack_social(number, classes, &mut loners);
                if let Some(loners) = &mut loners {
                    loners.update(number, &classes[number]);
                }
            }
            let plain: Vec<usize> = (0..classes.len())
                .filter(|&number| classes[number].left() > 0 && these(&classes[number]))
                .filter(|&number| self.is_plain(classes[number].sample))
                .collect();
            self.pack_plain(classes, &plain);
            if left(classes) == before {
                return;
            }
        }
    }

    /// The classes that are not plain, by priority. Among equal priorities, classes whose pods each need a
    /// separate node come first.
    fn social_first_loners(&self, classes: &[Class]) -> Vec<usize> {
        let world = &self.view.world;
        let mut social: Vec<usize> = (0..classes.len())
            .filter(|&number| classes[number].left() > 0 && !self.is_plain(classes[number].sample))
            .collect();
        social.sort_by_cached_key(|&number| {
            let class = &classes[number];
            (std::cmp::Reverse(class.priority), !world.repel(class.sample, class.sample))
        });
        social
    }

    fn pack_social(&mut self, number: usize, classes: &mut [Class<'a>], loners: &mut Option<Loners>) {
        let mut prepared = self.view.world.prepare(classes[number].sample);
        let known = self.view.existing..self.view.world.nodes().len();
        let mut search = self.search(&classes[number], &prepared, known);
        self.view.allowance.spend(self.view.world.nodes().len() - self.view.existing);
        let mut ranked = None;
        while classes[number].left() > 0 && !self.view.allowance.is_spent() {
            if let Some(at) = search.next(&self.view.world, &prepared) {
                self.put(&mut classes[number], &mut prepared, at);
                continue;
            }
            let ranked = ranked.get_or_insert_with(|| self.rank_social(number, classes, loners));
            let takes = |pool: usize| self.view.world.check_fresh(&prepared, &self.prototypes[pool]).is_ok();
            let Some((pool, place)) = self.pick(&self.rooms, ranked, takes) else { return };
            let at = self.open(pool, place, Some(&mut prepared));
            self.put(&mut classes[number], &mut prepared, at);
            search.add(at);
        }
    }

    fn rank_social(&self, number: usize, classes: &[Class], loners: &mut Option<Loners>) -> Vec<Ranked> {
        let class = &classes[number];
        let world = &self.view.world;
        if !world.repel(class.sample, class.sample) {
            let alone = !class.sample.spread.is_empty() || !class.sample.affinity.anti.is_empty();
            let left = if alone { 1 } else { class.left() };
            let wanted = world.amounts(class.sample);
            return self.rank(&Stock::new(vec![Item { wanted: &wanted, ..item(class, left) }]));
        }
        let loners = loners.get_or_insert_with(|| Loners::new(classes, self.demands.suits.len(), world));
        let (nodes, others) = loners.beside(number, classes);
        self.rank_for_loners(class, nodes, &others)
    }

    fn pack_plain(&mut self, classes: &mut [Class<'a>], plain: &[usize]) {
        let opened = self.view.existing..self.view.world.nodes().len();
        for &number in plain {
            self.fill(&mut classes[number], opened.clone());
        }
        let plain: Vec<usize> = plain.iter().copied().filter(|&number| classes[number].left() > 0).collect();
        if plain.is_empty() {
            return;
        }
        self.view.allowance.spend(4 * plain.len() * self.pools().len());
        let draft = self.best_draft(classes, &plain);
        for (pool, place, filling) in draft.machines {
            let at = self.open(pool, place, None);
            for &(number, count) in &draft.fillings[filling] {
                self.put_copies(&mut classes[number], at, count);
            }
        }
    }
}

/// Whether the pods of the class must be spread.
fn is_spread(class: &Class) -> bool {
    class.sample.spread.iter().any(|one| one.hard)
}

/// A class as a packing item, with this many pods left to place.
pub(super) fn item<'p>(class: &Class<'p>, left: usize) -> Item<'p> {
    let left = i64::try_from(left).unwrap_or(i64::MAX);
    Item { wanted: &class.sample.requests, left, row: class.demands }
}
