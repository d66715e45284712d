//! The cluster of recordings 60 to 71: one host, and in some of the recordings also a second host, which is
//! off. This file also contains the changes that were made between the recorded calls but were not recorded.

use std::{sync::Arc, time::Duration};

use serde_json::json;
use world::{
    clock::WorldClock,
    guest::GuestFaults,
    proxmox::{
        Pve, WebImage,
        rights::TagAccess,
        spec::{
            AccessSpec, ClusterSpec, GIB, Grant, HostSpec, StorageKind, StorageSpec, Timings, TokenSpec,
            VmSpec,
        },
    },
};

use crate::{
    cluster::{self, NoControlPlane, role},
    recording::Entry,
    scene,
};

const WORKER: &str = "VM.Allocate VM.Audit VM.PowerMgmt VM.Config.CPU VM.Config.Memory VM.Config.Disk VM.Config.Network \
VM.Config.Options VM.Config.CDROM VM.Config.Cloudinit VM.Config.HWType VM.GuestAgent.Unrestricted";
const MAKER: &str = "VM.Allocate VM.Audit VM.Config.CDROM VM.Config.CPU VM.Config.Cloudinit VM.Config.Disk \
VM.Config.HWType VM.Config.Memory VM.Config.Network VM.Config.Options";
const CLOUD_INIT: &str = "VM.Config.Cloudinit";

/// Each unrecorded change: the scenario, the number of the exchange before which it was made, and what was
/// changed.
const BESIDE: &[(&str, u64, &str)] = &[
    ("61-seed-lacks-cloudinit", 1, "the right to cloud-init drives is removed"),
    ("64-protection-inherited", 18, "stopped"),
    ("65-user-tag-access", 1, "the template is no longer protected"),
    ("65-user-tag-access", 1, "only tags from a list are allowed"),
    ("67-template-download-import", 1, "an image is published"),
    ("68-ha-maintenance", 2, "maintenance"),
    ("68-ha-maintenance", 4, "no maintenance"),
    ("70-pvestatd-silent", 1, "pvestatd stops"),
    ("70-pvestatd-silent", 7, "pvestatd starts"),
    ("71-pool-of-a-guest-needs-pool-audit", 2, "the machine loses its tags"),
    ("71-pool-of-a-guest-needs-pool-audit", 5, "the machine has its tags again"),
    ("71-pool-of-a-guest-needs-pool-audit", 3, "Pool.Audit is granted"),
];

/// The entries of a scenario, with the unrecorded changes inserted.
pub fn with_events(scenario: &str, entries: Vec<Entry>) -> Vec<Entry> {
    let mut all = Vec::new();
    for entry in entries {
        for (_, _, event) in BESIDE.iter().filter(|(of, n, _)| *of == scenario && *n == entry.number()) {
            all.push(Entry(json!({ "t": entry.time(), "event": event })));
        }
        all.push(entry);
    }
    all
}

/// Makes one of the unrecorded changes.
pub fn happen(pve: &Pve, event: &str) {
    match event {
        "the right to cloud-init drives is removed" => {
            change_role(pve, "Worker", |role| role.retain(|one| one != CLOUD_INIT));
        }
        "Pool.Audit is granted" => change_role(pve, "Worker", |role| role.push("Pool.Audit".to_owned())),
        "only tags from a list are allowed" => pve.restrict_tags(TagAccess {
            user_allow: "list".to_owned(),
            user_allow_list: vec!["k8s".to_owned()],
            registered: Vec::new(),
        }),
        "maintenance" => pve.set_maintenance("pve1", true),
        "no maintenance" => pve.set_maintenance("pve1", false),
        "the template is no longer protected" => pve.set_config_by_hand(9001, "protection", Some("0")),
        "the machine has its tags again" => pve.set_config_by_hand(9206, "tags", Some("pve-autoscaler")),
        "the machine loses its tags" => pve.set_config_by_hand(9206, "tags", None),
        "stopped" => pve.stop_by_hand(9104),
        "pvestatd stops" => pve.forget_what_pvestatd_said("pve1"),
        "pvestatd starts" => pve.set_pvestatd_silent("pve1", false),
        "an image is published" => pve.publish(
            "http://10.99.0.1:8099/worker1.qcow2",
            WebImage {
                size: 600 << 20,
                disk: 2 * GIB,
                digest: "c097ec8a03e95920bed6318b3ccf36ac191a1580aeea9ebaa7df738327d27df2".to_owned(),
            },
        ),
        _ => {}
    }
}

fn change_role(pve: &Pve, name: &str, change: impl Fn(&mut Vec<String>)) {
    pve.change_access(|access| access.roles.get_mut(name).into_iter().for_each(&change));
}

/// The cluster of a scenario, with the VMs that its recording shows.
pub fn cluster(scenario: &str, entries: &[Entry]) -> Pve {
    let mut vms = scene::vms(entries, &[], vm);
    for vmid in [9000, 9001] {
        if vms.iter().all(|one| one.vmid != vmid) {
            vms.push(vm(vmid, "pve1"));
        }
    }
    for one in &mut vms {
        one.running |= scenario.starts_with("63");
        one.faults.plugs_no_cpus = one.vmid == 9400;
        one.faults.agent_never = scenario.starts_with("66");
        let pool = if one.config.contains_key("template") { "k8s-templates" } else { "kubernetes" };
        one.pool = Some(pool.to_owned());
    }
    let second = entries.iter().any(|entry| entry.body().to_string().contains("node/pve2"));
    let hosts = (1..=if second { 2u8 } else { 1 }).map(|n| HostSpec {
        name: format!("pve{n}"),
        address: format!("10.99.0.{n}"),
        cores: 2,
        memory: 25_276_063_744,
        memory_used: 3 * GIB,
        bridges: vec!["vmbr0".into()],
    });
    let storage = |id: &str, content: &str| StorageSpec {
        id: id.into(),
        kind: StorageKind::Dir,
        size: 252 * GIB,
        used: 33 * GIB,
        shared: false,
        hosts: Vec::new(),
        content: content.into(),
        copy_rate: None,
    };
    let spec = ClusterSpec {
        name: second.then(|| "lab1".to_owned()),
        version: "9.2.11".into(),
        hosts: hosts.collect(),
        storages: vec![
            storage("local", "rootdir,images,import,snippets,vztmpl,backup,iso"),
            storage("second", "rootdir,images"),
        ],
        pools: vec![("kubernetes".into(), String::new()), ("k8s-templates".into(), String::new())],
        access: access(scenario),
        vms,
        pci: Vec::new(),
        timings: timings(),
        schema: Some(cluster::schema()),
    };
    let clock = WorldClock::starting_at("2026-11-27T07:00:00Z".parse().expect("time"));
    let pve = Pve::new(spec, clock, 7, Arc::new(NoControlPlane));
    if second {
        pve.was_never_up("pve2");
        pve.expect_votes(1);
    }
    if entries.iter().any(|entry| entry.body().to_string().contains("\"hastate\"")) {
        pve.run_ha();
    }
    pve.add_security_group("k8s-workers");
    pve
}

fn access(scenario: &str) -> AccessSpec {
    let roles = [
        ("Worker", WORKER),
        ("Template", "VM.Clone VM.Audit"),
        ("Storage", "Datastore.AllocateSpace Datastore.AllocateTemplate Datastore.Audit"),
        ("Seeds", "Datastore.Allocate Datastore.AllocateSpace Datastore.AllocateTemplate Datastore.Audit"),
        ("Node", "Sys.Audit"),
        ("Net", "SDN.Use"),
        ("Maker", MAKER),
        ("Download", "Sys.AccessNetwork"),
    ];
    let mut grants = Vec::new();
    let mut grant = |who: &str, path: &str, role: &str, propagate| {
        let user = who.split('!').next().unwrap_or_default();
        for who in [who, user] {
            grants.push(Grant {
                path: path.to_owned(),
                who: who.to_owned(),
                role: role.to_owned(),
                propagate,
            });
        }
    };
    for (path, role, propagate) in [
        ("/pool/kubernetes", "Worker", false),
        ("/pool/k8s-templates", "Template", false),
        ("/storage/local", "Seeds", false),
        ("/storage/second", "Storage", false),
        ("/sdn/zones/localnetwork/vmbr0", "Net", false),
        ("/nodes", "Node", true),
        ("/", "Node", false),
    ]
    .into_iter()
    // In recording 66, the grant on `/storage/second` was made later.
    .filter(|(path, _, _)| !(scenario.starts_with("66") && *path == "/storage/second"))
    {
        grant("autoscaler@pve!agent", path, role, propagate);
    }
    for (path, role, propagate) in [
        ("/pool/k8s-templates", "Maker", false),
        ("/storage/local", "Storage", false),
        ("/sdn/zones/localnetwork/vmbr0", "Net", false),
        ("/nodes", "Download", true),
        ("/", "Node", false),
    ] {
        grant("templates@pve!make", path, role, propagate);
    }
    let token = |id: &str| TokenSpec { id: id.into(), secret: "secret".into(), privsep: true, enabled: true };
    AccessSpec {
        users: std::collections::BTreeSet::new(),
        roles: roles.into_iter().map(role).collect(),
        tokens: vec![token("autoscaler@pve!agent"), token("templates@pve!make")],
        grants,
    }
}

/// A VM whose configuration is not recorded.
fn vm(vmid: u32, node: &str) -> VmSpec {
    let template = vmid < 9100;
    let disk = if template { "base" } else { "vm" };
    let name = match vmid {
        9000 => "k8s-worker-9f4fd45a-1".to_owned(),
        9001 => "k8s-worker".to_owned(),
        _ => format!("workers-{vmid}"),
    };
    let config = [
        ("agent", "enabled=1".to_owned()),
        ("boot", "order=scsi0".to_owned()),
        ("ciupgrade", "0".to_owned()),
        ("cores", "2".to_owned()),
        ("description", "Template k8s-worker of pve-autoscaler.".to_owned()),
        ("ide2", format!("local:{vmid}/vm-{vmid}-cloudinit.qcow2,media=cdrom")),
        ("memory", "2048".to_owned()),
        ("meta", "creation-qemu=10.0.13,ctime=1795762616".to_owned()),
        ("name", name),
        ("net0", "virtio=BC:24:11:97:33:CC,bridge=vmbr0".to_owned()),
        ("ostype", "l26".to_owned()),
        ("scsi0", format!("local:{vmid}/{disk}-{vmid}-disk-0.qcow2,discard=on,size=3G")),
        ("scsihw", "virtio-scsi-single".to_owned()),
        ("serial0", "socket".to_owned()),
        ("smbios1", format!("uuid=74834ba7-e27d-4ad0-80bf-{vmid:012}")),
        ("vga", "serial0".to_owned()),
        ("vmgenid", format!("faa5b107-50f0-4679-83eb-{vmid:012}")),
    ];
    let mut vm = VmSpec {
        vmid,
        node: node.into(),
        pool: None,
        config: config.into_iter().map(|(key, value)| (key.to_owned(), value)).collect(),
        running: false,
        faults: GuestFaults::default(),
    };
    if template {
        vm.config.insert("template".to_owned(), "1".to_owned());
    }
    vm
}

/// The timings of the recorded cluster, which had no hardware virtualization.
fn timings() -> Timings {
    let ms = Duration::from_millis;
    let full_clone_rate = 2 << 30;
    Timings { boot_to_agent: ms(45_000), agent_to_running: ms(10_000), full_clone_rate, ..cluster::timings() }
}
