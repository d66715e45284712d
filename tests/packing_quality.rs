//! How many machines a plan makes for random mixes of pods, against a bound that nobody can beat and against plain
//! first-fit decreasing.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test may stop at what it did not expect, and reports"
)]

use std::sync::Arc;

use pve_autoscaler::config::{self, Config, Needs};
use pve_autoscaler::model::pod::Pod;
use pve_autoscaler::model::{Resources, Snapshot};
use pve_autoscaler::planning::plan;

const CPU: i64 = 8000;
const MEMORY: i64 = 16 << 10;

/// SplitMix64: the same mixes on every machine.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: i64) -> i64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        i64::try_from((mixed ^ (mixed >> 31)) % u64::try_from(limit).unwrap()).unwrap()
    }
}

/// CPU in thousandths and memory in MiB, of each pod.
type Mix = Vec<(i64, i64)>;

/// A few kinds of pods with many replicas each, as deployments have them.
fn deployments(random: &mut Random) -> Mix {
    let kinds = 5 + random.below(20);
    let mut mix = Mix::new();
    for _ in 0..kinds {
        let one = (50 * (1 + random.below(60)), 64 * (1 + random.below(96)));
        let replicas = usize::try_from(1 + random.below(60)).unwrap();
        mix.extend(std::iter::repeat_n(one, replicas));
    }
    mix
}

/// Every pod is of its own kind.
fn singles(random: &mut Random) -> Mix {
    (0..400).map(|_| (50 + random.below(2000), 64 + random.below(4000))).collect()
}

/// Half want CPU, half want memory: whoever packs by size alone wastes both.
fn opposites(random: &mut Random) -> Mix {
    let greedy = |random: &mut Random| (1000 + random.below(2000), 128 + random.below(512));
    let large = |random: &mut Random| (50 + random.below(250), 2048 + random.below(4096));
    (0..300).map(|number| if number % 2 == 0 { greedy(random) } else { large(random) }).collect()
}

fn snapshot(mix: &Mix) -> Snapshot {
    let pod = |(number, &(cpu, memory)): (usize, &(i64, i64))| {
        let requests = Resources { cpu_milli: cpu, memory: memory << 20, pods: 1, ..Resources::default() };
        let name = format!("p{number:04}");
        Arc::new(Pod { namespace: "d".to_owned(), uid: name.clone(), name, requests, ..Pod::default() })
    };
    Snapshot {
        time: "2026-01-15T12:00:00Z".parse().unwrap(),
        pods: mix.iter().enumerate().map(pod).collect(),
        ..Snapshot::default()
    }
}

fn config() -> Config {
    let text = format!(
        "[[pool]]\nname = \"w\"\nmax = 5000\ncores = 8\nmemory = \"16GiB\"\n\
         allocatable = {{ cpu = \"{CPU}m\", memory = \"{MEMORY}Mi\", pods = 110 }}\n"
    );
    config::parse("test", &text, Needs::Plan).unwrap()
}

/// No packing uses fewer: on no node do the pods' sizes sum up to more than the node's, and neither do sizes that were
/// rounded by a dual feasible function (the `u` of Fekete and Schepers, 2001): with 2, a pod of more than a third counts as
/// half, since no third one fits beside two of them.
fn bound(mix: &Mix) -> usize {
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

/// Largest first (by the sum of both parts), each pod on the first node that takes it.
fn first_fit_decreasing(mix: &Mix) -> usize {
    let mut sorted = mix.clone();
    sorted.sort_by_key(|(cpu, memory)| std::cmp::Reverse(cpu * MEMORY + memory * CPU));
    let mut nodes: Vec<(i64, i64)> = Vec::new();
    for (cpu, memory) in sorted {
        if let Some(node) = nodes.iter_mut().find(|node| node.0 >= cpu && node.1 >= memory) {
            *node = (node.0 - cpu, node.1 - memory);
        } else {
            nodes.push((CPU - cpu, MEMORY - memory));
        }
    }
    nodes.len()
}

/// Mean of machines used over the bound, by the planner and by first-fit decreasing.
fn compare(name: &str, make: fn(&mut Random) -> Mix) -> (f64, f64) {
    // Not the seed on which the planner's constants were chosen.
    let mut random = Random(1234);
    let (mut ours, mut plain) = (0.0, 0.0);
    let config = config();
    for _ in 0..ROUNDS {
        let mix = make(&mut random);
        let plan = plan(&snapshot(&mix), &config);
        let used: usize = plan.scale_up.iter().map(|pool| pool.machines.len()).sum();
        let placed: usize =
            plan.scale_up.iter().flat_map(|pool| &pool.machines).map(|one| one.pods.len()).sum();
        assert_eq!(placed, mix.len(), "every pod has a machine");
        let least = bound(&mix);
        assert!(used >= least, "{used} machines where {least} are needed");
        let ratio = |nodes: usize| {
            f64::from(u32::try_from(nodes).unwrap()) / f64::from(u32::try_from(least).unwrap())
        };
        ours += ratio(used);
        plain += ratio(first_fit_decreasing(&mix));
    }
    let mean = |sum: f64| sum / f64::from(ROUNDS);
    println!("{name}: {:.4} of the bound, first-fit decreasing {:.4}", mean(ours), mean(plain));
    (mean(ours), mean(plain))
}

const ROUNDS: u32 = 100;

#[test]
fn random_mixes_are_packed_close_to_the_bound() {
    type Make = fn(&mut Random) -> Mix;
    let mixes: [(&str, Make); 3] =
        [("deployments", deployments), ("singles", singles), ("opposites", opposites)];
    let mut sum = 0.0;
    for (name, make) in mixes {
        let (ours, plain) = compare(name, make);
        assert!(ours < plain, "{name}: {ours}, first-fit decreasing {plain}");
        sum += ours;
    }
    println!("mean: {:.4} of the bound", sum / 3.0);
    assert!(sum / 3.0 < 1.035, "{}", sum / 3.0);
}
