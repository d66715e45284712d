//! What `check` reports about the PCI devices that a pool gives its machines.

use serde_json::json;
use world::kubernetes::spec::KubeSpec;
use world::proxmox::spec::{ClusterSpec, Grant, VmSpec};

use crate::bench::{Bench, POOL};
use crate::{first_bad, words};

/// Two GPUs on pve1, one of which an unmanaged VM holds, and one on pve2.
fn with_gpus() -> ClusterSpec {
    let mut spec = ClusterSpec::demo();
    let devices = [("pve1", "0000:01:00"), ("pve1", "0000:41:00"), ("pve2", "0000:01:00")];
    let devices = devices.map(|(host, path)| (host.to_owned(), path.to_owned()));
    spec.pci.push(("gpu".to_owned(), devices.to_vec()));
    let mut other = VmSpec::machine(700, "pve1", "games");
    other.pool = Some("k8s-workers".to_owned());
    other.running = true;
    other.config.insert("hostpci0".to_owned(), "mapping=gpu".to_owned());
    spec.vms.push(other);
    spec
}

/// Gives the token all the rights on devices that it needs.
fn permit(spec: &mut ClusterSpec) {
    spec.access.roles.get_mut("KasWorker").unwrap().push("VM.Config.HWType".to_owned());
    spec.access.roles.insert("Gpu".to_owned(), vec!["Mapping.Use".to_owned()]);
    for who in ["autoscaler@pve", ClusterSpec::DEMO_TOKEN] {
        spec.access.grants.push(Grant {
            path: "/mapping/pci/gpu".to_owned(),
            who: who.to_owned(),
            role: "Gpu".to_owned(),
            propagate: false,
        });
    }
}

async fn bench(spec: ClusterSpec, more: &str) -> Bench {
    let bench = Bench::new(spec, KubeSpec::demo()).await;
    bench.configure(&format!("{POOL}[[pool.pci]]\nmapping = \"gpu\"\n{more}"));
    bench
}

#[tokio::test]
async fn free_devices_are_counted_on_each_host() {
    let mut spec = with_gpus();
    permit(&mut spec);
    let bench = bench(spec, "").await;
    let (status, about) = bench.about("PCI mapping gpu").await;
    assert_eq!(words(&about[0]), "free for machines: pve1 1 of 2, pve2 1 of 1 | ");
    assert_eq!(status, 0, "{}", first_bad(&about));
    let (_, room) = bench.about("room").await;
    assert_eq!(words(&room[0]), "for more machines: pve1 1, pve2 1, pve3 0 | ");
}

#[tokio::test]
async fn what_keeps_machines_from_their_devices_is_said() {
    let bench = bench(with_gpus(), "").await;
    let (status, about) = bench.about("PCI mapping gpu").await;
    assert_eq!(status, 1);
    let said = about.iter().map(words).collect::<Vec<_>>().join("\n");
    for part in ["the token cannot see the mapping", "Mapping.Use on /mapping/pci/gpu"] {
        assert!(said.contains(part), "no {part:?} in\n{said}");
    }
    let (_, template) = bench.about("template k8s-worker (").await;
    let said = template.iter().map(words).collect::<Vec<_>>().join("\n");
    for part in ["lacks VM.Config.HWType on /pool/k8s-workers", "lacks Mapping.Use on /mapping/pci/gpu"] {
        assert!(said.contains(part), "no {part:?} in\n{said}");
    }
}

#[tokio::test]
async fn a_device_on_an_express_bus_needs_the_machine_for_it() {
    let mut spec = with_gpus();
    permit(&mut spec);
    let bench = bench(spec, "pcie = true\n").await;
    let (status, about) = bench.about("PCI mapping gpu").await;
    assert_eq!(status, 1);
    assert!(first_bad(&about).contains("set `vm_options = { machine = \"q35\" }`"), "{about:?}");
    bench.change("bridge = \"vmbr0\"", "bridge = \"vmbr0\"\nvm_options = { machine = \"q35\" }");
    assert_eq!(bench.about("PCI mapping gpu").await.0, 0);
}

#[tokio::test]
async fn declared_devices_are_compared_with_what_nodes_have() {
    let text = format!("{POOL}[[pool.device]]\ndriver = \"gpu.example.com\"\ncount = 2\n");
    let bench = Bench::new(ClusterSpec::demo(), KubeSpec::demo()).await;
    bench.configure(&text);
    let (status, about) = bench.about("declared devices").await;
    assert_eq!((status, about[0]["level"].as_str()), (0, Some("warning")));
    assert!(
        words(&about[0]).starts_with("there is no DeviceClass with which a pod could request these devices")
    );
    let class = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": { "name": "gpu" }, "spec": {},
    });
    bench.kube.apply(&class).unwrap();
    let (status, about) = bench.about("declared devices").await;
    assert_eq!((status, words(&about[0]).as_str()), (0, "2 of gpu.example.com per machine | "));
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": "w-1", "labels": { "pve-autoscaler/pool": "workers" } },
    });
    let slice = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": { "name": "w-1-gpu" },
        "spec": {
            "driver": "gpu.example.com", "nodeName": "w-1", "devices": [{ "name": "a" }],
            "pool": { "name": "w-1", "generation": 1, "resourceSliceCount": 1 },
        },
    });
    bench.kube.apply(&node).unwrap();
    bench.kube.apply(&slice).unwrap();
    let (status, about) = bench.about("declared devices").await;
    assert_eq!((status, about[0]["level"].as_str()), (0, Some("warning")));
    let said = "the pool declares 2 devices of gpu.example.com, but node w-1 has 1 | fix `[[pool.device]]`";
    assert!(words(&about[0]).starts_with(said), "{}", words(&about[0]));
}
