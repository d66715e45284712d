//! Dedicated CPUs for machines: the leader requests them, and the daemon on the machine's host has its helper
//! set them.

use std::time::Duration;

use model::Vmid;
use pve_autoscaler::pinning::topology::{HostNode, Topology};
use pve_autoscaler::pinning::{Cpus, ENABLE};

use crate::stage::log::Arrived;
use crate::stage::{ONE_POOL, Stage};

const SOON: Duration = Duration::from_mins(4);
const HOSTS: [&str; 3] = ["pve1", "pve2", "pve3"];

/// Two NUMA nodes, each with 64 GiB and four cores of two threads.
fn topology() -> Topology {
    let node = |id: u32| HostNode {
        id,
        memory: 64 << 10,
        cores: (0..4).map(|core| [4 * id + core, 8 + 4 * id + core].into_iter().collect()).collect(),
    };
    Topology { nodes: vec![node(0), node(1)] }
}

fn pinned(more: &str) -> String {
    format!("{ONE_POOL}{more}\n[pool.pinning]\ncpus = \"dedicated\"\nnuma = true\nhugepages = \"2MiB\"\n")
}

/// A stage with a daemon on every host, and a pinning helper on each of the hosts in `helpers`.
fn stage(text: &str, helpers: &[&str]) -> Stage {
    let mut stage = Stage::new(text);
    for host in helpers {
        stage.helpers.enable(host, topology());
    }
    for host in HOSTS {
        stage.start_on(host);
    }
    stage
}

fn affinity(stage: &Stage, vmid: Vmid) -> Cpus {
    stage.pve.config_of(vmid.0, "affinity").unwrap_or_default().parse().unwrap()
}

fn said(stage: &Stage, what: &str) -> bool {
    stage.status().decisions.iter().any(|one| one.what.contains(what))
}

#[tokio::test(start_paused = true)]
async fn machines_start_with_cpus_of_their_own_and_never_share_any() {
    let stage = stage(&pinned("placement = \"spread\""), &HOSTS);
    stage.deploy("web", 5, "1500m", "1Gi");
    stage.until("the pods run", SOON, |stage| stage.running_pods() == 5).await;
    let vmids = stage.vms(9100..=9109);
    let on = |vmid: Vmid| stage.pve.vm(vmid.0).unwrap().node;
    for vmid in &vmids {
        let cpus = affinity(&stage, Vmid(*vmid));
        // A core has two threads, and the first core is the host's.
        assert!(cpus.len() == 2 && !cpus.contains(0) && !cpus.contains(8), "{cpus}");
        let host = u32::from(cpus.first().unwrap() > 3);
        let numa = format!("cpus=0-1,hostnodes={host},memory=4096,policy=bind");
        assert_eq!(stage.pve.config_of(*vmid, "numa0"), Some(numa));
        assert_eq!(stage.pve.config_of(*vmid, "hugepages").as_deref(), Some("2"));
        for other in vmids.iter().filter(|other| *other > vmid && on(Vmid(**other)) == on(Vmid(*vmid))) {
            assert!(!affinity(&stage, Vmid(*other)).meets(&cpus), "{vmid} and {other} share {cpus}");
        }
    }
    let places: std::collections::BTreeSet<String> = vmids.iter().map(|vmid| on(Vmid(*vmid))).collect();
    assert_eq!(places.len(), 3, "also hosts whose daemon does not lead have machines");
    let leader = stage.leaders()[0].to_owned();
    for host in HOSTS.into_iter().filter(|host| *host != leader) {
        let writes: Vec<_> = stage.log(host).arrived().into_iter().filter(Arrived::is_write).collect();
        assert!(writes.is_empty(), "{host}: {writes:#?}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_helper_a_machine_is_given_up_and_the_next_one_goes_elsewhere() {
    let stage = stage(&pinned("hosts = [\"pve1\", \"pve2\"]\nplacement = \"pack\""), &["pve2"]);
    stage.deploy("web", 1, "1500m", "1Gi");
    stage
        .until("the command is reported", SOON, |stage| said(stage, ENABLE) && said(stage, "as root on pve1"))
        .await;
    let problems = stage.status_of("pve1").problems;
    assert!(format!("{problems:?}").contains("does not answer"), "{problems:?}");
    let started = |path: &str| path.contains("/pve1/") && path.ends_with("/status/start");
    assert!(!stage.pve.calls().iter().any(|call| started(&call.path)), "no VM runs without its CPUs");
    stage.until("the pod runs elsewhere", SOON, |stage| stage.running_pods() == 1).await;
    assert_eq!(stage.pve.vm(stage.vms(9100..=9109)[0]).unwrap().node, "pve2");
    // The machine that was given up no longer waits for CPUs.
    stage.until("the problem is gone", SOON, |stage| stage.status_of("pve1").problems.is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn a_host_without_cpus_left_gets_no_more_machines() {
    let stage = stage(&pinned("hosts = [\"pve1\", \"pve2\"]\nplacement = \"pack\""), &["pve1", "pve2"]);
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.until("the first runs", SOON, |stage| stage.running_pods() == 1).await;
    let first = stage.vms(9100..=9109)[0];
    let host = stage.pve.vm(first).unwrap().node;
    // The first machine's VM takes all CPUs that are left.
    stage.pve.set_config_by_hand(first, "affinity", Some("1-7,9-15"));
    stage.kube.scale("default", "web", 2);
    let refused = |stage: &Stage| format!("{:?}", stage.status_of(&host).problems);
    stage
        .until("no CPUs are left", SOON, |stage| refused(stage).contains("not enough free CPUs for 2 vCPUs"))
        .await;
    stage.until("the second pod runs", Duration::from_mins(8), |stage| stage.running_pods() == 2).await;
    let others: Vec<u32> = stage.vms(9100..=9109).into_iter().filter(|vmid| *vmid != first).collect();
    assert_ne!(stage.pve.vm(others[0]).unwrap().node, host);
    stage.until("the problem is gone", SOON, |stage| stage.status_of(&host).problems.is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn a_template_that_is_pinned_itself_makes_no_machine() {
    let stage = stage(&pinned(""), &HOSTS);
    stage.pve.set_config_by_hand(9000, "affinity", Some("0-3"));
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.until("the fix is reported", SOON, |stage| said(stage, "qm set 9000 --delete affinity")).await;
    stage.until("nothing is left", SOON, |stage| stage.leftovers().is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_while_a_machine_waits_for_its_cpus_changes_nothing() {
    let mut stage = stage(&pinned("hosts = [\"pve1\"]"), &[]);
    stage.deploy("web", 1, "1500m", "1Gi");
    let waits = |stage: &Stage| {
        let maps = stage.kube.list("ConfigMap");
        maps.iter().any(|map| map["metadata"]["labels"]["pve-autoscaler/pins-on"] == "pve1")
    };
    stage.until("the machine waits", SOON, waits).await;
    let leader = stage.leaders()[0].to_owned();
    stage.kill_on(&leader);
    stage.helpers.enable("pve1", topology());
    stage.start_on(&leader);
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    assert_eq!(stage.vms(9100..=9109).len(), 1);
    assert!(!waits(&stage));
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_runs_on_other_cpus_than_its_own_is_a_problem_of_its_host() {
    let stage = stage(&pinned("hosts = [\"pve2\"]"), &HOSTS);
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    let problem = |stage: &Stage| {
        let problems = stage.status_of("pve2").problems;
        problems.into_iter().map(|one| format!("{one:?}")).find(|one| one.contains("not only on its own"))
    };
    stage.throughout("no problem is shown", Duration::from_mins(3), |stage| problem(stage).is_none()).await;
    // Proxmox VE treats this value as unset, and starts the VM on all CPUs.
    let own = affinity(&stage, Vmid(9100)).to_string();
    stage.pve.set_config_by_hand(9100, "affinity", Some("0"));
    stage.pve.stop_by_hand(9100);
    stage.until("the problem is reported", SOON, |stage| problem(stage).is_some()).await;
    let words = problem(&stage).unwrap();
    assert!(words.contains("retire workers-") && words.contains("CPUs 0-15 of pve2"), "{words}");
    stage
        .throughout("the problem is reported whether or not pve2 leads", Duration::from_mins(2), |stage| {
            problem(stage).is_some()
        })
        .await;
    stage.helpers.disable("pve2");
    stage
        .until("without its helper, it is no longer reported", SOON * 2, |stage| problem(stage).is_none())
        .await;
    stage.helpers.enable("pve2", topology());
    stage.until("the problem is reported again", SOON, |stage| problem(stage).is_some()).await;
    stage.pve.set_config_by_hand(9100, "affinity", Some(&own));
    stage.pve.stop_by_hand(9100);
    stage.until("the problem is gone", SOON, |stage| problem(stage).is_none()).await;
}
