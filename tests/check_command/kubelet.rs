//! What `check` reports about arguments that kubelets of the cluster's release no longer accept.

use world::kubernetes::spec::KubeSpec;
use world::proxmox::spec::ClusterSpec;

use crate::bench::{Bench, POOL};
use crate::words;

/// The exit status, and what `check` reports about each argument, with its level.
async fn said(version: &str, arguments: &str) -> (i32, Vec<String>) {
    said_of("kubelet_args", version, &format!("kubelet_args = {{ {arguments} }}\n")).await
}

async fn said_of(key: &str, version: &str, settings: &str) -> (i32, Vec<String>) {
    let kube = KubeSpec { version: version.to_owned(), ..KubeSpec::demo() };
    let bench = Bench::new(ClusterSpec::demo(), kube).await;
    bench.configure(&format!("{POOL}{settings}"));
    let (status, lines) = bench.about("").await;
    let of = lines.iter().filter(|line| line["key"] == key && line["pool"] == "workers");
    (status, of.map(|line| format!("{} {}", line["level"].as_str().unwrap(), words(line))).collect())
}

#[tokio::test]
async fn arguments_that_the_clusters_release_has_removed_are_errors() {
    let arguments = "containerd = \"/run/containerd/containerd.sock\", boot-id-file = \"/x\", housekeeping-interval = \"20s\"";
    let (status, said) = said("v1.37.2", arguments).await;
    assert_eq!(status, 1, "{said:#?}");
    assert_eq!(said.len(), 2, "{said:#?}");
    assert!(said[0].starts_with(
        "error `boot-id-file` was removed: a kubelet of Kubernetes 1.37 or newer does not start"
    ));
    assert!(
        said[1].starts_with("error `containerd` was removed") && said[1].contains("| remove the argument"),
        "{said:#?}"
    );
}

#[tokio::test]
async fn arguments_that_go_with_a_later_release_are_warnings() {
    let (status, said) =
        said("v1.36.3", "containerd = \"/x\", cgroup-driver = \"systemd\", cloud-config = \"\"").await;
    assert_eq!(status, 1, "`cloud-config` was already removed: {said:#?}");
    assert_eq!(said.len(), 3, "{said:#?}");
    assert!(
        said[0].starts_with("warning `cgroup-driver` is removed in Kubernetes 1.38; this cluster has 1.36"),
        "{said:#?}"
    );
    assert!(
        said[1].starts_with("error `cloud-config` was removed: a kubelet of Kubernetes 1.34"),
        "{said:#?}"
    );
    assert!(said[2].starts_with("warning `containerd` is removed in Kubernetes 1.37"), "{said:#?}");
}

#[tokio::test]
async fn nothing_is_said_of_others() {
    // The version as K3s reports it.
    let (status, said) = said("v1.37.1+k3s1", "v = 2, cloud-provider = \"external\"").await;
    assert_eq!((status, said), (0, Vec::new()));
}

#[tokio::test]
async fn feature_gates_that_a_kubelet_does_not_start_with_are_errors() {
    let (status, said) = said(
        "v1.37.2",
        "feature-gates = \"SidecarContainers=true,NodeSwap=false,NodeDeclaredFeatures=true\"",
    )
    .await;
    assert_eq!((status, said.len()), (1, 2), "{said:#?}");
    assert!(
        said[0].starts_with("error `SidecarContainers` was removed")
            && said[0].contains("| remove the feature gate"),
        "{said:#?}"
    );
    assert!(said[1].starts_with("error `NodeSwap` is locked to true since Kubernetes 1.34"), "{said:#?}");
}

#[tokio::test]
async fn feature_gates_in_the_kubelets_fields_are_looked_at_too() {
    let fields = "[pool.kubelet]\nfeatureGates = { SidecarContainers = true, PodLevelResources = true }\n";
    let (status, said) = said_of("kubelet", "v1.36.3", fields).await;
    assert_eq!((status, said.len()), (0, 1), "{said:#?}");
    assert!(said[0].starts_with("warning `SidecarContainers` is removed in Kubernetes 1.37"), "{said:#?}");
}
