//! Records hours of ordinary cluster life: the real daemon with the embedded clusters in virtual time,
//! Deployments that follow the time of day, and Jobs at random times. There are no faults.

use std::f64::consts::TAU;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::Args;
use fastrand::Rng;
use jiff::Timestamp;
use pve_autoscaler::runtime::clock::TokioClock;
use pve_autoscaler::settings::{self, Needs};
use serde_json::{Value, json};
use stage::{Actor, Cast, Wire, without_pools};
use tokio::sync::watch;
use tokio::time::Instant;
use world::clock::WorldClock;
use world::guest::control_plane::ControlPlane;
use world::kubernetes::Kube;
use world::kubernetes::spec::KubeSpec;
use world::proxmox::Pve;
use world::proxmox::spec::ClusterSpec;
use world::serve::tls::ServerTls;

/// The simulated time at which the recording begins.
const BEGINNING: &str = "2026-11-21T00:00:00Z";
/// How often the workload changes.
const STEP: Duration = Duration::from_mins(1);
/// The number of steps after which a Job is removed.
const KEPT: usize = 60;
/// How long a Job's pods run.
const RUN: Duration = Duration::from_mins(9);

/// The recorded pools.
const POOLS: &str = r#"
[scale_down]
max_removals_per_hour = 60
[[pool]]
name = "workers"
min = 1
max = 14
cores = 4
memory = "8GiB"
template = 9000
vmids = "9100-9129"
addresses = "10.10.10.11-10.10.10.40"
prefix = 24
gateway = "10.10.10.1"
dns = ["10.10.10.1"]
bridge = "vmbr0"
[[pool]]
name = "batch"
max = 8
cores = 8
memory = "16GiB"
template = 9000
vmids = "9200-9219"
addresses = "10.10.11.11-10.10.11.30"
prefix = 24
gateway = "10.10.11.1"
dns = ["10.10.11.1"]
bridge = "vmbr0"
taints = ["batch=only:NoSchedule"]
"#;

/// What to record.
#[derive(Clone, Debug, Args)]
pub struct Wanted {
    /// The seed of the workload
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of hours
    #[arg(long, default_value_t = 24)]
    hours: u64,
    /// The folder for the rounds and the configuration
    #[arg(long)]
    directory: PathBuf,
}

/// Makes the recording, and prints the command that simulates it.
///
/// # Errors
/// Returns an error if the directory cannot be written, or the daemon ends by itself.
pub fn record(wanted: &Wanted) -> anyhow::Result<()> {
    let file = live(wanted.seed, wanted.hours, &wanted.directory)?;
    let records = wanted.directory.display();
    anstream::println!("pve-autoscaler simulate --records {records} --config {}", file.display());
    Ok(())
}

/// Records hours of cluster life into a folder, and returns the path of the configuration file. The seed
/// determines the workload.
///
/// # Errors
/// Returns an error if the folder cannot be written, or the clusters and the daemon cannot be started.
pub fn live(seed: u64, hours: u64, folder: &Path) -> anyhow::Result<PathBuf> {
    fs::create_dir_all(folder)?;
    let folder = folder.canonicalize()?;
    let record = format!("[record]\ndays = 30\ndirectory = \"{}\"\n", folder.display());
    let text = without_pools().replace("[bootstrap]", &format!("{record}[bootstrap]")) + POOLS;
    let file = folder.join("config.toml");
    fs::write(&file, &text)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    runtime.block_on(play(seed, Duration::from_hours(hours), &text))?;
    Ok(file)
}

async fn play(seed: u64, time: Duration, text: &str) -> anyhow::Result<()> {
    let base: Timestamp = BEGINNING.parse()?;
    let mut random = Rng::with_seed(seed);
    let clock = WorldClock::starting_at(base);
    let tls = ServerTls::for_loopback("Kubernetes lab CA")?;
    let mut spec = KubeSpec { ca_pem: tls.ca_pem, ca_hash: tls.ca_public_key_hash, ..KubeSpec::demo() };
    spec.timings.job_run = RUN;
    let kube = Kube::new(spec, clock.clone(), random.u64(..));
    let control_plane: Arc<dyn ControlPlane> = Arc::new(kube.clone());
    let pve = Pve::new(ClusterSpec::demo(), clock, random.u64(..), control_plane);
    apply(&kube, &json!({ "kind": "Namespace", "metadata": { "name": "pve-autoscaler" } }))?;
    let settings = settings::parse("record.toml", text, Needs::Run)
        .map_err(|report| anyhow::anyhow!("{report}"))
        .context("the settings are invalid")?;
    let settings = watch::Sender::new(Arc::new(settings));
    let cast = Cast {
        pve,
        regions: Vec::new(),
        kube: kube.clone(),
        clock: Arc::new(TokioClock::starting_at(base)),
        config: settings.subscribe(),
        probes: true,
        helpers: stage::Helpers::default(),
        seed: random.u64(..),
        instance: "pve1".to_owned(),
        entropy: None,
    };
    let actor = Actor::start(cast, Wire::counting(Arc::new(AtomicU64::new(0))))?;
    let mut workload = Workload::begin(&kube, random)?;
    let begun = Instant::now();
    while begun.elapsed() < time {
        workload.step(begun.elapsed())?;
        tokio::time::sleep(STEP).await;
        ensure!(!actor.has_ended(), "the daemon exited unexpectedly");
    }
    ensure!(actor.stop().await, "the daemon did not stop in time");
    Ok(())
}

fn apply(kube: &Kube, object: &Value) -> anyhow::Result<()> {
    kube.apply(object).map(drop).map_err(anyhow::Error::msg)
}

/// The recorded workload.
struct Workload {
    kube: Kube,
    random: Rng,
    apps: Vec<App>,
    jobs: usize,
}

/// A Deployment whose size follows the time of day.
struct App {
    name: String,
    /// The number of pods at the daily maximum, in the afternoon.
    most: f64,
    replicas: u32,
}

impl Workload {
    fn begin(kube: &Kube, mut random: Rng) -> anyhow::Result<Self> {
        apply(kube, &daemon_set())?;
        let mut apps = Vec::new();
        for number in 0..8 {
            let name = format!("app-{number}");
            let cpu = 100 * random.u32(2..9);
            apply(kube, &deployment(&name, cpu, 256 * random.u32(1..6)))?;
            apps.push(App { name, most: f64::from(random.u32(3..14)), replicas: 0 });
        }
        Ok(Self { kube: kube.clone(), random, apps, jobs: 0 })
    }

    fn step(&mut self, age: Duration) -> anyhow::Result<()> {
        let hour = age.as_secs_f64() / 3600.0;
        // The load is lowest at four in the morning.
        let day = 0.55 - 0.45 * ((hour - 4.0) / 24.0 * TAU).cos();
        for app in &mut self.apps {
            let noise = 0.8 + 0.4 * self.random.f64();
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few pods")]
            let wanted = (app.most * day * noise).round().max(1.0) as u32;
            // Like a pod autoscaler, the workload ignores the smallest changes. It follows larger changes
            // after a random delay.
            if wanted.abs_diff(app.replicas) >= 2 && self.random.u8(..10) == 0 || app.replicas == 0 {
                app.replicas = wanted;
                self.kube.scale("default", &app.name, wanted);
            }
        }
        if self.random.f64() < 0.06 + 0.1 * day {
            self.jobs += 1;
            apply(&self.kube, &job(self.jobs, self.random.u32(1..9)))?;
        }
        if let Some(old) = self.jobs.checked_sub(KEPT) {
            self.kube.remove("Job", "default", &format!("job-{old}"));
        }
        Ok(())
    }
}

fn pod(app: &str, cpu: u32, memory: u32) -> Value {
    json!({
        "metadata": { "labels": { "app": app } },
        "spec": { "containers": [{
            "name": "main",
            "image": "registry.k8s.io/pause",
            "resources": { "requests": { "cpu": format!("{cpu}m"), "memory": format!("{memory}Mi") } },
        }]},
    })
}

fn deployment(name: &str, cpu: u32, memory: u32) -> Value {
    json!({
        "kind": "Deployment", "metadata": { "name": name, "namespace": "default" },
        "spec": { "replicas": 0, "selector": { "matchLabels": { "app": name } }, "template": pod(name, cpu, memory) },
    })
}

fn job(number: usize, pods: u32) -> Value {
    let name = format!("job-{number}");
    let mut template = pod(&name, 1500, 2048);
    template["spec"]["restartPolicy"] = json!("Never");
    template["spec"]["nodeSelector"] = json!({ "pve-autoscaler/pool": "batch" });
    template["spec"]["tolerations"] = json!([{ "key": "batch", "operator": "Exists" }]);
    json!({
        "kind": "Job", "metadata": { "name": name, "namespace": "default" },
        "spec": { "parallelism": pods, "completions": pods, "backoffLimit": 6, "template": template },
    })
}

fn daemon_set() -> Value {
    let mut template = pod("agent", 100, 64);
    template["spec"]["tolerations"] = json!([{ "operator": "Exists" }]);
    json!({
        "kind": "DaemonSet", "metadata": { "name": "agent", "namespace": "kube-system" },
        "spec": { "selector": { "matchLabels": { "app": "agent" } }, "template": template },
    })
}
