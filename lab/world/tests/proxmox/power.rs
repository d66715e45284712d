//! Power operations other than start and stop: high availability, restarts, reboots and manual migrations.

use std::time::Duration;

use serde_json::{Value, json};
use world::proxmox::spec::ClusterSpec;

use crate::client::Client;

const STATUS: &str = "/nodes/pve1/qemu/120/status";

/// A cluster whose VMs start in 200 ms.
fn quick() -> Client {
    let mut spec = ClusterSpec::demo();
    spec.timings.start = Duration::from_millis(200);
    Client::of(spec)
}

async fn seconds(count: u64) {
    tokio::time::sleep(Duration::from_secs(count)).await;
}

async fn post(client: &Client, what: &str) -> String {
    client.task("POST", &format!("{STATUS}/{what}"), Value::Null).await
}

#[tokio::test(start_paused = true)]
async fn a_quick_restart_locks_the_vm_for_half_a_minute() {
    for (pause, starts, locked) in [(0, 200, true), (5, 200, false), (0, 1300, false)] {
        let mut spec = ClusterSpec::demo();
        spec.timings.start = Duration::from_millis(starts);
        let client = Client::of(spec);
        client.running(120).await;
        // A stop takes 400 ms in this cluster.
        for (what, then) in [("stop", 500 + pause * 1000), ("start", 0)] {
            assert_eq!(client.call("POST", &format!("{STATUS}/{what}"), Value::Null).await.status, 200);
            tokio::time::sleep(Duration::from_millis(then)).await;
        }
        seconds(3).await;
        let change = json!({ "description": "changed" });
        let started = tokio::time::Instant::now();
        let mut reply = client.call("PUT", "/nodes/pve1/qemu/120/config", change.clone()).await;
        assert_eq!(reply.status == 500, locked, "{pause} {starts}: {}", reply.reason);
        while reply.status == 500 {
            assert!(reply.reason.contains("lock-120.conf' - got timeout"), "{}", reply.reason);
            reply = client.call("PUT", "/nodes/pve1/qemu/120/config", change.clone()).await;
        }
        let waited = started.elapsed().as_secs();
        assert!(
            if locked { (25..31).contains(&waited) } else { waited == 0 },
            "{pause} {starts}: {waited} s"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn power_calls_for_an_ha_resource_only_ask() {
    let client = Client::new();
    client.running(120).await;
    client.pve.set_ha(120, true);
    let current = client.data("GET", &format!("{STATUS}/current"), Value::Null).await;
    assert_eq!(current["ha"]["managed"], 1);
    let reply = client.call("POST", &format!("{STATUS}/stop"), json!({ "overrule-shutdown": 1 })).await;
    assert_eq!(
        (reply.status, &reply.body["errors"]["overrule-shutdown"]),
        (400, &"Not applicable for HA resources.".into())
    );
    assert_eq!(post(&client, "stop").await, "OK");
    assert!(client.pve.vm(120).expect("a VM").running, "the stop was only requested");
    seconds(12).await;
    assert!(!client.pve.vm(120).expect("a VM").running);
    let reply = client.call("DELETE", "/nodes/pve1/qemu/120", Value::Null).await;
    assert_eq!(reply.reason, "unable to remove VM 120 - used in HA resources and purge parameter not set.");
    assert_eq!(post(&client, "start").await, "OK");
    seconds(12).await;
    assert!(client.pve.vm(120).expect("a VM").running);
    let kinds: Vec<String> = client.pve.task_exits().into_iter().map(|(upid, _)| upid).collect();
    for kind in
        [":hastop:120:autoscaler@pve!agent:", ":hastart:120:autoscaler@pve!agent:", ":qmstop:120:root@pam:"]
    {
        assert!(kinds.iter().any(|upid| upid.ends_with(kind)), "{kind} in {kinds:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_ha_resource_is_started_again_and_moves_off_a_dead_host() {
    let client = Client::new();
    client.running(120).await;
    client.pve.set_ha(120, true);
    client.pve.power_off_host("pve1");
    seconds(60).await;
    assert_eq!(client.pve.vm(120).expect("a VM").node, "pve1");
    seconds(90).await;
    let vm = client.pve.vm(120).expect("a VM");
    assert_eq!((vm.node.as_str(), vm.running), ("pve2", true));
}

#[tokio::test(start_paused = true)]
async fn a_reboot_applies_what_is_pending_and_a_reset_does_not() {
    let client = quick();
    client.running(120).await;
    let config = "/nodes/pve1/qemu/120/config";
    for (what, cores, applied) in [("reset", 6, false), ("reboot", 6, true)] {
        assert_eq!(client.task("POST", config, json!({ "cores": cores })).await, "OK");
        assert_eq!(post(&client, what).await, "OK");
        seconds(2).await;
        let vm = client.pve.vm(120).expect("a VM");
        assert!(vm.running, "{what}");
        assert_eq!(vm.config["cores"] == "6", applied, "{what}");
        let ping = client.call("POST", "/nodes/pve1/qemu/120/agent/ping", Value::Null).await;
        assert_eq!(ping.reason, "QEMU guest agent is not running", "the guest boots again");
        seconds(30).await;
    }
    assert_eq!(post(&client, "stop").await, "OK");
    for what in ["reset", "reboot"] {
        let reply = client.call("POST", &format!("{STATUS}/{what}"), Value::Null).await;
        assert_eq!(reply.reason, "VM 120 not running", "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_move_by_hand_takes_local_disks_along() {
    let client = Client::new();
    let params = json!({ "newid": 120, "name": "w-120", "pool": "k8s-workers" });
    assert_eq!(client.task("POST", "/nodes/pve1/qemu/9001/clone", params).await, "OK");
    let disks = async |node: &str| {
        let path = format!("/nodes/{node}/storage/local-lvm/content?vmid=120");
        client.data("GET", &path, Value::Null).await.as_array().map(Vec::len)
    };
    assert_eq!((disks("pve1").await, disks("pve2").await), (Some(2), Some(0)));
    client.pve.migrate_by_hand(120, "pve2");
    assert_eq!((disks("pve1").await, disks("pve2").await), (Some(0), Some(2)));
    let reply = client.call("GET", "/nodes/pve1/qemu/120/config", Value::Null).await;
    assert_eq!(reply.reason, "Configuration file 'nodes/pve1/qemu-server/120.conf' does not exist");
    assert_eq!(client.task("POST", "/nodes/pve2/qemu/120/status/start", Value::Null).await, "OK");
    assert!(client.pve.vm(120).expect("a VM").running);
}
