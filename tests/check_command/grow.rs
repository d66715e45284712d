//! What `check` reports about machines that grow.

use world::kubernetes::spec::KubeSpec;
use world::proxmox::spec::ClusterSpec;

use crate::bench::{Bench, POOL};
use crate::words;

async fn bench(spec: ClusterSpec, most: u32) -> Bench {
    let bench = Bench::new(spec, KubeSpec::demo()).await;
    bench.configure(&format!("{POOL}[pool.grow]\nmax_cores = {most}\nmax_memory = \"16GiB\"\n"));
    bench
}

async fn said(bench: &Bench, about: &str) -> String {
    bench.about(about).await.1.iter().map(words).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn what_keeps_machines_from_growing_is_said() {
    let mut spec = ClusterSpec::demo();
    for vm in spec.vms.iter_mut().filter(|vm| vm.vmid == 9000) {
        vm.config.insert("numa0".to_owned(), "cpus=0-1,memory=2048".to_owned());
    }
    let bench = bench(spec, 64).await;
    let template = said(&bench, "template k8s-worker (").await;
    for part in ["a NUMA topology (`numa0`)", "--delete numa0", "lacks VM.Config.HWType on /pool/k8s-workers"]
    {
        assert!(template.contains(part), "no {part:?} in\n{template}");
    }
    let pool = said(&bench, "pool workers").await;
    assert!(pool.contains("pve1 has 32 threads") && pool.contains("may grow to 64 cores"), "{pool}");
    assert!(said(&bench, "room").await.contains("pve1 is too small"));
}

#[tokio::test]
async fn nothing_is_said_where_nothing_is_in_the_way() {
    let mut spec = ClusterSpec::demo();
    spec.access.roles.get_mut("KasWorker").unwrap().push("VM.Config.HWType".to_owned());
    let bench = bench(spec, 8).await;
    assert_eq!(bench.about("template k8s-worker (").await.0, 0);
    assert!(!said(&bench, "room").await.contains("too small"));
}
