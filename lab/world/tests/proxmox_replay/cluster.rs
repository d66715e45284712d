//! A cluster like the one that was recorded.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use world::{
    clock::WorldClock,
    guest::{
        GuestFaults,
        control_plane::{ControlPlane, JoinFailure, JoinRequest},
    },
    proxmox::{
        Pve,
        spec::{
            AccessSpec, ClusterSpec, GIB, Grant, HostSpec, StorageKind, StorageSpec, Timings, TokenSpec,
            VmSpec,
        },
    },
};

pub struct NoControlPlane;

impl ControlPlane for NoControlPlane {
    fn join(&self, _: JoinRequest) -> BoxFuture<'_, Result<(), JoinFailure>> {
        Box::pin(async { Ok(()) })
    }

    fn power_lost(&self, _: &str) {}

    fn booted_again(&self, _: &str) {}
}

const WORKER: &str = "VM.Allocate VM.Audit VM.PowerMgmt VM.Config.CPU VM.Config.Memory VM.Config.Disk VM.Config.Network \
VM.Config.Options VM.Config.Cloudinit VM.GuestAgent.Unrestricted Pool.Audit";

/// The privileges of the recorded cluster's roles.
pub fn roles() -> [(&'static str, &'static str); 5] {
    [
        ("KasWorker", WORKER),
        ("KasTemplate", "VM.Clone VM.Audit"),
        ("KasStorage", "Datastore.AllocateSpace Datastore.Audit"),
        ("KasNode", "Sys.Audit"),
        ("KasNet", "SDN.Use"),
    ]
}

/// Converts a role to the form that a cluster's spec needs.
pub fn role((role, privileges): (&str, &str)) -> (String, Vec<String>) {
    (role.to_owned(), privileges.split_whitespace().map(String::from).collect())
}

/// The `Authorization` header of a recorded identity.
pub fn authorization(who: &str) -> Option<String> {
    let token = match who {
        "pool-token" => "autoscaler-pool@pve!agent",
        "no-rights-token" => "nobody@pve!none",
        "worker-token" | "agent-token" => "autoscaler@pve!agent",
        "template-token" => "templates@pve!make",
        "root-token" => "root@pam!admin",
        "bad-token" => return Some("PVEAPIToken=autoscaler@pve!agent=wrong".to_owned()),
        _ => return None,
    };
    Some(format!("PVEAPIToken={token}=secret"))
}

fn access() -> AccessSpec {
    let mut grants = Vec::new();
    let mut grant = |user: &str, path: &str, roles: &[&str], propagate| {
        for role in roles {
            for who in [user.to_owned(), format!("{user}!agent")] {
                grants.push(Grant { path: path.to_owned(), who, role: (*role).to_owned(), propagate });
            }
        }
    };
    grant("autoscaler@pve", "/vms", &["KasWorker", "KasTemplate"], true);
    grant("autoscaler@pve", "/storage", &["KasStorage"], true);
    for user in ["autoscaler@pve", "autoscaler-pool@pve"] {
        grant(user, "/sdn/zones/localnetwork/vmbr0", &["KasNet"], false);
        grant(user, "/nodes", &["KasNode"], true);
        grant(user, "/pool/k8s-workers", &["KasWorker"], false);
        grant(user, "/pool/k8s-templates", &["KasTemplate"], false);
    }
    grant("autoscaler-pool@pve", "/storage/shared", &["KasStorage"], false);
    let token =
        |id: &str, privsep| TokenSpec { id: id.into(), secret: "secret".into(), privsep, enabled: true };
    AccessSpec {
        users: std::collections::BTreeSet::new(),
        roles: roles().into_iter().map(role).collect(),
        tokens: vec![
            token("autoscaler@pve!agent", true),
            token("autoscaler-pool@pve!agent", true),
            token("nobody@pve!none", true),
            token("root@pam!admin", false),
        ],
        grants,
    }
}

/// The recorded template, or a copy of it with a different VMID.
pub fn template(vmid: u32, node: &str, name: &str) -> VmSpec {
    let mut vm = machine(vmid, node, name);
    vm.pool = Some("k8s-templates".to_owned());
    vm.config.insert("template".to_owned(), "1".to_owned());
    vm.config.insert("scsi0".to_owned(), format!("shared:{vmid}/base-{vmid}-disk-0.qcow2,size=2G"));
    vm.config.insert("ide2".to_owned(), format!("shared:{vmid}/vm-{vmid}-cloudinit.qcow2,media=cdrom"));
    vm
}

/// A VM that was cloned from the recorded template before the scenario began.
pub fn machine(vmid: u32, node: &str, name: &str) -> VmSpec {
    let linked = format!("shared:9010/base-9010-disk-0.qcow2/{vmid}/vm-{vmid}-disk-0.qcow2,size=2G");
    let config = [
        ("name", name.to_owned()),
        ("description", "Template for workers\nsecond line".to_owned()),
        ("memory", "1024".to_owned()),
        ("cores", "1".to_owned()),
        ("kvm", "0".to_owned()),
        ("cpu", "max".to_owned()),
        ("ostype", "l26".to_owned()),
        ("scsihw", "virtio-scsi-single".to_owned()),
        ("net0", "virtio=BC:24:11:A5:D1:2D,bridge=vmbr0".to_owned()),
        ("serial0", "socket".to_owned()),
        ("agent", "enabled=1".to_owned()),
        ("boot", "order=scsi0".to_owned()),
        ("tags", "k8s;template".to_owned()),
        ("ciupgrade", "0".to_owned()),
        ("smbios1", format!("uuid=8924fcf0-e881-4d59-851e-{vmid:012}")),
        ("vmgenid", format!("72bbe3d1-edbb-40a4-81ab-{vmid:012}")),
        ("meta", "creation-qemu=10.0.13,ctime=1795220293".to_owned()),
        ("scsi0", linked),
        ("ide2", format!("shared:{vmid}/vm-{vmid}-cloudinit.qcow2,media=cdrom,size=4M")),
    ];
    VmSpec {
        vmid,
        node: node.into(),
        pool: None,
        config: config.into_iter().map(|(key, value)| (key.to_owned(), value)).collect(),
        running: false,
        faults: GuestFaults::default(),
    }
}

/// The recorded cluster, with its first two templates and the given VMs.
pub fn cluster(vms: Vec<VmSpec>, timings: Timings) -> Pve {
    let hosts = (1..=3u8).map(|n| HostSpec {
        name: format!("pve{n}"),
        address: format!("10.77.0.{}", 10 + n),
        cores: 4,
        memory: 25_276_067_840,
        memory_used: 3_973_083_136,
        bridges: vec!["vmbr0".into()],
    });
    let storage = |id: &str, shared, content: &str| StorageSpec {
        id: id.into(),
        kind: StorageKind::Dir,
        size: 252 * GIB,
        used: 33 * GIB,
        shared,
        hosts: Vec::new(),
        content: content.into(),
        copy_rate: None,
    };
    let mut old = template(9000, "pve1", "tmpl");
    old.pool = None;
    old.config.insert("tags".to_owned(), "old;template".to_owned());
    old.config.insert("memory".to_owned(), "512".to_owned());
    let mut all = vec![old, template(9010, "pve1", "debian-13-k8s")];
    all.extend(vms);
    let spec = ClusterSpec {
        name: Some("lab".into()),
        version: "9.2.11".into(),
        hosts: hosts.collect(),
        storages: vec![
            storage("local", false, "images,import,vztmpl,snippets,iso,backup"),
            storage("shared", true, "iso,snippets,import,images"),
        ],
        pools: vec![
            ("k8s-workers".into(), "Kubernetes workers".into()),
            ("k8s-templates".into(), "templates".into()),
        ],
        access: access(),
        vms: all,
        pci: Vec::new(),
        timings,
        schema: Some(schema()),
    };
    let clock = WorldClock::starting_at("2026-11-21T00:00:00Z".parse().expect("time"));
    Pve::new(spec, clock, 7, Arc::new(NoControlPlane))
}

/// The official schema.
pub fn schema() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/pve/apidoc-9.2.json")
}

/// The timings of the recorded cluster, without jitter. Its nodes had no hardware virtualization.
pub fn timings() -> Timings {
    let ms = Duration::from_millis;
    Timings {
        request: ms(5),
        linked_clone: ms(300),
        full_clone_rate: 400 << 20,
        config: ms(30),
        start: ms(200),
        stop: ms(100),
        shutdown: ms(4000),
        destroy: ms(200),
        boot_to_agent: ms(45_000),
        agent_to_running: ms(10_000),
        jitter: 0.0,
        ..Timings::default()
    }
}
