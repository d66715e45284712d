//! What is simulated: two clusters and a configuration, drawn from the seed.

use std::fmt::Write as _;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use fastrand::Rng;
use jiff::Timestamp;
use pve_autoscaler::clock::TokioClock;
use pve_autoscaler::config::{self, Config, Needs};
use serde_json::json;
use world::clock::WorldClock;
use world::guest::control_plane::ControlPlane;
use world::kubernetes::Kube;
use world::kubernetes::spec::{KubeSpec, NodeSpec};
use world::proxmox::Pve;
use world::proxmox::spec::{ClusterSpec, VmSpec};
use world::serve::tls::ServerTls;

/// When the world begins: 2026-11-21T00:00:00Z.
const BEGINNING: i64 = 1_795_219_200;
/// VMIDs of a pool beyond its maximum: foreigners may take some.
const SPARE: u32 = 5;
/// The kinds of pools: name, vCPUs, GiB of memory, template, clone.
const KINDS: [(&str, u32, u32, &str, &str); 4] = [
    ("small", 2, 4, "k8s-worker", "linked"),
    ("large", 8, 16, "k8s-worker", "linked"),
    ("local", 4, 8, "k8s-worker-local", "linked"),
    ("copied", 4, 8, "k8s-worker", "full"),
];

/// A pool as it was configured.
#[derive(Clone, Debug)]
pub struct PoolShape {
    /// Its name.
    pub name: &'static str,
    /// Its minimum.
    pub min: usize,
    /// Its maximum.
    pub max: usize,
    /// vCPUs of its machines.
    pub cores: u32,
    /// Memory of its machines.
    pub gib: u32,
    /// Its VMIDs.
    pub vmids: RangeInclusive<u32>,
}

/// Everything that is played on.
#[derive(Clone)]
pub struct World {
    /// Proxmox VE.
    pub pve: Pve,
    /// Kubernetes.
    pub kube: Kube,
    /// Wall-clock time.
    pub clock: TokioClock,
    /// The settings.
    pub config: Arc<Config>,
    /// The pools of the settings.
    pub pools: Vec<PoolShape>,
    /// The hosts.
    pub hosts: Vec<String>,
    /// VMs that are there from the start.
    pub foreign: Vec<u32>,
    /// Node that is nobody's machine and has the label of a pool.
    pub decoy: Option<String>,
}

impl World {
    /// The world of a seed. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// The settings are refused, which is a mistake here.
    pub fn of(seed: u64) -> anyhow::Result<Self> {
        let mut random = Rng::with_seed(seed ^ 0x5eed_0f77_0e1d);
        let pools = pools(&mut random);
        let text = settings(&mut random, &pools);
        let config = config::parse("simulation.toml", &text, Needs::Run)
            .map_err(|report| anyhow::anyhow!("{report}"))
            .context("the simulation's settings are refused")?;
        let base = Timestamp::from_second(BEGINNING)?;
        let clock = WorldClock::starting_at(base);
        let mut cluster = ClusterSpec::demo();
        let mut foreign: Vec<u32> = cluster.vms.iter().map(|vm| vm.vmid).collect();
        for pool in &pools {
            // Somebody else's, in the midst of the pool's VMIDs.
            let vmid = pool.vmids.start() + random.u32(0..3);
            let mut vm = VmSpec::machine(vmid, "pve2", "somebody-elses");
            vm.running = random.bool();
            cluster.vms.push(vm);
            foreign.push(vmid);
        }
        cluster.timings.boot_to_agent = Duration::from_secs(random.u64(4..30));
        let hosts = cluster.hosts.iter().map(|host| host.name.clone()).collect();
        let decoy = random.bool().then(|| "decoy".to_owned());
        let kube = Kube::new(cluster_of_kubernetes(decoy.as_deref(), &pools)?, clock.clone(), random.u64(..));
        let control_plane: Arc<dyn ControlPlane> = Arc::new(kube.clone());
        let pve = Pve::new(cluster, clock, random.u64(..), control_plane);
        kube.apply(&json!({ "kind": "Namespace", "metadata": { "name": "pve-autoscaler" } }))
            .map_err(anyhow::Error::msg)?;
        let (config, clock) = (Arc::new(config), TokioClock::starting_at(base));
        Ok(Self { pve, kube, clock, config, pools, hosts, foreign, decoy })
    }

    /// The pool whose VMIDs have this one.
    pub fn pool_of(&self, vmid: u32) -> Option<&PoolShape> {
        self.pools.iter().find(|pool| pool.vmids.contains(&vmid))
    }
}

fn cluster_of_kubernetes(decoy: Option<&str>, pools: &[PoolShape]) -> anyhow::Result<KubeSpec> {
    let tls = ServerTls::for_loopback("Kubernetes lab CA")?;
    let mut kube =
        KubeSpec { ca_pem: tls.ca_pem.clone(), ca_hash: tls.ca_public_key_hash.clone(), ..KubeSpec::demo() };
    if let (Some(name), Some(pool)) = (decoy, pools.first()) {
        let mut node = NodeSpec::worker(name, 2, 4);
        node.labels.push(("pve-autoscaler/pool".to_owned(), pool.name.to_owned()));
        kube.nodes.push(node);
    }
    Ok(kube)
}

fn pools(random: &mut Rng) -> Vec<PoolShape> {
    let mut kinds: Vec<usize> = (0..KINDS.len()).collect();
    random.shuffle(&mut kinds);
    kinds.truncate(random.usize(2..=3));
    kinds.sort_unstable();
    let shapes = kinds.into_iter().filter_map(|kind| {
        let (name, cores, gib, ..) = *KINDS.get(kind)?;
        let max = random.u32(2..=5);
        let min = random.u32(0..=1);
        let first = 9100 + 100 * u32::try_from(kind).ok()?;
        let vmids = first..=first + max + SPARE - 1;
        Some(PoolShape { name, min: min as usize, max: max as usize, cores, gib, vmids })
    });
    shapes.collect()
}

fn settings(random: &mut Rng, pools: &[PoolShape]) -> String {
    let pick =
        |random: &mut Rng, of: &[&str]| of.get(random.usize(..of.len())).map_or("1m", |one| one).to_owned();
    let mut text = stage::without_pools().to_owned();
    let _ = write!(
        text,
        r#"
[scale_down]
unneeded_time = "{}"
unready_time = "{}"
delay_after_add = "{}"
skip_nodes_with_local_storage = false
[scale_up]
backoff_initial = "1m"
backoff_max = "{}"
[limits]
drain = "{}"
"#,
        pick(random, &["1m", "3m", "10m"]),
        pick(random, &["5m", "20m"]),
        pick(random, &["0s", "1m", "10m"]),
        pick(random, &["2m", "10m", "30m"]),
        pick(random, &["2m", "15m"]),
    );
    for (number, pool) in pools.iter().enumerate() {
        let (_, _, _, template, clone) =
            KINDS.into_iter().find(|kind| kind.0 == pool.name).unwrap_or(KINDS[0]);
        let last = pool.vmids.end() - pool.vmids.start() + 11;
        let _ = write!(
            text,
            r#"
[[pool]]
name = "{}"
min = {}
max = {}
cores = {}
memory = "{}GiB"
template = "{template}"
clone = "{clone}"
vmids = "{}-{}"
addresses = "10.10.{number}.11-10.10.{number}.{last}"
prefix = 16
gateway = "10.10.0.1"
dns = ["10.10.0.1"]
bridge = "vmbr0"
"#,
            pool.name,
            pool.min,
            pool.max,
            pool.cores,
            pool.gib,
            pool.vmids.start(),
            pool.vmids.end(),
        );
    }
    text
}
