//! Finds the selectors that may match a pod, without looking at every selector. Selectors are indexed by a
//! label that each of them requires.

use std::collections::BTreeMap;

use model::selector::{LabelSelector, Labels, Operator};

/// The numbers of selectors, indexed by a label that each selector requires.
#[derive(Clone, Debug, Default)]
pub struct Finder {
    /// The numbers of selectors that require a value of a label, by the label's key and value.
    by_label: BTreeMap<String, BTreeMap<String, Vec<usize>>>,
    /// The numbers of selectors that require no particular value of any label.
    others: Vec<usize>,
}

impl Finder {
    /// Adds an object's number. The object only concerns pods that match all of the given selectors.
    pub fn add<'s>(&mut self, number: usize, selectors: impl Iterator<Item = &'s LabelSelector>) {
        let requirements = selectors.flat_map(|selector| &selector.requirements);
        // Choose the requirement whose values have the fewest numbers so far.
        let chosen = requirements
            .filter(|one| one.operator == Operator::In)
            .min_by_key(|one| one.values.iter().map(|value| self.count(&one.key, value)).sum::<usize>());
        let Some(chosen) = chosen else { return self.others.push(number) };
        let by_value = self.by_label.entry(chosen.key.clone()).or_default();
        for value in &chosen.values {
            let numbers = by_value.entry(value.clone()).or_default();
            if numbers.last() != Some(&number) {
                numbers.push(number);
            }
        }
    }

    fn of(&self, key: &str, value: &str) -> &[usize] {
        self.by_label.get(key).and_then(|by_value| by_value.get(value)).map_or(&[], Vec::as_slice)
    }

    fn count(&self, key: &str, value: &str) -> usize {
        self.of(key, value).len()
    }

    /// All numbers that may concern a pod with these labels, in no particular order. No number is returned
    /// more often than it was added.
    pub fn candidates(&self, labels: &Labels) -> impl Iterator<Item = usize> {
        let asked = labels.iter().flat_map(|(key, value)| self.of(key, value));
        asked.chain(&self.others).copied()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{Strategy, any, prop};
    use proptest::{prop_assert, proptest};

    use super::*;
    use crate::selector::labels_match;
    use model::selector::Requirement;

    fn requirement() -> impl Strategy<Value = Requirement> {
        use Operator::{DoesNotExist, Exists, In, NotIn};
        let operator = prop::sample::select(vec![In, In, NotIn, Exists, DoesNotExist]);
        (prop::sample::select(vec!["a", "b", "c"]), operator, prop::collection::vec("[x-z]", 0..3))
            .prop_map(|(key, operator, values)| Requirement { key: key.to_owned(), operator, values })
    }

    proptest! {
        #[test]
        fn nothing_that_speaks_of_a_pod_is_overlooked(
            all in prop::collection::vec(prop::collection::vec(requirement(), 0..4), 0..20),
            labels in prop::collection::btree_map("[a-c]", "[x-z]", 0..4),
            several in any::<bool>(),
        ) {
            let selectors: Vec<LabelSelector> =
                all.into_iter().map(|requirements| LabelSelector { requirements }).collect();
            let mut finder = Finder::default();
            let groups: Vec<&[LabelSelector]> = selectors.chunks(if several { 2 } else { 1 }).collect();
            for (number, group) in groups.iter().enumerate() {
                finder.add(number, group.iter());
            }
            let found: Vec<usize> = finder.candidates(&labels).collect();
            for (number, group) in groups.iter().enumerate() {
                let times = found.iter().filter(|one| **one == number).count();
                prop_assert!(times <= 1);
                prop_assert!(times == 1 || !group.iter().all(|selector| labels_match(selector, &labels)));
            }
        }
    }
}
