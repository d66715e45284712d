//! An embedded Proxmox VE with one host, and a client for it. The VMs are processes, and the API is served
//! over TLS.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use model::Vmid;
use pve_autoscaler::proxmox::{Client, ExecStatus, Exit, Settings, Trust, Upid, connect};
use pve_autoscaler::runtime::clock::{Clock as _, SystemClock};
use secrecy::SecretString;
use tempfile::TempDir;
use tokio::time::Instant;
use world::clock::WorldClock;
use world::proxmox::Pve;
use world::proxmox::spec::{ClusterSpec, GIB, Grant, Timings, VmSpec};
use world::qemu::{Accelerator, Bridge, Hardware, HardwareError, HardwareSpec, new_efi_disk, new_tpm_state};
use world::serve::{Serving, serve_https, tls::ServerTls};

/// The host.
pub const HOST: &str = "pve1";
/// The template.
pub const TEMPLATE: u32 = 9000;
/// The names of the template's EFI disk and TPM state, without their prefix `base-9000-`. Only a UEFI
/// template has them.
pub const EFI_DISK: &str = "disk-1.qcow2";
pub const TPM_STATE: &str = "disk-0.raw";
/// The host's address on the guests' bridge.
pub const GATEWAY: &str = "10.77.0.1";
/// A time limit, far longer than any Proxmox VE task takes.
const TASK: Duration = Duration::from_mins(2);
/// The maximum time from a guest's start until its agent answers, on a slow computer that emulates the guest.
pub const BOOT: Duration = Duration::from_mins(6);

/// How machines boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Firmware {
    /// A `pc` with `SeaBIOS`.
    Bios,
    /// A `q35` with OVMF, an EFI disk and a TPM.
    Uefi,
}

/// Everything that a test with real VMs needs. The folder is deleted when the stage is dropped.
pub struct Stage {
    pub pve: Pve,
    pub hardware: Hardware,
    pub client: Client,
    pub url: String,
    pub tls: ServerTls,
    pub folder: TempDir,
    _serving: Serving,
}

impl Stage {
    pub async fn new(image: &Path, firmware: Firmware) -> Self {
        let folder = TempDir::new().unwrap();
        let volume = |name: &str| format!("shared:{TEMPLATE}/base-{TEMPLATE}-{name}");
        let mut images = BTreeMap::from([(volume("disk-0.qcow2"), image.to_owned())]);
        if firmware == Firmware::Uefi {
            let [variables, tpm] = [EFI_DISK, TPM_STATE].map(|name| folder.path().join(name));
            new_efi_disk(&variables).await.unwrap();
            new_tpm_state(&tpm).unwrap();
            images.extend([(volume(EFI_DISK), variables), (volume(TPM_STATE), tpm)]);
        }
        let spec = HardwareSpec {
            directory: folder.path().join("vms"),
            images,
            bridges: vec![Bridge { name: "vmbr0".to_owned(), address: format!("{GATEWAY}/24") }],
            accelerator: None,
        };
        let hardware = Hardware::open(spec).await.unwrap();
        let clock = WorldClock::starting_at(SystemClock.now());
        let pve = Pve::on_hardware(cluster(firmware), clock, 1, hardware.clone());
        let tls = ServerTls::for_loopback("Proxmox Virtual Environment").unwrap();
        let served = pve.clone();
        let handler = move |request| {
            let pve = served.clone();
            async move { pve.handle(request).await }
        };
        let serving = serve_https(handler, "127.0.0.1:0".parse().unwrap(), &tls).await.unwrap();
        let url = format!("https://{}", serving.address());
        let trust = Trust::Authorities(tls.ca_pem.clone());
        let transport = connect(&trust, Duration::from_secs(5), Duration::from_secs(35)).unwrap();
        let settings = Settings {
            endpoints: vec![url.clone()],
            token_id: ClusterSpec::DEMO_TOKEN.to_owned(),
            agent_lane: 1,
            lifecycle_lane: 2,
            linked_clones: 4,
            full_clones: 2,
        };
        let client = Client::new(transport, settings, &SecretString::from(ClusterSpec::DEMO_SECRET)).unwrap();
        Self { pve, hardware, client, url, tls, folder, _serving: serving }
    }

    /// Waits until a task ends, and asserts that it succeeded.
    pub async fn done(&self, upid: &Upid) {
        let exit = self.client.wait_task(upid, TASK, Duration::from_millis(200)).await.unwrap();
        assert_eq!(exit, Exit::Ok, "{upid:?}");
    }

    /// Waits until a guest's agent answers; returns how long that took.
    pub async fn booted(&self, vmid: Vmid) -> Duration {
        let started = Instant::now();
        while !self.client.agent_ping(HOST, vmid).await.unwrap() {
            assert!(
                started.elapsed() < BOOT,
                "the agent of {vmid} does not answer; its console:\n{}",
                self.hardware.console(vmid.0)
            );
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        started.elapsed()
    }

    /// Runs a script in a guest.
    pub async fn run(&self, vmid: Vmid, script: &str) -> ExecStatus {
        self.exec(vmid, &["/bin/sh", "-c", script], None).await
    }

    /// Runs a program in a guest.
    pub async fn exec(&self, vmid: Vmid, command: &[&str], input: Option<&str>) -> ExecStatus {
        let input = input.map(SecretString::from);
        let pid = self.client.agent_exec(HOST, vmid, command, input.as_ref()).await.unwrap();
        let started = Instant::now();
        loop {
            let status = self.client.agent_exec_status(HOST, vmid, pid).await.unwrap();
            if status.exited {
                return status;
            }
            assert!(started.elapsed() < BOOT, "{command:?} does not end");
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    }

    /// Waits until systemd has started everything; returns its state.
    pub async fn settled(&self, vmid: Vmid) -> String {
        let started = Instant::now();
        loop {
            let state = self.run(vmid, "systemctl is-system-running").await.stdout.trim().to_owned();
            if state == "running" || state == "degraded" {
                return state;
            }
            assert!(started.elapsed() < BOOT, "{vmid} stays {state}");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}

fn cluster(firmware: Firmware) -> ClusterSpec {
    let mut template = VmSpec::template(TEMPLATE, HOST, "k8s-worker", "shared");
    let disk = format!("shared:{TEMPLATE}/base-{TEMPLATE}-disk-0.qcow2,size=2G");
    template.config.insert("scsi0".to_owned(), disk);
    template.config.insert("vmgenid".to_owned(), format!("00000000-0000-4000-9000-{TEMPLATE:012}"));
    if firmware == Firmware::Uefi {
        let volume = |name: &str| format!("shared:{TEMPLATE}/base-{TEMPLATE}-{name}");
        let own = [
            ("bios", "ovmf".to_owned()),
            ("machine", "q35".to_owned()),
            ("efidisk0", format!("{},efitype=4m,size=528K", volume(EFI_DISK))),
            ("tpmstate0", format!("{},size=4M,version=v2.0", volume(TPM_STATE))),
        ];
        template.config.extend(own.map(|(key, value)| (key.to_owned(), value)));
    }
    let mut cluster = ClusterSpec::demo();
    cluster.hosts.truncate(1);
    cluster.hosts[0].memory = 64 * GIB;
    cluster.vms = vec![template];
    // The rights for seeds, as in docs/guides/cloud-init.md.
    let seeds = ["Datastore.AllocateTemplate", "Datastore.Allocate", "Datastore.Audit"];
    cluster.access.roles.insert("Seeds".to_owned(), seeds.map(ToOwned::to_owned).into());
    let own = ["VM.Config.CDROM", "VM.Config.Cloudinit", "VM.Config.HWType"].map(ToOwned::to_owned);
    cluster.access.roles.entry("KasWorker".to_owned()).or_default().extend(own);
    for who in ["autoscaler@pve", ClusterSpec::DEMO_TOKEN] {
        let (path, role) = ("/storage/local".to_owned(), "Seeds".to_owned());
        cluster.access.grants.push(Grant { path, who: who.to_owned(), role, propagate: false });
    }
    // The real processes cause the only delays, so all simulated delays are zero.
    cluster.timings = Timings {
        linked_clone: Duration::ZERO,
        config: Duration::ZERO,
        start: Duration::ZERO,
        stop: Duration::ZERO,
        destroy: Duration::ZERO,
        agent_call: Duration::ZERO,
        beat: Duration::from_secs(1),
        ..Timings::default()
    };
    cluster
}

/// Guests get a network only in a separate namespace: [`Hardware::open`] fails if this process's namespace
/// has an interface other than `lo`.
pub async fn is_refused_beside_other_interfaces() {
    let others = std::fs::read_dir("/sys/class/net").unwrap().flatten().any(|one| one.file_name() != "lo");
    if !others {
        return;
    }
    let folder = TempDir::new().unwrap();
    let spec = HardwareSpec {
        directory: folder.path().to_owned(),
        images: BTreeMap::new(),
        bridges: Vec::new(),
        accelerator: Some(Accelerator::Tcg),
    };
    let refused = Hardware::open(spec).await.unwrap_err();
    assert!(matches!(refused, HardwareError::NotAlone(_)), "{refused}");
}
