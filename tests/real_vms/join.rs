//! Runs the daemon as a process, with a real control plane and a real machine. The machine is created ahead
//! of demand and suspended. A pod that cannot be scheduled wakes the machine, which becomes a node, runs the
//! pod, and is removed. The machine boots from OVMF and has a TPM.

use std::time::Duration;

use pve_autoscaler::bootstrap::{self, GuestCommand, JoinEnd, WaitForBoot};
use pve_autoscaler::model::machine::guest_sees;
use pve_autoscaler::runtime::clock::{Clock as _, SystemClock};
use serde_json::Value;
use tokio::time::Instant;
use world::proxmox::spec::ClusterSpec;

use crate::scene::{ADDRESS, SOON, Scene, VMID, WORKLOAD};
use crate::stage::{BOOT, Firmware, HOST};
use crate::{place, uefi};

/// Pool settings that give the machines a seed for their first boot, and that set fields of the kubelet's
/// configuration.
const POOL: &str = r##"template = "k8s-worker"
max_pods = 57
grow = { max_cores = 4, max_memory = "3GiB" }

[pool.kubelet]
imageGCHighThresholdPercent = 91
serverTLSBootstrap = true

[pool.cloud_init]
method = "seed"
storage = "local"
user_data = """#cloud-config
hostname: {{ machine.name }}
write_files:
- path: /etc/seeded
  content: "{{ machine.name }} of {{ pool.name }} at {{ machine.address }}, {{ machine.mac }}"
"""
"##;
/// One machine is kept warm.
const WARM: &str = "\n[pool.warm]\ncount = 1\nstate = \"suspended\"\n";
/// One more pod. It fits the machine once the machine has another processor and a DIMM.
const LARGE: &str = r"
apiVersion: v1
kind: Pod
metadata: { name: large, namespace: default }
spec:
  terminationGracePeriodSeconds: 2
  containers:
    - name: large
      image: registry.k8s.io/pause:3.10.2
      resources: { requests: { cpu: 2500m, memory: 2200Mi } }
";
/// The minimum time for which the machine is suspended. It is longer than [`APART`], so that the test notices
/// a clock that was not set.
const SLEEP: Duration = Duration::from_secs(15);
/// The maximum error of the guest's clock in seconds after it was set, even on a busy computer.
const APART: i64 = 8;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs only in a separate namespace"]
async fn a_suspended_machine_wakes_for_a_pod_and_goes_with_it() {
    let Some(image) = place::image().filter(|_| place::has_uefi()) else { return };
    let scene = Scene::new(&image, Firmware::Uefi, &format!("{POOL}{WARM}")).await;
    let template = uefi::files(&scene);
    a_machine_is_kept_with_its_memory_on_disk(&scene).await;
    scene.admin.apply(WORKLOAD).await.unwrap();
    let node = scene.until("a real machine is a ready Node", BOOT, async || scene.node(true).await).await;
    let config = scene.stage.pve.vm(VMID.0).unwrap().config;
    let uuid = config["smbios1"].trim_start_matches("uuid=").to_lowercase();
    let seen = node["status"]["nodeInfo"]["systemUUID"].as_str().unwrap().to_lowercase();
    assert_eq!(seen, uuid, "the daemon finds a Node's VM by this UUID");
    assert_eq!(node["metadata"]["name"], *config["name"]);
    scene.until("the pod runs on the Node", SOON, async || scene.pod_runs().await).await;
    it_lives_in_the_present(&scene).await;
    let measured = uefi::was_measured_and_woke_with_it(&scene).await;
    its_first_boot_was_told_by_our_seed(&scene, &config["name"]).await;
    the_kubelet_has_the_settings_of_its_pool(&scene, &node).await;
    it_grows_where_it_is(&scene, &node).await;
    // Without `[pool.warm]`, no new machine replaces the one that is removed.
    scene.reload(POOL);
    a_guest_that_has_joined_does_not_join_again(&scene).await;
    a_killed_machine_is_not_ready_until_it_runs_again(&scene).await;
    uefi::kept_its_variables(&scene, &measured).await;
    everything_goes_with_the_workload(&scene).await;
    uefi::left_nothing(&scene, &template);
}

/// The machine has booted once, and has neither a Node nor a token. Its process has ended, and its memory is
/// saved in a volume.
async fn a_machine_is_kept_with_its_memory_on_disk(scene: &Scene) {
    let suspended = async || {
        let vm = scene.stage.pve.vm(VMID.0)?;
        (vm.config.get("lock")? == "suspended" && !vm.running).then_some(vm.config)
    };
    let config = scene.until("a machine is kept suspended", BOOT, suspended).await;
    assert!(scene.stage.hardware.has_disk(&config["vmstate"]), "{config:?}");
    uefi::is_a_clone_of_its_template(scene, &config);
    assert!(scene.stage.client.power(HOST, VMID).await.unwrap() == pve_autoscaler::proxmox::Power::Stopped);
    assert_eq!(scene.nodes().await, Vec::<Value>::new());
    let secrets = scene.list("/api/v1/namespaces/kube-system/secrets").await;
    let token = |one: &&Value| {
        one["type"] == "bootstrap.kubernetes.io/token" && one["data"]["description"].is_string()
    };
    assert_eq!(secrets.iter().filter(token).count(), 0, "{secrets:?}");
    tokio::time::sleep(SLEEP).await;
}

/// QEMU adds processors and memory, the kernel brings them online, the kubelet reports them, and running
/// programs continue.
async fn it_grows_where_it_is(scene: &Scene, node: &Value) {
    let look = async || {
        let said = scene
            .stage
            .run(VMID, "nproc; cat /proc/sys/kernel/random/boot_id; grep MemTotal /proc/meminfo")
            .await;
        let words: Vec<String> = said.stdout.split_whitespace().map(ToOwned::to_owned).collect();
        let [cpus, boot, _, memory, _] = <[String; 5]>::try_from(words).unwrap();
        (cpus, boot, memory.parse::<i64>().unwrap())
    };
    let (before, boot, had) = look().await;
    assert_eq!(before, "2");
    scene.admin.apply(LARGE).await.unwrap();
    let runs = async || {
        let pods = scene.list("/api/v1/namespaces/default/pods").await;
        let failed = pods.iter().find(|pod| pod["status"]["phase"] == "Failed");
        assert_eq!(failed.map(|pod| &pod["status"]), None, "the kubelet rejected a pod");
        let all = pods.iter().filter(|pod| pod["status"]["phase"] == "Running").count() == 2;
        all.then_some(())
    };
    scene.until("the pod runs on the added resources", BOOT, runs).await;
    let (cpus, same, has) = look().await;
    assert_eq!((cpus.as_str(), &same), ("3", &boot));
    let promised = guest_sees(512 << 20) >> 10;
    assert!(
        has - had >= promised,
        "the guest's kernel offers {} KiB of the added 512 MiB; at least {promised} KiB are expected",
        has - had
    );
    let now = scene.node(true).await.unwrap();
    assert_eq!(
        (&now["metadata"]["uid"], &now["status"]["capacity"]["cpu"]),
        (&node["metadata"]["uid"], &"3".into())
    );
    let config = scene.stage.pve.vm(VMID.0).unwrap().config;
    assert_eq!((config["vcpus"].as_str(), config["memory"].as_str()), ("3", "2560"));
    scene.admin.kubectl(&["delete", "pod", "large"], "").await.unwrap();
}

/// The guest's clock stood still while the guest was suspended. If the clock were not set, certificates that
/// were created in the meantime would not be valid yet.
async fn it_lives_in_the_present(scene: &Scene) {
    let before = SystemClock.now().as_second();
    let said = scene.stage.run(VMID, "date +%s; uptime -s; cat /proc/sys/kernel/random/boot_id").await.stdout;
    let own: i64 = said.lines().next().unwrap().parse().unwrap();
    let apart = own - before;
    assert!((-APART..=APART).contains(&apart), "the guest's clock is {apart} s off: {said}");
    let config = scene.stage.pve.vm(VMID.0).unwrap().config;
    assert_eq!((config.get("lock"), config.get("vmstate")), (None, None));
    let volumes = scene.stage.pve.volumes_of(VMID.0);
    assert!(!volumes.iter().any(|one| one.contains("state")), "{volumes:?}");
    let starts = scene.stage.pve.task_exits().into_iter().filter(|(upid, _)| upid.contains(":qmstart:"));
    assert_eq!(starts.count(), 2, "one boot, and one resume");
}

async fn its_first_boot_was_told_by_our_seed(scene: &Scene, name: &str) {
    let config = scene.stage.pve.vm(VMID.0).unwrap().config;
    assert!(config["ide2"].starts_with("local:iso/pve-autoscaler-"), "{config:?}");
    let mac = config["net0"].split(['=', ',']).nth(1).unwrap().to_lowercase();
    let said =
        scene.stage.run(VMID, "cat /run/cloud-init/cloud-id; echo; hostname; cat /etc/seeded").await.stdout;
    let lines: Vec<&str> = said.lines().filter(|line| !line.is_empty()).collect();
    assert_eq!(lines, ["nocloud", name, &format!("{name} of real at {ADDRESS}, {mac}")]);
    let interfaces = scene.stage.client.agent_interfaces(HOST, VMID).await.unwrap();
    let own = interfaces.iter().find(|(seen, _)| *seen == mac).unwrap();
    assert!(own.1.iter().any(|address| address == ADDRESS), "{own:?}");
}

/// Reads the settings that the kubelet itself reports. The kubelet has requested the certificate of this
/// connection, and the daemon has approved it.
async fn the_kubelet_has_the_settings_of_its_pool(scene: &Scene, node: &Value) {
    let name = node["metadata"]["name"].as_str().unwrap();
    assert_eq!(node["status"]["capacity"]["pods"], "57");
    // Like `kubeadm init` at its end: this allows the API server to query kubelets.
    let group = "--group=kubeadm:cluster-admins";
    let bind =
        ["create", "clusterrolebinding", "kubeadm:cluster-admins", "--clusterrole=cluster-admin", group];
    scene.admin.kubectl(&bind, "").await.unwrap();
    let path = format!("/api/v1/nodes/{name}/proxy/configz");
    let configz = async || scene.admin.get(&path).await.ok();
    let kubelet = scene.until("the kubelet serves", SOON, configz).await["kubeletconfig"].take();
    assert_eq!(kubelet["maxPods"], 57, "{kubelet}");
    assert_eq!(kubelet["imageGCHighThresholdPercent"], 91, "{kubelet}");
    assert_eq!(kubelet["imageGCLowThresholdPercent"], 80, "other settings come from the cluster: {kubelet}");
    assert_eq!(kubelet["serverTLSBootstrap"], true, "{kubelet}");
    let requests = scene.list("/apis/certificates.k8s.io/v1/certificatesigningrequests").await;
    let serving = requests.iter().filter(|one| one["spec"]["signerName"] == "kubernetes.io/kubelet-serving");
    let signed: Vec<&Value> = serving.filter(|one| one["status"]["certificate"].is_string()).collect();
    assert_eq!(signed.len(), 1, "{requests:?}");
    assert_eq!(signed[0]["spec"]["username"], format!("system:node:{name}"));
    let approved = &signed[0]["status"]["conditions"][0];
    assert_eq!(approved["type"], "Approved");
    assert!(approved["message"].as_str().unwrap_or_default().contains("of pool real"), "{approved}");
    let own =
        scene.stage.run(VMID, "cat /var/lib/kubelet/pki/kubelet-server-current.pem | grep -c BEGIN").await;
    assert_eq!(own.stdout.trim(), "2", "the kubelet's certificate and key: {own:?}");
}

async fn a_guest_that_has_joined_does_not_join_again(scene: &Scene) {
    let configuration = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: JoinConfiguration\ndiscovery:\n  bootstrapToken:\n    \
                         apiServerEndpoint: 10.77.0.1:6443\n    token: abcdef.0123456789abcdef\n    unsafeSkipCAVerification: true\n";
    let started = Instant::now();
    let join = ["/bin/sh", "-c", "kubeadm join --config /dev/stdin"];
    let again = scene.stage.exec(VMID, &join, Some(configuration)).await;
    assert_eq!(again.exit_code, Some(1), "{again:?}");
    let said = again.stdout + &again.stderr;
    assert!(said.contains("/etc/kubernetes/kubelet.conf already exists"), "{said}");
    assert!(started.elapsed() < Duration::from_mins(1), "kubeadm refuses before it connects");
    // The daemon's script first checks whether the guest has already joined.
    let settle = WaitForBoot {
        settle: Duration::from_mins(1),
        join: Duration::from_mins(1),
        accept_degraded: true,
        clock: None,
    };
    let command = bootstrap::command("another", &settle, &GuestCommand::Kubeadm);
    let words: Vec<&str> = command.iter().map(String::as_str).collect();
    let end = scene.stage.exec(VMID, &words, Some(configuration)).await;
    let read = bootstrap::read(&GuestCommand::Kubeadm, None, &end);
    assert_eq!(read, JoinEnd::Joined { degraded: false });
}

/// If a machine loses power, its Node remains, and becomes not ready after the grace period.
async fn a_killed_machine_is_not_ready_until_it_runs_again(scene: &Scene) {
    let before = scene.node(true).await.unwrap()["metadata"]["uid"].clone();
    scene.stage.hardware.kill(VMID.0);
    scene.until("the VM is off", SOON, async || (!scene.stage.pve.vm(VMID.0)?.running).then_some(())).await;
    // The `unreachable` taint is added only after the Node's condition has changed.
    let unreachable = async || {
        let lost = scene.node(false).await?;
        lost["spec"]["taints"].to_string().contains("node.kubernetes.io/unreachable").then_some(())
    };
    scene.until("the Node has the `unreachable` taint", SOON, unreachable).await;
    scene.stage.pve.start_by_hand(VMID.0);
    let back = scene.until("the Node is ready again", BOOT, async || scene.node(true).await).await;
    assert_eq!(back["metadata"]["uid"], before, "it is the same Node");
}

async fn everything_goes_with_the_workload(scene: &Scene) {
    scene.admin.kubectl(&["delete", "deployment", "web"], "").await.unwrap();
    let gone = async || {
        let nodes = scene.nodes().await;
        (nodes.is_empty() && scene.stage.pve.vm(VMID.0).is_none()).then_some(())
    };
    scene.until("the Node and its VM are gone", SOON * 3, gone).await;
    let left = async || {
        let maps = scene.list("/api/v1/namespaces/pve-autoscaler/configmaps").await;
        let secrets = scene.list("/api/v1/namespaces/kube-system/secrets").await;
        let ours = |one: &Value| {
            let name = one["metadata"]["name"].as_str().unwrap_or_default();
            let described = one["data"].get("description").is_some();
            name.starts_with("machine-") || name.starts_with("bootstrap-token-") && described
        };
        (!maps.iter().chain(&secrets).any(ours)).then_some(())
    };
    scene.until("the machine's record and token are gone", SOON, left).await;
    let exits = scene.stage.pve.task_exits();
    let shut_down = exits.iter().filter(|(upid, _)| upid.contains(":qmshutdown:"));
    assert!(
        shut_down.clone().count() > 0 && shut_down.clone().all(|(_, exit)| exit.as_deref() == Some("OK")),
        "{exits:?}"
    );
    assert_eq!(scene.stage.pve.volumes_of(VMID.0), Vec::<String>::new());
    assert_eq!(
        scene.stage.client.isos(HOST, "local").await.unwrap(),
        Vec::<String>::new(),
        "the machine's seed is deleted, too"
    );
    let said = scene.said();
    assert!(!said.contains(ClusterSpec::DEMO_SECRET), "the log does not contain the token");
}
