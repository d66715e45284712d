//! One embedded Proxmox VE, one embedded Kubernetes, and the real daemon between them, all in one process and
//! in virtual time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use jiff::SignedDuration;
use pve_autoscaler::observability::{Board, Order, Orders, Status};
use pve_autoscaler::runtime::clock::{Clock, TokioClock};
use pve_autoscaler::settings::{self, Config, Needs};
use serde_json::{Value, json};
use stage::{Actor, Cast, Helpers, Kubes, Stall, Wire};
use tokio::sync::watch;
use tokio::time::Instant;
use world::clock::WorldClock;
use world::guest::control_plane::ControlPlane;
use world::kubernetes::spec::KubeSpec;
use world::kubernetes::{Kube, samples};
use world::proxmox::Pve;
use world::proxmox::spec::ClusterSpec;
use world::serve::tls::ServerTls;

use log::Log;
pub use stage::ONE_POOL;

#[path = "log.rs"]
pub mod log;

/// The virtual time at which the world begins.
const BEGINNING: &str = "2026-11-21T00:00:00Z";
/// The host of the instance that is used if no host is named.
const FIRST: &str = "pve1";
/// The interval between two checks of a condition.
const LOOK: Duration = Duration::from_millis(100);
/// The interval for conditions that take minutes, short enough that no drain goes unnoticed.
const COARSE: Duration = Duration::from_secs(1);

/// Everything that a scenario needs.
pub struct Stage {
    pub pve: Pve,
    /// Additional Proxmox VE clusters, each with the name of its region.
    pub regions: Vec<(String, Pve)>,
    pub kube: Kube,
    kubes: Kubes,
    config: watch::Sender<Arc<Config>>,
    clock: TokioClock,
    /// How far a newly started daemon's clock is ahead of the world's clock.
    pub ahead: SignedDuration,
    world: WorldClock,
    instances: BTreeMap<String, Actor>,
    logs: BTreeMap<String, Log>,
    started: u64,
    /// The number of calls that all instances have made so far.
    pub calls: Arc<AtomicU64>,
    /// Stalls the daemon's watches.
    pub stall: Stall,
    /// Whether the daemon sees guests come up on the network.
    pub probes: bool,
    /// The helpers that give machines dedicated CPUs. A host has no helper unless one is enabled on it.
    pub helpers: Helpers,
}

impl Stage {
    /// The demo clusters, with this configuration; the daemon does not run yet. Must be called inside a tokio
    /// runtime.
    pub fn new(text: &str) -> Self {
        Self::of(text, ClusterSpec::demo(), KubeSpec::demo())
    }

    /// Like [`Self::new`], but with clusters that match these specifications.
    pub fn of(text: &str, cluster: ClusterSpec, kube: KubeSpec) -> Self {
        let base = BEGINNING.parse().unwrap();
        let world = WorldClock::starting_at(base);
        let tls = ServerTls::for_loopback("Kubernetes lab CA").unwrap();
        let kube = KubeSpec { ca_pem: tls.ca_pem.clone(), ca_hash: tls.ca_public_key_hash.clone(), ..kube };
        let kube = Kube::new(kube, world.clone(), 11);
        let kubes = Kubes::default();
        kubes.add(&kube);
        let control_plane: Arc<dyn ControlPlane> = Arc::new(kubes.clone());
        let pve = Pve::new(cluster, world.clone(), 7, control_plane);
        kube.apply(&json!({ "kind": "Namespace", "metadata": { "name": "pve-autoscaler" } })).unwrap();
        let config =
            settings::parse("lab.toml", text, Needs::Run).unwrap_or_else(|report| panic!("{report}"));
        Self {
            pve,
            regions: Vec::new(),
            kube,
            kubes,
            config: watch::Sender::new(Arc::new(config)),
            clock: TokioClock::starting_at(base),
            ahead: SignedDuration::ZERO,
            world,
            instances: BTreeMap::new(),
            logs: BTreeMap::new(),
            started: 0,
            calls: Arc::default(),
            stall: Stall::default(),
            probes: true,
            helpers: Helpers::default(),
        }
    }

    /// One more Proxmox VE cluster of this world, whose guests join the same Kubernetes cluster.
    pub fn another_cluster(&self, spec: ClusterSpec) -> Pve {
        let control_plane: Arc<dyn ControlPlane> = Arc::new(self.kube.clone());
        Pve::new(spec, self.world.clone(), 8, control_plane)
    }

    /// Another Kubernetes cluster whose nodes are VMs of the same Proxmox VE cluster, with its own daemon,
    /// which does not run yet.
    pub fn another_kubernetes(&self, text: &str) -> Self {
        let tls = ServerTls::for_loopback("Kubernetes lab CA").unwrap();
        let spec = KubeSpec {
            ca_pem: tls.ca_pem.clone(),
            ca_hash: tls.ca_public_key_hash.clone(),
            ..KubeSpec::demo()
        };
        let kube = Kube::new(spec, self.world.clone(), 12);
        kube.apply(&json!({ "kind": "Namespace", "metadata": { "name": "pve-autoscaler" } })).unwrap();
        self.kubes.add(&kube);
        let config =
            settings::parse("other.toml", text, Needs::Run).unwrap_or_else(|report| panic!("{report}"));
        Self {
            pve: self.pve.clone(),
            regions: Vec::new(),
            kube,
            kubes: self.kubes.clone(),
            config: watch::Sender::new(Arc::new(config)),
            clock: self.clock,
            ahead: SignedDuration::ZERO,
            world: self.world.clone(),
            instances: BTreeMap::new(),
            logs: BTreeMap::new(),
            // The names and ids differ from those of the first cluster.
            started: 1000,
            calls: Arc::default(),
            stall: Stall::default(),
            probes: self.probes,
            helpers: Helpers::default(),
        }
    }

    /// The world's time.
    pub fn now(&self) -> jiff::Timestamp {
        self.clock.now()
    }

    /// Like [`Self::new`], with the daemon running.
    pub fn running(text: &str) -> Self {
        let mut stage = Self::new(text);
        stage.start();
        stage
    }

    /// Starts the daemon.
    pub fn start(&mut self) {
        self.start_until(u64::MAX);
    }

    /// Starts the daemon. Its connections are cut once all instances together have made this many calls.
    pub fn start_until(&mut self, last: u64) {
        self.launch(FIRST, last);
    }

    /// Starts a daemon on this host, in addition to those on other hosts.
    pub fn start_on(&mut self, host: &str) {
        self.launch(host, u64::MAX);
    }

    fn launch(&mut self, host: &str, last: u64) {
        self.started += 1;
        let log = Log::new(self.clock);
        let wire =
            Wire::counting(self.calls.clone()).stalling(self.stall.clone()).observed(Arc::new(log.clone()));
        wire.cut_after(last);
        let cast = Cast {
            pve: self.pve.clone(),
            regions: self.regions.clone(),
            kube: self.kube.clone(),
            clock: Arc::new(TokioClock::starting_at(self.clock.now() + self.ahead)),
            config: self.config.subscribe(),
            probes: self.probes,
            helpers: self.helpers.clone(),
            seed: self.started,
            instance: host.to_owned(),
            entropy: None,
        };
        self.instances.insert(host.to_owned(), Actor::start(cast, wire).unwrap());
        self.logs.insert(host.to_owned(), log);
    }

    /// Whether the daemon's connections are cut.
    pub fn is_cut(&self) -> bool {
        self.instances.get(FIRST).is_none_or(|instance| instance.wire.is_cut())
    }

    /// The connections of the daemon on this host.
    pub fn wire(&self, host: &str) -> &Wire {
        &self.instances[host].wire
    }

    /// The calls of the daemon that was started last on this host.
    pub fn log(&self, host: &str) -> &Log {
        &self.logs[host]
    }

    /// Gives the daemon on this host an order, as an operator does.
    pub async fn order(&self, host: &str, order: Order) {
        self.try_order(host, order).await.unwrap();
    }

    /// Like [`Self::order`], for an order that may be refused.
    pub async fn try_order(&self, host: &str, order: Order) -> Result<(), String> {
        self.instances[host].switch.follow(order).await
    }

    /// Ends the daemon as SIGTERM does.
    pub async fn stop(&mut self) {
        self.stop_on(FIRST).await;
    }

    /// Like [`Self::stop`], for the daemon on this host.
    pub async fn stop_on(&mut self, host: &str) {
        if let Some(instance) = self.instances.remove(host) {
            assert!(instance.stop().await, "the daemon ends soon, without an error");
        }
    }

    /// Ends the daemon as SIGKILL does: work in progress is cut off.
    pub fn kill(&mut self) {
        self.kill_on(FIRST);
    }

    /// Like [`Self::kill`], for the daemon on this host.
    pub fn kill_on(&mut self, host: &str) {
        if let Some(instance) = self.instances.remove(host) {
            instance.kill();
        }
    }

    /// The hosts whose daemon says that it leads.
    pub fn leaders(&self) -> Vec<&str> {
        let leading = self.instances.iter().filter(|(_, instance)| instance.board.status().leads);
        leading.map(|(host, _)| host.as_str()).collect()
    }

    /// The board on which the daemon publishes its status.
    pub fn board(&self) -> &Board {
        &self.instances[FIRST].board
    }

    /// The status that the daemon on this host shows.
    pub fn status_of(&self, host: &str) -> Status {
        self.instances.get(host).map(|instance| instance.board.status()).unwrap_or_default()
    }

    /// Replaces the daemon's configuration, like a reload with SIGHUP.
    pub fn reload(&self, text: &str) {
        let config =
            settings::parse("lab.toml", text, Needs::Run).unwrap_or_else(|report| panic!("{report}"));
        self.config.send_replace(Arc::new(config));
    }

    /// The status that the daemon shows; with several daemons, the leader's.
    pub fn status(&self) -> Status {
        let leader = self.leaders().first().map_or(FIRST, |host| *host).to_owned();
        self.status_of(&leader)
    }

    /// Waits until the condition is met. If that takes longer than the limit, panics with a message that says
    /// what was expected and what the daemon showed.
    pub async fn until(&self, what: &str, limit: Duration, is_so: impl Fn(&Self) -> bool) -> Duration {
        let started = Instant::now();
        while !is_so(self) {
            assert!(started.elapsed() <= limit, "still not true after {limit:?}: {what}; {}", self.scene());
            // A wait of minutes need not be measured to a tenth of a second.
            tokio::time::sleep(LOOK.max(started.elapsed() / 100).min(COARSE)).await;
        }
        started.elapsed()
    }

    /// Asserts that the condition holds throughout this time.
    pub async fn throughout(&self, what: &str, time: Duration, is_so: impl Fn(&Self) -> bool) {
        let started = Instant::now();
        while started.elapsed() < time {
            assert!(is_so(self), "no longer true after {:?}: {what}; {}", started.elapsed(), self.scene());
            tokio::time::sleep(LOOK).await;
        }
    }

    /// The state of the world, for the message of a failed scenario.
    pub fn scene(&self) -> String {
        let status = self.status();
        let vms: Vec<String> = self
            .pve
            .vmids()
            .into_iter()
            .filter_map(|vmid| Some(format!("{vmid}: {:?}", self.pve.vm(vmid)?.config.get("name"))))
            .collect();
        format!(
            "problems {:?}\nmachines {:#?}\npools {:#?}\nnodes {:?}\npods {:?}\ndecisions {:#?}\nvms {vms:?}",
            status.problems, status.machines, status.pools, status.nodes, status.pods, status.decisions
        )
    }

    /// Creates a Deployment whose pods request this much.
    pub fn deploy(&self, name: &str, replicas: u32, cpu: &str, memory: &str) {
        self.deploy_with(name, replicas, cpu, memory, &json!({}));
    }

    /// Like [`Self::deploy`], with additional fields in the pods' spec.
    pub fn deploy_with(&self, name: &str, replicas: u32, cpu: &str, memory: &str, spec: &Value) {
        let mut deployment = samples::deployment(name, replicas, cpu, memory);
        for (field, value) in spec.as_object().into_iter().flatten() {
            deployment["spec"]["template"]["spec"][field] = value.clone();
        }
        self.kube.apply(&deployment).unwrap();
    }

    /// Names of the ready Nodes of a pool.
    pub fn ready_nodes(&self, pool: &str) -> Vec<String> {
        let nodes = self.kube.list("Node");
        let of_pool = nodes.iter().filter(|node| node["metadata"]["labels"]["pve-autoscaler/pool"] == pool);
        of_pool.filter(|node| is_ready(node)).map(|node| name(node)).collect()
    }

    /// The number of pods that run and are ready.
    pub fn running_pods(&self) -> usize {
        let pods = self.kube.list("Pod");
        pods.iter().filter(|pod| pod["status"]["phase"] == "Running").filter(|pod| is_ready(pod)).count()
    }

    /// The VMIDs of the VMs within a range.
    pub fn vms(&self, range: std::ops::RangeInclusive<u32>) -> Vec<u32> {
        self.pve.vmids().into_iter().filter(|vmid| range.contains(vmid)).collect()
    }

    /// The names of all machine records and bootstrap tokens. Once a machine is gone, its record and its
    /// token must be gone, too.
    pub fn leftovers(&self) -> Vec<String> {
        let maps = self.kube.list("ConfigMap");
        let records = maps.iter().map(|map| name(map)).filter(|name| name.starts_with("machine-"));
        let secrets = self.kube.list("Secret");
        let tokens = secrets.iter().map(|one| name(one)).filter(|name| name.starts_with("bootstrap-token-"));
        records.chain(tokens).collect()
    }
}

/// Ends the daemons when the stage is dropped, because a test may use several stages in turn.
impl Drop for Stage {
    fn drop(&mut self) {
        for (_, actor) in std::mem::take(&mut self.instances) {
            actor.kill();
        }
    }
}

/// `metadata.name`.
pub fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

/// Whether an object is Ready.
pub fn is_ready(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|one| one["type"] == "Ready" && one["status"] == "True")
}
