//! Computes which pending pods a fresh node takes. The computation compares only amounts of resources, and
//! needs no simulated cluster.

use super::waiting_stock::Item;
use model::Resources;

/// The items that a node takes, as pairs: the index of an item in the list, and how many of this item.
pub(super) type Filling = Vec<(usize, i64)>;

/// The sum of the idle shares of CPU and memory, in millionths.
pub(super) fn idle(free: &Resources, offered: &Resources) -> i64 {
    let part = |free: i64, offered: i64| {
        let part = i128::from(free.max(0)) * 1_000_000 / i128::from(offered.max(1));
        i64::try_from(part).unwrap_or(i64::MAX)
    };
    part(free.cpu_milli, offered.cpu_milli) + part(free.memory, offered.memory)
}

/// The exponent for the resources' weights. A larger exponent gives more weight to the scarcer resource. The
/// value was chosen by trying 1 to 5 on random mixes of pods.
const EMPHASIS: i32 = 5;

/// Takes one of the first item. Then repeatedly takes the item after which the node's resources are used most
/// evenly. The resource that the pending pods need most, relative to what the node offers, has the largest
/// weight. This is the norm-based greedy algorithm for vector bin packing (Panigrahy and others, 2011).
pub(super) fn evenly(mut free: Resources, offered: &Resources, items: &[Item]) -> Filling {
    let share = |amount: i64, of: i64| ratio(amount, of.max(1));
    let parts = |one: &Resources| {
        [
            share(one.cpu_milli, offered.cpu_milli),
            share(one.memory, offered.memory),
            share(one.pods, offered.pods),
        ]
    };
    let mut weights = [0.0; 3];
    for item in items {
        for (weight, part) in weights.iter_mut().zip(parts(item.wanted)) {
            *weight += part * share(item.left, 1);
        }
    }
    let sum: f64 = weights.iter().sum();
    let weights = weights.map(|weight| (weight / sum).powi(EMPHASIS));
    let wanted: Vec<[f64; 3]> = items.iter().map(|item| parts(item.wanted)).collect();
    let mut taken = vec![0; items.len()];
    let mut next = Some(0);
    while let Some(number) = next {
        taken[number] += 1;
        free.add_times(items[number].wanted, -1);
        let rest = parts(&free);
        let miss = |number: usize| -> f64 {
            let each = weights.iter().zip(rest).zip(wanted[number]);
            each.map(|((weight, rest), part)| weight * (rest - part) * (rest - part)).sum()
        };
        next = (0..items.len())
            .filter(|&one| taken[one] < items[one].left && free.fits(items[one].wanted))
            .min_by(|&a, &b| miss(a).total_cmp(&miss(b)));
    }
    taken.into_iter().enumerate().filter(|one| one.1 > 0).collect()
}

#[expect(clippy::cast_precision_loss, reason = "a ratio needs no exact bytes")]
fn ratio(amount: i64, of: i64) -> f64 {
    amount as f64 / of as f64
}
