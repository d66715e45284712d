//! Stories that run on the embedded Kubernetes and on a real one.

use std::time::Duration;

use serde_json::Value;
use world::guest::GuestFaults;
use world::kubernetes::samples;
use world::serve::tls::ServerTls;

use super::bench::{Bench, Kubernetes, POOL, cluster};

/// A pool creates a Node for one pod. The Node matches its machine, and the bootstrap token is removed: only
/// the machine's record remains.
pub async fn a_pool_scales_from_zero<K: Kubernetes>() {
    let Some(mut bench) = Bench::<K>::new(cluster(), POOL).await else { return };
    bench.deploy("web", 1, "1500m", "1Gi").await;
    bench.until("the pod runs", |bench| bench.running() == 1).await;
    assert_eq!(bench.nodes("workers").len(), 1);
    let node = &bench.kube.list("Node").into_iter().find(is_ours).unwrap();
    let vm = bench.proxmox.pve.vm(bench.vms()[0]).unwrap();
    let smbios = vm.config["smbios1"].clone();
    let uuid = node["status"]["nodeInfo"]["systemUUID"].as_str().unwrap();
    assert!(smbios.contains(&format!("uuid={uuid}")), "{smbios} {uuid}");
    assert_eq!(node["metadata"]["name"], vm.config["name"].as_str());
    assert_eq!(node["status"]["capacity"]["cpu"], "2");
    bench
        .until("only the machine's record is left over", |bench| {
            bench.leftovers() == ["machine-workers-9100"]
        })
        .await;
    bench.stop().await;
    assert!(bench.warnings().is_empty(), "{:#?}", bench.warnings());
}

/// For ten pods, each of which fills a node, ten nodes are created at once.
pub async fn ten_nodes_come_at_once<K: Kubernetes>() {
    let pool =
        POOL.replace("max = 3", "max = 12").replace("9109", "9119").replace("127.11.10.20", "127.11.10.30");
    let Some(mut bench) = Bench::<K>::new(cluster(), &pool).await else { return };
    bench.deploy("web", 10, "1500m", "1Gi").await;
    bench.until("all pods run", |bench| bench.running() == 10).await;
    bench.until("only records are left over", |bench| bench.leftovers().len() == 10).await;
    assert_eq!((bench.nodes("workers").len(), bench.vms().len()), (10, 10));
    bench.stop().await;
    assert!(bench.warnings().is_empty(), "{:#?}", bench.warnings());
}

/// A pool does not exceed its maximum.
pub async fn a_pool_at_its_maximum_grows_no_further<K: Kubernetes>() {
    let Some(mut bench) = Bench::<K>::new(cluster(), POOL).await else { return };
    bench.deploy("web", 5, "1500m", "1Gi").await;
    bench.until("three pods run", |bench| bench.running() == 3).await;
    bench.throughout("there are three VMs", Duration::from_secs(4), |bench| bench.vms().len() == 3).await;
    bench.stop().await;
}

/// kubeadm's error is logged, and the machine, its record and its token are removed.
pub async fn a_join_that_fails_leaves_nothing_behind<K: Kubernetes>() {
    let said = "error execution phase preflight: the container runtime is not running";
    let faults = GuestFaults { join_fails: Some(said.to_owned()), ..GuestFaults::default() };
    let mut cluster = cluster();
    cluster.vms.iter_mut().for_each(|vm| vm.faults = faults.clone());
    let Some(mut bench) = Bench::<K>::new(cluster, POOL).await else { return };
    bench.deploy("web", 1, "1500m", "1Gi").await;
    bench.until("the error is reported", |bench| bench.log().contains(said)).await;
    bench.until("nothing of the machine is left", Bench::is_clean).await;
    bench.stop().await;
}

/// A pool scales back to zero, but not before the unneeded time is over.
pub async fn a_node_goes_after_the_unneeded_time_and_not_before<K: Kubernetes>() {
    let Some(mut bench) = Bench::<K>::new(cluster(), POOL).await else { return };
    bench.deploy("web", 1, "1500m", "1Gi").await;
    bench.until("the pod runs", |bench| bench.running() == 1).await;
    bench.kube.scale("web", 0).await;
    bench
        .throughout("the node stays", Duration::from_millis(1900), |bench| bench.nodes("workers").len() == 1)
        .await;
    bench.until("nothing is left", Bench::is_clean).await;
    bench.stop().await;
    assert!(bench.warnings().is_empty(), "{:#?}", bench.warnings());
}

/// Two half-empty nodes stay until a disruption budget allows the daemon to drain one of them.
pub async fn a_budget_refuses_for_a_while_and_then_allows<K: Kubernetes>() {
    let Some(mut bench) = Bench::<K>::new(cluster(), POOL).await else { return };
    bench.deploy("big", 2, "1500m", "1Gi").await;
    bench.until("both run", |bench| bench.running() == 2).await;
    bench.deploy("small", 2, "200m", "256Mi").await;
    bench.until("all run", |bench| bench.running() == 4).await;
    bench.kube.apply(&samples::budget("small", 2)).await;
    bench.kube.scale("big", 1).await;
    bench.throughout("both nodes stay", Duration::from_secs(6), |bench| bench.vms().len() == 2).await;
    bench.kube.apply(&samples::budget("small", 1)).await;
    bench.until("one node is left", |bench| bench.vms().len() == 1).await;
    bench.until("all run", |bench| bench.running() == 3).await;
    bench.stop().await;
}

/// The daemon is killed with SIGKILL while nodes are added, and again while they are removed. Each time, the
/// restarted daemon finishes the work.
pub async fn a_daemon_that_was_killed_goes_on_where_it_was<K: Kubernetes>() {
    let Some(mut bench) = Bench::<K>::new(cluster(), POOL).await else { return };
    bench.deploy("web", 2, "1500m", "1Gi").await;
    bench.until("two VMs exist", |bench| bench.vms().len() == 2).await;
    bench.kill().await;
    bench.launch();
    bench.until("both pods run", |bench| bench.running() == 2).await;
    bench.kube.scale("web", 0).await;
    bench.until("a VM is gone", |bench| bench.vms().len() < 2).await;
    bench.kill().await;
    bench.launch();
    bench.until("nothing is left", Bench::is_clean).await;
    bench.stop().await;
}

/// A pool's labels, taints and `max_pods` are applied to its Nodes.
pub async fn a_node_is_as_its_pool_says<K: Kubernetes>() {
    let more = r#"
labels = { size = "small", "topology.kubernetes.io/zone" = "{{ host }}" }
taints = ["dedicated=web:NoSchedule"]
startup_taints = ["example.com/agent-not-ready:NoSchedule"]
max_pods = 30
"#;
    let Some(mut bench) = Bench::<K>::new(cluster(), &format!("{POOL}{more}")).await else { return };
    bench.deploy("web", 1, "1500m", "1Gi").await;
    bench.until("a node is ready", |bench| bench.nodes("workers").len() == 1).await;
    let record = |bench: &Bench<K>| bench.leftovers() == ["machine-workers-9100"];
    bench.until("only the machine's record is left over", record).await;
    let node = bench.kube.list("Node").into_iter().find(is_ours).unwrap();
    let host = bench.proxmox.pve.vm(9100).unwrap().node;
    let labels = &node["metadata"]["labels"];
    assert_eq!(labels["size"], "small");
    assert_eq!(labels["topology.kubernetes.io/zone"], host);
    assert_eq!(node["status"]["capacity"]["pods"], "30");
    let taints = node["spec"]["taints"].as_array().unwrap();
    let keys: Vec<&str> = taints.iter().map(|taint| taint["key"].as_str().unwrap()).collect();
    assert!(keys.contains(&"dedicated") && keys.contains(&"example.com/agent-not-ready"), "{keys:?}");
    assert_eq!(bench.running(), 0, "a pod runs although the startup taint was not removed");
    bench.throughout("no other VM is created", Duration::from_secs(3), |bench| bench.vms().len() == 1).await;
    bench.stop().await;
}

/// If a join never gets an answer, the machine is given up once the time limit for joins is reached.
pub async fn a_join_without_an_answer_is_given_up<K: Kubernetes>() {
    let pool = POOL.replace("[limits]", "[limits]\njoin = \"4s\"");
    let pool = format!("api_server = \"127.0.0.1:1\"\n{pool}");
    let Some(mut bench) = Bench::<K>::new(cluster(), &pool).await else { return };
    bench.deploy("web", 1, "1500m", "1Gi").await;
    bench.until("a VM exists", |bench| !bench.vms().is_empty()).await;
    bench
        .until("the machine is given up", |bench| bench.log().contains("a machine could not be created"))
        .await;
    bench.until("nothing of the machine is left", Bench::is_clean).await;
    bench.stop().await;
}

/// A bootstrap token expires while its machine boots. kubeadm finds no signature for the token, so the join
/// reaches its time limit. The machine is given up, and the next one joins.
pub async fn a_token_that_has_run_out_costs_that_machine_only<K: Kubernetes>() {
    let pool = POOL.replace("[limits]\nagent = \"4s\"", "[limits]\nagent = \"30s\"\njoin = \"6s\"");
    let mut cluster = cluster();
    cluster.timings.boot_to_agent = Duration::from_secs(3);
    let Some(mut bench) = Bench::<K>::new(cluster, &pool).await else { return };
    bench.deploy("web", 1, "1500m", "1Gi").await;
    let token = |bench: &Bench<K>| bench.leftovers().into_iter().find(|name| name.starts_with("bootstrap-"));
    bench.until("the machine's token exists", |bench| token(bench).is_some()).await;
    let first = token(&bench).unwrap();
    bench.kube.expire(&first).await;
    bench
        .until("the machine is given up", |bench| bench.log().contains("a machine could not be created"))
        .await;
    bench.until("the pod runs on another machine", |bench| bench.running() == 1).await;
    bench
        .until("one record is left over", |bench| bench.leftovers().len() == 1 && bench.vms().len() == 1)
        .await;
    bench.stop().await;
}

/// cluster-info contains a CA that differs from the one that the daemon knows. kubeadm refuses the CA. The
/// daemon reports what to check, gives up the machine and backs off. Once the CA is correct again, the pod
/// gets its Node. Nodes that joined earlier are not affected.
pub async fn a_ca_that_is_not_the_pinned_one_is_refused_and_told<K: Kubernetes>() {
    let Some(mut bench) = Bench::<K>::new(cluster(), POOL).await else { return };
    bench.deploy("web", 1, "1500m", "1Gi").await;
    bench.until("the pod runs", |bench| bench.running() == 1).await;
    let (node, vm) = (bench.nodes("workers"), bench.vms());
    let other = ServerTls::for_loopback("Another CA").unwrap();
    let right = bench.kube.replace_authority((other.ca_pem, other.ca_public_key_hash)).await;
    bench.kube.scale("web", 2).await;
    bench
        .until("kubeadm's reason is reported", |bench| bench.log().contains("none of the public keys"))
        .await;
    bench.kube.replace_authority(right).await;
    assert!(bench.log().contains("kube-public/cluster-info"), "the report says what to check");
    bench.until("the machine is given up", |bench| bench.vms() == vm).await;
    bench.until("the next machine joins and both pods run", |bench| bench.running() == 2).await;
    bench.until("two records are left over", |bench| bench.leftovers().len() == 2).await;
    assert!(bench.nodes("workers").contains(&node[0]), "the node that joined earlier stays");
    let calls = bench.proxmox.pve.calls();
    let clones: Vec<_> =
        calls.iter().filter(|call| call.path.ends_with("/clone")).map(|call| call.time).collect();
    assert_eq!(clones.len(), 3, "one clone for the first pod, one whose join is refused, and one more");
    let wait = Duration::try_from(clones[2].duration_since(clones[1])).unwrap();
    assert!(wait >= Duration::from_secs(3), "the pool backs off before the next clone: {wait:?}");
    bench.stop().await;
}

/// A guest that reboots keeps its Node, and the reboot is not treated as a fault.
pub async fn a_guest_that_boots_again_goes_on_under_its_name<K: Kubernetes>() {
    let Some(mut bench) = Bench::<K>::new(cluster(), POOL).await else { return };
    bench.deploy("web", 1, "1500m", "1Gi").await;
    bench.until("the pod runs", |bench| bench.running() == 1).await;
    let boot = |bench: &Bench<K>| {
        bench
            .kube
            .list("Node")
            .iter()
            .find(|node| is_ours(node))
            .map(|node| node["status"]["nodeInfo"]["bootID"].clone())
    };
    let (name, first, vmid) = (bench.nodes("workers"), boot(&bench).unwrap(), bench.vms()[0]);
    bench.proxmox.pve.stop_by_hand(vmid);
    bench.proxmox.pve.start_by_hand(vmid);
    bench.until("the guest has rebooted", |bench| boot(bench).is_some_and(|now| now != first)).await;
    bench.until("the pod runs", |bench| bench.running() == 1).await;
    assert_eq!((bench.nodes("workers"), bench.vms()), (name, vec![vmid]));
    bench.stop().await;
}

/// A host loses power: the Node on it goes silent, and its pods get a new Node on another host.
pub async fn a_host_goes_offline_and_its_pods_get_a_node_elsewhere<K: Kubernetes>() {
    let Some(mut bench) = Bench::<K>::new(cluster(), POOL).await else { return };
    bench.deploy("web", 1, "1500m", "1Gi").await;
    bench.until("the pod runs", |bench| bench.running() == 1).await;
    let lost = bench.vms()[0];
    let host = bench.proxmox.pve.vm(lost).unwrap().node;
    bench.proxmox.pve.power_off_host(&host);
    bench.until("the pod no longer runs", |bench| bench.running() == 0).await;
    bench.until("the pod runs elsewhere", |bench| bench.running() == 1).await;
    let other = bench.vms().into_iter().find(|vmid| *vmid != lost).unwrap();
    assert_ne!(bench.proxmox.pve.vm(other).unwrap().node, host);
    bench.stop().await;
}

/// A host loses power while the Node on it runs a pod of a StatefulSet. The pod stays until the daemon takes
/// the Node out of service; then it runs on another host.
pub async fn a_host_goes_offline_and_its_stateful_set_moves<K: Kubernetes>() {
    let pool = POOL
        .replace("unready_time = \"3s\"", "unready_time = \"30m\"")
        .replace("[limits]", "[health]\nout_of_service_after = \"3s\"\n[limits]");
    let Some(mut bench) = Bench::<K>::new(cluster(), &pool).await else { return };
    bench.kube.apply(&samples::stateful_set("db", 1, "1500m", "1Gi")).await;
    bench.until("the pod runs", |bench| bench.running() == 1).await;
    let lost = bench.vms()[0];
    bench.proxmox.pve.power_off_host(&bench.proxmox.pve.vm(lost).unwrap().node);
    bench.until("the pod no longer runs", |bench| bench.running() == 0).await;
    bench
        .until("the Node is out of service", |bench| bench.log().contains("taking the Node out of service"))
        .await;
    bench.until("the pod runs elsewhere", |bench| bench.running() == 1 && bench.vms().len() == 2).await;
    bench.stop().await;
}

/// The API server becomes unreachable while a machine is being created, and comes back.
pub async fn kubernetes_is_away_for_a_while<K: Kubernetes>() {
    let Some(mut bench) = Bench::<K>::new(cluster(), POOL).await else { return };
    bench.deploy("web", 2, "1500m", "1Gi").await;
    bench.until("a VM is being created", |bench| !bench.vms().is_empty()).await;
    bench.kube.set_away(true).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    bench.kube.set_away(false).await;
    bench.until("both pods run", |bench| bench.running() == 2).await;
    bench.until("two records are left", |bench| bench.vms().len() == 2 && bench.leftovers().len() == 2).await;
    bench.stop().await;
}

fn is_ours(node: &Value) -> bool {
    node["metadata"]["labels"]["pve-autoscaler/pool"].is_string()
}
