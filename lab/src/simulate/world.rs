//! The simulated clusters and their configuration, drawn from the seed.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use fastrand::Rng;
use jiff::Timestamp;
use pve_autoscaler::runtime::clock::TokioClock;
use pve_autoscaler::settings::{Config, Needs};
use serde_json::json;
use tempfile::TempDir;
use world::clock::WorldClock;
use world::guest::control_plane::ControlPlane;
use world::guest::{FIRST_BOOT, GuestFaults};
use world::kubernetes::Kube;
use world::kubernetes::spec::{KubeSpec, NodeSpec};
use world::proxmox::Pve;
use world::proxmox::spec::{ClusterSpec, GIB, VmSpec};
use world::serve::tls::ServerTls;

use super::drawn::devices::Devices;
use super::drawn::inherited::Inherited;
use super::drawn::pool_shape::PoolShape;
use super::drawn::rules::{Bootstrap, Rules};
use super::drawn::settings::Settings;
use super::drawn::volumes::Volumes;
use super::drawn::{devices, growth, networks, places, power, seeds, settings, warm};

/// The simulated time at which a run begins: 2026-11-21T00:00:00Z.
const BEGINNING: i64 = 1_795_219_200;
/// The templates of the demo clusters.
const TEMPLATES: std::ops::RangeInclusive<u32> = 9000..=9003;
/// The bootstrap token that an administrator gives to all machines, if the settings read a secret from a
/// file.
const TOKEN: (&str, &str) = ("c0ffee", "0123456789abcdef");
/// The token of the K3s server.
pub const K3S_TOKEN: &str = "K10c0ffee::server:a-secret-of-the-cluster";

/// The clusters, the settings and the clock of one run.
#[derive(Clone)]
pub struct World {
    /// Proxmox VE.
    pub pve: Pve,
    /// Kubernetes.
    pub kube: Kube,
    /// Wall-clock time.
    pub clock: TokioClock,
    /// The settings at the beginning of the run.
    pub config: Arc<Config>,
    /// The text of the settings, with placeholders for the values that change during the run.
    pub settings: Settings,
    /// The promises that follow from the run's settings, in addition to the general promises.
    pub rules: Rules,
    /// The pools in the settings.
    pub pools: Vec<PoolShape>,
    /// The hosts.
    pub hosts: Vec<String>,
    /// Unmanaged VMs that exist from the start.
    pub foreign: Vec<u32>,
    /// A Node that has the label of a pool but belongs to no machine.
    pub decoy: Option<String>,
    /// The folder with the files that the settings name. It is removed when the last clone of this value is
    /// dropped.
    folder: Arc<TempDir>,
}

impl World {
    /// Creates the world for a seed. If `hindered` is set, other clients, networks and storages interfere.
    /// Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// Returns an error if the settings are rejected, which is a bug in the simulation.
    pub fn of(seed: u64, hindered: bool) -> anyhow::Result<Self> {
        let mut random = Rng::with_seed(seed ^ 0x5eed_0f77_0e1d);
        let mut pools = settings::pools(&mut random);
        let mut rules = settings::rules(&mut random, &mut pools);
        // Each feature has its own random numbers, so that a new feature does not change what is drawn for
        // the others.
        warm::draw(&mut Rng::with_seed(seed ^ 0x3a53_0f77_0e1d), rules.bootstrap, &mut pools);
        let mut of_places = Rng::with_seed(seed ^ 0x91ac_0f77_0e1d);
        places::draw(&mut of_places, &mut rules, &mut pools);
        seeds::draw(&mut Rng::with_seed(seed ^ 0x5eed_150e_0e1d), &mut pools);
        growth::draw(&mut Rng::with_seed(seed ^ 0x9e0b_0f77_0e1d), rules.bootstrap, &mut pools);
        rules.devices = Devices::draw(&mut Rng::with_seed(seed ^ 0xde71_ce50_0e1d), &mut pools);
        rules.volumes = Volumes::draw(&mut Rng::with_seed(seed ^ 0x7013_0f77_0e1d));
        rules.hindered = hindered;
        if hindered {
            rules.inherited = Inherited::draw(&mut Rng::with_seed(seed ^ 0x14e2_0f77_0e1d));
            rules.tags = networks::draw(&mut Rng::with_seed(seed ^ 0x4e70_0f77_0e1d), &mut pools);
        }
        rules.power = power::draw(&mut Rng::with_seed(seed ^ 0x9043_0f77_0e1d));
        let folder = TempDir::new()?;
        let settings = settings::text(&mut random, &mut pools, &mut rules, folder.path());
        let first = settings::DISKS[0];
        let config = parse(&settings.with(&pools.iter().map(|pool| (pool.name, first)).collect()))?;
        let base = Timestamp::from_second(BEGINNING)?;
        let clock = WorldClock::starting_at(base);
        let mut cluster = ClusterSpec::demo();
        places::make_small(&mut of_places, &mut cluster.hosts);
        seeds::allow(&mut cluster);
        growth::allow(&mut cluster);
        devices::allow(&mut cluster, rules.devices);
        networks::allow(&mut cluster, &pools);
        rules.inherited.give(&mut cluster);
        if rules.power.is_some() {
            power::allow(&mut cluster);
        }
        let mut foreign: Vec<u32> = cluster.vms.iter().map(|vm| vm.vmid).collect();
        for pool in &pools {
            // An unmanaged VM whose VMID is in the pool's range.
            let vmid = pool.vmids.start() + random.u32(0..3);
            let mut vm = VmSpec::machine(vmid, "pve2", "unmanaged-vm");
            // A running guest would prevent its host from being switched off for the entire run.
            vm.running = random.bool() && rules.power.is_none();
            cluster.vms.push(vm);
            foreign.push(vmid);
        }
        cluster.timings.boot_to_agent = Duration::from_secs(random.u64(4..30));
        let hosts: Vec<String> = cluster.hosts.iter().map(|host| host.name.clone()).collect();
        let decoy = random.bool().then(|| "decoy".to_owned());
        if rules.bootstrap == Bootstrap::Nothing {
            // If machines join by themselves, their templates need no guest agent.
            cluster.vms.iter_mut().filter(|vm| vm.config.contains_key("template")).for_each(|vm| {
                vm.config.remove("agent");
                vm.faults = GuestFaults { agent_never: true, ..GuestFaults::default() };
            });
        }
        if random.bool() {
            // Leaves room for only a few disk copies on this storage.
            let small = cluster.storages.iter_mut().filter(|storage| storage.id == "local-lvm");
            small.for_each(|storage| storage.used = storage.size - random.u64(50..100) * GIB);
        }
        let mut kube = cluster_of_kubernetes(decoy.as_deref(), &pools)?;
        kube.timings.pod_stop = time_to_end(&mut Rng::with_seed(seed ^ 0x57a9_0f77_0e1d));
        let kube = Kube::new(kube, clock.clone(), random.u64(..));
        let control_plane: Arc<dyn ControlPlane> = Arc::new(kube.clone());
        let pve = Pve::new(cluster, clock, random.u64(..), control_plane);
        seeds::put_foreign(&pve, &hosts);
        pve.restrict_tags(rules.tags.clone());
        kube.apply(&json!({ "kind": "Namespace", "metadata": { "name": "pve-autoscaler" } }))
            .map_err(anyhow::Error::msg)?;
        let (config, clock) = (Arc::new(config), TokioClock::starting_at(base));
        let folder = Arc::new(folder);
        let world = Self { pve, kube, clock, config, settings, rules, pools, hosts, foreign, decoy, folder };
        world.hand_out_secrets()?;
        Ok(world)
    }

    /// Prepares the secrets that an administrator provides for join methods in which the daemon creates no
    /// token.
    fn hand_out_secrets(&self) -> anyhow::Result<()> {
        let (id, secret) = TOKEN;
        let join = json!({
            "apiVersion": "kubeadm.k8s.io/v1beta4", "kind": "JoinConfiguration",
            "discovery": { "bootstrapToken": { "apiServerEndpoint": KubeSpec::demo().endpoint,
                "token": format!("{id}.{secret}"), "unsafeSkipCAVerification": true } },
        });
        let file = match self.rules.bootstrap {
            Bootstrap::Kubeadm => return Ok(()),
            Bootstrap::K3s => K3S_TOKEN.to_owned(),
            Bootstrap::Command | Bootstrap::Nothing => join.to_string(),
        };
        let path = self.folder.path().join("secret");
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600).open(path)?.write_all(file.as_bytes())?;
        if self.rules.bootstrap == Bootstrap::K3s {
            return Ok(());
        }
        let token = json!({
            "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
            "metadata": { "name": format!("bootstrap-token-{id}"), "namespace": "kube-system" },
            "stringData": { "token-id": id, "token-secret": secret, "usage-bootstrap-authentication": "true",
                "usage-bootstrap-signing": "true", "auth-extra-groups": "system:bootstrappers:kubeadm:default-node-token" },
        });
        self.kube.apply(&token).map_err(anyhow::Error::msg)?;
        if self.rules.bootstrap == Bootstrap::Nothing {
            for template in TEMPLATES {
                self.pve.write_to_disk(template, "/etc/kubernetes/join.json", &file);
                self.pve.write_to_disk(
                    template,
                    FIRST_BOOT,
                    "kubeadm join --config /etc/kubernetes/join.json",
                );
            }
        }
        Ok(())
    }

    /// Whether this Secret is the bootstrap token that the administrator created.
    pub fn is_prepared(&self, secret: &str) -> bool {
        self.rules.bootstrap != Bootstrap::Kubeadm && secret.strip_prefix("bootstrap-token-") == Some(TOKEN.0)
    }

    /// The pool whose VMID range contains this VMID.
    pub fn pool_of(&self, vmid: u32) -> Option<&PoolShape> {
        self.pools.iter().find(|pool| pool.vmids.contains(&vmid))
    }
}

/// Parses and checks the settings.
///
/// # Errors
/// Returns an error if the settings are rejected, which is a bug in the simulation.
pub fn parse(text: &str) -> anyhow::Result<Config> {
    pve_autoscaler::settings::parse("simulation.toml", text, Needs::Run)
        .map_err(|report| anyhow::anyhow!("{report}"))
        .context("the simulation's settings are invalid")
}

/// How long pods take to end, unless their grace period is shorter. In half of the seeds, pods end slowly.
fn time_to_end(random: &mut Rng) -> Duration {
    let slow = random.bool();
    Duration::from_millis(if slow { random.u64(2_000..28_000) } else { 700 })
}

fn cluster_of_kubernetes(decoy: Option<&str>, pools: &[PoolShape]) -> anyhow::Result<KubeSpec> {
    let tls = ServerTls::for_loopback("Kubernetes lab CA")?;
    let mut kube = KubeSpec {
        ca_pem: tls.ca_pem.clone(),
        ca_hash: tls.ca_public_key_hash.clone(),
        k3s_token: Some(K3S_TOKEN.to_owned()),
        ..KubeSpec::demo()
    };
    if let (Some(name), Some(pool)) = (decoy, pools.first()) {
        let mut node = NodeSpec::worker(name, 2, 4);
        node.labels.push(("pve-autoscaler/pool".to_owned(), pool.name.to_owned()));
        kube.nodes.push(node);
    }
    Ok(kube)
}
