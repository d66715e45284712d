//! Compares the planner's packing with a lower bound on the number of nodes that any packing needs. The bound
//! is that of the pattern-based linear relaxation (Gilmore and Gomory, 1961), or the bound from sizes alone
//! if that one is higher.
//!
//! The relaxation gives each kind of pod a price, so that the pods on a node never cost more than 1 together.
//! The sum of all pods' prices is then a lower bound on the number of nodes. A linear program finds the
//! prices. The most expensive set of pods that fits on a node is repeatedly added to the linear program,
//! until no set costs more than 1. Dynamic programming finds that set, over a grid on which sizes are rounded
//! down. Prices that are not final yet also prove a bound if they are divided by the cost of the most
//! expensive set (Farley, 1990).

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark prints, and may panic on unexpected results"
)]

#[path = "../crates/pure/planning/tests/packing_quality/bound.rs"]
mod bound;
#[path = "../crates/pure/planning/tests/packing_quality/mixes.rs"]
mod mixes;

use std::collections::BTreeMap;

use microlp::{ComparisonOp, OptimizationDirection, Problem, Solution, SolveOutcome, Variable};
use mixes::{CPU, MEMORY, Make, Mix, Random, machines};

const MIXES: u32 = 100;
/// The cells of the grid: one for each 50m of CPU, and one for each 64 MiB of memory.
const GRID: (usize, usize) = (160, 256);
/// The maximum number of sets of pods that are added to the linear program.
const ROUNDS: usize = 400;
/// The maximum number of kinds of pods for which the relaxation is calculated. With more kinds, the search
/// for sets takes too long, and the bound from sizes alone is tight.
const MOST_KINDS: usize = 60;
/// The maximum rounding error in a sum of floating-point numbers.
const SLACK: f64 = 1e-6;

/// A group of pods whose sizes on the grid are equal.
struct Kind {
    cells: (usize, usize),
    pods: u32,
}

fn kinds(mix: &Mix) -> Vec<Kind> {
    let cells = |amount: i64, offered: i64, grid: usize| {
        usize::try_from(amount).unwrap() * grid / usize::try_from(offered).unwrap()
    };
    let mut kinds: BTreeMap<(usize, usize), u32> = BTreeMap::new();
    for (cpu, memory) in mix {
        *kinds.entry((cells(*cpu, CPU, GRID.0), cells(*memory, MEMORY, GRID.1))).or_default() += 1;
    }
    kinds.into_iter().map(|(cells, pods)| Kind { cells, pods }).collect()
}

/// How many of the kind's pods fit on an empty node.
fn most(kind: &Kind) -> usize {
    let by = |cells: usize, grid: usize| grid.checked_div(cells).unwrap_or(usize::MAX);
    by(kind.cells.0, GRID.0).min(by(kind.cells.1, GRID.1)).min(kind.pods as usize).min(110)
}

/// Returns the most expensive set of pods that fits on a node: its price, and the number of pods of each
/// kind.
fn dearest(kinds: &[Kind], prices: &[f64]) -> (f64, Vec<usize>) {
    let (wide, high) = (GRID.0 + 1, GRID.1 + 1);
    let mut best = vec![0.0_f64; wide * high];
    let mut chosen: Vec<Vec<u8>> = Vec::new();
    for (kind, price) in kinds.iter().zip(prices) {
        let mut taken = vec![0_u8; wide * high];
        if *price > 0.0 {
            let before = best.clone();
            for count in 1..=most(kind) {
                let (cpu, memory) = (kind.cells.0 * count, kind.cells.1 * count);
                let worth = price * f64::from(u32::try_from(count).unwrap());
                for row in cpu..wide {
                    for column in memory..high {
                        let value = before[(row - cpu) * high + column - memory] + worth;
                        let at = row * high + column;
                        if value > best[at] {
                            best[at] = value;
                            taken[at] = u8::try_from(count).unwrap();
                        }
                    }
                }
            }
        }
        chosen.push(taken);
    }
    let (mut row, mut column) = GRID;
    let mut counts = vec![0; kinds.len()];
    for (at, taken) in chosen.iter().enumerate().rev() {
        let count = usize::from(taken[row * high + column]);
        counts[at] = count;
        row -= kinds[at].cells.0 * count;
        column -= kinds[at].cells.1 * count;
    }
    (best[wide * high - 1], counts)
}

/// The bound of the relaxation, or 0 if there are too many kinds of pods.
fn relaxed(mix: &Mix) -> usize {
    let kinds = kinds(mix);
    if kinds.len() > MOST_KINDS {
        return 0;
    }
    let mut problem = Problem::new(OptimizationDirection::Maximize);
    let prices: Vec<Variable> =
        kinds.iter().map(|kind| problem.add_var(f64::from(kind.pods), (0.0, 1.0))).collect();
    for (at, kind) in kinds.iter().enumerate() {
        let count = f64::from(u32::try_from(most(kind)).unwrap());
        problem.add_constraint([(prices[at], count)], ComparisonOp::Le, 1.0);
    }
    let mut solution = solved(problem.solve());
    let mut proven = 0.0_f64;
    for _ in 0..ROUNDS {
        let values: Vec<f64> = prices.iter().map(|price| solution[*price].max(0.0)).collect();
        let (price, counts) = dearest(&kinds, &values);
        let sum: f64 = kinds.iter().zip(&values).map(|(kind, value)| f64::from(kind.pods) * value).sum();
        proven = proven.max(sum / price.max(1.0));
        // Later prices cannot prove a higher bound than this sum, because each added set can only lower the
        // sum.
        if price <= 1.0 + SLACK || (proven - SLACK).ceil() >= (sum - SLACK).ceil() {
            break;
        }
        let set: Vec<(Variable, f64)> = (prices.iter().zip(&counts))
            .filter(|(_, count)| **count > 0)
            .map(|(price, count)| (*price, f64::from(u32::try_from(*count).unwrap())))
            .collect();
        solution = solved(solution.add_constraint(set, ComparisonOp::Le, 1.0));
    }
    whole((proven - SLACK).ceil())
}

fn solved(outcome: Result<SolveOutcome, microlp::Error>) -> Solution {
    match outcome.unwrap() {
        SolveOutcome::Solution(solution) => solution,
        SolveOutcome::Interrupted(_) => panic!("no limit was set"),
    }
}

/// Converts a float that holds a whole number to an integer.
fn whole(number: f64) -> usize {
    format!("{number:.0}").parse().unwrap()
}

fn report(name: &str, make: Make) -> f64 {
    let mut random = Random(1234);
    let (mut quick, mut tight) = (0.0, 0.0);
    for _ in 0..MIXES {
        let mix = make(&mut random);
        let used = machines(&mix);
        let by_size = bound::bound(&mix);
        let least = by_size.max(relaxed(&mix));
        assert!(used >= least, "{used} machines are fewer than the bound of {least}");
        let ratio =
            |least: usize| f64::from(u32::try_from(used).unwrap()) / f64::from(u32::try_from(least).unwrap());
        quick += ratio(by_size) / f64::from(MIXES);
        tight += ratio(least) / f64::from(MIXES);
    }
    println!(
        "{name}: {tight:.4} times as many machines as the tighter bound (patterns or sizes), {quick:.4} times as many \
        as the bound from sizes alone"
    );
    tight
}

fn main() {
    let mean = mixes::ALL.into_iter().map(|(name, make)| report(name, make)).sum::<f64>() / 3.0;
    println!("mean: {mean:.4} times as many machines as the tighter bound ({MIXES} mixes of each kind)");
}
