//! What allows and what prevents the adoption of a worker; full scenarios are in
//! `tests/scenarios/adoptions.rs`.

use model::Vmid;
use serde_json::{Value, json};

use super::obstacles::CONTROL_PLANE;
use super::*;
use model::snapshot::{BEING_DELETED_TAINT, POOL_LABEL};
use settings::{Needs, parse};

const UUID: &str = "0b3c7e6a-58c2-4d34-9d3a-0e6b4a1f2c11";

const CONFIG: &str = r#"
cluster = "home"
[proxmox]
endpoints = ["https://127.0.0.1:8006"]
token_id = "autoscaler@pve!agent"
token_file = "/none"
ca_file = "/none"
resource_pool = "workers"
[[pool]]
name = "old"
max = 2
cores = 4
memory = "8GiB"
vmids = "205-209"
addresses = "10.0.0.25-10.0.0.29"
prefix = 24
hosts = ["pve1"]
labels = { "example.org/kind" = "worker" }
taints = ["dedicated=batch:NoSchedule"]
extra_disks = [{ device = "scsi1", size = "20GiB", storage = "local-lvm" }]
"#;

/// A worker that may be adopted.
fn found() -> Found {
    let config = json!({
        "digest": "d1", "name": "kp-node-1", "cores": 2, "sockets": 2, "memory": "8192", "tags": "kproximate;b",
        "description": "made by hand\n", "smbios1": format!("uuid={}", UUID.to_uppercase()),
        "ide2": "local-lvm:vm-205-cloudinit,media=cdrom", "scsi0": "local-lvm:vm-205-disk-0,size=20G",
    });
    let guest = Guest {
        vmid: Vmid(205),
        host: "pve1".to_owned(),
        name: Some("kp-node-1".to_owned()),
        running: true,
        stopped: false,
        template: false,
        container: false,
        tags: Vec::new(),
        pool: Some("workers".to_owned()),
        lock: None,
        cores: 4,
        memory: 8 << 30,
    };
    let status = VmStatus { power: proxmox::Power::Running, ha_managed: false, lock: None };
    let node = Node {
        name: "kp-node-1".to_owned(),
        uid: "n1".to_owned(),
        system_uuid: UUID.to_owned(),
        internal_ips: vec!["10.0.0.25".to_owned()],
        conditions: vec![ready("True")],
        ..Node::default()
    };
    Found {
        node,
        vms: vec![Candidate { guest, config: VmConfig::read(&config).unwrap(), status }],
        namesakes: Vec::new(),
        records: Vec::new(),
        unreadable: Vec::new(),
        quorate: true,
        pools: BTreeSet::from(["workers".to_owned()]),
    }
}

fn judged(found: &Found) -> Judgement {
    let config = parse("config.toml", CONFIG, Needs::Plan).unwrap();
    judge(&config, &config.pools[0], found, "m-1", "2026-11-21T00:00:00Z".parse().unwrap())
}

fn adoption(found: &Found) -> Adoption {
    match judged(found) {
        Judgement::May(adoption) => *adoption,
        other => panic!("{other:?}"),
    }
}

/// Changes settings of the VM.
fn set(found: &mut Found, changes: &Value) {
    let mut all: serde_json::Map<String, Value> =
        found.vms[0].config.all().map(|(key, value)| (key.to_owned(), value.into())).collect();
    all.extend(changes.as_object().unwrap().clone());
    found.vms[0].config = VmConfig::read(&Value::Object(all)).unwrap();
}

#[test]
fn a_worker_keeps_what_it_is_and_gets_a_record_and_our_mark() {
    let adoption = adoption(&found());
    let record = &adoption.record;
    assert_eq!(
        (record.name.as_str(), record.pool.as_str(), record.host.as_str()),
        ("kp-node-1", "old", "pve1")
    );
    assert_eq!((record.slot.vmid, record.slot.address), (Vmid(205), "10.0.0.25".parse().ok()));
    assert_eq!((record.cores, record.memory), (4, 8 << 30));
    assert_eq!(record.smbios_uuid.as_deref(), Some(UUID));
    assert!(record.made_of.is_empty() && !adoption.stored);
    let mark = "pve-autoscaler/v1 cluster=home pool=old machine=m-1\n\nmade by hand";
    assert_eq!(adoption.change["description"], mark);
    assert_eq!(adoption.change["tags"], "b;kproximate;pve-autoscaler");
    assert_eq!(adoption.digest, "d1");
    // Without this uid, the machine would be mistaken for one whose creation timed out, and discarded.
    assert_eq!(record.node_uid.as_deref(), Some("n1"));
    let labels: Vec<_> = adoption.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    assert_eq!(labels, ["example.org/kind=worker", "pve-autoscaler/pool=old"]);
    assert_eq!(adoption.taints.len(), 1);
    assert_eq!(adoption.remarks, ["it gets the pool's taint dedicated"]);
}

#[test]
fn a_machine_of_the_pool_is_not_taken_over_twice() {
    let mut found = found();
    let first = adoption(&found);
    found.records.push(first.record.clone());
    // The adoption was interrupted after the record was written, so the mark is still missing.
    let again = adoption(&found);
    assert!(again.stored);
    assert_eq!((again.record, again.change.clone()), (first.record, first.change.clone()));
    set(&mut found, &json!({ "description": first.change["description"] }));
    // The adoption was interrupted before the Node got its labels.
    let last = adoption(&found);
    assert!(last.change.is_empty() && last.stored && last.labels == first.labels);
    found.node.labels.extend(last.labels);
    found.node.taints.extend(last.taints);
    assert_eq!(judged(&found), Judgement::Already("kp-node-1".to_owned()));
}

#[test]
fn every_reason_against_it_is_said() {
    type Spoil = fn(&mut Found);
    let cases: [(Spoil, &str); 35] = [
        (
            |f| drop(f.node.labels.insert(CONTROL_PLANE[0].to_owned(), String::new())),
            "it is a control plane node",
        ),
        (|f| f.node.taints.push(taint(CONTROL_PLANE[1])), "it is a control plane node"),
        (|f| f.node.taints.push(taint(BEING_DELETED_TAINT)), "it is being deleted"),
        (|f| f.node.conditions = vec![ready("False")], "it is not ready"),
        (|f| f.node.conditions.clear(), "it is not ready"),
        (|f| f.node.deleted = Some(Timestamp::UNIX_EPOCH), "it is being deleted"),
        (
            |f| drop(f.node.labels.insert(POOL_LABEL.to_owned(), "other".to_owned())),
            "assigns it to pool `other`",
        ),
        (|f| f.node.system_uuid.clear(), "reports no systemUUID"),
        (|f| f.namesakes = vec![Vmid(300)], "another guest has the same name: 300"),
        (|f| f.vms.clear(), "no VM that the token can see has the node's systemUUID"),
        (
            |f| f.vms.push(f.vms[0].clone()),
            "several VMs (205, 205) have the node's systemUUID as their SMBIOS uuid",
        ),
        (
            |f| set(f, &json!({ "description": "pve-autoscaler/v1 cluster=home pool=old machine=m-9" })),
            "bears the mark of machine m-9",
        ),
        (
            |f| set(f, &json!({ "description": "pve-autoscaler/v1 cluster=work pool=old machine=m-1" })),
            "of cluster `work`",
        ),
        (|f| set(f, &json!({ "template": 1 })), "VM 205 is a template"),
        (|f| set(f, &json!({ "lock": "backup" })), "VM 205 is locked (backup)"),
        (|f| f.vms[0].status.lock = Some("migrate".to_owned()), "VM 205 is locked (migrate)"),
        (|f| f.vms[0].status.ha_managed = true, "`ha-manager remove vm:205` on pve1 removes it from HA"),
        (|f| set(f, &json!({ "parent": "before-upgrade" })), "has snapshots (the last is `before-upgrade`)"),
        (|f| set(f, &json!({ "protection": 1 })), "VM 205 is protected"),
        (|f| f.vms[0].status.power = proxmox::Power::Stopped, "VM 205 is not running"),
        (|f| f.vms[0].guest.pool = None, "`pvesh set /pools/workers --vms 205` adds it"),
        (
            |f| {
                f.vms[0].guest.pool = None;
                f.pools.clear();
            },
            "lacks Pool.Audit on /pool/workers",
        ),
        (
            |f| set(f, &json!({ "virtio1": "nas:vm-205-data,size=2T" })),
            "its disk `virtio1` would be destroyed",
        ),
        (
            |f| set(f, &json!({ "unused0": "local-lvm:vm-205-disk-3" })),
            "its disk `unused0` would be destroyed",
        ),
        (|f| f.quorate = false, "not quorate"),
        (|f| f.vms[0].guest.vmid = Vmid(100), "VMID 100 has no slot in pool `old`"),
        (|f| f.vms[0].guest.vmid = Vmid(206), "has the address 10.0.0.26, but the node has 10.0.0.25"),
        (|f| f.node.internal_ips.clear(), "has the address 10.0.0.25, but the node has "),
        (
            |f| set(f, &json!({ "ipconfig1": "ip=10.0.0.28/24" })),
            "its address 10.0.0.28 belongs to the slot of VMID 208 in pool `old`",
        ),
        (|f| set(f, &json!({ "name": "something" })), "VM 205 is called `something`"),
        (
            |f| f.vms[0].guest.host = "pve2".to_owned(),
            "it is on pve2, which is not one of the pool's `hosts`",
        ),
        (
            |f| f.unreadable = vec!["machine-old-205".to_owned()],
            "its record `machine-old-205` cannot be read",
        ),
        (
            |f| f.records = vec![other("a", Vmid(205), "old"), other("b", Vmid(207), "old")],
            "pool `old` has 2 machines, and its `max` is 2",
        ),
        (
            |f| f.records = vec![other("a", Vmid(205), "old")],
            "the slot of VMID 205 is occupied by machine `a`",
        ),
        (
            |f| f.records = vec![other("kp-node-1", Vmid(207), "old")],
            "a machine called `kp-node-1` already exists",
        ),
    ];
    for (spoil, expected) in cases {
        let mut found = found();
        spoil(&mut found);
        let Judgement::Not(against) = judged(&found) else { panic!("{expected}: it may") };
        assert!(against.iter().any(|one| one.contains(expected)), "{expected} is not in {against:?}");
    }
}

#[test]
fn a_machine_of_another_pool_stays_there() {
    let mut found = found();
    found.records = vec![Record { smbios_uuid: Some(UUID.to_owned()), ..other("w", Vmid(700), "else") }];
    assert_eq!(judged(&found), Judgement::Not(vec!["it is machine `w` of pool `else`".to_owned()]));
}

#[test]
fn disks_that_are_expected_and_images_are_no_reason_against_it() {
    let mut found = found();
    set(
        &mut found,
        &json!({
            "scsi1": "local-lvm:vm-205-disk-1,size=20G", "ide0": "local:iso/debian.iso,media=cdrom", "sata0": "none,media=cdrom",
            "efidisk0": "local-lvm:vm-205-disk-2,size=4M",
        }),
    );
    assert_eq!(adoption(&found).record.slot.vmid, Vmid(205));
}

#[test]
fn its_size_is_what_its_vm_starts_with() {
    for (settings, expected) in [
        (json!({ "vcpus": 3 }), (3, 8 << 30)),
        (json!({ "memory": "current=4096" }), (4, 4 << 30)),
        (json!({ "cores": "" }), (2, 8 << 30)),
        (json!({ "cores": "", "sockets": "", "memory": "" }), (1, 8 << 30)),
    ] {
        let mut found = found();
        set(&mut found, &settings);
        let record = adoption(&found).record;
        assert_eq!((record.cores, record.memory), expected, "{settings}");
    }
}

#[test]
fn what_is_worth_knowing_is_said_before() {
    let mut found = found();
    set(&mut found, &json!({ "memory": "4096" }));
    found.node.unschedulable = true;
    found.node.labels.insert("example.org/kind".to_owned(), "old".to_owned());
    found.node.taints.push(taint("dedicated"));
    assert_eq!(
        adoption(&found).remarks,
        [
            "it has 4 vCPUs and 4096 MiB, which matches none of the pool's sizes",
            "its label example.org/kind=old becomes worker",
            "it is cordoned and stays cordoned",
        ]
    );
}

fn ready(status: &str) -> model::node::Condition {
    let (kind, status) = ("Ready".to_owned(), status.to_owned());
    model::node::Condition { kind, status, last_transition: None }
}

fn taint(key: &str) -> model::node::Taint {
    let effect = model::node::TaintEffect::NoSchedule;
    model::node::Taint { key: key.to_owned(), value: String::new(), effect, time_added: None }
}

fn other(name: &str, vmid: Vmid, pool: &str) -> Record {
    let slot = Slot { vmid, ..Slot::default() };
    let (name, pool) = (name.to_owned(), pool.to_owned());
    Record {
        id: name.clone().into(),
        name,
        pool: pool.into(),
        slot,
        smbios_uuid: None,
        ..adoption(&found()).record
    }
}
