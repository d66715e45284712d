//! Machines that become nodes without kubeadm: by themselves, with a K3s agent, or with a command.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;
use world::guest::{FIRST_BOOT, GuestFaults};
use world::kubernetes::spec::KubeSpec;
use world::proxmox::spec::ClusterSpec;
use world::proxmox::{Effect, Fault};

use crate::stage::{ONE_POOL, Stage};

const SOON: Duration = Duration::from_mins(2);
const TEMPLATE: u32 = 9000;
const SERVER_TOKEN: &str = "K10c0ffee::server:a-secret-of-the-cluster";

fn with(bootstrap: &str) -> String {
    assert!(ONE_POOL.contains("method = \"kubeadm\"\n"));
    ONE_POOL.replace("method = \"kubeadm\"\n", bootstrap)
}

/// `cluster-info` is never signed with a token that has already expired by the API server's clock.
#[tokio::test(start_paused = true)]
async fn a_machine_joins_however_wrong_the_clock_is_and_it_is_said() {
    for minutes in [-180, -60, 0, 60] {
        let mut stage = Stage::of(ONE_POOL, ClusterSpec::demo(), KubeSpec::demo());
        stage.ahead = jiff::SignedDuration::from_mins(minutes);
        stage.start();
        stage.deploy("web", 1, "1500m", "1Gi");
        stage.until("the pod runs", SOON * 2, |stage| stage.running_pods() == 1).await;
        let said = stage.status().problems.get("clock").cloned().unwrap_or_default();
        let which = if minutes < 0 { "behind" } else { "ahead of" };
        assert_eq!(said.contains(which), minutes != 0, "{minutes}: {said}");
    }
}

/// The demo cluster, whose template has no guest agent.
fn without_agent() -> ClusterSpec {
    let mut cluster = ClusterSpec::demo();
    for vm in cluster.vms.iter_mut().filter(|vm| vm.vmid == TEMPLATE) {
        vm.config.remove("agent");
        vm.faults = GuestFaults { agent_never: true, ..GuestFaults::default() };
    }
    cluster
}

/// A stage whose template joins by itself, with a token from its image.
fn joins_by_itself(cluster: ClusterSpec) -> Stage {
    self_joining(&with("method = \"none\"\n"), cluster)
}

/// Like [`joins_by_itself`], with these settings.
fn self_joining(text: &str, cluster: ClusterSpec) -> Stage {
    let mut stage = Stage::of(text, cluster, KubeSpec::demo());
    let token = "abcdef.0123456789abcdef";
    let (id, secret) = token.split_once('.').unwrap();
    let secret = json!({
        "kind": "Secret", "metadata": { "name": format!("bootstrap-token-{id}"), "namespace": "kube-system" },
        "type": "bootstrap.kubernetes.io/token",
        "stringData": { "token-id": id, "token-secret": secret, "usage-bootstrap-authentication": "true",
            "usage-bootstrap-signing": "true", "auth-extra-groups": "system:bootstrappers:kubeadm:default-node-token" },
    });
    stage.kube.apply(&secret).unwrap();
    let join = json!({
        "apiVersion": "kubeadm.k8s.io/v1beta4", "kind": "JoinConfiguration",
        "discovery": { "bootstrapToken": { "apiServerEndpoint": KubeSpec::demo().endpoint, "token": token,
            "unsafeSkipCAVerification": true } },
    });
    stage.pve.write_to_disk(TEMPLATE, "/etc/kubernetes/join.json", &join.to_string());
    stage.pve.write_to_disk(TEMPLATE, FIRST_BOOT, "kubeadm join --config /etc/kubernetes/join.json");
    stage.start();
    stage
}

#[tokio::test(start_paused = true)]
async fn a_template_that_joins_by_itself_needs_no_agent_and_no_token() {
    let stage = joins_by_itself(without_agent());
    stage.deploy("web", 2, "1500m", "1Gi");
    stage.until("both pods run", SOON, |stage| stage.running_pods() == 2).await;
    let nodes = stage.ready_nodes("workers");
    assert_eq!(nodes.len(), 2, "both Nodes have the pool's label");
    let calls = stage.pve.calls();
    assert!(calls.iter().all(|call| !call.path.contains("/agent/")), "the guest agent is never called");
    let records = stage.leftovers();
    assert_eq!(records, ["machine-workers-9100", "machine-workers-9101", "bootstrap-token-abcdef"]);
    stage.kube.scale("default", "web", 0);
    stage
        .until("only the template's own token is left", Duration::from_mins(30), |stage| {
            stage.vms(9100..=9109).is_empty() && stage.leftovers() == ["bootstrap-token-abcdef"]
        })
        .await;
    let calls = stage.pve.calls();
    let of = |kind: &str| calls.iter().filter(|call| call.path.ends_with(kind)).count();
    assert_eq!((of("/status/shutdown"), of("/status/stop")), (2, 0), "VMs are shut down, not stopped");
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_was_to_join_by_itself_and_did_not_says_what_was_seen() {
    let mut stage = Stage::of(&with("method = \"none\"\n"), without_agent(), KubeSpec::demo());
    stage.start();
    stage.deploy("web", 1, "1", "1Gi");
    let said = "its Node did not register within 10 min: the VM is running, but no Node has its name or its systemUUID";
    stage
        .until("the machine has failed", Duration::from_mins(12), |stage| {
            stage.status().decisions.iter().any(|one| one.what.contains(said))
        })
        .await;
    stage.until("the VM is gone", SOON, |stage| stage.vms(9100..=9109).is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn pools_become_nodes_each_in_their_own_way() {
    let own = "[pool.bootstrap]\nmethod = \"none\"\n";
    let other = ONE_POOL.split_once("[[pool]]").unwrap().1;
    let other = other
        .replace("\"workers\"", "\"local\"")
        .replace("9000", "\"k8s-worker-local\"")
        .replace("9100-9109", "9200-9209")
        .replace("10.10.10.11-10.10.10.20", "10.10.10.111-10.10.10.120");
    let stage = self_joining(&format!("{ONE_POOL}{own}[[pool]]{other}"), without_agent());
    for pool in ["workers", "local"] {
        let spec = json!({ "nodeSelector": { "pve-autoscaler/pool": pool } });
        stage.deploy_with(pool, 1, "1500m", "1Gi", &spec);
    }
    stage
        .until("the machine of the other pool has its token", SOON, |stage| stage.leftovers().len() == 4)
        .await;
    stage.until("both pods run", SOON, |stage| stage.running_pods() == 2).await;
    for (pool, vmid) in [("workers", 9100), ("local", 9200)] {
        assert_eq!(stage.ready_nodes(pool).len(), 1, "{pool}");
        assert!(stage.pve.vm(vmid).unwrap().running, "{vmid}");
    }
    // Two records and the template's own token are left: the daemon deletes only the token that it created.
    stage.until("the daemon's token is gone", SOON, |stage| stage.leftovers().len() == 3).await;
}

#[tokio::test(start_paused = true)]
async fn a_template_without_a_cloud_init_drive_is_taken_where_guests_need_not_be_told_anything() {
    let mut cluster = without_agent();
    cluster.vms[0].config.remove("ide2");
    let own = "prefix = 24\ngateway = \"10.10.10.1\"\ndns = [\"10.10.10.1\"]\n";
    assert!(ONE_POOL.contains(own));
    let dhcp = with("method = \"none\"\n").replace(own, "").replace("10.10.10.11-10.10.10.20", "dhcp");
    let stage = self_joining(&dhcp, cluster);
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_restart_while_a_machine_joins_by_itself_loses_nothing() {
    let mut stage = joins_by_itself(without_agent());
    stage.deploy("web", 1, "1", "1Gi");
    stage.until("the VM runs", SOON, |stage| stage.pve.vm(9100).is_some_and(|vm| vm.running)).await;
    stage.kill();
    tokio::time::sleep(Duration::from_secs(5)).await;
    stage.start();
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    assert_eq!(stage.vms(9100..=9109), [9100]);
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_waits_and_is_started_by_an_administrator_is_kept_as_the_node_that_it_becomes() {
    let text = with("method = \"none\"\n").replace("max = 5", "max = 5\nwarm = { count = 1 }");
    let mut stage = self_joining(&text, without_agent());
    let waits = |stage: &Stage| stage.status().machines.iter().any(|machine| machine.phase == "Warm");
    stage.until("a warm machine waits", SOON, waits).await;
    // In the second pass, no instance is running when the machine starts, so pods run on it before the daemon
    // notices the start.
    for (number, unseen) in [(1, false), (2, true)] {
        let vmid = *stage.vms(9100..=9109).last().unwrap();
        if unseen {
            stage.kill();
        }
        stage.pve.start_by_hand(vmid);
        if unseen {
            stage.kube.scale("default", "web", 4);
            tokio::time::sleep(Duration::from_mins(2)).await;
            stage.start();
        } else {
            stage.deploy("web", 1, "500m", "1Gi");
        }
        let joined = |stage: &Stage| stage.ready_nodes("workers").len() == number && waits(stage);
        stage.until("the machine is a node, and another one waits", SOON * 5, joined).await;
        let running = if unseen { 4 } else { 1 };
        stage.until("the pods run", SOON, |stage| stage.running_pods() == running).await;
        let another = |stage: &Stage| stage.vms(9100..=9109).len() > number && waits(stage);
        stage.until("another warm machine takes its place", SOON, another).await;
        assert_eq!(stage.vms(9100..=9109).len(), number + 1, "no other machine was made");
        assert_eq!(
            stage.pve.vm(vmid).unwrap().config["onboot"],
            "1",
            "the VM starts with its host from now on"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_joins_by_itself_again_while_it_is_given_up_keeps_its_power_and_its_pods() {
    for seen in [true, false] {
        let stage = joins_by_itself(without_agent());
        stage.deploy("web", 1, "1500m", "1Gi");
        stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
        let (name, host) = (stage.ready_nodes("workers")[0].clone(), stage.pve.vm(9100).unwrap().node);
        stage.pve.power_off_host(&host);
        stage.kube.remove("Node", "", &name);
        let given_up = |stage: &Stage| stage.status().machines.iter().any(|one| one.phase == "Failed");
        stage.until("the machine is given up", Duration::from_mins(30), given_up).await;
        stage.pve.set_away(true);
        stage.stall.set(!seen);
        stage.pve.power_on_host(&host);
        stage.until("the pod runs again", SOON, |stage| stage.running_pods() == 1).await;
        stage.pve.set_away(false);
        let serves =
            |stage: &Stage| stage.pve.vm(9100).is_some_and(|vm| vm.running) && stage.running_pods() == 1;
        stage.throughout("the machine serves", Duration::from_mins(5), serves).await;
        stage.stall.set(false);
        let ready = |stage: &Stage| stage.ready_nodes("workers").contains(&name);
        stage.until("the machine is one of the pool's nodes again", SOON, ready).await;
        stage.throughout("the machine serves on", Duration::from_mins(5), serves).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_joins_by_itself_before_it_was_made_keeps_its_power_and_its_pods() {
    let stage = joins_by_itself(without_agent());
    let path = "/nodes/*/qemu/9100/config".to_owned();
    stage.pve.inject(Fault { method: "POST".into(), path, times: 1, effect: Effect::WorkThenTimeOut });
    stage.deploy("web", 1, "1500m", "1Gi");
    let comes_up = |stage: &Stage| stage.pve.config_of(9100, "onboot").is_some_and(|on| on == "1");
    stage.until("the VM starts with its host", SOON, comes_up).await;
    let host = stage.pve.vm(9100).unwrap().node;
    stage.pve.power_off_host(&host);
    let given_up = |stage: &Stage| stage.status().machines.iter().any(|one| one.phase == "Failed");
    stage.until("the machine is given up", Duration::from_mins(30), given_up).await;
    let configuring = "failed: the configuration failed";
    assert!(stage.status().decisions.iter().any(|one| one.what.contains(configuring)), "{}", stage.scene());
    stage.pve.set_away(true);
    stage.pve.power_on_host(&host);
    stage.until("the pod runs on the VM", SOON, |stage| stage.running_pods() == 1).await;
    assert_eq!(stage.kube.list("Pod")[0]["spec"]["nodeName"], stage.pve.vm(9100).unwrap().config["name"]);
    stage.pve.set_away(false);
    let serves = |stage: &Stage| stage.pve.vm(9100).is_some_and(|vm| vm.running) && stage.running_pods() == 1;
    stage.throughout("the machine serves", Duration::from_mins(10), serves).await;
    assert_eq!(stage.ready_nodes("workers").len(), 1, "{}", stage.scene());
}

#[tokio::test(start_paused = true)]
async fn a_machine_whose_making_was_given_up_late_and_that_is_kept_is_not_given_up_again() {
    let stage = joins_by_itself(without_agent());
    stage.kube.set_nodes_never_ready(true);
    stage.deploy("web", 1, "1500m", "1Gi");
    let labelled = |stage: &Stage| {
        let nodes = stage.kube.list("Node");
        nodes.iter().any(|node| node["metadata"]["labels"]["pve-autoscaler/pool"] == "workers")
    };
    stage.until("the Node has the pool's labels", SOON, labelled).await;
    stage.pve.set_away(true);
    stage.stall.set(true);
    stage.kube.set_nodes_never_ready(false);
    let given_up =
        |stage: &Stage| stage.status().decisions.iter().filter(|one| one.what.contains(" failed: ")).count();
    stage.until("the machine is given up", Duration::from_mins(20), |stage| given_up(stage) == 1).await;
    // By then, `scale_up.max_node_provision_time` has elapsed.
    tokio::time::sleep(Duration::from_mins(15)).await;
    stage.pve.set_away(false);
    stage.stall.set(false);
    let kept = |stage: &Stage| stage.status().decisions.iter().any(|one| one.what.contains(" stays: "));
    stage.until("the machine is kept", Duration::from_mins(12), kept).await;
    let runs = |stage: &Stage| stage.running_pods() == 1;
    // All records are read every five minutes.
    stage.throughout("the pod keeps running", Duration::from_mins(9), runs).await;
    assert_eq!(given_up(&stage), 1, "{}", stage.scene());
}

#[tokio::test(start_paused = true)]
async fn a_node_that_registers_again_unseen_while_its_machine_is_to_go_is_not_stopped_with_its_pods() {
    let stage = self_joining(&with("method = \"none\"\n").replace("max = 5", "max = 1"), without_agent());
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    let (name, host) = (stage.ready_nodes("workers")[0].clone(), stage.pve.vm(9100).unwrap().node);
    stage.pve.power_off_host(&host);
    stage.kube.scale("default", "web", 0);
    let goes = |stage: &Stage| stage.status().machines.iter().any(|one| one.phase == "Draining");
    stage.until("the machine is being drained", Duration::from_mins(40), goes).await;
    stage.kube.remove("Node", "", &name);
    stage.kube.scale("default", "web", 1);
    tokio::time::sleep(Duration::from_mins(1)).await;
    stage.stall.set(true);
    stage.pve.set_away(true);
    stage.pve.power_on_host(&host);
    stage.until("the pod runs again", SOON, |stage| stage.running_pods() == 1).await;
    stage.pve.set_away(false);
    stage.throughout("a pod keeps running", Duration::from_mins(15), |stage| stage.running_pods() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_vm_that_was_stopped_to_go_and_that_an_administrator_starts_while_no_daemon_runs_keeps_its_pods() {
    let quick = "[scale_down]\nunneeded_time = \"1m\"\ndelay_after_add = \"0s\"\n[[pool]]";
    let mut stage = self_joining(&with("method = \"none\"\n").replace("[[pool]]", quick), without_agent());
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    stage.kube.scale("default", "web", 0);
    let stops = |stage: &Stage| stage.status().machines.iter().any(|one| one.phase == "Stopping");
    stage.until("the VM is shut down", SOON * 5, stops).await;
    stage.pve.set_quorum(false);
    let gone = |stage: &Stage| stage.ready_nodes("workers").is_empty();
    stage.until("the Node is gone", SOON * 5, gone).await;
    stage.kill();
    stage.pve.set_quorum(true);
    stage.pve.start_by_hand(9100);
    stage.kube.scale("default", "web", 1);
    stage.until("a pod runs on the VM", SOON, |stage| stage.running_pods() == 1).await;
    stage.start();
    stage.throughout("a pod keeps running", Duration::from_mins(15), |stage| stage.running_pods() == 1).await;
}

fn secret(folder: &Path, text: &str) -> String {
    let file = folder.join("secret");
    std::fs::write(&file, text).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    file.display().to_string()
}

fn k3s(token: &str) -> (Stage, TempDir) {
    let folder = TempDir::new().unwrap();
    let bootstrap = format!(
        "method = \"k3s\"\napi_server = \"{}\"\nserver_token_file = \"{}\"\n",
        KubeSpec::demo().endpoint,
        secret(folder.path(), token)
    );
    let kube = KubeSpec { k3s_token: Some(SERVER_TOKEN.to_owned()), ..KubeSpec::demo() };
    let pool =
        with(&bootstrap) + "labels = { size = \"small\" }\ntaints = [\"a=b:NoSchedule\"]\nmax_pods = 30\n";
    let mut stage = Stage::of(&pool, ClusterSpec::demo(), kube);
    stage.start();
    let spec = json!({ "tolerations": [{ "key": "a", "operator": "Exists" }] });
    stage.deploy_with("web", 1, "1", "1Gi", &spec);
    (stage, folder)
}

#[tokio::test(start_paused = true)]
async fn an_agent_of_k3s_joins_with_name_labels_taints_and_address() {
    let (stage, _folder) = k3s(SERVER_TOKEN);
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    let node = stage.kube.get("Node", "", &stage.ready_nodes("workers")[0]).unwrap();
    assert_eq!(node["metadata"]["labels"]["size"], "small");
    assert_eq!(node["spec"]["taints"], json!([{ "key": "a", "value": "b", "effect": "NoSchedule" }]));
    assert_eq!(node["status"]["addresses"][0]["address"], "10.10.10.11");
    assert_eq!(node["status"]["capacity"]["pods"], "30");
    // The token was passed only on standard input.
    let config =
        stage.pve.read_from_disk(9100, "/etc/rancher/k3s/config.yaml.d/pve-autoscaler.yaml").unwrap();
    assert!(config.contains(SERVER_TOKEN));
    assert_eq!(stage.leftovers(), ["machine-workers-9100"], "no bootstrap token is made");
}

#[tokio::test(start_paused = true)]
async fn an_agent_of_k3s_with_a_wrong_token_fails_in_time_and_says_what_its_server_said() {
    let (stage, _folder) = k3s("K10c0ffee::server:not-the-right-one");
    stage
        .until("the machine has failed", Duration::from_mins(8), |stage| {
            stage.status().decisions.iter().any(|one| one.what.contains("401 Unauthorized"))
        })
        .await;
    let status = format!("{:?}", stage.status());
    assert!(!status.contains("not-the-right-one"), "no secret is shown");
    stage.until("the VM is gone", SOON, |stage| stage.vms(9100..=9109).is_empty()).await;
}

const COMMAND: &str = r#"method = "command"
command = '''
cat >/etc/join.json
test {{ machine.address }} = 10.10.10.11 || exit 3
kubeadm join --config /etc/join.json
'''
"#;

fn command(text: &str, input: &str) -> (Stage, TempDir) {
    let folder = TempDir::new().unwrap();
    let bootstrap = format!("{text}input_file = \"{}\"\n", secret(folder.path(), input));
    let mut stage = Stage::of(&with(&bootstrap), ClusterSpec::demo(), KubeSpec::demo());
    stage.start();
    stage.deploy("web", 1, "1", "1Gi");
    (stage, folder)
}

#[tokio::test(start_paused = true)]
async fn a_command_makes_a_node_with_a_secret_on_standard_input() {
    let input = json!({
        "apiVersion": "kubeadm.k8s.io/v1beta4", "kind": "JoinConfiguration",
        "discovery": { "bootstrapToken": { "apiServerEndpoint": KubeSpec::demo().endpoint,
            "token": "abcdef.0123456789abcdef", "unsafeSkipCAVerification": true } },
    });
    let (stage, _folder) = command(COMMAND, &input.to_string());
    let secret = json!({
        "kind": "Secret", "metadata": { "name": "bootstrap-token-abcdef", "namespace": "kube-system" },
        "type": "bootstrap.kubernetes.io/token",
        "stringData": { "token-id": "abcdef", "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true",
            "usage-bootstrap-signing": "true", "auth-extra-groups": "system:bootstrappers:kubeadm:default-node-token" },
    });
    stage.kube.apply(&secret).unwrap();
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    assert_eq!(stage.ready_nodes("workers").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_command_that_fails_says_how_and_shows_nothing_of_its_input() {
    let text = "method = \"command\"\ncommand = '''\necho \"refused: $(cat)\" >&2\nexit 3\n'''\n";
    let (stage, _folder) = command(text, "password: correct-horse-battery");
    let said = "the command exited with 3: refused: ***";
    stage
        .until("the machine has failed", SOON, |stage| {
            stage.status().decisions.iter().any(|one| one.what.contains(said))
        })
        .await;
}

/// A machine that is given up while its VM cannot be stopped, and whose Node becomes ready meanwhile.
async fn ready_too_late() -> Stage {
    let stage = joins_by_itself(without_agent());
    stage.kube.set_nodes_never_ready(true);
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.until("the Node is registered", SOON, |stage| stage.kube.list("Node").len() == 2).await;
    // `limits.ready` is five minutes.
    tokio::time::sleep(Duration::from_secs(4 * 60 + 45)).await;
    stage.pve.set_away(true);
    let failed = |stage: &Stage| stage.status().decisions.iter().any(|one| one.what.contains(" failed: "));
    stage.until("the machine is given up", SOON, failed).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    stage.kube.set_nodes_never_ready(false);
    stage
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_given_up_goes_once_its_volumes_are_detached() {
    let stage = ready_too_late().await;
    let nodes = stage.kube.list("Node");
    let node =
        nodes.iter().map(|node| node["metadata"]["name"].as_str().unwrap()).find(|name| *name != "cp1");
    let attachment = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": { "name": "csi-1" },
        "spec": { "attacher": "csi.example.com", "nodeName": node, "source": { "persistentVolumeName": "data" } },
        "status": { "attached": true },
    });
    stage.kube.apply(&attachment).unwrap();
    tokio::time::sleep(Duration::from_secs(30)).await;
    stage.pve.set_away(false);
    let runs = |stage: &Stage| stage.pve.vm(9100).is_some_and(|vm| vm.running);
    stage.throughout("the VM is not stopped", Duration::from_mins(1), runs).await;
    stage.kube.remove("VolumeAttachment", "", "csi-1");
    stage.until("the VM is gone", SOON, |stage| stage.pve.vm(9100).is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_becomes_ready_too_late_no_longer_gets_pods() {
    let stage = ready_too_late().await;
    stage.throughout("no pod runs", Duration::from_mins(1), |stage| stage.running_pods() == 0).await;
    stage.pve.set_away(false);
    stage.until("the pod runs elsewhere", Duration::from_mins(15), |stage| stage.running_pods() == 1).await;
}
