//! New machines: first for pods that other pods attract or repel, one by one; then for all the others, class by class.
//!
//! Plain classes are packed by arithmetic ([`super::draft`]): one node is filled with what is left, and the same filling is
//! repeated as long as the pods and the room for it last.

use super::classes::Class;
use super::filling::Item;
use super::scale_up::Packer;
use super::search::Search;
use crate::model::Resources;

impl<'a> Packer<'_, 'a> {
    /// Plans machines for what is left of the classes.
    pub(super) fn pack(&mut self, classes: &mut [Class<'a>]) {
        let left = |classes: &[Class]| classes.iter().map(Class::left).sum::<usize>();
        loop {
            let before = left(classes);
            if before == 0 {
                return;
            }
            for number in self.social_first_loners(classes) {
                self.pack_social(number, classes);
            }
            let plain: Vec<usize> = (0..classes.len())
                .filter(|&number| classes[number].left() > 0)
                .filter(|&number| self.is_plain(classes[number].sample))
                .collect();
            self.pack_plain(classes, &plain);
            if left(classes) == before {
                return;
            }
        }
    }

    /// Classes that are not plain, by priority; those whose pods each need a node of their own come first.
    fn social_first_loners(&self, classes: &[Class]) -> Vec<usize> {
        let world = &self.view.world;
        let mut social: Vec<usize> = (0..classes.len())
            .filter(|&number| classes[number].left() > 0 && !self.is_plain(classes[number].sample))
            .collect();
        social.sort_by_key(|&number| {
            let class = &classes[number];
            (std::cmp::Reverse(class.priority), !world.repel(class.sample, class.sample))
        });
        social
    }

    fn pack_social(&mut self, number: usize, classes: &mut [Class<'a>]) {
        let mut prepared = self.view.world.prepare(classes[number].sample);
        let known = self.view.existing..self.view.world.nodes().len();
        let known = known.filter(|&at| !self.is_closed_to(&classes[number], at));
        let mut search = Search::new(&self.view.world, &prepared, known);
        let mut ranked = None;
        while classes[number].left() > 0 {
            if let Some(at) = search.next(&self.view.world, &prepared) {
                self.put(&mut classes[number], &mut prepared, at);
                continue;
            }
            let ranked = ranked.get_or_insert_with(|| self.rank_social(number, classes));
            let takes = |pool: usize| self.view.world.check_fresh(&prepared, &self.prototypes[pool]).is_ok();
            let Some((pool, place)) = self.pick(&self.rooms, ranked, takes) else { return };
            let at = self.open(pool, place, Some(&mut prepared));
            self.put(&mut classes[number], &mut prepared, at);
            search.add(at);
        }
    }

    fn rank_social(&self, number: usize, classes: &[Class]) -> Vec<super::choosing::Ranked> {
        let class = &classes[number];
        let world = &self.view.world;
        if !world.repel(class.sample, class.sample) {
            let alone = !class.sample.spread.is_empty() || !class.sample.affinity.anti.is_empty();
            let left = if alone { 1 } else { class.left() };
            return self.rank(&[(class.demands, item(class, left))]);
        }
        let mut nodes = 0;
        let mut others = vec![Resources::default(); self.demands.suits.len()];
        for other in classes.iter().filter(|other| other.left() > 0) {
            if world.repel(class.sample, other.sample) {
                nodes += other.left();
            } else {
                let left = i64::try_from(other.left()).unwrap_or(i64::MAX);
                others[other.demands].add_times(&other.sample.requests, left);
            }
        }
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
        let draft = self.best_draft(classes, &plain);
        for (pool, place, filling) in draft.machines {
            let at = self.open(pool, place, None);
            for &(number, count) in &draft.fillings[filling] {
                self.put_copies(&mut classes[number], at, count);
            }
        }
    }
}

fn item<'p>(class: &Class<'p>, left: usize) -> Item<'p> {
    Item { wanted: &class.sample.requests, left: i64::try_from(left).unwrap_or(i64::MAX) }
}
