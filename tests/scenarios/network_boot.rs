//! Machines that are created without a template, and boot from the network.

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::json;
use world::guest::FIRST_BOOT;
use world::kubernetes::spec::KubeSpec;
use world::proxmox::spec::ClusterSpec;
use world::proxmox::{Effect, Fault};

use crate::stage::{ONE_POOL, Stage};

const SOON: Duration = Duration::from_mins(3);
const LATE: Duration = Duration::from_hours(1);
const TOKEN: &str = "abcdef.0123456789abcdef";

/// A pool without a template, whose unneeded nodes are removed after a minute.
fn text() -> String {
    let head = ONE_POOL.split_once("[bootstrap]").unwrap().0;
    format!(
        "{head}[bootstrap]\nmethod = \"none\"\n[scale_down]\nunneeded_time = \"1m\"\ndelay_after_add = \"0s\"\n\
         [[pool]]\nname = \"workers\"\nmax = 5\ncores = 2\nmemory = \"4GiB\"\nboot = \"network\"\ndisk = \"16GiB\"\n\
         storage = [\"shared\", \"local-lvm\"]\nvmids = \"9100-9109\"\naddresses = \"dhcp\"\nbridge = \"vmbr0\"\n\
         vm_options = {{ cpu = \"host\" }}\n"
    )
}

/// A stage whose network serves an image that joins by itself.
fn stage() -> Stage {
    let stage = Stage::of(&text(), ClusterSpec::demo(), KubeSpec::demo());
    let (id, secret) = TOKEN.split_once('.').unwrap();
    let secret = json!({
        "kind": "Secret", "metadata": { "name": format!("bootstrap-token-{id}"), "namespace": "kube-system" },
        "type": "bootstrap.kubernetes.io/token",
        "stringData": { "token-id": id, "token-secret": secret, "usage-bootstrap-authentication": "true",
            "usage-bootstrap-signing": "true", "auth-extra-groups": "system:bootstrappers:kubeadm:default-node-token" },
    });
    stage.kube.apply(&secret).unwrap();
    let join = json!({
        "apiVersion": "kubeadm.k8s.io/v1beta4", "kind": "JoinConfiguration",
        "discovery": { "bootstrapToken": { "apiServerEndpoint": KubeSpec::demo().endpoint, "token": TOKEN,
            "unsafeSkipCAVerification": true } },
    });
    stage.pve.serve_network_boot("/etc/kubernetes/join.json", &join.to_string());
    stage.pve.serve_network_boot(FIRST_BOOT, "kubeadm join --config /etc/kubernetes/join.json");
    stage
}

/// The number of machine records.
fn records(stage: &Stage) -> usize {
    stage.leftovers().iter().filter(|name| name.starts_with("machine-")).count()
}

async fn all_gone(stage: &Stage) {
    stage.kube.scale("default", "web", 0);
    stage
        .until("nothing is left", LATE, |stage| stage.vms(9100..=9109).is_empty() && records(stage) == 0)
        .await;
}

#[tokio::test(start_paused = true)]
async fn an_empty_vm_boots_from_the_network_serves_and_goes() {
    let mut stage = stage();
    stage.start();
    stage.deploy("web", 2, "1500m", "1Gi");
    stage.until("two pods run", SOON, |stage| stage.running_pods() == 2).await;
    let vm = stage.pve.vm(9100).unwrap();
    assert_eq!(vm.config["boot"], "order=net0;virtio0");
    assert_eq!((vm.config["cores"].as_str(), vm.config["memory"].as_str()), ("2", "4096"));
    assert!(vm.config["virtio0"].contains("size=16G"), "{:?}", vm.config);
    assert!(vm.config["net0"].contains("bridge=vmbr0"), "{:?}", vm.config);
    assert!(vm.config["description"].starts_with("pve-autoscaler/v1 cluster=lab pool=workers"));
    for (key, value) in [("cpu", "host"), ("onboot", "1"), ("balloon", "0"), ("agent", "enabled=0")] {
        assert_eq!(vm.config[key], value, "{key}");
    }
    assert!(vm.config.keys().all(|key| !key.starts_with("ide")), "the VM has no cloud-init drive");
    all_gone(&stage).await;
}

#[tokio::test(start_paused = true)]
async fn a_creation_whose_answer_is_lost_leaves_nothing_behind() {
    for effect in [Effect::WorkThenLose, Effect::WorkThenTimeOut, Effect::Lose] {
        let mut stage = stage();
        let path = "/nodes/*/qemu".to_owned();
        stage.pve.inject(Fault { method: "POST".into(), path, times: 1, effect: effect.clone() });
        stage.start();
        stage.deploy("web", 1, "1500m", "1Gi");
        stage.until("the pod runs", LATE, |stage| stage.running_pods() == 1).await;
        assert_eq!(stage.vms(9100..=9109).len(), 1, "{effect:?}");
        all_gone(&stage).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_kill_at_each_call_of_a_creation_makes_one_vm() {
    let calls = {
        let mut stage = stage();
        stage.start();
        stage.deploy("web", 1, "1500m", "1Gi");
        stage.until("the VM runs", SOON, |stage| stage.pve.vm(9100).is_some_and(|vm| vm.running)).await;
        stage.calls.load(Ordering::SeqCst)
    };
    for last in calls.saturating_sub(14)..=calls {
        let mut stage = stage();
        stage.deploy("web", 1, "1500m", "1Gi");
        stage.start_until(last);
        stage.until("the daemon is cut off", SOON, Stage::is_cut).await;
        stage.kill();
        stage.start();
        stage.until("the pod runs", LATE, |stage| stage.running_pods() == 1).await;
        let left = (stage.vms(9100..=9109).len(), records(&stage));
        assert_eq!(left, (1, 1), "after a kill at call {last} of {calls}");
    }
}
