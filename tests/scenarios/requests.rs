//! Tests of ProvisioningRequests with the upstream CustomResourceDefinition.

use std::time::Duration;

use serde_json::{Value, json};

use crate::buffers::template;
use crate::stage::{ONE_POOL, Stage};

const SOON: Duration = Duration::from_mins(3);
const DEFINITION: &str = include_str!("../crds/provisioningrequests.yaml");
pub const CHECK: &str = "check-capacity.autoscaling.x-k8s.io";
const ATOMIC: &str = "best-effort-atomic-scale-up.autoscaling.x-k8s.io";
const CONSUMES: &str = "autoscaling.x-k8s.io/consume-provisioning-request";

fn quick() -> String {
    ONE_POOL.replace("[[pool]]", "[scale_down]\nunneeded_time = \"1m\"\ndelay_after_add = \"0s\"\n[[pool]]")
}

pub fn install(stage: &Stage) {
    let definition: Value = serde_saphyr::from_str(DEFINITION).unwrap();
    stage.kube.apply(&definition).unwrap();
}

/// A request for this many pods of a PodTemplate, in the namespace `default`.
pub fn request(name: &str, class: &str, template: &str, count: u32) -> Value {
    json!({
        "apiVersion": "autoscaling.x-k8s.io/v1", "kind": "ProvisioningRequest",
        "metadata": { "name": name, "namespace": "default" },
        "spec": {
            "provisioningClassName": class,
            "podSets": [{ "podTemplateRef": { "name": template }, "count": count }],
        },
    })
}

/// Whether the request has a condition with this status and reason.
pub fn says(stage: &Stage, name: &str, kind: &str, status: &str, reason: &str) -> bool {
    let request = stage.kube.get("ProvisioningRequest", "default", name).unwrap();
    let conditions = request["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.iter().any(|one| one["type"] == kind && one["status"] == status && one["reason"] == reason)
}

#[tokio::test(start_paused = true)]
async fn room_for_a_request_is_made_as_one_held_and_taken_by_its_pods() {
    let mut stage = Stage::new(&quick());
    install(&stage);
    stage.kube.apply(&template("job", "1500m")).unwrap();
    stage.start();
    // Six nodes are more than the pool may have, so no machine is created at all, not even five.
    stage.kube.apply(&request("large", ATOMIC, "job", 6)).unwrap();
    stage.until("it is accepted", SOON, |stage| says(stage, "large", "Accepted", "True", "Accepted")).await;
    stage
        .until("it is answered", SOON, |stage| {
            says(stage, "large", "Provisioned", "False", "CapacityIsNotFound")
        })
        .await;
    let none = |stage: &Stage| stage.vms(9100..=9109).is_empty();
    stage.throughout("nothing is made", Duration::from_mins(5), none).await;
    // Pods that consume a ProvisioningRequest wait until it exists.
    let mut pods = world::kubernetes::samples::deployment("work", 2, "1500m", "1Gi");
    pods["spec"]["template"]["metadata"]["annotations"] = json!({ CONSUMES: "small" });
    stage.kube.apply(&pods).unwrap();
    stage.throughout("nothing is made", SOON, none).await;
    stage.kube.apply(&request("small", ATOMIC, "job", 2)).unwrap();
    stage
        .until("machines are made", SOON, |stage| {
            says(stage, "small", "Provisioned", "True", "CapacityIsProvisioned")
        })
        .await;
    stage.until("its pods run", SOON, |stage| stage.running_pods() == 2).await;
    assert_eq!(stage.vms(9100..=9109).len(), 2);
    stage
        .until("the request's booking is consumed", SOON, |stage| {
            says(stage, "small", "BookingExpired", "True", "CapacityBookingConsumed")
        })
        .await;
    // A capacity check creates no machine, and succeeds once existing nodes have room.
    stage.kube.apply(&request("none", CHECK, "job", 1)).unwrap();
    stage
        .until("it is answered", SOON, |stage| {
            says(stage, "none", "Provisioned", "False", "CapacityIsNotFound")
        })
        .await;
    stage.kube.scale("default", "work", 0);
    stage
        .until("room is found", SOON, |stage| says(stage, "none", "Provisioned", "True", "CapacityIsFound"))
        .await;
    stage.until("one node is held for the request", SOON, |stage| stage.vms(9100..=9109).len() == 1).await;
    stage.throughout("it is held", Duration::from_mins(6), |stage| stage.vms(9100..=9109).len() == 1).await;
    let over =
        |stage: &Stage| says(stage, "none", "BookingExpired", "True", "CapacityReservationTimeExpired");
    stage.until("the booking expires", Duration::from_mins(6), over).await;
    stage.until("nothing is left", SOON, none).await;
}
