//! A table that maps fingerprints to numbers. Lookups are frequent: every round looks up tens of thousands of
//! pods.

use hashbrown::HashTable;

use model::digest::Fingerprint;

/// Maps fingerprints to numbers.
#[derive(Clone, Debug, Default)]
pub struct Numbers {
    /// A hash table, used only for look-ups, so the order of its entries does not matter.
    table: HashTable<(Fingerprint, usize)>,
}

impl Numbers {
    /// The number of the fingerprint, if it has one.
    pub fn get(&self, of: Fingerprint) -> Option<usize> {
        self.table.find(of.part(), |one| one.0 == of).map(|one| one.1)
    }

    /// The number of the fingerprint. A fingerprint without a number receives the number `next`.
    pub fn get_or_insert(&mut self, of: Fingerprint, next: usize) -> usize {
        if let Some(number) = self.get(of) {
            return number;
        }
        self.table.insert_unique(of.part(), (of, next), |one| one.0.part());
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::pod::Pod;

    #[test]
    fn the_first_number_stays() {
        let of = |name: &str| {
            let mut pod = Pod::default();
            pod.labels.insert("app".to_owned(), name.to_owned());
            pod.digest().seen_as
        };
        let mut numbers = Numbers::default();
        for (name, next, number) in [("a", 0, 0), ("b", 1, 1), ("a", 2, 0), ("c", 2, 2)] {
            assert_eq!(numbers.get_or_insert(of(name), next), number);
        }
        assert_eq!(["b", "c", "d"].map(|name| numbers.get(of(name))), [Some(1), Some(2), None]);
    }
}
