//! What `check` reports about templates, about the storages that clones and seeds need, and about machines
//! without a template.

use world::kubernetes::spec::KubeSpec;
use world::proxmox::spec::{ClusterSpec, Grant, StorageKind, StorageSpec, VmSpec};

use crate::bench::{Bench, POOL};
use crate::{first_bad, words};

#[tokio::test]
async fn templates_that_cannot_be_cloned_are_told_with_a_way_out() {
    type Spoil = fn(&mut ClusterSpec);
    let cases: [(Spoil, &str, &str, &str); 9] = [
        (|_| {}, "template = 9000", "template = 9999", "the token sees no VM 9999"),
        (|_| {}, "template = 9000", "template = \"k8s-wroker\"", "no template is called `k8s-wroker`"),
        (
            |spec| drop(spec.vms[0].config.insert("agent".to_owned(), "0".to_owned())),
            "",
            "",
            "qm set 9000 --agent enabled=1",
        ),
        (|spec| drop(spec.vms[0].config.remove("ide2")), "", "", "no cloud-init drive"),
        (
            |spec| drop(spec.vms[0].config.insert("lock".to_owned(), "clone".to_owned())),
            "",
            "",
            "cannot be cloned while it is locked (clone)",
        ),
        (
            |_| {},
            "template = 9000",
            "template = 9000\ndisk = \"8GiB\"",
            "scsi0 already has 10 GiB, but `disk` is 8 GiB",
        ),
        (
            |_| {},
            "template = 9000",
            "template = 9000\nclone = \"full\"\nstorage = \"local\"",
            "the token cannot see a storage `local`",
        ),
        (
            |_| {},
            "template = 9000",
            "template = 9000\nwarm = { count = 2, state = \"suspended\" }\nvm_options = { vmstatestorage = \"local\" }",
            "storage `local`, which stores the memory of suspended machines, is not visible",
        ),
        (
            |spec| spec.storages[2].used = spec.storages[2].size - (20 << 30),
            "template = 9000",
            "template = 9000\nwarm = { count = 2, state = \"suspended\" }",
            "GiB left on pve1, but 2 suspended machines need 32.9 GiB",
        ),
    ];
    for (spoil, from, to, expected) in cases {
        let mut spec = ClusterSpec::demo();
        spoil(&mut spec);
        let bench = Bench::new(spec, KubeSpec::demo()).await;
        if !from.is_empty() {
            bench.change(from, to);
        }
        let (status, lines) = bench.about("template").await;
        let said = first_bad(&lines);
        assert!(said.contains(expected), "{expected}: {lines:#?}");
        // Too little free space is only a warning, because space may become free.
        assert_eq!(status, i32::from(!said.contains(" left on ")), "{said}");
        assert_eq!(lines[0]["pool"], "workers");
    }
}

#[tokio::test]
async fn the_memory_of_machines_that_are_suspended_already_is_not_counted_again() {
    for (there, expected) in [
        (0, Some("but 2 suspended machines need 32.9 GiB")),
        (1, Some("but suspending 1 more machine needs 16.4 GiB")),
        (2, None),
    ] {
        let mut spec = ClusterSpec::demo();
        spec.storages[2].used = spec.storages[2].size - (10 << 30);
        for vmid in 9100..9100 + there {
            let mut vm = VmSpec::machine(vmid, "pve1", "warm");
            vm.config.insert("lock".to_owned(), "suspended".to_owned());
            vm.pool = Some("k8s-workers".to_owned());
            spec.vms.push(vm);
        }
        let bench = Bench::new(spec, KubeSpec::demo()).await;
        bench.change("template = 9000", "template = 9000\nwarm = { count = 2, state = \"suspended\" }");
        let said = bench.about("template").await.1.iter().map(words).collect::<String>();
        match expected {
            Some(expected) => assert!(said.contains(expected), "{said}"),
            None => assert!(!said.contains(" left on "), "{said}"),
        }
    }
}

#[tokio::test]
async fn what_seeds_need_is_looked_at() {
    let grant = |spec: &mut ClusterSpec, privileges: &str| {
        let privileges = privileges.split(' ').map(ToOwned::to_owned).collect();
        spec.access.roles.insert("Seeds".into(), privileges);
        for who in ["autoscaler@pve", ClusterSpec::DEMO_TOKEN] {
            let (path, role) = ("/storage/local".into(), "Seeds".into());
            spec.access.grants.push(Grant { path, who: who.into(), role, propagate: false });
        }
    };
    let all = "Datastore.AllocateTemplate Datastore.Allocate Datastore.Audit";
    for (storage, privileges, machines, expected) in [
        ("local", all, "VM.Config.CDROM", "agent enabled, seeds on local"),
        (
            "local",
            "Datastore.AllocateTemplate Datastore.Audit",
            "VM.Config.CDROM",
            "lacks Datastore.Allocate on",
        ),
        ("local", all, "VM.Audit", "lacks VM.Config.CDROM on"),
        ("local-lvm", all, "VM.Config.CDROM", "pvesm set local-lvm --content …,iso"),
        // The template has its own cloud-init drive, which the seed replaces.
        ("local", all, "VM.Config.CDROM ", "lacks VM.Config.Cloudinit on"),
    ] {
        let mut spec = ClusterSpec::demo();
        if !machines.ends_with(' ') {
            spec.vms[0].config.remove("ide2");
        }
        let machines = machines.trim_end();
        grant(&mut spec, privileges);
        spec.access.roles.get_mut("KasWorker").unwrap().push(machines.to_owned());
        let bench = Bench::new(spec, KubeSpec::demo()).await;
        bench.configure(&format!(
            "{POOL}[pool.cloud_init]\nmethod = \"seed\"\nstorage = \"{storage}\"\nuser_data = \"#cloud-config\\n\"\n"
        ));
        let (_, text) = bench.check().await;
        assert_eq!(text.contains("the pool's machines have no name servers"), storage == "local", "{text}");
        bench.change("prefix = 24\n", "prefix = 24\ndns = [\"10.10.10.1\"]\n");
        let (status, text) = bench.check().await;
        assert_eq!(status == 0, expected.starts_with("agent"), "{text}");
        assert!(text.contains(expected), "no {expected:?} in\n{text}");
    }
}

#[tokio::test]
async fn machines_that_boot_from_the_network_need_a_storage_alone() {
    let pool =
        POOL.replace("template = 9000\n", "boot = \"network\"\ndisk = \"16GiB\"\nstorage = \"local-lvm\"\n");
    let pool = pool.replace("10.10.10.11-10.10.10.20", "dhcp").replace("prefix = 24\n", "");
    for (storage, expected) in [
        ("local-lvm", "empty disk virtio0 of 16 GiB on local-lvm"),
        ("local", "the token cannot see a storage `local` that can hold disks"),
    ] {
        let bench = Bench::demo().await;
        bench.configure(&pool.replace("local-lvm", storage));
        let (status, text) = bench.check().await;
        assert_eq!(status == 0, storage == "local-lvm", "{text}");
        assert!(text.contains(expected) && text.contains("network vmbr0"), "no {expected:?} in\n{text}");
    }
}

#[tokio::test]
async fn thick_lvm_makes_no_linked_clones() {
    let mut spec = ClusterSpec::demo();
    spec.storages.push(StorageSpec {
        id: "san-lvm".to_owned(),
        kind: StorageKind::Lvm,
        shared: true,
        ..spec.storages[1].clone()
    });
    let mut grants: Vec<_> =
        spec.access.grants.iter().filter(|grant| grant.path == "/storage/shared").cloned().collect();
    for grant in &mut grants {
        "/storage/san-lvm".clone_into(&mut grant.path);
    }
    spec.access.grants.extend(grants);
    spec.vms.push(VmSpec::template(9005, "pve1", "gpu-worker", "san-lvm"));
    let bench = Bench::new(spec, KubeSpec::demo()).await;
    bench.change("template = 9000", "template = \"gpu-worker\"");
    let (status, said) = bench.check().await;
    assert_eq!(status, 1, "{said}");
    assert!(said.contains("storage `san-lvm` (LVM, thick) cannot make linked clones"), "{said}");
    assert!(
        said.contains("help: set `clone = \"full\"` for this pool, or move the template to `local-lvm`"),
        "{said}"
    );
    let last = "1 error: `run` would start, but pool `workers` would not work as configured";
    assert!(said.trim_end().ends_with(last), "{said}");
    bench.change("template = \"gpu-worker\"", "template = \"gpu-worker\"\nclone = \"full\"");
    let (status, said) = bench.check().await;
    assert_eq!(status, 0, "{said}");
}

#[tokio::test]
async fn hosts_that_no_template_reaches_are_named() {
    let bench = Bench::demo().await;
    bench.change("template = 9000", "template = 9002");
    let (status, lines) = bench.about("template 9002, hosts").await;
    assert_eq!((status, lines[0]["level"].as_str()), (0, Some("warning")));
    let said = words(&lines[0]);
    assert!(said.contains("no clone can be made on pve1, pve3") && said.contains("shared storage"), "{said}");
    bench.change("template = 9002", "template = 9002\nhosts = [\"pve1\", \"pve4\"]");
    let (status, said) = bench.check().await;
    assert_eq!(status, 1, "{said}");
    assert!(
        said.contains("there is no such host") && said.contains("the hosts are pve1, pve2, pve3"),
        "{said}"
    );
    // Each host has its own template with this name, so clones can be made on every host.
    bench.configure(&POOL.replace("9000", "\"k8s-worker-local\""));
    let (status, said) = bench.check().await;
    assert_eq!(status, 0, "{said}");
    assert!(said.contains("(9003 on pve3, linked clone)") && !said.contains("warning"), "{said}");
}

#[tokio::test]
async fn templates_that_are_described_are_compared_with_those_there_are() {
    let bench = Bench::demo().await;
    let described = |more: &str| {
        format!(
            "{POOL}[[template]]\nname = \"made\"\nimage = \"https://images.example/a.qcow2\"\nchecksum = \"sha256:{}\"\n\
             vmids = \"9010-9019\"\nbridge = \"vmbr0\"\n{more}\n",
            "a".repeat(64)
        )
    };
    for (more, status, part) in [
        (
            "storage = \"shared\"",
            0,
            "pve1 has no template that matches the description | run `pve-autoscaler template made`",
        ),
        ("storage = \"nowhere\"", 1, "no online host has the template's storage `nowhere`"),
        ("storage = \"shared\"\nhosts = [\"pve9\"]", 1, "there is no host `pve9`"),
        (
            "storage = \"shared\"\nimage_storage = \"local-lvm\"",
            1,
            "does not accept the content type `import`",
        ),
    ] {
        bench.configure(&described(more));
        let (ended, lines) = bench.about("making template made").await;
        assert_eq!(ended, status, "{lines:?}");
        assert!(lines.iter().any(|line| words(line).contains(part)), "no {part:?} in {lines:?}");
    }
}
