//! A part of the state that counts its changes, so that a frequent reader can tell whether anything is new.

use std::ops::{Deref, DerefMut};

/// A value, with a count of its mutable borrows.
#[derive(Clone, Debug, Default)]
pub struct Tracked<T> {
    it: T,
    changes: u64,
}

impl<T> Tracked<T> {
    /// How many times the value may have changed.
    pub fn changes(&self) -> u64 {
        self.changes
    }
}

impl<T> From<T> for Tracked<T> {
    fn from(it: T) -> Self {
        Self { it, changes: 0 }
    }
}

impl<T> Deref for Tracked<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.it
    }
}

impl<T> DerefMut for Tracked<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.changes += 1;
        &mut self.it
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_only_looked_at_does_not_count() {
        let mut numbers: Tracked<Vec<u32>> = Tracked::default();
        assert_eq!((numbers.len(), numbers.changes()), (0, 0));
        numbers.push(1);
        assert_eq!((numbers.first(), numbers.changes()), (Some(&1), 1));
    }
}
