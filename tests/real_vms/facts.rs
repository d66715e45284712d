//! Takes one machine through its life with the Proxmox VE client, without the daemon. This verifies the facts
//! about a real guest that the daemon's decisions rely on.

use std::collections::BTreeMap;
use std::time::Duration;

use model::Vmid;
use pve_autoscaler::bootstrap::{self, GuestCommand, JoinEnd, WaitForBoot};
use pve_autoscaler::proxmox::marker::Marker;
use pve_autoscaler::proxmox::{CloneRequest, Kind, Power};

use crate::stage::{Firmware, HOST, Stage, TEMPLATE};
use crate::{place, playbook};

const VMID: Vmid = Vmid(9101);
const ADDRESS: &str = "10.77.0.11";
/// This must not be the name of a group in Debian. With such a name, cloud-init fails, and the system comes
/// up `degraded`.
const USER: &str = "keeper";

/// Clones, configures, grows and starts the machine.
async fn started(stage: &Stage, key: &str) -> BTreeMap<String, String> {
    let client = &stage.client;
    let marker = Marker {
        cluster: "home".to_owned(),
        region: None,
        pool: "workers".into(),
        machine: "m-1".into(),
        kubernetes: None,
    };
    let request = CloneRequest {
        template_host: HOST.to_owned(),
        template: Vmid(TEMPLATE),
        vmid: VMID,
        name: "workers-a1".to_owned(),
        description: marker.describe("for no node"),
        pool: Some("k8s-workers".to_owned()),
        target: None,
        full: false,
        storage: None,
    };
    stage.done(&client.clone_vm(&request).await.unwrap()).await;
    let config = client.config(HOST, VMID).await.unwrap();
    let settings = [
        ("cores", "2"),
        ("memory", "2048"),
        ("ipconfig0", "ip=10.77.0.11/24,gw=10.77.0.1"),
        ("ciuser", USER),
        ("ciupgrade", "0"),
        ("sshkeys", key),
    ];
    let set = settings.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    let task = client.set_config(HOST, VMID, &set, &[], config.digest().unwrap(), 20).await.unwrap();
    if let Some(task) = task {
        stage.done(&task).await;
    }
    stage.done(&client.resize(HOST, VMID, "scsi0", 4 << 30).await.unwrap()).await;
    stage.done(&client.start(HOST, VMID).await.unwrap()).await;
    stage.pve.vm(VMID.0).unwrap().config
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs only in a separate namespace"]
async fn a_machine_is_what_its_configuration_says_until_it_is_destroyed() {
    let Some(image) = place::image() else { return };
    let stage = Stage::new(&image, Firmware::Bios).await;
    let key = playbook::key(&stage).await;
    let config = started(&stage, &key).await;
    assert!(!stage.client.agent_ping(HOST, VMID).await.unwrap(), "the guest is still booting");
    stage.booted(VMID).await;
    a_system_that_starts_says_so_with_an_error(&stage).await;
    let state = stage.settled(VMID).await;
    let why = "systemctl --failed --no-legend; journalctl --no-pager -n 60 -u 'cloud-*'";
    let failed = if state == "running" { String::new() } else { stage.run(VMID, why).await.stdout };
    assert_eq!(state, "running", "{failed}");
    assert_eq!(stage.run(VMID, "systemctl is-system-running").await.exit_code, Some(0));
    the_guest_was_told_all(&stage, &config).await;
    playbook::mends_what_is_missing_and_no_more(&stage, VMID, ADDRESS, USER).await;
    the_agent_answers_as_proxmox_passes_it_on(&stage).await;
    a_degraded_system_is_decided_by_the_script(&stage).await;
    the_other_layout_of_the_drive_is_read_too(&stage, &config).await;
    it_ends_without_a_trace(&stage, &config).await;
}

/// Asserts that the same machine reads the same data from the drive that `citype: configdrive2` creates.
async fn the_other_layout_of_the_drive_is_read_too(stage: &Stage, config: &BTreeMap<String, String>) {
    let client = &stage.client;
    stage.done(&client.shutdown(HOST, VMID, 120).await.unwrap()).await;
    let set = [("citype".to_owned(), "configdrive2".to_owned())].into();
    let digest = client.config(HOST, VMID).await.unwrap();
    let task = client.set_config(HOST, VMID, &set, &[], digest.digest().unwrap(), 20).await.unwrap();
    if let Some(task) = task {
        stage.done(&task).await;
    }
    stage.done(&client.start(HOST, VMID).await.unwrap()).await;
    stage.booted(VMID).await;
    let uuid = config["smbios1"].trim_start_matches("uuid=").to_lowercase();
    let said = stage.run(VMID, "cloud-init status --wait >/dev/null; cat /run/cloud-init/cloud-id; echo; hostname; cat /sys/class/dmi/id/product_uuid; ip -4 -o address show scope global").await;
    let lines: Vec<&str> = said.stdout.lines().filter(|line| !line.is_empty()).collect();
    assert_eq!(lines[..2], ["configdrive", "workers-a1"], "{said:?}");
    assert_eq!(lines[2].to_lowercase(), uuid);
    assert!(lines[3].contains(&format!("{ADDRESS}/24")), "{lines:?}");
}

/// The guest agent answers seconds before systemd has started everything. The exit status of `systemctl
/// is-system-running` does not distinguish `starting` from a failure.
async fn a_system_that_starts_says_so_with_an_error(stage: &Stage) {
    let status = stage.run(VMID, "systemctl is-system-running").await;
    assert_eq!(status.stdout.trim(), "starting", "the agent answers before systemd has started everything");
    assert_eq!(status.exit_code, Some(1));
}

async fn the_guest_was_told_all(stage: &Stage, config: &BTreeMap<String, String>) {
    let said = async |script: &str| stage.run(VMID, script).await.stdout.trim().to_lowercase();
    let uuid = config["smbios1"].trim_start_matches("uuid=").to_lowercase();
    // The kubelet uses this UUID as its `systemUUID`.
    assert_eq!(said("cat /sys/class/dmi/id/product_uuid").await, uuid);
    assert_eq!(said("hostname").await, "workers-a1");
    assert_eq!(said("nproc").await, "2");
    assert!(said("cat ~keeper/.ssh/authorized_keys").await.contains("ansible"));
    assert!(
        said("df --output=size -BG / | tail -1").await.starts_with('4'),
        "the root file system has grown"
    );
    assert_eq!(said("cat /run/cloud-init/cloud-id").await, "nocloud");
    let mac = config["net0"].split(['=', ',']).nth(1).unwrap().to_lowercase();
    let interfaces = stage.client.agent_interfaces(HOST, VMID).await.unwrap();
    let own = interfaces.iter().find(|(seen, _)| *seen == mac);
    let own = own.unwrap_or_else(|| panic!("no {mac} in {interfaces:?}"));
    assert!(own.1.iter().any(|address| address == ADDRESS), "{own:?}");
    let os = stage.client.agent_os_info(HOST, VMID).await.unwrap();
    assert_eq!((os.id.as_str(), os.machine.as_str()), ("debian", "x86_64"));
    let ssh = tokio::net::TcpStream::connect((ADDRESS, 22));
    tokio::time::timeout(Duration::from_secs(10), ssh).await.unwrap().unwrap();
}

async fn the_agent_answers_as_proxmox_passes_it_on(stage: &Stage) {
    let told =
        stage.exec(VMID, &["/bin/sh", "-c", "cat; echo to the other >&2; exit 3"], Some("some input")).await;
    assert_eq!(
        (told.exit_code, told.stdout.as_str(), told.stderr.as_str()),
        (Some(3), "some input", "to the other\n")
    );
    let encoded = stage.run(VMID, "printf '\\303\\251'").await;
    assert_eq!(encoded.stdout, "é");
    let killed = stage.run(VMID, "kill -9 $$").await;
    assert_eq!((killed.exit_code, killed.signal), (None, Some(9)));
    let missing = stage.client.agent_exec(HOST, VMID, &["/nowhere"], None).await.unwrap_err();
    assert_eq!(missing.status, Some(596), "{missing}");
    let pid = stage.client.agent_exec(HOST, VMID, &["/bin/true"], None).await.unwrap();
    while !stage.client.agent_exec_status(HOST, VMID, pid).await.unwrap().exited {}
    let forgotten = stage.client.agent_exec_status(HOST, VMID, pid).await.unwrap_err();
    assert_eq!(forgotten.kind, Kind::NotFound, "{forgotten}");
}

/// A failed unit makes a system `degraded` permanently. Waiting does not help, so the setting
/// `accept_degraded` decides whether a degraded system may join.
async fn a_degraded_system_is_decided_by_the_script(stage: &Stage) {
    stage.run(VMID, "systemd-run --unit=broken /bin/false; sleep 1").await;
    let status = stage.run(VMID, "systemctl is-system-running").await;
    assert_eq!((status.stdout.trim(), status.exit_code), ("degraded", Some(1)));
    let join = async |accept_degraded| {
        let settle = WaitForBoot {
            settle: Duration::from_mins(1),
            join: Duration::from_mins(1),
            accept_degraded,
            clock: None,
        };
        let command = bootstrap::command("m-1", &settle, &GuestCommand::Kubeadm);
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        let end = stage.exec(VMID, &words, Some("no configuration\n")).await;
        bootstrap::read(&GuestCommand::Kubeadm, None, &end)
    };
    let JoinEnd::Failed(refused) = join(false).await else { panic!("it joined") };
    assert!(refused.contains("degraded"), "{refused}");
    // The real kubeadm reads its configuration from standard input.
    let JoinEnd::Failed(tried) = join(true).await else { panic!("it joined") };
    assert!(tried.contains("kubeadm join") && tried.contains("exited with"), "{tried}");
}

async fn it_ends_without_a_trace(stage: &Stage, config: &BTreeMap<String, String>) {
    let client = &stage.client;
    stage.done(&client.shutdown(HOST, VMID, 120).await.unwrap()).await;
    assert_eq!(client.power(HOST, VMID).await.unwrap(), Power::Stopped);
    let disk = config["scsi0"].split(',').next().unwrap();
    assert!(stage.hardware.has_disk(disk));
    let upid = client.destroy(HOST, VMID).await.unwrap();
    stage.done(&upid).await;
    assert!(!stage.hardware.has_disk(disk) && stage.pve.vm(VMID.0).is_none());
    assert_eq!(stage.pve.volumes_of(VMID.0), Vec::<String>::new());
    let taps = std::process::Command::new("ip").args(["-o", "link"]).output().unwrap();
    assert!(!String::from_utf8_lossy(&taps.stdout).contains("tap9101"), "the VM's tap device is gone");
}
