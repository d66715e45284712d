//! Three daemons, one of them the leader: when the leader is killed or stopped, another daemon takes over.

use std::path::{Path, PathBuf};

use lab::daemon;
use tokio::process::{Child, Command};
use tokio::time::Instant;

use super::bench::{Bench, Kubernetes, POOL, cluster};

/// One host's daemon.
struct Host {
    directory: PathBuf,
    child: Option<Child>,
}

impl Host {
    fn launch(&mut self) {
        let program = Path::new(env!("CARGO_BIN_EXE_lab"));
        let name = self.directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
        self.child = Some(daemon::launch_as(program, &self.directory, &name).unwrap());
    }
}

/// Starts daemons with the same settings on three hosts.
async fn hosts<K: Kubernetes>(bench: &Bench<K>) -> Vec<Host> {
    let mut hosts = Vec::new();
    for name in ["host-a", "host-b", "host-c"] {
        let directory = PathBuf::from(bench.file(name));
        std::fs::create_dir(&directory).unwrap();
        std::fs::copy(bench.file("config.toml"), directory.join("config.toml")).unwrap();
        let mut host = Host { directory, child: None };
        host.launch();
        daemon::ready(host.child.as_mut().unwrap(), &host.directory).await.unwrap();
        hosts.push(host);
    }
    hosts
}

fn leader<K: Kubernetes>(bench: &Bench<K>) -> Option<String> {
    let leases = bench.kube.list("Lease");
    let lease = leases.iter().find(|lease| lease["metadata"]["name"] == "pve-autoscaler")?;
    Some(lease["spec"]["holderIdentity"].as_str()?.to_owned())
}

fn place(hosts: &[Host], leader: &str) -> usize {
    hosts.iter().position(|host| host.directory.ends_with(leader)).unwrap()
}

/// The leader is killed, then the next leader is stopped. Each time, another daemon creates the machine that
/// is needed.
pub async fn another_daemon_goes_on_when_the_one_that_leads_dies_or_ends<K: Kubernetes>() {
    let allowed = Command::new("unshare").args(["--uts", "hostname", "host-a"]).output().await;
    if !allowed.is_ok_and(|output| output.status.success()) {
        let is_ci = std::env::var("CI").is_ok_and(|value| value == "true");
        assert!(!is_ci, "no permission to give processes their own host names, or no `unshare`");
        println!("skipped: no permission to give processes their own host names, or no `unshare`");
        return;
    }
    let Some(bench) = Bench::<K>::idle(cluster(), POOL).await else { return };
    let mut hosts = hosts(&bench).await;
    bench.deploy("web", 0, "1500m", "1Gi").await;
    for crash in [true, false] {
        bench.until("one leads", |bench| leader(bench).is_some_and(|now| !now.is_empty())).await;
        let led = leader(&bench).unwrap();
        let at = place(&hosts, &led);
        let child = hosts[at].child.take().unwrap();
        let begun = Instant::now();
        if crash {
            let mut child = child;
            child.kill().await.unwrap();
        } else {
            daemon::stop(child).await.unwrap();
        }
        // Another daemon must take over and create the machine.
        bench.kube.scale("web", 1).await;
        bench
            .until("another one leads", |bench| {
                leader(bench).is_some_and(|now| !now.is_empty() && now != led)
            })
            .await;
        let took_over = begun.elapsed();
        bench.until("a machine is created", |bench| !bench.vms().is_empty()).await;
        let made = begun.elapsed();
        let how = if crash { "killed" } else { "ended" };
        println!(
            "{led} was {how}; another daemon led after {took_over:.1?}, and its first VM existed after {made:.1?}"
        );
        bench.until("the pod runs", |bench| bench.running() == 1).await;
        bench.kube.scale("web", 0).await;
        hosts[at].launch();
        bench.until("nothing is left", Bench::is_clean).await;
    }
    for host in &mut hosts {
        daemon::stop(host.child.take().unwrap()).await.unwrap();
    }
}
