//! Sets of a host's CPUs, as the kernel and Proxmox VE write them: `0,5,8-11`.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// The highest accepted CPU number. A higher number is probably a mistake, and expanding a range up to it
/// would waste memory.
const MOST: u32 = 8191;

/// The `affinity` value that Proxmox VE treats as unset, because `0` is false in Perl. The VM then runs on
/// all CPUs.
pub const NO_AFFINITY: &str = "0";

/// A set of CPUs (hardware threads) of a host, by number.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cpus(BTreeSet<u32>);

/// The error for a string that is not a list of CPUs.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{0}` is not a list of CPUs")]
pub struct NoCpus(String);

impl Cpus {
    /// The numbers of the CPUs, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    /// The number of CPUs.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The lowest CPU.
    pub fn first(&self) -> Option<u32> {
        self.0.first().copied()
    }

    /// Whether the set contains this CPU.
    pub fn contains(&self, cpu: u32) -> bool {
        self.0.contains(&cpu)
    }

    /// Whether the other set contains all CPUs of this set.
    pub fn is_within(&self, others: &Self) -> bool {
        self.0.is_subset(&others.0)
    }

    /// Whether the sets share a CPU.
    pub fn meets(&self, others: &Self) -> bool {
        !self.0.is_disjoint(&others.0)
    }

    /// Adds the CPUs of another set.
    pub fn add(&mut self, others: &Self) {
        self.0.extend(&others.0);
    }
}

impl FromIterator<u32> for Cpus {
    fn from_iter<I: IntoIterator<Item = u32>>(numbers: I) -> Self {
        Self(numbers.into_iter().collect())
    }
}

impl FromStr for Cpus {
    type Err = NoCpus;

    /// An empty string is parsed as an empty set, because a NUMA node may have memory but no CPUs.
    fn from_str(text: &str) -> Result<Self, NoCpus> {
        let wrong = || NoCpus(text.trim().to_owned());
        let number = |text: &str| {
            let number = text.trim().parse::<u32>().ok();
            number.filter(|number| *number <= MOST).ok_or_else(wrong)
        };
        let mut cpus = BTreeSet::new();
        for part in text.trim().split(',').filter(|_| !text.trim().is_empty()) {
            let (first, last) = match part.split_once('-') {
                Some((first, last)) => (number(first)?, number(last)?),
                None => (number(part)?, number(part)?),
            };
            if first > last {
                return Err(wrong());
            }
            cpus.extend(first..=last);
        }
        Ok(Self(cpus))
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for cpu in self.iter() {
            match runs.last_mut() {
                Some((_, last)) if *last + 1 == cpu => *last = cpu,
                _ => runs.push((cpu, cpu)),
            }
        }
        let words = runs
            .iter()
            .map(|(first, last)| if first == last { first.to_string() } else { format!("{first}-{last}") });
        f.write_str(&words.collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_written_as_the_kernel_does() {
        for (text, written, count) in
            [("0,5,8-11", "0,5,8-11", 6), ("3\n", "3", 1), ("", "", 0), ("2,1,0", "0-2", 3), ("1-1", "1", 1)]
        {
            let cpus: Cpus = text.parse().unwrap();
            assert_eq!((cpus.to_string().as_str(), cpus.len()), (written, count), "{text}");
            assert_eq!(cpus.to_string().parse(), Ok(cpus));
        }
        for text in ["a", "1-", "-1", "3-1", "1,,2", "0-4294967295", "all"] {
            assert!(text.parse::<Cpus>().is_err(), "{text}");
        }
    }
}
