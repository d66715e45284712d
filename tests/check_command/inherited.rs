//! What `check` reports about a template's own settings: options that machines inherit, and rights that
//! cloning the template requires.

use world::kubernetes::spec::KubeSpec;
use world::proxmox::spec::ClusterSpec;

use crate::bench::{Bench, POOL};
use crate::words;

/// What `check` reports about a template with these options, if the pool has these settings.
async fn said(template: &[(&str, &str)], more: &str) -> (i32, String) {
    let mut spec = ClusterSpec::demo();
    for (key, value) in template {
        spec.vms[0].config.insert((*key).to_owned(), (*value).to_owned());
    }
    let bench = Bench::new(spec, KubeSpec::demo()).await;
    bench.configure(&format!("{POOL}{more}"));
    let (status, lines) = bench.about("template").await;
    (status, lines.iter().map(words).collect::<Vec<_>>().join("\n"))
}

#[tokio::test]
async fn rights_on_what_the_template_has_itself_are_asked_for() {
    for (option, value, path) in [
        (
            "net0",
            "virtio=BC:24:11:00:23:28,bridge=vmbr7,tag=40",
            "SDN.Use on /sdn/zones/localnetwork/vmbr7/40",
        ),
        (
            "net0",
            "virtio=BC:24:11:00:23:28,bridge=vmbr7,trunks=5-6",
            "SDN.Use on /sdn/zones/localnetwork/vmbr7/5",
        ),
        ("usb0", "mapping=stick", "Mapping.Use on /mapping/usb/stick"),
        ("hostpci0", "pcie=1,mapping=gpu", "Mapping.Use on /mapping/pci/gpu"),
        ("virtiofs0", "dirid=share", "Mapping.Use on /mapping/dir/share"),
        ("rng0", "source=/dev/hwrng", "Mapping.Use on /mapping/hwrng"),
        ("cpu", "custom-big", "Mapping.Use on /mapping/cpu/big"),
        ("vmstatestorage", "local", "Datastore.AllocateSpace on /storage/local"),
        ("ide0", "cdrom,media=cdrom", "Sys.Console on /"),
    ] {
        let (status, said) = said(&[(option, value)], "").await;
        assert_eq!(status, 1, "{option}: {said}");
        assert!(said.contains("lacks ") && said.contains(path), "no {path:?} in\n{said}");
        assert!(said.contains("pveum acl modify"), "{said}");
    }
}

#[tokio::test]
async fn devices_that_no_token_may_clone_are_refused() {
    for (option, value) in
        [("usb0", "host=1234:5678"), ("hostpci0", "0000:01:00.0"), ("scsi1", "/dev/disk/by-id/ata-1")]
    {
        let (status, said) = said(&[(option, value)], "").await;
        assert_eq!(status, 1, "{said}");
        assert!(said.contains(&format!("qm set 9000 --delete {option}")), "{said}");
    }
}

#[tokio::test]
async fn a_bridge_that_only_the_template_names_has_to_be_on_every_host() {
    let mut spec = ClusterSpec::demo();
    spec.vms[0].config.insert("net1".to_owned(), "virtio=BC:24:11:00:00:01,bridge=vmbr7".to_owned());
    let bench = Bench::new(spec, KubeSpec::demo()).await;
    let (status, lines) = bench.about("network vmbr7").await;
    assert_eq!(status, 1);
    assert!(words(&lines[0]).contains("no bridge `vmbr7` on pve1, pve2, pve3"), "{lines:?}");
}

#[tokio::test]
async fn what_machines_would_inherit_is_said() {
    for (option, value, part) in [
        ("ipconfig1", "ip=10.1.0.5/24", "a static address, which every machine would share"),
        ("cicustom", "network=local:snippets/n.yml", "would have the same address"),
        (
            "cicustom",
            "user=shared:snippets/u.yml",
            "replaces the user data, so the guest does not receive the machine's name",
        ),
        (
            "cicustom",
            "vendor=local:snippets/v.yml",
            "no machine starts on a host whose storage `local` lacks",
        ),
        ("affinity", "0-3", "runs on CPUs 0-3 of its host"),
        ("cpulimit", "2", "machines have up to 4 cores"),
        ("serial1", "/dev/ttyS0", "only one machine on each host can use this device"),
        ("kvm", "0", "emulated and slow"),
    ] {
        let (status, said) = said(&[(option, value)], "").await;
        assert_eq!(status, 0, "{option}: {said}");
        assert!(said.contains(part), "no {part:?} in\n{said}");
    }
}

#[tokio::test]
async fn memory_that_is_no_whole_number_of_huge_pages_is_said() {
    let mut spec = ClusterSpec::demo();
    spec.vms[0].config.insert("hugepages".to_owned(), "1024".to_owned());
    let bench = Bench::new(spec, KubeSpec::demo()).await;
    assert_eq!(bench.about("template").await.0, 0);
    bench.change("memory = \"8GiB\"", "memory = \"8704MiB\"");
    let (status, lines) = bench.about("template").await;
    let said = lines.iter().map(words).collect::<String>();
    assert!(status == 1 && said.contains("8704 MiB of memory is not a multiple of that"), "{said}");
}

#[tokio::test]
async fn disks_of_every_bus_count_for_the_room_of_a_full_clone() {
    let full = "clone = \"full\"\nstorage = \"shared\"\n";
    for disk in ["virtio0", "sata0", "ide0", "efidisk0", "scsi3"] {
        let volume = "shared:9000/base-9000-disk-7.qcow2,size=9000G";
        let (_, said) = said(&[(disk, volume)], full).await;
        assert!(said.contains("left, but one machine needs 8.7 TiB"), "{disk}: {said}");
    }
}

#[tokio::test]
async fn the_room_of_a_full_clone_is_counted_as_the_planner_counts_it() {
    let full = "clone = \"full\"\nstorage = \"shared\"\n";
    for (more, expected) in [
        ("disk = \"9000GiB\"\n", "left, but one machine needs 8.7 TiB"),
        ("storage_reserve = \"9000GiB\"\n", "has 0 KiB left, but one machine needs"),
    ] {
        let (_, said) = said(&[], &format!("{full}{more}")).await;
        assert!(said.contains(expected), "{more}: {said}");
    }
    assert!(!said(&[], full).await.1.contains("but one machine needs"));
}
