//! The demo's story: a Deployment grows and shrinks.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use pve_autoscaler::cli::signals::Signals;
use pve_autoscaler::observability::{Status, ask};
use tokio::process::Child;
use tokio::time::Instant;
use world::best;
use world::kubernetes::samples;
use world::kubernetes::spec::KubeSpec;
use world::proxmox::spec::{ClusterSpec, HostSpec, VmSpec};

use crate::clusters::Clusters;
use crate::measure::{self, Measures};
use crate::screen::{Pods, Screen};
use crate::summary::Summary;
use crate::{configuration, daemon};

/// The time between two updates of the screen.
const FRAME: Duration = Duration::from_millis(100);
/// How long a chapter may take before the demo gives up.
const LIMIT: Duration = Duration::from_secs(90);
/// An unmanaged VM whose VMID is in a pool's range.
const FOREIGN: u32 = 9101;
/// The number of hosts in the demo.
const DEMO_HOSTS: u8 = 3;
/// `unneeded_time` of the demo's configuration.
const UNNEEDED: Duration = Duration::from_secs(3);

/// Plays the demo. SIGINT, SIGTERM and SIGHUP end the demo; the daemon is then stopped and the temporary
/// directory removed.
///
/// # Errors
/// Returns an error with the observed state if an expected event did not happen.
pub async fn demo(keep: bool, directory: Option<PathBuf>) -> anyhow::Result<()> {
    let mut signals = Signals::new().context("cannot listen for signals")?;
    let temporary = match directory {
        Some(_) => None,
        None => Some(tempfile::tempdir().context("cannot create a directory")?),
    };
    let directory = directory.unwrap_or_else(|| temporary.iter().map(|one| one.path().to_owned()).collect());
    let mut screen = Screen::new();
    let mut child = None;
    let played = tokio::select! {
        biased;
        () = signals.next() => None,
        played = whole(&mut screen, &mut child, &directory, keep) => Some(played),
    };
    // Errors are ignored, because the terminal may be gone.
    let _ = screen.clear();
    if let Some(Err(_)) = played {
        let log = std::fs::read_to_string(directory.join("daemon.log")).unwrap_or_default();
        let last: Vec<&str> = log.lines().rev().take(15).collect();
        for line in last.iter().rev() {
            let _ = screen.say(line);
        }
    }
    let stopped = match child {
        Some(child) => daemon::stop(child).await,
        None => Ok(()),
    };
    let Some(played) = played else {
        let _ = screen.say("The daemon and both clusters have been stopped.");
        return stopped;
    };
    played.and(stopped)
}

/// Starts the clusters and the daemon, and plays the story.
async fn whole(
    screen: &mut Screen,
    child: &mut Option<Child>,
    directory: &Path,
    keep: bool,
) -> anyhow::Result<()> {
    let clusters = Clusters::start(directory, cluster(), KubeSpec::demo()).await?;
    configuration::write(directory, &clusters.proxmox, &configuration::demo(0))?;
    introduce(screen, &clusters, directory, DEMO_HOSTS)?;
    let program = std::env::current_exe().context("cannot determine the path of this program")?;
    let child = child.insert(daemon::launch(&program, directory)?);
    daemon::ready(child, directory).await?;
    let mut play = Play {
        measures: Measures::of(clusters.kube.events()),
        clusters: &clusters,
        socket: directory.join("control.sock"),
        screen,
        began: Instant::now(),
    };
    let summary = tokio::select! {
        biased;
        ended = child.wait() => bail!("the daemon exited unexpectedly: {ended:?}"),
        played = play.whole() => played?,
    };
    screen.clear()?;
    screen.say(&format!("\n{summary}"))?;
    if keep {
        stay(screen, &clusters, directory)?;
        let ended = child.wait().await;
        bail!("the daemon exited unexpectedly: {ended:?}");
    }
    Ok(())
}

/// Serves both clusters until a signal arrives.
///
/// # Errors
/// Returns an error if the clusters cannot be served.
pub async fn serve(directory: PathBuf, hosts: u8, nodes: u32) -> anyhow::Result<()> {
    let mut signals = Signals::new().context("cannot listen for signals")?;
    let cluster = with_hosts(cluster(), hosts);
    let clusters = Clusters::start(&directory, cluster, KubeSpec::demo()).await?;
    configuration::write(&directory, &clusters.proxmox, &configuration::demo(nodes))?;
    let mut screen = Screen::new();
    introduce(&mut screen, &clusters, &directory, hosts)?;
    screen.say("Press Ctrl-C to stop.")?;
    signals.next().await;
    Ok(())
}

/// Returns the cluster with this many hosts. Additional hosts are copies of the first one, each with its own
/// template on local storage.
fn with_hosts(mut cluster: ClusterSpec, hosts: u8) -> ClusterSpec {
    let first = cluster.hosts[0].clone();
    for n in 1 + u8::try_from(cluster.hosts.len()).unwrap_or(u8::MAX)..=hosts {
        let (name, address) = (format!("pve{n}"), format!("10.10.0.{}", 10 + n));
        let template = VmSpec::template(9000 + u32::from(n), &name, "k8s-worker-local", "local-lvm");
        cluster.vms.push(template);
        cluster.hosts.push(HostSpec { name, address, ..first.clone() });
    }
    cluster.hosts.truncate(hosts.into());
    let names: Vec<String> = cluster.hosts.iter().map(|host| host.name.clone()).collect();
    cluster.vms.retain(|vm| names.contains(&vm.node));
    cluster
}

/// The demo cluster with a guest that boots quickly, and an unmanaged VM in a pool's VMID range.
fn cluster() -> ClusterSpec {
    let mut cluster = ClusterSpec::demo();
    cluster.timings.boot_to_agent = Duration::from_secs(8);
    cluster.timings.agent_to_running = Duration::from_secs(3);
    cluster.timings.join = Duration::from_secs(4);
    cluster.timings.shutdown = Duration::from_secs(3);
    cluster.timings.jitter = 0.0;
    cluster.vms.push(VmSpec::machine(FOREIGN, "pve2", "not-the-pools"));
    cluster
}

fn introduce(screen: &mut Screen, clusters: &Clusters, directory: &Path, hosts: u8) -> io::Result<()> {
    screen.say(&format!(
        "Proxmox VE with {hosts} hosts: {}\nKubernetes: {}\nconfiguration, credentials and log: {}\nVM \
            {FOREIGN} has a VMID from the pool's range on purpose. It does not belong to the pool, so \
            the daemon must not change it.",
        clusters.proxmox.url,
        clusters.kube_url,
        directory.display()
    ))
}

fn stay(screen: &mut Screen, clusters: &Clusters, directory: &Path) -> io::Result<()> {
    let at = |name: &str| directory.join(name).display().to_string();
    screen.say(&format!(
        "\nThe daemon and both clusters keep running. In another terminal, try:\n  kubectl --kubeconfig \
            {} get nodes,pods\n  kubectl --kubeconfig {} scale deployment web --replicas 5\n  curl \
            --cacert {} -H \"Authorization: PVEAPIToken=autoscaler@pve!agent=$(cat {})\" \
            {}/api2/json/cluster/resources\n  cargo run --release -- status --socket {}\n  cargo run \
            --release -- plan --config {}\nPress Ctrl-C to stop.",
        at("kubeconfig"),
        at("kubeconfig"),
        at("pve-ca.pem"),
        at("pve-token"),
        clusters.proxmox.url,
        at("control.sock"),
        at("config.toml"),
    ))
}

struct Play<'a> {
    clusters: &'a Clusters,
    socket: PathBuf,
    screen: &'a mut Screen,
    measures: Measures,
    began: Instant,
}

impl Play<'_> {
    async fn whole(&mut self) -> anyhow::Result<Summary> {
        let foreign = self.clusters.pve.vm(FOREIGN);
        self.screen.chapter(
            "7 small pods and a large one are deployed. No node exists yet, so all of them are pending.",
        )?;
        self.deploy("web", 7, "900m", "1Gi")?;
        self.deploy("database", 1, "6", "20Gi")?;
        self.until("all 8 pods are running", |_, pods| pods.running == 8 && pods.waiting == 0).await?;
        let (reaction, running) = (self.measures.reaction(&self.clusters.pve), self.measures.all_running());
        self.screen.chapter(
            "All but 2 small pods are removed. Nodes become unneeded, are drained, and are \
                removed.",
        )?;
        let shrinking = Instant::now();
        self.clusters.kube.scale("default", "web", 2);
        self.clusters.kube.scale("default", "database", 0);
        self.until("one node is left", |status, pods| status.machines.len() == 1 && pods.running == 2)
            .await?;
        let shrinking = shrinking.elapsed();
        self.screen.chapter("The last pods are removed, and then the last node.")?;
        self.clusters.kube.scale("default", "web", 0);
        self.until("no machine is left", |status, _| status.machines.is_empty()).await?;
        self.nothing_left()?;
        ensure!(
            self.clusters.pve.vm(FOREIGN) == foreign,
            "VM {FOREIGN}, which does not belong to the pool, was changed"
        );
        self.screen.say(&format!("VM {FOREIGN} is unchanged."))?;
        self.measures.listen();
        Ok(Summary {
            reaction,
            running,
            best: best::to_running(&cluster().timings, &KubeSpec::demo().timings, 1),
            shrinking,
            unneeded: UNNEEDED,
            nodes: self.measures.nodes(),
            calls: measure::calls(&self.clusters.pve),
        })
    }

    fn deploy(&self, name: &str, replicas: u32, cpu: &str, memory: &str) -> anyhow::Result<()> {
        let deployment = samples::deployment(name, replicas, cpu, memory);
        self.clusters.kube.apply(&deployment).map_err(anyhow::Error::msg)?;
        Ok(())
    }

    /// Shows the state on the screen until the condition is met.
    async fn until(&mut self, what: &str, is_so: impl Fn(&Status, Pods) -> bool) -> anyhow::Result<()> {
        let started = Instant::now();
        loop {
            let status = ask(&self.socket).await.context("the daemon does not answer")?;
            self.measures.listen();
            let pods = Pods::of(&self.clusters.kube);
            self.screen.show(self.began.elapsed(), &status, pods)?;
            if is_so(&status, pods) {
                return Ok(());
            }
            if started.elapsed() > LIMIT {
                bail!("still not true after {LIMIT:?}: {what}; problems: {:?}", status.problems);
            }
            tokio::time::sleep(FRAME).await;
        }
    }

    /// Returns an error if VMs, Nodes, records or tokens of removed machines are left.
    fn nothing_left(&self) -> anyhow::Result<()> {
        let vms: Vec<u32> = self
            .clusters
            .pve
            .vmids()
            .into_iter()
            .filter(|vmid| (9100..9300).contains(vmid) && *vmid != FOREIGN)
            .collect();
        ensure!(vms.is_empty(), "VMs are left over: {vms:?}");
        let name = |object: &serde_json::Value| object["metadata"]["name"].as_str().unwrap_or("").to_owned();
        let kube = &self.clusters.kube;
        let records = kube.list("ConfigMap").into_iter().map(|map| name(&map));
        let tokens = kube.list("Secret").into_iter().map(|secret| name(&secret));
        let left: Vec<String> = records
            .chain(tokens)
            .filter(|name| name.starts_with("machine-") || name.starts_with("bootstrap-token-"))
            .collect();
        ensure!(left.is_empty(), "objects are left over in Kubernetes: {left:?}");
        ensure!(kube.list("Node").len() == 1, "Nodes are left");
        Ok(())
    }
}
