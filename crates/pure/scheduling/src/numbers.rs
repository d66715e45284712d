//! Numbers by fingerprint: they are looked up again and again for tens of thousands of pods.

use hashbrown::HashTable;

use model::digest::Fingerprint;

/// Finds numbers by fingerprint.
#[derive(Clone, Debug, Default)]
pub struct Numbers {
    /// Used only for look-ups: the order of its entries does not matter.
    table: HashTable<(Fingerprint, usize)>,
}

impl Numbers {
    /// The number of the fingerprint.
    pub fn get(&self, of: Fingerprint) -> Option<usize> {
        self.table.find(of.part(), |one| one.0 == of).map(|one| one.1)
    }

    /// The number of the fingerprint. If it has none yet, it gets the number `next`.
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
