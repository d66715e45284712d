//! Expresses an amount of resources as one number, relative to the largest amounts.

use model::Resources;

/// Returns a function that computes the size of an amount in millionths. The size is the amount's share of
/// the largest CPU in `all` plus its share of the largest memory in `all`.
pub(super) fn largest_share<'r, I>(all: I) -> impl Fn(&Resources) -> i64 + use<I>
where
    I: Iterator<Item = &'r Resources> + Clone,
{
    let most = |of: fn(&Resources) -> i64| all.clone().map(of).max().unwrap_or(0).max(1);
    let (most_cpu, most_memory) = (most(|one| one.cpu_milli), most(|one| one.memory));
    let part = |amount: i64, most: i64| {
        i64::try_from(i128::from(amount) * 1_000_000 / i128::from(most)).unwrap_or(i64::MAX / 2)
    };
    move |requests| part(requests.cpu_milli, most_cpu) + part(requests.memory, most_memory)
}
