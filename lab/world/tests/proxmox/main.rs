//! A machine's life through the embedded Proxmox VE, from clone to join to destruction.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use world::{
    guest::GuestFaults,
    proxmox::{
        Effect, Fault,
        spec::{ClusterSpec, VmSpec},
    },
};

use self::client::Client;

mod client;
mod power;

const JOIN: &str = r#"{"apiVersion":"kubeadm.k8s.io/v1beta4","kind":"JoinConfiguration",
"discovery":{"bootstrapToken":{"apiServerEndpoint":"10.10.10.1:6443","token":"abcdef.0123456789abcdef","caCertHashes":["sha256:00"]}},
"nodeRegistration":{"name":"w-120","kubeletExtraArgs":[{"name":"node-labels","value":"pool=a,x=y"}],
"taints":[{"key":"k","value":"v","effect":"NoSchedule"}]}}"#;

const SCRIPT: &str = r#"set -eu
umask 077
mkdir -p /run/join
exec 9>/run/join/lock
flock -n 9 || { echo "busy" >&2; exit 75; }
if [ -e /run/join/result ]; then
    cat /run/join/result
    exit 0
fi
state="$(systemctl is-system-running || true)"
case "$state" in
    running|degraded) ;;
    *) echo "state $state" >&2; exit 3 ;;
esac
if kubeadm join --config /dev/stdin >/run/join/out 2>&1; then
    echo joined >/run/join/result.new
    mv /run/join/result.new /run/join/result
    cat /run/join/result
else
    code=$?
    cat /run/join/out >&2
    exit "$code"
fi
"#;

#[tokio::test(start_paused = true)]
async fn a_machine_lives_from_clone_to_destroy() {
    a_life(Client::new()).await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_lives_the_same_under_the_official_schema() {
    let schema = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/pve/apidoc-9.2.json");
    if !schema.exists() {
        println!("skipped: no {}", schema.display());
        return;
    }
    a_life(Client::of(ClusterSpec { schema: Some(schema), ..ClusterSpec::demo() })).await;
}

async fn a_life(client: Client) {
    client.running(120).await;
    let config = client.data("GET", "/nodes/pve1/qemu/120/config", Value::Null).await;
    assert_eq!((&config["cores"], &config["memory"]), (&json!(4), &json!("8192")));
    assert_eq!(config["description"], "marker: 1");
    assert_eq!(config["scsi0"], "shared:9000/base-9000-disk-0.qcow2/120/vm-120-disk-0.qcow2,size=10G");
    assert_eq!(
        client.task("PUT", "/nodes/pve1/qemu/120/resize", json!({ "disk": "scsi0", "size": "32G" })).await,
        "OK"
    );

    let result = client.exec(120, json!(["/bin/sh", "-c", SCRIPT]), JOIN).await;
    assert_eq!((&result["exitcode"], &result["out-data"]), (&json!(0), &json!("joined\n")), "{result}");
    let again = client.exec(120, json!(["/bin/sh", "-c", SCRIPT]), JOIN).await;
    assert_eq!(again["out-data"], "joined\n");
    let joins = client.plane.0.lock().expect("lock").clone();
    assert_eq!(joins.len(), 1, "the second run does not join again");
    assert_eq!(format!("uuid={}", joins[0].system_uuid), config["smbios1"].as_str().expect("text"));
    assert_eq!(
        (joins[0].node_name.as_str(), joins[0].addresses.as_slice()),
        ("w-120", &["10.10.10.11".to_owned()][..])
    );
    assert_eq!(joins[0].taints, ["k=v:NoSchedule"]);

    assert_eq!(
        client.call("DELETE", "/nodes/pve1/qemu/120", Value::Null).await.reason,
        "VM 120 is running - destroy failed"
    );
    let params = json!({ "timeout": 60, "forceStop": 1 });
    assert_eq!(client.task("POST", "/nodes/pve1/qemu/120/status/shutdown", params).await, "OK");
    assert_eq!(client.plane.1.lock().expect("lock").len(), 1);
    assert_eq!(client.task("DELETE", "/nodes/pve1/qemu/120?purge=1", Value::Null).await, "OK");
    assert!(client.pve.vm(120).is_none());
}

#[tokio::test(start_paused = true)]
async fn an_id_that_is_taken_shows_in_two_ways() {
    let client = Client::new();
    assert!(client.pve.create_by_hand(VmSpec::machine(130, "pve1", "foreign")));
    assert!(client.pve.create_by_hand(VmSpec::machine(131, "pve2", "foreign")));
    let params = json!({ "newid": 130, "pool": "k8s-workers" });
    let reply = client.call("POST", "/nodes/pve1/qemu/9000/clone", params).await;
    assert_eq!(
        (reply.status, reply.reason.as_str()),
        (500, "unable to create VM 130: config file already exists")
    );
    let exit = client.clone_as(131).await;
    assert_eq!(
        exit,
        "close (rename) atomic file '/etc/pve/nodes/pve1/qemu-server/131.conf' failed: File exists"
    );
    assert_eq!(client.pve.vm(131).expect("still there").config["name"], "foreign");
}

#[tokio::test(start_paused = true)]
async fn two_clones_for_one_id_have_one_winner() {
    let client = Client::new();
    let (first, second) = tokio::join!(client.clone_as(140), client.clone_as(140));
    let won = [&first, &second].iter().filter(|exit| **exit == "OK").count();
    assert_eq!(won, 1, "{first} / {second}");
}

#[tokio::test(start_paused = true)]
async fn a_vm_shows_a_locked_placeholder_first_and_its_pool_last() {
    let client = Client::new();
    let params = json!({ "newid": 150, "name": "w", "pool": "k8s-workers" });
    client.data("POST", "/nodes/pve1/qemu/9000/clone", params).await;
    let hidden = client.call("GET", "/nodes/pve1/qemu/150/config", Value::Null).await;
    assert_eq!(hidden.reason, "Permission check failed (/vms/150, VM.Audit)");
    tokio::time::sleep(Duration::from_millis(110)).await;
    let placeholder = client.pve.vm(150).expect("claimed");
    assert_eq!(placeholder.config["description"], " qmclone temporary file");
    assert_eq!((placeholder.config["lock"].as_str(), placeholder.pool), ("clone", None));
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(client.pve.vm(150).expect("done").pool.as_deref(), Some("k8s-workers"));
}

#[tokio::test(start_paused = true)]
async fn refusals_have_the_real_texts() {
    let mut client = Client::new();
    client.running(120).await;
    for (method, path, params, status, reason) in [
        (
            "GET",
            "/nodes/pve1/qemu/999/config",
            Value::Null,
            403,
            "Permission check failed (/vms/999, VM.Audit)",
        ),
        ("GET", "/bogus", Value::Null, 501, "Method 'GET /bogus' not implemented"),
        ("PUT", "/nodes/pve1/qemu/120/config", json!({ "bogus": 1 }), 400, "Parameter verification failed."),
        ("PUT", "/nodes/pve1/qemu/120/config", json!({}), 500, "no options specified"),
        (
            "PUT",
            "/nodes/pve1/qemu/120/config",
            json!({ "affinity": "0" }),
            500,
            "only root can set 'affinity' config",
        ),
        (
            "PUT",
            "/nodes/pve1/qemu/120/config",
            json!({ "cores": 2, "digest": "0" }),
            500,
            "checksum mismatch (file change by other user?)",
        ),
        ("POST", "/nodes/pve1/qemu/9000/clone", json!({ "newid": 160 }), 403, "Permission check failed"),
        (
            "POST",
            "/nodes/pve1/qemu/9000/clone",
            json!({ "newid": 160, "pool": "nope" }),
            403,
            "Permission check failed (pool 'nope' does not exist)",
        ),
        (
            "GET",
            "/nodes/pve1/qemu/120/agent/exec-status?pid=1",
            Value::Null,
            500,
            "Agent error: PID ld does not exist",
        ),
        ("POST", "/nodes/pve1/qemu/120/agent/exec", json!({ "command": ["/bin/nope"] }), 596, "Broken pipe"),
    ] {
        let reply = client.call(method, path, params).await;
        assert_eq!((reply.status, reply.reason.as_str()), (status, reason), "{method} {path}");
    }
    client.token = "PVEAPIToken=autoscaler@pve!agent=wrong".into();
    let before = tokio::time::Instant::now();
    let reply = client.call("GET", "/version", Value::Null).await;
    assert_eq!(
        (reply.status, reply.reason.as_str(), reply.body),
        (401, "Authentication failed!", Value::Null)
    );
    assert!(before.elapsed() >= Duration::from_secs(3));
}

#[tokio::test(start_paused = true)]
async fn pings_of_a_booting_guest_starve_its_host() {
    let client = Arc::new(Client::new());
    assert_eq!(client.clone_as(120).await, "OK");
    assert_eq!(client.task("POST", "/nodes/pve1/qemu/120/status/start", Value::Null).await, "OK");
    client.pve.silence_agent(120, Duration::from_mins(10));
    let before = tokio::time::Instant::now();
    let ping = || client.call("POST", "/nodes/pve1/qemu/120/agent/ping", Value::Null);
    let pings = futures::future::join_all((0..12).map(|_| ping())).await;
    assert!(pings.iter().all(|reply| reply.reason == "QEMU guest agent is not running"));
    assert!(
        before.elapsed() >= Duration::from_secs(12),
        "three workers, three seconds each: {:?}",
        before.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn without_quorum_a_destroy_of_local_disks_loses_them_and_keeps_the_vm() {
    let client = Client::new();
    let params = json!({ "newid": 170, "pool": "k8s-workers" });
    assert_eq!(client.task("POST", "/nodes/pve1/qemu/9001/clone", params).await, "OK");
    client.pve.set_quorum(false);
    let clone = client
        .call("POST", "/nodes/pve1/qemu/9001/clone", json!({ "newid": 171, "pool": "k8s-workers" }))
        .await;
    assert_eq!(clone.reason, "cluster not ready - no quorum?");
    let exit = client.task("DELETE", "/nodes/pve1/qemu/170", Value::Null).await;
    assert!(
        exit.starts_with("unable to open file '/etc/pve/nodes/pve1/qemu-server/170.conf.tmp.")
            && exit.ends_with("Permission denied")
    );
    assert!(client.pve.vm(170).is_some());
}

#[tokio::test(start_paused = true)]
async fn faults_hit_the_next_matching_call_and_the_log_tells() {
    let client = Client::new();
    client.pve.inject(Fault {
        method: "POST".into(),
        path: "/nodes/*/qemu/*/clone".into(),
        times: 1,
        effect: Effect::WorkThenTimeOut,
    });
    let reply = client
        .call("POST", "/nodes/pve1/qemu/9000/clone", json!({ "newid": 180, "pool": "k8s-workers" }))
        .await;
    assert_eq!((reply.status, reply.reason.as_str()), (596, "Connection timed out"));
    assert!(client.pve.vm(180).is_some(), "the clone continued");
    assert_eq!(client.pve.calls().last().expect("logged").status, 596);
}

#[tokio::test(start_paused = true)]
async fn a_dead_host_hangs_the_first_call_and_refuses_later_ones() {
    let client = Client::new();
    client.running(120).await;
    client.pve.power_off_host("pve1");
    let first = client.call("GET", "/nodes/pve1/qemu/120/status/current", Value::Null).await;
    assert_eq!((first.status, first.reason.as_str()), (595, "Connection timed out"));
    let later = client.call("GET", "/nodes/pve1/qemu/120/status/current", Value::Null).await;
    assert_eq!((later.status, later.reason.as_str()), (595, "No route to host"));
    assert_eq!(client.plane.1.lock().expect("lock").len(), 1);
    let rows = client.data("GET", "/cluster/resources?type=vm", Value::Null).await;
    let row = rows.as_array().expect("rows").iter().find(|row| row["vmid"] == 120).expect("row").clone();
    assert_eq!(row["status"], "running", "a dead host's VMs keep their last status");
}

#[tokio::test(start_paused = true)]
async fn a_guest_without_kubeadm_says_127() {
    let client = Client::new();
    let faults = GuestFaults { missing_programs: vec!["kubeadm".into()], ..GuestFaults::default() };
    client.pve.set_guest_faults(9000, faults);
    client.running(120).await;
    let result = client.exec(120, json!(["/bin/sh", "-c", "kubeadm version -o short"]), "").await;
    assert_eq!(
        (&result["exitcode"], &result["err-data"]),
        (&json!(127), &json!("sh: 1: kubeadm: not found\n"))
    );
    let unknown = client.exec(120, json!(["/bin/sh", "-c", "select i in a; do :; done"]), "").await;
    assert_eq!(unknown["exitcode"], 2);
    let each = client.exec(120, json!(["/bin/sh", "-c", "for i in a b; do echo $i; done"]), "").await;
    assert_eq!((&each["exitcode"], &each["out-data"]), (&json!(0), &json!("a\nb\n")));
}

#[tokio::test(start_paused = true)]
async fn a_stopped_clone_leaves_nothing_and_a_crashed_one_its_lock() {
    let client = Client::new();
    let path = "/nodes/pve1/qemu/9000/clone";
    let full = |newid: u32| json!({ "newid": newid, "pool": "k8s-workers", "full": 1 });
    let upid = client.data("POST", path, full(190)).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let upid = upid.as_str().expect("text").to_owned();
    client.data("DELETE", &format!("/nodes/pve1/tasks/{upid}"), Value::Null).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let exits = client.pve.task_exits();
    assert_eq!(exits[0].1.as_deref(), Some("clone failed: copy failed: interrupted by signal"));
    assert!(client.pve.vm(190).is_none());

    client.data("POST", path, full(191)).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    client.pve.power_off_host("pve1");
    assert_eq!(client.pve.task_exits()[1].1.as_deref(), Some("unexpected status"));
    assert_eq!(client.pve.vm(191).expect("left behind").config["lock"], "clone");
}

#[tokio::test(start_paused = true)]
async fn calls_during_a_clone_are_refused_or_wait_for_its_lock() {
    let client = Client::new();
    // A full clone of 10 GiB takes about 26 s. The token does not see the VM until the clone is complete, so
    // an administrator makes the calls.
    client
        .data(
            "POST",
            "/nodes/pve1/qemu/9000/clone",
            json!({ "newid": 200, "pool": "k8s-workers", "full": 1 }),
        )
        .await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let admin = Client {
        pve: client.pve.clone(),
        plane: client.plane.clone(),
        token: format!("PVEAPIToken=root@pam!admin={}", ClusterSpec::DEMO_ADMIN_SECRET),
    };
    let reply = admin.call("PUT", "/nodes/pve1/qemu/200/config", json!({ "cores": 4 })).await;
    assert_eq!(reply.reason, "VM is locked (clone)");
    let exit = admin.task("POST", "/nodes/pve1/qemu/200/status/start", Value::Null).await;
    assert_eq!(exit, "can't lock file '/var/lock/qemu-server/lock-200.conf' - got timeout");
}

#[tokio::test(start_paused = true)]
async fn a_linked_clone_has_a_full_copy_of_its_tpm_state_in_the_same_format() {
    let mut spec = ClusterSpec::demo();
    let template = spec.vms.iter_mut().find(|vm| vm.vmid == 9000).expect("template");
    for (key, disk) in [
        ("efidisk0", "shared:9000/base-9000-disk-1.qcow2,efitype=4m,size=528K"),
        ("tpmstate0", "shared:9000/base-9000-disk-0.raw,size=4M,version=v2.0"),
    ] {
        template.config.insert(key.to_owned(), disk.to_owned());
    }
    let client = Client::of(spec);
    assert_eq!(client.clone_as(120).await, "OK");
    let config = client.data("GET", "/nodes/pve1/qemu/120/config", Value::Null).await;
    for (key, expected) in [
        ("efidisk0", "shared:9000/base-9000-disk-1.qcow2/120/vm-120-disk-0.qcow2,efitype=4m,size=528K"),
        ("scsi0", "shared:9000/base-9000-disk-0.qcow2/120/vm-120-disk-1.qcow2,size=10G"),
        ("tpmstate0", "shared:120/vm-120-disk-2.raw,size=4M,version=v2.0"),
    ] {
        assert_eq!(config[key], expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_ignores_a_shutdown_times_out_or_is_forced() {
    let client = Client::new();
    client.pve.set_guest_faults(9000, GuestFaults { ignores_shutdown: true, ..GuestFaults::default() });
    client.running(120).await;
    let path = "/nodes/pve1/qemu/120/status/shutdown";
    assert_eq!(
        client.task("POST", path, json!({ "timeout": 5 })).await,
        "VM quit/powerdown failed - got timeout"
    );
    assert!(client.pve.vm(120).expect("VM").running);
    assert_eq!(client.task("POST", path, json!({ "timeout": 5, "forceStop": 1 })).await, "OK");
    assert!(!client.pve.vm(120).expect("VM").running);
}

#[tokio::test(start_paused = true)]
async fn a_running_vm_keeps_changes_of_its_hardware_pending() {
    let client = Client::new();
    client.running(120).await;
    let path = "/nodes/pve1/qemu/120/config";
    client.data("PUT", path, json!({ "cores": 8, "tags": "b;a" })).await;
    let seen = client.data("GET", path, Value::Null).await;
    let current = client.data("GET", &format!("{path}?current=1"), Value::Null).await;
    assert_eq!((&seen["cores"], &current["cores"], &current["tags"]), (&json!(8), &json!(4), &json!("a;b")));
}
