//! The metrics of a machine's life, from the waiting pod to the removal.

use std::time::Duration;

use pve_autoscaler::observability::OthersNames;
use serde_json::json;

use crate::openmetrics::{Families, read};
use crate::stage::{ONE_POOL, Stage};

const SOON: Duration = Duration::from_mins(2);

fn scrape(stage: &Stage) -> Families {
    read(&stage.board().metrics().encode(&stage.status()).unwrap())
}

/// The value of a sample, by its name without the common prefix.
fn value(families: &Families, family: &str, suffix: &str, labels: &str) -> f64 {
    let found = families.get(&format!("pve_autoscaler_{family}"));
    let found = found.unwrap_or_else(|| panic!("no {family} in {:?}", families.keys()));
    found.value(suffix, labels).unwrap_or_else(|| panic!("no {family}{suffix}{labels} in {found:#?}"))
}

fn read_kinds(families: &Families, kind: &str) -> usize {
    families.values().filter(|family| family.kind == kind).count()
}

#[tokio::test(start_paused = true)]
async fn a_machines_life_is_counted_from_the_waiting_pod_to_the_removal() {
    let stage = Stage::running(ONE_POOL);
    let ready = |stage: &Stage| {
        let families = scrape(stage);
        let nodes = families.get("pve_autoscaler_nodes");
        nodes.and_then(|nodes| nodes.value("", "{pool=\"workers\",state=\"Ready\"}")) == Some(1.0)
    };
    stage.until("the pool is shown", SOON, |stage| !stage.status().pools.is_empty()).await;
    let before = scrape(&stage);
    assert!(value(&before, "machines_made", "_total", "{pool=\"workers\",outcome=\"Ready\"}") < 0.5);
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.until("the node is shown as ready", SOON, ready).await;
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    tokio::time::sleep(Duration::from_secs(15)).await;
    let grown = scrape(&stage);
    for (family, suffix, labels, expected) in [
        ("decisions", "_total", "{pool=\"workers\",decision=\"add\",reason=\"Pods\"}", 1.0),
        ("machines_made", "_total", "{pool=\"workers\",outcome=\"Ready\"}", 1.0),
        ("machines", "", "{pool=\"workers\",phase=\"Ready\"}", 1.0),
        ("machines", "", "{pool=\"workers\",phase=\"Booting\"}", 0.0),
        ("cpu_provisioned_cores", "", "{pool=\"workers\"}", 2.0),
        ("memory_provisioned_bytes", "", "{pool=\"workers\"}", f64::from(1 << 30) * 4.0),
        ("cpu_allocated_cores", "", "{pool=\"workers\"}", 1.5),
        ("pool_free_slots", "", "{pool=\"workers\"}", 9.0),
        ("pending_pods", "", "{reason=\"NewNode\"}", 0.0),
        ("pod_waiting_seconds", "_count", "", 1.0),
        ("unschedulable_to_clone_seconds", "_count", "", 1.0),
        ("unschedulable_to_ready_seconds", "_count", "", 1.0),
        ("machine_step_seconds", "_count", "{step=\"clone\"}", 1.0),
        ("machine_step_seconds", "_count", "{step=\"join\"}", 1.0),
        ("machine_step_seconds", "_count", "{step=\"whole\"}", 1.0),
        ("host_online", "", "{host=\"pve1\"}", 1.0),
        ("ready", "", "", 1.0),
        ("leader", "", "", 1.0),
        ("paused", "", "", 0.0),
        ("problem", "", "{about=\"lease\"}", 0.0),
        ("problem", "", "{about=\"proxmox\"}", 0.0),
    ] {
        let found = value(&grown, family, suffix, labels);
        assert!((found - expected).abs() < 1e-9, "{family}{suffix}{labels} is {found}, not {expected}");
    }
    let others = OthersNames { kproximate: true, ..OthersNames::default() };
    let copied = stage.board().metrics().encode_beside(&stage.status(), others).unwrap();
    for line in [
        "kpnodes_total 1.0",
        "kpnodes_running 1.0",
        "cpu_provisioned_total 2.0",
        "memory_provisioned_total 4294967296.0",
        "cpu_allocated_total 1.5",
        "memory_allocated_total 1073741824.0",
    ] {
        assert!(copied.lines().any(|one| one == line), "{line}: {copied}");
    }
    assert_eq!(copied.matches(" gauge\n").count(), 8 + read_kinds(&grown, "gauge"), "eight more");
    // The steps add up to the whole, apart from the short times between them.
    let whole = value(&grown, "machine_step_seconds", "_sum", "{step=\"whole\"}");
    let steps = ["clone", "configure", "start", "boot", "join", "ready"];
    let sum: f64 = steps
        .iter()
        .map(|step| value(&grown, "machine_step_seconds", "_sum", &format!("{{step=\"{step}\"}}")))
        .sum();
    assert!(sum <= whole + 0.001 && sum > whole * 0.9, "{sum} of {whole}");
    let waited = value(&grown, "pod_waiting_seconds", "_sum", "");
    assert!(waited >= value(&grown, "unschedulable_to_ready_seconds", "_sum", ""), "{waited}");
    assert!(value(&grown, "unschedulable_to_clone_seconds", "_sum", "") < 2.0);

    stage.kube.scale("default", "web", 0);
    stage.until("the VM is gone", Duration::from_mins(13), |stage| stage.vms(9100..=9109).is_empty()).await;
    stage.until("nothing is left", SOON, |stage| stage.leftovers().is_empty()).await;
    tokio::time::sleep(Duration::from_secs(15)).await;
    let gone = scrape(&stage);
    for (family, suffix, labels, expected) in [
        ("decisions", "_total", "{pool=\"workers\",decision=\"remove\",reason=\"Empty\"}", 1.0),
        ("machines_removed", "_total", "{pool=\"workers\",outcome=\"Removed\"}", 1.0),
        ("machine_step_seconds", "_count", "{step=\"remove\"}", 1.0),
        ("nodes", "", "{pool=\"workers\",state=\"Ready\"}", 0.0),
        ("machines", "", "{pool=\"workers\",phase=\"Ready\"}", 0.0),
        ("cpu_provisioned_cores", "", "{pool=\"workers\"}", 0.0),
    ] {
        let found = value(&gone, family, suffix, labels);
        assert!((found - expected).abs() < 1e-9, "{family}{suffix}{labels} is {found}, not {expected}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_its_kubelet_turned_away_uses_nothing_of_its_pool() {
    let stage = Stage::running(ONE_POOL);
    stage.deploy("web", 1, "500m", "1Gi");
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    let node = stage.status().machines[0].name.clone();
    let requests = json!({ "requests": { "cpu": "1", "memory": "1Gi" } });
    let turned_away = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": "late", "namespace": "default" },
        "spec": { "nodeName": node, "containers": [{ "name": "late", "image": "late", "resources": requests }] },
        "status": { "phase": "Failed", "reason": "OutOfcpu" },
    });
    stage.kube.apply(&turned_away).unwrap();
    tokio::time::sleep(Duration::from_secs(15)).await;
    let allocated = value(&scrape(&stage), "cpu_allocated_cores", "", "{pool=\"workers\"}");
    assert!((allocated - 0.5).abs() < 1e-9, "{allocated}: {}", stage.scene());
    let there = stage.kube.get("Pod", "default", "late").unwrap();
    assert_eq!((&there["status"]["phase"], &there["spec"]["nodeName"]), (&json!("Failed"), &json!(node)));
}
