//! Measures the daemon's memory and the duration of its rounds during a storm of pod events, in real time.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::Args;
use jiff::Timestamp;
use pve_autoscaler::runtime::clock::TokioClock;
use pve_autoscaler::settings::{self, Needs};
use serde_json::json;
use stage::{Actor, Cast, ONE_POOL, Wire};
use tokio::sync::watch;
use tokio::time::Instant;
use world::clock::WorldClock;
use world::guest::control_plane::ControlPlane;
use world::kubernetes::spec::{KubeSpec, NodeSpec};
use world::kubernetes::{Kube, KubeEvent, samples};
use world::proxmox::Pve;
use world::proxmox::spec::ClusterSpec;
use world::serve::tls::ServerTls;

/// The number of pods on each Node.
const PODS_A_NODE: u32 = 100;
/// The time between two bursts of events.
const BEAT: Duration = Duration::from_millis(10);
/// The time limit for all pods to start before the storm, and for the request for a new machine during the
/// storm.
const LIMIT: Duration = Duration::from_mins(3);

/// The strength of the storm.
#[derive(Clone, Debug, Args)]
pub struct Wanted {
    /// Events per minute
    #[arg(long, default_value_t = 100_000)]
    events: u64,
    /// Duration in seconds
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Number of running pods
    #[arg(long, default_value_t = 1000)]
    pods: u32,
}

/// Runs the storm and prints the results.
///
/// # Errors
/// Returns an error if no machine was requested, or the daemon does not end.
pub async fn blow(wanted: Wanted) -> anyhow::Result<()> {
    let base = "2026-11-21T00:00:00Z".parse()?;
    let tls = ServerTls::for_loopback("Kubernetes lab CA")?;
    let mut spec = KubeSpec { ca_pem: tls.ca_pem, ca_hash: tls.ca_public_key_hash, ..KubeSpec::demo() };
    let nodes = wanted.pods.div_ceil(PODS_A_NODE);
    spec.nodes.extend((0..nodes).map(|number| NodeSpec::worker(&format!("node-{number}"), 16, 64)));
    let clock = WorldClock::starting_at(base);
    let kube = Kube::new(spec, clock.clone(), 11);
    let control_plane: Arc<dyn ControlPlane> = Arc::new(kube.clone());
    let pve = Pve::new(ClusterSpec::demo(), clock.clone(), 7, control_plane);
    let apply = |object| kube.apply(&object).map(drop).map_err(anyhow::Error::msg);
    apply(json!({ "kind": "Namespace", "metadata": { "name": "pve-autoscaler" } }))?;
    apply(samples::deployment("busy", wanted.pods, "100m", "64Mi"))?;
    let pods = running(&kube, wanted.pods as usize).await?;

    let settings = ONE_POOL.replace("cores = 2", "cores = 8").replace("4GiB", "16GiB");
    let config =
        settings::parse("storm.toml", &settings, Needs::Run).map_err(|report| anyhow::anyhow!("{report}"))?;
    let config = watch::Sender::new(Arc::new(config));
    let cast = Cast {
        pve: pve.clone(),
        regions: Vec::new(),
        kube: kube.clone(),
        clock: Arc::new(TokioClock::starting_at(base)),
        config: config.subscribe(),
        probes: true,
        helpers: stage::Helpers::default(),
        seed: 1,
        instance: "pve1".to_owned(),
        entropy: None,
    };
    let actor = Actor::start(cast, Wire::counting(Arc::default()))?;
    let begun = Instant::now();
    while !actor.board.is_ready() {
        ensure!(begun.elapsed() < LIMIT, "the daemon did not become ready");
        tokio::time::sleep(BEAT).await;
    }
    tokio::time::sleep(Duration::from_secs(10)).await;
    let (calm, before) = (rounds(&actor)?, memory()?);
    let storm = Storm { kube: &kube, clock: &clock, pods: &pods, wanted: &wanted };
    let (sent, most, decided) = storm.rage(&pve).await?;
    let (after, left) = (rounds(&actor)?, memory()?);
    let (number, time) = (after.0 - calm.0, after.1 - calm.1);
    anstream::println!(
        "{sent} events of {} pods in {} s: {number:.0} rounds, {:.1} ms each on average. For a pod \
            created during the storm, the scheduler reported after {:.2?} that no node has room. The \
            clone of a machine was requested {:.2?} later. Memory use of the daemon and the clusters \
            together: {before} MiB before the storm, {most} MiB at most, {left} MiB after the storm",
        wanted.pods,
        wanted.seconds,
        time / number.max(1.0) * 1000.0,
        decided.judged,
        decided.asked_for,
    );
    ensure!(actor.stop().await, "the daemon did not stop in time");
    Ok(())
}

/// The time from a pod's creation until the scheduler reported that the pod fits nowhere, and the time from
/// this report until a clone was requested.
#[derive(Clone, Copy, Debug)]
struct Decided {
    judged: Duration,
    asked_for: Duration,
}

struct Storm<'a> {
    kube: &'a Kube,
    clock: &'a WorldClock,
    pods: &'a [String],
    wanted: &'a Wanted,
}

impl Storm<'_> {
    /// Runs the storm. Returns the number of events sent, the maximum memory in MiB, and how long the request
    /// for a new machine took.
    async fn rage(&self, pve: &Pve) -> anyhow::Result<(u64, u64, Decided)> {
        let (begun, length) = (Instant::now(), Duration::from_secs(self.wanted.seconds));
        let (mut sent, mut most) = (0_u64, 0);
        let mut asked = None;
        let mut judged = None;
        let mut decided = None;
        let mut news = self.kube.events();
        while begun.elapsed() < length {
            let passed = begun.elapsed();
            let due = u128::from(self.wanted.events) * passed.as_millis() / 60_000;
            while u128::from(sent) < due {
                let at = usize::try_from(sent)? % self.pods.len().max(1);
                let Some(pod) = self.pods.get(at) else { break };
                let patch = json!({ "metadata": { "labels": { "beat": sent.to_string() } } });
                self.kube.patch_by_hand("Pod", "default", pod, &patch);
                sent += 1;
            }
            if asked.is_none() && passed > length / 2 {
                let nodes = self.kube.list("Node");
                for node in nodes.iter().filter_map(|node| node["metadata"]["name"].as_str()) {
                    // All nodes are cordoned, so that the large pod needs a new machine.
                    let closed = json!({ "spec": { "unschedulable": true } });
                    self.kube.patch_by_hand("Node", "", node, &closed);
                }
                let large = samples::deployment("large", 1, "7000m", "1Gi");
                self.kube.apply(&large).map_err(anyhow::Error::msg)?;
                asked = Some(self.clock.now());
            }
            while let Ok(event) = news.try_recv() {
                if let (KubeEvent::PodUnschedulable { at, .. }, None) = (event, judged) {
                    judged = Some(at);
                }
            }
            if let (Some(asked), Some(judged), None) = (asked, judged, decided) {
                let calls = pve.calls();
                let clone = calls.iter().find(|call| call.path.ends_with("/clone"));
                // The call is recorded when it is answered, so the duration of the request is subtracted.
                decided = clone.map(|call| Decided {
                    judged: between(asked, judged),
                    asked_for: between(judged, call.time).saturating_sub(pve.request_time()),
                });
            }
            most = most.max(memory()?);
            tokio::time::sleep(BEAT).await;
        }
        Ok((sent, most, decided.context("no machine was requested during the storm")?))
    }
}

fn between(since: Timestamp, until: Timestamp) -> Duration {
    Duration::try_from(until.duration_since(since)).unwrap_or_default()
}

async fn running(kube: &Kube, number: usize) -> anyhow::Result<Vec<String>> {
    let begun = Instant::now();
    loop {
        let pods = kube.list("Pod");
        let up = pods.iter().filter(|pod| pod["status"]["phase"] == "Running");
        let names: Vec<String> =
            up.filter_map(|pod| Some(pod["metadata"]["name"].as_str()?.to_owned())).collect();
        if names.len() >= number {
            return Ok(names);
        }
        ensure!(begun.elapsed() < LIMIT, "only {} of {number} pods are running", names.len());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// The number of rounds so far, and their total duration in seconds.
fn rounds(actor: &Actor) -> anyhow::Result<(f64, f64)> {
    let text = actor.board.metrics().encode(&actor.board.status())?;
    let figure = |name: &str| -> anyhow::Result<f64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        Ok(line.with_context(|| format!("no metric {name}"))?.trim().parse()?)
    };
    Ok((
        figure("pve_autoscaler_round_duration_seconds_count")?,
        figure("pve_autoscaler_round_duration_seconds_sum")?,
    ))
}

/// The memory of this process, in MiB.
fn memory() -> anyhow::Result<u64> {
    let text =
        std::fs::read_to_string("/proc/self/status").context("memory use can only be read on Linux")?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    Ok(line.split_whitespace().next().context("no figure")?.parse::<u64>()? / 1024)
}
