//! Network devices and addresses of both families reach the VMs as the pool configures them.

use std::time::Duration;

use crate::stage::{ONE_POOL, Stage};

const SOON: Duration = Duration::from_mins(2);

/// A pool with addresses of both families and a second device.
const TWO_DEVICES: &str = r#"
addresses6 = "fd00:10::11-fd00:10::20"
gateway6 = "fd00:10::1"
mtu = 1400
firewall = true
[[pool.network]]
bridge = "vmbr0"
model = "e1000"
addresses = "10.20.0.11-10.20.0.20"
prefix = 16
addresses6 = "auto"
[[pool.network]]
bridge = "vmbr0"
addresses = "dhcp"
"#;

#[tokio::test(start_paused = true)]
async fn a_machine_gets_the_devices_and_addresses_of_its_pool() {
    let mut stage = Stage::new(&format!("{ONE_POOL}{TWO_DEVICES}"));
    stage.start();
    stage.deploy("web", 2, "1500m", "1Gi");
    stage.until("two pods run", SOON, |stage| stage.running_pods() == 2).await;
    let config = stage.pve.vm(9101).unwrap().config;
    assert_eq!(config["ipconfig0"], "ip=10.10.10.12/24,gw=10.10.10.1,ip6=fd00:10::12/64,gw6=fd00:10::1");
    assert_eq!(config["ipconfig1"], "ip=10.20.0.12/16,ip6=auto");
    assert_eq!(config["ipconfig2"], "ip=dhcp");
    for part in ["virtio=", "bridge=vmbr0", "mtu=1400", "firewall=1"] {
        assert!(config["net0"].contains(part), "no {part} in {}", config["net0"]);
    }
    assert!(
        config["net1"].starts_with("e1000=") && config["net1"].contains("bridge=vmbr0"),
        "{}",
        config["net1"]
    );
    assert!(config["net2"].starts_with("virtio="), "{}", config["net2"]);
    // The record contains each address.
    let records = stage.kube.list("ConfigMap");
    let text = serde_json::to_string(&records).unwrap();
    for address in ["10.10.10.12", "fd00:10::12", "10.20.0.12"] {
        assert!(text.contains(address), "no {address} in the records");
    }
    // The device is written only once: if it were written again without its MAC address, it would get a new
    // one.
    let (kept, before) = (stage.pve.vm(9100).unwrap().config["net1"].clone(), config["net1"].clone());
    stage
        .throughout("the devices stay", SOON, |stage| stage.pve.vm(9100).unwrap().config["net1"] == kept)
        .await;
    assert_ne!(kept, before, "the two machines have different MAC addresses");
}

#[tokio::test(start_paused = true)]
async fn a_slot_whose_second_address_a_node_has_is_left_out() {
    let text = format!("{ONE_POOL}addresses6 = \"fd00:10::11-fd00:10::20\"\n");
    let mut stage = Stage::new(&text);
    stage
        .kube
        .apply(&serde_json::json!({
            "kind": "Node", "metadata": { "name": "stranger" },
            "status": { "addresses": [{ "type": "InternalIP", "address": "fd00:10::11" }] },
        }))
        .unwrap();
    stage.start();
    stage.deploy("web", 1, "1", "1Gi");
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    assert_eq!(stage.vms(9100..=9109), [9101]);
}
