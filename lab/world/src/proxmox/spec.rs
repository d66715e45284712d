//! The initial state of a simulated cluster, as plain data that a test defines before it starts the cluster.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    time::Duration,
};

use crate::guest::GuestFaults;

/// One gibibyte in bytes.
pub const GIB: u64 = 1 << 30;

/// A whole cluster.
#[derive(Clone, Debug)]
pub struct ClusterSpec {
    /// The cluster's name; `None` for a standalone host, which has no `cluster` row in `/cluster/status`.
    pub name: Option<String>,
    /// The version of `pve-manager`, such as `9.2.11` or `8.4.21`. It determines the names of privileges and
    /// the parameters of calls.
    pub version: String,
    /// The hosts in the order of their node ids.
    pub hosts: Vec<HostSpec>,
    /// The storages.
    pub storages: Vec<StorageSpec>,
    /// Resource pools: name and comment.
    pub pools: Vec<(String, String)>,
    /// Users, tokens, roles and their grants.
    pub access: AccessSpec,
    /// Templates and other VMs that exist at the start.
    pub vms: Vec<VmSpec>,
    /// Resource mappings of PCI devices: the id of each mapping, and the host and address of each of its
    /// devices.
    pub pci: Vec<(String, Vec<(String, String)>)>,
    /// How long simulated operations take.
    pub timings: Timings,
    /// The path of the official API schema in JSON. If it is `None`, a built-in table of the implemented
    /// calls is used.
    pub schema: Option<PathBuf>,
}

/// One host.
#[derive(Clone, Debug)]
pub struct HostSpec {
    /// Node name.
    pub name: String,
    /// The host's address in `/cluster/status`.
    pub address: String,
    /// Threads.
    pub cores: u32,
    /// Memory in bytes.
    pub memory: u64,
    /// Memory in bytes that is used outside of VMs.
    pub memory_used: u64,
    /// Bridges of the host.
    pub bridges: Vec<String>,
}

/// How a storage keeps its volumes. This decides the formats, the speeds, and whether linked clones are
/// possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorageKind {
    /// A directory with image files.
    Dir,
    /// An NFS export, always shared.
    Nfs,
    /// LVM thin pool.
    LvmThin,
    /// Thick LVM: no linked clones.
    Lvm,
    /// ZFS pool.
    ZfsPool,
    /// Ceph RBD, always shared.
    Rbd,
}

impl StorageKind {
    /// The plugin's name in answers.
    pub fn plugin(self) -> &'static str {
        match self {
            Self::Dir => "dir",
            Self::Nfs => "nfs",
            Self::LvmThin => "lvmthin",
            Self::Lvm => "lvm",
            Self::ZfsPool => "zfspool",
            Self::Rbd => "rbd",
        }
    }

    /// Whether volumes are files below a directory named after their VM.
    pub fn is_file_based(self) -> bool {
        matches!(self, Self::Dir | Self::Nfs)
    }

    /// Whether the storage can make linked clones.
    pub fn links(self) -> bool {
        self != Self::Lvm
    }
}

/// One storage.
#[derive(Clone, Debug)]
pub struct StorageSpec {
    /// Storage id.
    pub id: String,
    /// Its plugin.
    pub kind: StorageKind,
    /// Size in bytes. If the storage is not shared, this is its size on each host.
    pub size: u64,
    /// The number of bytes that other data uses. If the storage is not shared, this is the number on each
    /// host.
    pub used: u64,
    /// Whether all hosts see the same volumes.
    pub shared: bool,
    /// The hosts on which the storage is available. Empty means all hosts.
    pub hosts: Vec<String>,
    /// Content types, such as `images,rootdir`.
    pub content: String,
    /// The rate of full clones, in bytes per second. `None` means `Timings::full_clone_rate`.
    pub copy_rate: Option<u64>,
}

impl StorageSpec {
    /// Whether a host has this storage.
    pub fn is_on(&self, node: &str) -> bool {
        self.hosts.is_empty() || self.hosts.iter().any(|host| host == node)
    }
}

/// Users, API tokens and roles, and the grants that give them privileges.
#[derive(Clone, Debug, Default)]
pub struct AccessSpec {
    /// The privileges of each role, by role name.
    pub roles: BTreeMap<String, Vec<String>>,
    /// Users without tokens. `root@pam` and the users of tokens always exist.
    pub users: BTreeSet<String>,
    /// API tokens.
    pub tokens: Vec<TokenSpec>,
    /// Grants.
    pub grants: Vec<Grant>,
}

/// An API token.
#[derive(Clone, Debug)]
pub struct TokenSpec {
    /// `user@realm!token`.
    pub id: String,
    /// Its secret.
    pub secret: String,
    /// Whether the token has privilege separation. If so, it needs its own grants.
    pub privsep: bool,
    /// Whether the token is valid. A disabled or expired token is refused like a wrong secret.
    pub enabled: bool,
}

/// Grants a role to a user or a token on a path.
#[derive(Clone, Debug)]
pub struct Grant {
    /// The path, such as `/pool/k8s-workers`.
    pub path: String,
    /// `user@realm` or `user@realm!token`.
    pub who: String,
    /// Role name.
    pub role: String,
    /// Whether the grant also applies to the paths below this path.
    pub propagate: bool,
}

/// A VM that exists at the start.
#[derive(Clone, Debug)]
pub struct VmSpec {
    /// VMID.
    pub vmid: u32,
    /// Its node.
    pub node: String,
    /// Pool membership.
    pub pool: Option<String>,
    /// The VM's configuration, as in its config file. The volumes that its drives name are created with the
    /// `size=` of the drive.
    pub config: BTreeMap<String, String>,
    /// Whether the VM is started together with the cluster.
    pub running: bool,
    /// The simulated faults inside the VM and its clones.
    pub faults: GuestFaults,
}

/// How long simulated operations take. All times except `beat` vary by up to `jitter`.
#[derive(Clone, Debug)]
pub struct Timings {
    /// The time that a plain API request takes.
    pub request: Duration,
    /// A linked clone.
    pub linked_clone: Duration,
    /// The rate of a full clone, in bytes per second.
    pub full_clone_rate: u64,
    /// The time that a config or resize task takes.
    pub config: Duration,
    /// A start task.
    pub start: Duration,
    /// A stop task.
    pub stop: Duration,
    /// A guest's clean shutdown.
    pub shutdown: Duration,
    /// A destroy task.
    pub destroy: Duration,
    /// The time from power-on to the guest agent's first answer.
    pub boot_to_agent: Duration,
    /// The time from the agent's first answer until the guest's systemd no longer reports `starting`.
    pub agent_to_running: Duration,
    /// The time that `kubeadm join` takes, without the time that the control plane takes.
    pub join: Duration,
    /// One agent call.
    pub agent_call: Duration,
    /// The time between two reports of pvestatd.
    pub beat: Duration,
    /// The maximum share by which times vary, from 0.0 to 1.0.
    pub jitter: f64,
}

impl Default for Timings {
    /// Returns the times that were recorded on a Proxmox VE 9.2.11 cluster. The boot times are those of a
    /// guest on real hardware.
    fn default() -> Self {
        let ms = Duration::from_millis;
        Self {
            request: ms(8),
            linked_clone: ms(360),
            full_clone_rate: 400 * 1024 * 1024,
            config: ms(130),
            start: ms(1300),
            stop: ms(400),
            shutdown: ms(4000),
            destroy: ms(250),
            boot_to_agent: ms(12_000),
            agent_to_running: ms(5000),
            join: ms(6100),
            agent_call: ms(100),
            beat: Duration::from_secs(10),
            jitter: 0.1,
        }
    }
}

impl ClusterSpec {
    /// Secret of the demo cluster's token.
    pub const DEMO_SECRET: &str = "11111111-2222-3333-4444-555555555555";
    /// Id of the demo cluster's token.
    pub const DEMO_TOKEN: &str = "autoscaler@pve!agent";
    /// Secret of the demo cluster's administrator token `root@pam!admin`.
    pub const DEMO_ADMIN_SECRET: &str = "99999999-8888-7777-6666-555555555555";

    /// Three hosts with 32 cores and 128 GiB each, a template on shared storage and one on each host's local
    /// storage, and a token with only the privileges that a node autoscaler needs.
    pub fn demo() -> Self {
        let hosts = (1..=3u8).map(|n| HostSpec {
            name: format!("pve{n}"),
            address: format!("10.10.0.{}", 10 + n),
            cores: 32,
            memory: 128 * GIB,
            memory_used: 4 * GIB,
            bridges: vec!["vmbr0".into()],
        });
        let storage = |id: &str, kind, shared, content: &str| StorageSpec {
            id: id.into(),
            kind,
            size: 4096 * GIB,
            used: 200 * GIB,
            shared,
            hosts: Vec::new(),
            content: content.into(),
            copy_rate: None,
        };
        let mut vms = vec![VmSpec::template(9000, "pve1", "k8s-worker", "shared")];
        vms.extend(
            (1..=3u32)
                .map(|n| VmSpec::template(9000 + n, &format!("pve{n}"), "k8s-worker-local", "local-lvm")),
        );
        Self {
            name: Some("demo".into()),
            version: "9.2.11".into(),
            hosts: hosts.collect(),
            storages: vec![
                storage("local", StorageKind::Dir, false, "iso,vztmpl,snippets,import"),
                storage("local-lvm", StorageKind::LvmThin, false, "images,rootdir"),
                storage("shared", StorageKind::Nfs, true, "images,iso,snippets,import"),
            ],
            pools: vec![
                ("k8s-workers".into(), "Kubernetes workers".into()),
                ("k8s-templates".into(), String::new()),
            ],
            access: AccessSpec::least_privilege("9.2.11", &["shared", "local-lvm"], &["vmbr0"]),
            vms,
            pci: Vec::new(),
            timings: Timings::default(),
            schema: None,
        }
    }
}

impl AccessSpec {
    /// The least-privilege roles of a node autoscaler: exactly those that `packaging/proxmox-setup.sh`
    /// creates. Workers are in the pool `k8s-workers`, templates in the pool `k8s-templates`, and `Sys.Audit`
    /// is granted on the hosts and on `/`. There is also an administrator token without privilege separation.
    pub fn least_privilege(version: &str, storages: &[&str], bridges: &[&str]) -> Self {
        let words = |text: &str| text.split_whitespace().map(String::from).collect::<Vec<_>>();
        let agent = if version.starts_with("8.") { "VM.Monitor" } else { "VM.GuestAgent.Unrestricted" };
        let worker = format!(
            "VM.Allocate VM.Audit VM.PowerMgmt VM.Config.CPU VM.Config.Memory VM.Config.Disk VM.Config.Network \
             VM.Config.Options Pool.Audit {agent}"
        );
        let roles = [
            ("KasWorker", worker.as_str()),
            ("KasTemplate", "VM.Clone VM.Audit"),
            ("KasStorage", "Datastore.AllocateSpace Datastore.Audit"),
            ("KasNode", "Sys.Audit"),
            ("KasNet", "SDN.Use"),
        ];
        let user = "autoscaler@pve";
        let mut grants = Vec::new();
        let mut grant = |path: String, role: &str, propagate| {
            for who in [user, ClusterSpec::DEMO_TOKEN] {
                grants.push(Grant { path: path.clone(), who: who.into(), role: role.into(), propagate });
            }
        };
        grant("/pool/k8s-workers".into(), "KasWorker", false);
        grant("/pool/k8s-templates".into(), "KasTemplate", false);
        for storage in storages {
            grant(format!("/storage/{storage}"), "KasStorage", false);
        }
        for bridge in bridges {
            grant(format!("/sdn/zones/localnetwork/{bridge}"), "KasNet", false);
        }
        grant("/nodes".into(), "KasNode", true);
        grant("/".into(), "KasNode", false);
        let token = |id: &str, secret: &str, privsep| TokenSpec {
            id: id.into(),
            secret: secret.into(),
            privsep,
            enabled: true,
        };
        Self {
            users: BTreeSet::new(),
            roles: roles.into_iter().map(|(name, privileges)| (name.to_owned(), words(privileges))).collect(),
            tokens: vec![
                token(ClusterSpec::DEMO_TOKEN, ClusterSpec::DEMO_SECRET, true),
                token("root@pam!admin", ClusterSpec::DEMO_ADMIN_SECRET, false),
            ],
            grants,
        }
    }
}

impl VmSpec {
    /// A Debian template in the pool `k8s-templates` with one disk of 10 GiB and a cloud-init drive on
    /// `storage`.
    pub fn template(vmid: u32, node: &str, name: &str, storage: &str) -> Self {
        let file_based = !storage.contains("lvm") && !storage.contains("zfs");
        let (disk, cloud_init) = if file_based {
            (
                format!("{storage}:{vmid}/base-{vmid}-disk-0.qcow2"),
                format!("{storage}:{vmid}/vm-{vmid}-cloudinit.qcow2"),
            )
        } else {
            (format!("{storage}:base-{vmid}-disk-0"), format!("{storage}:vm-{vmid}-cloudinit"))
        };
        let mut vm = Self::machine(vmid, node, name);
        vm.pool = Some("k8s-templates".into());
        vm.config.extend(
            [
                ("template", "1".to_owned()),
                ("scsi0", format!("{disk},size=10G")),
                ("ide2", format!("{cloud_init},media=cdrom,size=4M")),
                ("boot", "order=scsi0".to_owned()),
                ("agent", "enabled=1".to_owned()),
                ("ciupgrade", "0".to_owned()),
                ("tags", "k8s;template".to_owned()),
            ]
            .map(|(key, value)| (key.to_owned(), value)),
        );
        vm
    }

    /// A stopped VM without disks: an unmanaged VM that occupies a VMID.
    pub fn machine(vmid: u32, node: &str, name: &str) -> Self {
        let config = [
            ("name", name.to_owned()),
            ("cores", "2".to_owned()),
            ("memory", "2048".to_owned()),
            ("ostype", "l26".to_owned()),
            ("scsihw", "virtio-scsi-single".to_owned()),
            (
                "net0",
                format!("virtio=BC:24:11:00:{:02X}:{:02X},bridge=vmbr0", (vmid >> 8) & 0xff, vmid & 0xff),
            ),
            ("serial0", "socket".to_owned()),
            ("smbios1", format!("uuid=00000000-0000-4000-8000-{vmid:012}")),
            ("meta", "creation-qemu=10.0.2,ctime=1795220293".to_owned()),
        ];
        Self {
            vmid,
            node: node.into(),
            pool: None,
            config: config.into_iter().map(|(key, value)| (key.to_owned(), value)).collect(),
            running: false,
            faults: GuestFaults::default(),
        }
    }
}
