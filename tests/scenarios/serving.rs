//! Kubelets' serving certificates: those of the daemon's machines are approved if that is enabled; all others
//! are left to other approvers.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use world::kubernetes::spec::{KubeSpec, ServiceAccountSpec};
use world::kubernetes::{Effect, Fault};
use world::proxmox::spec::ClusterSpec;

use crate::rights::without_each;
use crate::stage::{ONE_POOL, Stage, name};

const SOON: Duration = Duration::from_mins(4);
const SERVING: &str = include_str!("../../packaging/rbac-serving.yaml");
const ALL: &str = include_str!("../../packaging/rbac.yaml");
const ACCOUNT: &str = "system:serviceaccount:pve-autoscaler:pve-autoscaler";

fn switched_on() -> String {
    ONE_POOL.replace("[kubernetes]\n", "[kubernetes]\napprove_serving_certificates = true\n")
}

/// The certificate signing requests of a Node's kubelet.
fn of(stage: &Stage, node: &str) -> Vec<Value> {
    let user = format!("system:node:{node}");
    let all = stage.kube.list("CertificateSigningRequest").into_iter();
    all.filter(|one| one["spec"]["username"] == *user).map(|one| (*one).clone()).collect()
}

fn is_approved(request: &Value) -> bool {
    let conditions = request["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|one| one["type"] == "Approved")
}

fn is_untouched(request: &Value) -> bool {
    request["status"]["conditions"].as_array().is_none_or(Vec::is_empty)
}

fn has_certificate(stage: &Stage, node: &str) -> bool {
    of(stage, node).iter().any(|one| one["status"]["certificate"].is_string())
}

async fn grown(stage: &mut Stage) -> String {
    stage.kube.set_server_tls_bootstrap(true);
    stage.start();
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.until("a node comes", SOON, |stage| stage.ready_nodes("workers").len() == 1).await;
    stage.ready_nodes("workers").remove(0)
}

/// A certificate signing request from this user, with the contents of another request.
fn request(name: &str, user: &str, like: &Value) -> Value {
    json!({
        "kind": "CertificateSigningRequest",
        "metadata": { "name": name },
        "spec": {
            "request": like["spec"]["request"],
            "signerName": "kubernetes.io/kubelet-serving",
            "usages": ["digital signature", "server auth"],
            "username": user,
            "groups": ["system:nodes", "system:authenticated"],
        },
    })
}

#[tokio::test(start_paused = true)]
async fn a_machine_gets_its_serving_certificate_and_others_requests_are_not_touched() {
    let mut stage = Stage::new(&switched_on());
    let node = grown(&mut stage).await;
    stage.until("the kubelet has its certificate", SOON, |stage| has_certificate(stage, &node)).await;
    let own = of(&stage, &node);
    assert!(own.len() == 1 && is_approved(&own[0]), "{own:?}");
    let said = own[0]["status"]["conditions"][0]["message"].as_str().unwrap();
    assert!(said.starts_with("for the name and addresses of machine "), "{said}");
    let pem = STANDARD.decode(own[0]["spec"]["request"].as_str().unwrap()).unwrap();
    assert!(pem.starts_with(b"-----BEGIN CERTIFICATE REQUEST"));

    // None of the following requests is approved: the machine's node requests another node's names, another
    // node requests the machine's names, the client is not a kubelet, or the signer is a different one.
    let foreign = of(&stage, "cp1").remove(0);
    let user = format!("system:node:{node}");
    stage.kube.apply(&request("greedy", &user, &foreign)).unwrap();
    stage.kube.apply(&request("foreign", "system:node:cp1", &own[0])).unwrap();
    stage.kube.apply(&request("other", "system:serviceaccount:default:a", &own[0])).unwrap();
    let mut client = request("client", &user, &own[0]);
    client["spec"]["signerName"] = json!("kubernetes.io/kube-apiserver-client-kubelet");
    stage.kube.apply(&client).unwrap();
    let warned = |stage: &Stage| {
        let events = stage.kube.list("Event");
        events.iter().any(|event| {
            event["reason"] == "ServingCertificateNotApproved"
                && event["message"]
                    .as_str()
                    .is_some_and(|note| note.contains("greedy") && note.contains("cp1"))
        })
    };
    stage.until("an event says why", SOON, warned).await;
    let still = |stage: &Stage| {
        let all = stage.kube.list("CertificateSigningRequest");
        all.iter().filter(|one| name(one) != name(&own[0])).all(|one| is_untouched(one))
    };
    stage.throughout("no other request is decided", Duration::from_mins(2), still).await;
    assert!(stage.status().problems.is_empty(), "{:?}", stage.status().problems);
}

#[tokio::test(start_paused = true)]
async fn no_certificate_is_approved_unless_that_is_switched_on() {
    let mut stage = Stage::new(ONE_POOL);
    let node = grown(&mut stage).await;
    stage.until("it asks", SOON, |stage| !of(stage, &node).is_empty()).await;
    let open = |stage: &Stage| of(stage, &node).iter().all(is_untouched);
    stage.throughout("nothing is decided", Duration::from_mins(2), open).await;
    let looked = |stage: &Stage| {
        stage.kube.calls().iter().any(|call| call.path.contains("/certificatesigningrequests"))
    };
    assert!(!looked(&stage), "requests are not even looked at");
    stage.reload(&switched_on());
    stage.until("the kubelet has its certificate", SOON, |stage| has_certificate(stage, &node)).await;
    // Approval is switched off again, so the next request waits.
    stage.reload(ONE_POOL);
    let again = request("again", &format!("system:node:{node}"), &of(&stage, &node)[0]);
    tokio::time::sleep(Duration::from_secs(1)).await;
    stage.kube.apply(&again).unwrap();
    let waits =
        |stage: &Stage| is_untouched(&stage.kube.get("CertificateSigningRequest", "", "again").unwrap());
    stage.throughout("it waits", Duration::from_mins(1), waits).await;
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_for_the_api_server_is_approved_later() {
    let mut stage = Stage::new(&switched_on());
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests/*/approval".to_owned();
    stage.kube.inject(Fault { method: "PATCH".to_owned(), path, times: 2, effect: Effect::Lose });
    let node = grown(&mut stage).await;
    stage.until("the kubelet has its certificate", SOON, |stage| has_certificate(stage, &node)).await;
}

#[tokio::test(start_paused = true)]
async fn requests_that_are_refused_hold_up_no_other() {
    let mut stage = Stage::new(&switched_on());
    let node = grown(&mut stage).await;
    stage.until("the kubelet has its certificate", SOON, |stage| has_certificate(stage, &node)).await;
    let (own, foreign) = (of(&stage, &node).remove(0), of(&stage, "cp1").remove(0));
    let user = format!("system:node:{node}");
    for number in 0..100 {
        stage.kube.apply(&request(&format!("greedy-{number}"), &user, &foreign)).unwrap();
    }
    tokio::time::sleep(Duration::from_mins(1)).await;
    stage.kube.apply(&request("renewal", &user, &own)).unwrap();
    let approved =
        |stage: &Stage| is_approved(&stage.kube.get("CertificateSigningRequest", "", "renewal").unwrap());
    stage.until("the valid request is approved", SOON, approved).await;
    assert_eq!(of(&stage, &node).iter().filter(|one| is_untouched(one)).count(), 100);
}

/// A stage in which the daemon has the rights of `packaging/rbac.yaml` and of these documents.
fn with_rights(documents: &[Value]) -> Stage {
    let account = ServiceAccountSpec {
        name: ACCOUNT.to_owned(),
        token: KubeSpec::DEMO_ADMIN_TOKEN.to_owned(),
        rules: Vec::new(),
    };
    let admin_token = "not-known-here".to_owned();
    let kube = KubeSpec { admin_token, service_accounts: vec![account], ..KubeSpec::demo() };
    let stage = Stage::of(&switched_on(), ClusterSpec::demo(), kube);
    let shipped: Vec<Value> = serde_saphyr::from_multiple(ALL).unwrap();
    let about_roles = |one: &&Value| one["apiVersion"] == "rbac.authorization.k8s.io/v1";
    for document in shipped.iter().filter(about_roles).chain(documents) {
        stage.kube.apply(document).unwrap();
    }
    stage
}

#[tokio::test(start_paused = true)]
async fn certificates_need_each_right_of_the_manifest_that_is_shipped_for_them_and_no_other() {
    let documents: Vec<Value> = serde_saphyr::from_multiple(SERVING).unwrap();
    let mut stage = with_rights(&documents);
    let node = grown(&mut stage).await;
    stage.until("the kubelet has its certificate", SOON, |stage| has_certificate(stage, &node)).await;
    stage.kill();
    let variants = without_each(&documents);
    assert_eq!(variants.len(), 4);
    for (right, documents) in variants {
        let mut stage = with_rights(&documents);
        let node = grown(&mut stage).await;
        let shown = |stage: &Stage| stage.status().problems.contains_key("certificates");
        stage.until(&format!("a problem is shown without {right}"), SOON, shown).await;
        if !right.starts_with("watch") {
            assert!(!has_certificate(&stage, &node), "without {right}");
        }
    }
}
