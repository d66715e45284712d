//! Random mixes of pods, and how many machines the planner creates for each.

use std::sync::Arc;

use model::pod::Pod;
use model::pod_spec::PodSpec;
use model::{Resources, Snapshot};
use planning::plan;
use settings::{self, Config, Needs};

/// Makes a mix.
pub type Make = fn(&mut Random) -> Mix;

/// The kinds of mixes, each with its name and the function that creates the mix.
pub const ALL: [(&str, Make); 3] =
    [("deployments", deployments), ("singles", singles), ("opposites", opposites)];

/// The CPU of a node, in thousandths of a core.
pub const CPU: i64 = 8000;
/// The memory of a node, in MiB.
pub const MEMORY: i64 = 16 << 10;

/// SplitMix64, which gives the same mixes on every machine.
pub struct Random(pub u64);

impl Random {
    fn below(&mut self, limit: i64) -> i64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        i64::try_from((mixed ^ (mixed >> 31)) % u64::try_from(limit).unwrap()).unwrap()
    }
}

/// For each pod, its CPU in thousandths of a core and its memory in MiB.
pub type Mix = Vec<(i64, i64)>;

/// A few kinds of pods with many replicas each, as in Deployments.
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

/// Every pod is different.
fn singles(random: &mut Random) -> Mix {
    (0..400).map(|_| (50 + random.below(2000), 64 + random.below(4000))).collect()
}

/// Half of the pods mainly need CPU, the other half mainly memory. Packing by size alone wastes both
/// resources.
fn opposites(random: &mut Random) -> Mix {
    let greedy = |random: &mut Random| (1000 + random.below(2000), 128 + random.below(512));
    let large = |random: &mut Random| (50 + random.below(250), 2048 + random.below(4096));
    (0..300).map(|number| if number % 2 == 0 { greedy(random) } else { large(random) }).collect()
}

fn snapshot(mix: &Mix) -> Snapshot {
    let pod = |(number, &(cpu, memory)): (usize, &(i64, i64))| {
        let requests = Resources { cpu_milli: cpu, memory: memory << 20, pods: 1, ..Resources::default() };
        let name = format!("p{number:04}");
        Arc::new(Pod {
            uid: name.clone(),
            name,
            spec: PodSpec { namespace: "d".to_owned(), requests, ..PodSpec::default() }.into(),
            ..Pod::default()
        })
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
    settings::parse("test", &text, Needs::Plan).unwrap()
}

/// Returns the number of machines that the planner creates for the mix.
pub fn machines(mix: &Mix) -> usize {
    let plan = plan(&snapshot(mix), &config());
    let placed: usize = plan.scale_up.iter().flat_map(|pool| &pool.machines).map(|one| one.pods.len()).sum();
    assert_eq!(placed, mix.len(), "every pod has a machine");
    plan.scale_up.iter().map(|pool| pool.machines.len()).sum()
}
