//! Settings of kubelets and their serving certificates, by the kubelet's, kubeadm's, the API server's and the signer's own code.

use serde_json::Value;

use crate::real::Real;
use crate::shared::bench::{Bench, Kubernetes as _, POOL, cluster};

const SERVING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../packaging/rbac-serving.yaml");
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const SIGNER: &str = "kubernetes.io/kubelet-serving";
const SETTINGS: &str = "[pool.kubelet]\nserverTLSBootstrap = true\nsystemReserved = { cpu = \"250m\", memory = \"512Mi\" }\n\
                        evictionHard = { \"memory.available\" = \"5%\" }\n";

/// All requests for serving certificates.
async fn requests(bench: &Bench<Real>) -> Vec<Value> {
    let mut all = bench.kube.admin.list(REQUESTS).await.unwrap();
    all.retain(|one| one["spec"]["signerName"] == SIGNER);
    all
}

/// The machine's kubelet gets what its pool says, and a certificate that the cluster's CA has signed for its name and address; a
/// request of an administrator for the same is not touched.
#[tokio::test(flavor = "multi_thread")]
async fn a_kubelet_has_its_pools_settings_and_serves_with_a_certificate_for_its_own_address() {
    let Some(mut bench) = Bench::<Real>::idle(cluster(), &format!("{POOL}{SETTINGS}")).await else { return };
    bench.kube.admin.kubectl(&["delete", "csr", "--all"], "").await.unwrap();
    bench.kube.admin.kubectl(&["apply", "-f", SERVING], "").await.unwrap();
    let file = bench.file("config.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let on = "[kubernetes]\napprove_serving_certificates = true\n";
    std::fs::write(&file, text.replace("[kubernetes]\n", on)).unwrap();
    bench.start().await;
    bench.deploy("web", 1, "1500m", "1Gi").await;
    bench.until("the pod runs", |bench| bench.running() == 1).await;
    let nodes = bench.kube.list("Node");
    let node =
        nodes.iter().find(|node| node["metadata"]["labels"]["pve-autoscaler/pool"] == "workers").unwrap();
    assert_eq!(node["status"]["allocatable"]["cpu"], "1750m", "{node:#}");
    let kib = |part: &str| -> i64 {
        node["status"][part]["memory"].as_str().unwrap().trim_end_matches("Ki").parse().unwrap()
    };
    let kept = kib("capacity") - kib("allocatable") - (512 << 10);
    assert!((kept - kib("capacity") / 20).abs() <= 1, "{node:#}");

    let user = format!("system:node:{}", node["metadata"]["name"].as_str().unwrap());
    let mut signed = None;
    for _ in 0..600 {
        let all = requests(&bench).await;
        signed = all.into_iter().find(|one| one["status"]["certificate"].is_string());
        if signed.is_some() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    let all = requests(&bench).await;
    let signed = signed.unwrap_or_else(|| panic!("not signed: {all:#?}\n{}", bench.log()));
    assert_eq!(signed["spec"]["username"], *user);
    // Of somebody who is no kubelet, for the very same.
    let mut foreign = signed.clone();
    foreign["metadata"] = serde_json::json!({ "name": "foreign" });
    for field in ["status"] {
        foreign.as_object_mut().unwrap().remove(field);
    }
    bench.kube.admin.kubectl(&["create", "-f", "-"], &foreign.to_string()).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    let all = requests(&bench).await;
    let foreign = all.iter().find(|one| one["metadata"]["name"] == "foreign").unwrap();
    assert!(foreign["status"]["conditions"].is_null(), "{foreign:#}");
    assert!(bench.warnings().is_empty(), "{:?}", bench.warnings());
    bench.kube.scale("web", 0).await;
    bench.until("nothing is left", Bench::is_clean).await;
    bench.stop().await;
    bench.kube.admin.kubectl(&["delete", "-f", SERVING], "").await.unwrap();
    bench.kube.admin.kubectl(&["delete", "csr", "--all"], "").await.unwrap();
}
