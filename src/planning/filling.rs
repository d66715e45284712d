//! What one fresh node takes of the pods that wait: arithmetic on amounts, without a world.

use crate::model::Resources;

/// Equal pods that wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item<'p> {
    /// What one of them requests.
    pub wanted: &'p Resources,
    /// How many wait.
    pub left: i64,
}

/// How many of which items (by their place in the list) a node takes.
pub(super) type Filling = Vec<(usize, i64)>;

/// Each item in turn takes what it can get.
pub(super) fn in_order(mut free: Resources, items: &[Item]) -> (Filling, Resources) {
    let mut filling = Filling::new();
    for (number, item) in items.iter().enumerate() {
        if free.pods <= 0 {
            break;
        }
        let count = free.copies(item.wanted).min(item.left);
        if count > 0 {
            free.add_times(item.wanted, -count);
            filling.push((number, count));
        }
    }
    (filling, free)
}

/// The share of CPU and memory that is idle in sum, in millionths.
pub(super) fn idle(free: &Resources, offered: &Resources) -> i64 {
    let part = |free: i64, offered: i64| {
        let part = i128::from(free.max(0)) * 1_000_000 / i128::from(offered.max(1));
        i64::try_from(part).unwrap_or(i64::MAX)
    };
    part(free.cpu_milli, offered.cpu_milli) + part(free.memory, offered.memory)
}
