//! Devices for claims, starting from zero nodes. The first machine is created because of the declared
//! devices, and the next one because of the published devices.

use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;

use crate::record::{recording, replays};
use crate::stage::Stage;

const SOON: Duration = Duration::from_mins(2);
const DRIVER: &str = "gpu.example.com";

fn declared(count: u32) -> String {
    format!("[[pool.device]]\ndriver = \"{DRIVER}\"\ncount = {count}\nattributes = {{ model = \"a\" }}\n")
}

/// A stage whose pool declares devices, with a DeviceClass of the driver.
fn stage(text: &str) -> Stage {
    let stage = Stage::running(text);
    let selector = json!({ "cel": { "expression": format!("device.driver == \"{DRIVER}\"") } });
    let class = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": { "name": "gpu" },
        "spec": { "selectors": [selector] },
    });
    stage.kube.apply(&class).unwrap();
    stage
}

/// Deploys a pod with a claim for one device.
fn ask(stage: &Stage, name: &str) {
    let request = json!({ "name": "gpu", "exactly": { "deviceClassName": "gpu", "count": 1 } });
    let claim = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": { "name": name, "namespace": "default" },
        "spec": { "devices": { "requests": [request] } },
    });
    stage.kube.apply(&claim).unwrap();
    let requests = json!({ "requests": { "cpu": "100m", "memory": "64Mi" } });
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": "default" },
        "spec": {
            "containers": [{ "name": "main", "image": "registry.k8s.io/pause:3.10", "resources": requests }],
            "resourceClaims": [{ "name": "gpu", "resourceClaimName": name }],
        },
    });
    stage.kube.apply(&pod).unwrap();
}

/// Publishes devices, as the driver does once it runs on a node.
fn publish(stage: &Stage, node: &str, devices: usize) {
    let devices: Vec<_> = (0..devices)
        .map(
            |number| json!({ "name": format!("gpu-{number}"), "attributes": { "model": { "string": "a" } } }),
        )
        .collect();
    let slice = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": { "name": format!("{node}-gpu") },
        "spec": {
            "driver": DRIVER, "nodeName": node, "devices": devices,
            "pool": { "name": node, "generation": 1, "resourceSliceCount": 1 },
        },
    });
    stage.kube.apply(&slice).unwrap();
}

fn machines(stage: &Stage) -> usize {
    stage.vms(9100..=9109).len()
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_publishes_less_than_is_declared_costs_one_machine_and_no_more() {
    let folder = TempDir::new().unwrap();
    let text = format!("{}{}", recording(folder.path(), 1000), declared(2));
    let stage = stage(&text);
    ask(&stage, "one");
    ask(&stage, "two");
    stage.until("a node is ready", SOON, |stage| stage.ready_nodes("workers").len() == 1).await;
    // The driver is slow, but the declaration says what it will publish.
    stage.throughout("no second machine is made", Duration::from_mins(3), |stage| machines(stage) == 1).await;
    assert_eq!(stage.running_pods(), 0);
    let first = stage.ready_nodes("workers").remove(0);
    publish(&stage, &first, 1);
    stage.until("there is a second node", SOON, |stage| stage.ready_nodes("workers").len() == 2).await;
    let second = stage.ready_nodes("workers").into_iter().find(|node| *node != first).unwrap();
    publish(&stage, &second, 1);
    stage.until("both pods run", SOON, |stage| stage.running_pods() == 2).await;
    let warning = stage.status().warnings.remove("[[pool.device]] of workers");
    let said = format!(
        "the pool declares 2 devices of {DRIVER}, but node {second} has 1: the planner uses the devices that \
         the nodes publish"
    );
    assert_eq!(warning.as_deref(), Some(said.as_str()));
    // The pool grows from zero nodes again: the daemon remembers which devices earlier nodes had.
    for name in ["one", "two"] {
        stage.kube.remove("Pod", "default", name);
    }
    stage.until("no machine is left", Duration::from_mins(6), |stage| machines(stage) == 0).await;
    for node in [first, second] {
        stage.kube.remove("ResourceSlice", "", &format!("{node}-gpu"));
    }
    ask(&stage, "three");
    ask(&stage, "four");
    stage.until("two nodes are ready", SOON, |stage| stage.ready_nodes("workers").len() == 2).await;
    assert!(replays(folder.path(), &text) > 10, "rounds were recorded");
    // The declaration has changed, so the daemon no longer uses the devices that it remembers.
    for name in ["three", "four"] {
        stage.kube.remove("Pod", "default", name);
    }
    stage.until("no machine is left", Duration::from_mins(8), |stage| machines(stage) == 0).await;
    stage.reload(&text.replace(&declared(2), &declared(3)));
    for name in ["five", "six", "seven"] {
        ask(&stage, name);
    }
    stage.until("a node is ready", SOON, |stage| stage.ready_nodes("workers").len() == 1).await;
    assert_eq!(machines(&stage), 1);
}
