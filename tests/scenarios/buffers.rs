//! Tests of CapacityBuffers with the upstream CustomResourceDefinition. A buffer is filled ahead of demand,
//! pods use its room immediately, and it is filled again.

use std::time::Duration;

use serde_json::{Value, json};
use world::kubernetes::{Effect, Fault, samples};

use crate::stage::{ONE_POOL, Stage};

const SOON: Duration = Duration::from_mins(3);
const DEFINITION: &str = include_str!("../crds/capacitybuffers.yaml");

fn quick() -> String {
    ONE_POOL.replace("[[pool]]", "[scale_down]\nunneeded_time = \"1m\"\ndelay_after_add = \"0s\"\n[[pool]]")
}

pub fn install(stage: &Stage) {
    let definition: Value = serde_saphyr::from_str(DEFINITION).unwrap();
    stage.kube.apply(&definition).unwrap();
}

/// A buffer in the namespace `default`.
pub fn buffer(name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityBuffer",
        "metadata": { "name": name, "namespace": "default" }, "spec": spec,
    })
}

/// A PodTemplate for pods like those of `samples::deployment`.
pub fn template(name: &str, cpu: &str) -> Value {
    let deployment = samples::deployment(name, 1, cpu, "1Gi");
    json!({
        "apiVersion": "v1", "kind": "PodTemplate",
        "metadata": { "name": name, "namespace": "default" }, "template": deployment["spec"]["template"],
    })
}

fn verdict(stage: &Stage) -> String {
    stage.status().buffers.first().map(|buffer| buffer.verdict.clone()).unwrap_or_default()
}

/// The status and reason of a condition of the buffer `spare`.
fn condition(stage: &Stage, kind: &str) -> (String, String) {
    let buffer = stage.kube.get("CapacityBuffer", "default", "spare").unwrap();
    let conditions = buffer["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions.iter().find(|one| one["type"] == kind).cloned().unwrap_or_default();
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    (text("status"), text("reason"))
}

fn says(stage: &Stage, kind: &str, status: &str, reason: &str) -> bool {
    condition(stage, kind) == (status.to_owned(), reason.to_owned())
}

fn bound(stage: &Stage) -> usize {
    stage.kube.list("Pod").iter().filter(|pod| pod["spec"]["nodeName"].is_string()).count()
}

#[tokio::test(start_paused = true)]
async fn a_buffer_is_filled_taken_by_pods_within_a_second_and_filled_again() {
    let stage = Stage::running(&quick());
    install(&stage);
    stage.kube.apply(&template("chunk", "1500m")).unwrap();
    stage
        .kube
        .apply(&buffer("spare", json!({ "podTemplateRef": { "name": "chunk" }, "replicas": 2 })))
        .unwrap();
    // Each chunk takes most of a node.
    stage
        .until("machines are on their way", Duration::from_mins(6), |stage| verdict(stage) == "Filling")
        .await;
    stage.until("it says so", SOON, |stage| says(stage, "Provisioning", "True", "CapacityOnItsWay")).await;
    stage.until("the buffer is filled", SOON, |stage| verdict(stage) == "Filled").await;
    assert_eq!(stage.ready_nodes("workers").len(), 2);
    let machine = &stage.status().machines[0];
    assert!(machine.why.contains("chunk 1 of a CapacityBuffer"), "{machine:?}");
    stage
        .until("it says so", SOON, |stage| says(stage, "Provisioning", "True", "FitsExistingCapacity"))
        .await;
    assert!(says(&stage, "ReadyForProvisioning", "True", "AttributesSetSuccessfully"));
    let shown = stage.kube.get("CapacityBuffer", "default", "spare").unwrap();
    assert_eq!(shown["status"]["replicas"], 2);
    assert_eq!(shown["status"]["podTemplateRef"]["name"], "chunk");
    assert_eq!(shown["status"]["podTemplateGeneration"], 1);
    assert_eq!(shown["status"]["provisioningStrategy"], "buffer.x-k8s.io/active-capacity");

    // The nodes run no pods, but the buffer keeps them.
    stage
        .throughout("nodes stay", Duration::from_mins(10), |stage| stage.ready_nodes("workers").len() == 2)
        .await;
    let version = stage.kube.latest_change("CapacityBuffer");
    stage
        .throughout("nothing is written", Duration::from_mins(5), |stage| {
            stage.kube.latest_change("CapacityBuffer") == version
        })
        .await;
    stage.deploy("web", 2, "1500m", "1Gi");
    let took = stage.until("the pods have their nodes", SOON, |stage| bound(stage) == 2).await;
    assert!(took < Duration::from_secs(1), "{took:?}");
    stage
        .until("the buffer is filled again", SOON, |stage| {
            verdict(stage) == "Filled" && stage.ready_nodes("workers").len() == 4
        })
        .await;

    // After the pods have ended, the nodes have more room than the buffer needs, so two nodes are removed.
    // Then the buffer is deleted.
    stage.kube.scale("default", "web", 0);
    stage.until("two nodes are enough", SOON, |stage| stage.vms(9100..=9109).len() == 2).await;
    assert_eq!(verdict(&stage), "Filled");
    stage.kube.remove("CapacityBuffer", "default", "spare");
    stage.until("nothing is left", SOON, |stage| stage.vms(9100..=9109).is_empty()).await;
    assert!(stage.status().buffers.is_empty());
}

#[tokio::test(start_paused = true)]
async fn where_buffers_are_not_served_nothing_is_asked_but_whether_they_are() {
    let stage = Stage::running(&quick());
    stage.until("rounds run", SOON, |stage| stage.status().ready).await;
    tokio::time::sleep(Duration::from_mins(20)).await;
    assert_eq!(stage.status().problems.len(), 0, "{:?}", stage.status().problems);
    let calls = stage.kube.calls();
    let about = |call: &&world::kubernetes::CallRecord| {
        call.path.contains("autoscaling.x-k8s.io") || call.path.contains("podtemplates")
    };
    let asked: Vec<_> = calls.iter().filter(about).collect();
    let is_question =
        |path: &str| ["/apis/autoscaling.x-k8s.io/v1beta1", "/apis/autoscaling.x-k8s.io/v1"].contains(&path);
    assert!(asked.iter().all(|call| is_question(&call.path) && call.status == 404), "{asked:?}");
    assert!((2..=12).contains(&asked.len()), "{}", asked.len());
    // Once the API server serves buffers, the daemon fills the buffer without a restart.
    install(&stage);
    stage.kube.apply(&template("chunk", "1")).unwrap();
    stage
        .kube
        .apply(&buffer("spare", json!({ "podTemplateRef": { "name": "chunk" }, "replicas": 1 })))
        .unwrap();
    stage.until("the buffer is filled", Duration::from_mins(9), |stage| verdict(stage) == "Filled").await;
}

#[tokio::test(start_paused = true)]
async fn a_share_of_a_deployment_follows_its_replicas_down_to_none() {
    let mut stage = Stage::new(&quick());
    install(&stage);
    let reference = json!({ "apiGroup": "apps", "kind": "Deployment", "name": "web" });
    stage.kube.apply(&buffer("spare", json!({ "scalableRef": reference, "percentage": 50 }))).unwrap();
    stage.start();
    stage
        .until("the missing Deployment is reported", SOON, |stage| {
            says(stage, "ReadyForProvisioning", "False", "ScalableRefNotFound")
                && says(stage, "Provisioning", "False", "NotReadyForProvisioning")
        })
        .await;
    // If the Deployment has no pods, its template describes a chunk.
    stage.deploy("web", 0, "1500m", "1Gi");
    stage.until("it is empty", SOON, |stage| says(stage, "Provisioning", "False", "BufferIsEmpty")).await;
    let chunks = |stage: &Stage, number: i64| {
        stage
            .status()
            .buffers
            .first()
            .is_some_and(|one| one.chunks == Some(number) && one.verdict == "Filled")
    };
    stage.kube.scale("default", "web", 1);
    stage.until("one chunk", SOON, |stage| chunks(stage, 1) && stage.ready_nodes("workers").len() == 2).await;
    stage.kube.scale("default", "web", 3);
    stage
        .until("two chunks", SOON, |stage| chunks(stage, 2) && stage.ready_nodes("workers").len() == 5)
        .await;
    stage.kube.scale("default", "web", 4);
    // The pool has at most five nodes, and pods take precedence over the buffer.
    stage
        .until("the buffer is short of room", SOON, |stage| {
            stage.running_pods() == 4 && says(stage, "Provisioning", "False", "InsufficientCapacity")
        })
        .await;
    assert_eq!(stage.ready_nodes("workers").len(), 5);
    stage.kube.scale("default", "web", 0);
    stage.until("nothing is left", SOON, |stage| stage.vms(9100..=9109).is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn another_autoscalers_buffer_and_observe_mode_write_nothing() {
    let other = "standby.example.com/cold";
    for (mode, strategy) in [("active", other), ("observe", "buffer.x-k8s.io/active-capacity")] {
        let mut stage = Stage::new(&format!("mode = \"{mode}\"\n{}", quick()));
        install(&stage);
        stage.kube.apply(&template("chunk", "1")).unwrap();
        let spec =
            json!({ "podTemplateRef": { "name": "chunk" }, "replicas": 1, "provisioningStrategy": strategy });
        stage.kube.apply(&buffer("spare", spec)).unwrap();
        stage.start();
        stage.until("the buffer is seen", SOON, |stage| !stage.status().buffers.is_empty()).await;
        stage
            .throughout("nothing is done", SOON, |stage| {
                stage.vms(9100..=9109).is_empty() && condition(stage, "Provisioning").1.is_empty()
            })
            .await;
    }
}

#[tokio::test(start_paused = true)]
async fn figures_that_change_with_each_look_are_no_write_a_round_nor_is_a_refusal() {
    let mut stage = Stage::new(ONE_POOL);
    install(&stage);
    stage.kube.apply(&template("chunk", "1500m")).unwrap();
    stage
        .kube
        .apply(&buffer("spare", json!({ "podTemplateRef": { "name": "chunk" }, "replicas": 1 })))
        .unwrap();
    let path = "/apis/autoscaling.x-k8s.io/v1beta1/namespaces/default/capacitybuffers/spare/status";
    let writes = |stage: &Stage| {
        let calls = stage.kube.calls();
        calls.iter().filter(|call| call.method == "PATCH" && call.path.starts_with(path)).count()
    };
    let mut tick = 0_u64;
    let mut minutes = async |stage: &Stage, minutes: u64| {
        for _ in 0..minutes * 6 {
            tick += 1;
            for host in ["pve1", "pve2", "pve3"] {
                stage.pve.set_memory_used(host, (125 << 30) + tick * (4 << 10));
            }
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
    };
    for host in ["pve1", "pve2", "pve3"] {
        stage.pve.set_memory_used(host, 125 << 30);
    }
    stage.start();
    minutes(&stage, 9).await;
    assert!(says(&stage, "Provisioning", "False", "InsufficientCapacity"), "{}", stage.scene());
    let first = writes(&stage);
    assert!((2..=10).contains(&first), "{first} writes in nine minutes");
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 403, "reason": "Forbidden",
        "message": "capacitybuffers.autoscaling.x-k8s.io \"spare\" is forbidden",
    });
    let effect = Effect::Answer { status: 403, body };
    stage.kube.inject(Fault { method: "PATCH".to_owned(), path: path.to_owned(), times: usize::MAX, effect });
    minutes(&stage, 20).await;
    let refused = writes(&stage) - first;
    assert!((3..=6).contains(&refused), "{refused} writes in twenty minutes of refusals");
    assert!(stage.status().problems.contains_key("buffers"), "{:?}", stage.status().problems);
    stage.kube.forget_faults();
    minutes(&stage, 12).await;
    assert!(!stage.status().problems.contains_key("buffers"), "{:?}", stage.status().problems);
}
