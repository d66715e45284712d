//! A quick lower bound for the number of machines.

use crate::mixes::{CPU, MEMORY, Mix};

/// Returns a lower bound for the number of machines of any packing. The total size of a node's pods cannot
/// exceed the size of the node. This also applies to pod sizes that are rounded by a dual feasible function
/// (the `u` of Fekete and Schepers, 2001). With the parameter 2, for example, a pod that is larger than a
/// third of a node counts as half a node, because at most two such pods fit on a node.
pub fn bound(mix: &Mix) -> usize {
    let nodes = |amount: &dyn Fn(&(i64, i64)) -> i64, offered: i64| {
        let rounded = |one: &(i64, i64), by: i64| {
            let scaled = (by + 1) * amount(one);
            if scaled % offered == 0 { amount(one) * by } else { scaled / offered * offered }
        };
        let of = |by: i64| {
            let sum: i64 = mix.iter().map(|one| rounded(one, by)).sum();
            (sum + by * offered - 1) / (by * offered)
        };
        let sum: i64 = mix.iter().map(amount).sum();
        (1..20).map(of).fold((sum + offered - 1) / offered, i64::max)
    };
    usize::try_from(nodes(&|one| one.0, CPU).max(nodes(&|one| one.1, MEMORY))).unwrap()
}
