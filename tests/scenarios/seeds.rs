//! Machines that the daemon configures with a seed.

use std::sync::atomic::Ordering;
use std::time::Duration;

use world::proxmox::iso;
use world::proxmox::spec::{ClusterSpec, Grant, VmSpec};
use world::proxmox::{Effect, Fault, TaskFault, Touch};

use crate::stage::{ONE_POOL, Stage};
use pve_autoscaler::model::Vmid;

const SOON: Duration = Duration::from_mins(5);
const LATE: Duration = Duration::from_hours(1);
const SEED: &str = r##"
[pool.cloud_init]
method = "seed"
storage = "local"
user_data = """#cloud-config
hostname: {{ machine.name }}
write_files: [{path: /etc/zone, content: "{{ host.zone }} {{ pool.name }}"}]
"""
"##;

/// A pool with this seed, whose unneeded nodes are removed after a minute.
fn text(seed: &str) -> String {
    let quick = "[scale_down]\nunneeded_time = \"1m\"\ndelay_after_add = \"0s\"\n[[pool]]";
    format!("{}{seed}", ONE_POOL.replace("[[pool]]", quick))
}

/// A stage with everything that seeds need.
fn stage() -> Stage {
    let mut spec = ClusterSpec::demo();
    let words = |text: &str| text.split_whitespace().map(ToOwned::to_owned).collect::<Vec<_>>();
    spec.access
        .roles
        .insert("Seeds".into(), words("Datastore.AllocateTemplate Datastore.Allocate Datastore.Audit"));
    let worker = spec.access.roles.get_mut("KasWorker").unwrap();
    worker.extend(["VM.Config.CDROM", "VM.Config.Cloudinit"].map(String::from));
    for who in ["autoscaler@pve", ClusterSpec::DEMO_TOKEN] {
        let (path, role) = ("/storage/local".into(), "Seeds".into());
        spec.access.grants.push(Grant { path, who: who.into(), role, propagate: false });
    }
    Stage::of(&text(SEED), spec, world::kubernetes::spec::KubeSpec::demo())
}

/// Waits until everything is gone: VMs, records, tokens and seeds.
async fn all_gone(stage: &Stage) {
    stage.kube.scale("default", "web", 0);
    stage.until("the VMs are gone", LATE, |stage| stage.vms(9100..=9109).is_empty()).await;
    stage.until("nothing is left over", SOON, |stage| stage.leftovers().is_empty()).await;
    assert_eq!(stage.pve.files(), [], "no seed outlives its machine");
}

#[tokio::test(start_paused = true)]
async fn a_machine_boots_from_its_own_seed_which_goes_with_it() {
    let mut stage = stage();
    stage.start();
    stage.deploy("web", 2, "1500m", "1Gi");
    stage.until("two pods run", SOON, |stage| stage.running_pods() == 2).await;
    let vm = stage.pve.vm(9100).unwrap();
    let volume = vm.config["ide2"].split(',').next().unwrap().to_owned();
    assert!(volume.starts_with("local:iso/pve-autoscaler-"), "{volume}");
    assert!(vm.config.values().all(|value| !value.contains("cloudinit")), "there is no cloud-init drive");
    let image = stage.pve.read_file(&volume, &vm.node).unwrap();
    let (label, files) = iso::read(&image).unwrap();
    let text = |name: &str| String::from_utf8(files[name].clone()).unwrap();
    assert_eq!(label, "cidata");
    assert!(text("user-data").contains(&format!("hostname: {}", vm.config["name"])), "{}", text("user-data"));
    assert!(text("user-data").contains(&format!("{} workers", vm.node)), "{}", text("user-data"));
    assert!(text("network-config").contains("address: '10.10.10.11/24'"), "{}", text("network-config"));
    assert_eq!(stage.pve.files().len(), 2, "one each");
    all_gone(&stage).await;
}

#[tokio::test(start_paused = true)]
async fn uploads_that_fail_or_whose_answer_is_lost_leave_no_seed_behind() {
    for effect in [
        Effect::WorkThenLose,
        Effect::WorkThenTimeOut,
        Effect::Lose,
        Effect::Answer { status: 595, reason: "No route to host".into(), body: String::new() },
    ] {
        let mut stage = stage();
        let path = "/nodes/*/storage/local/upload".to_owned();
        stage.pve.inject(Fault { method: "POST".into(), path, times: 2, effect: effect.clone() });
        stage.start();
        stage.deploy("web", 1, "1500m", "1Gi");
        stage.until("the pod runs", LATE, |stage| stage.running_pods() == 1).await;
        assert_eq!(stage.pve.files().len(), 1, "{effect:?}");
        all_gone(&stage).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_given_up_halfway_takes_its_seed_with_it() {
    let mut stage = stage();
    stage.pve.inject_task("qmconfig", TaskFault::Fails("the storage is broken".into()));
    stage.start();
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.until("the seed is uploaded", SOON, |stage| !stage.pve.files().is_empty()).await;
    let first = stage.pve.files();
    stage.until("the pod runs", LATE, |stage| stage.running_pods() == 1).await;
    assert_ne!(stage.pve.files(), first, "another machine has another seed");
    assert_eq!(stage.pve.files().len(), 1);
    all_gone(&stage).await;
}

#[tokio::test(start_paused = true)]
async fn a_seed_that_the_token_may_not_remove_is_an_administrators() {
    let mut stage = stage();
    stage.start();
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    stage.pve.change_access(|access| {
        access.roles.get_mut("Seeds").unwrap().retain(|one| one != "Datastore.Allocate");
    });
    stage.kube.scale("default", "web", 0);
    let told = |stage: &Stage| {
        let status = serde_json::to_string(&stage.status()).unwrap();
        status.contains("pvesm free local:iso/pve-autoscaler-")
    };
    stage.until("the command is reported", LATE, told).await;
    assert_eq!(stage.pve.files().len(), 1);
    assert!(!stage.leftovers().is_empty(), "the machine's record is kept");
    stage.pve.change_access(|access| {
        access.roles.get_mut("Seeds").unwrap().push("Datastore.Allocate".into());
    });
    stage.until("the record is gone", LATE, |stage| stage.leftovers().is_empty()).await;
    assert_eq!(stage.pve.files(), []);
}

#[tokio::test(start_paused = true)]
async fn a_kill_at_each_call_around_the_upload_leaves_one_seed() {
    let (before, after) = {
        let mut stage = stage();
        stage.start();
        stage.deploy("web", 1, "1500m", "1Gi");
        let calls = |stage: &Stage| stage.calls.load(Ordering::SeqCst);
        stage.until("the VM exists", SOON, |stage| !stage.vms(9100..=9109).is_empty()).await;
        let before = calls(&stage);
        let attached = |stage: &Stage| {
            stage
                .pve
                .vm(9100)
                .is_some_and(|vm| vm.config.get("ide2").is_some_and(|drive| drive.contains("iso/")))
        };
        stage.until("its seed is attached", SOON, attached).await;
        (before, calls(&stage) + 2)
    };
    for last in before..=after {
        let mut stage = stage();
        stage.deploy("web", 1, "1500m", "1Gi");
        stage.start_until(last);
        stage.until("the daemon's connections are cut", SOON, Stage::is_cut).await;
        stage.kill();
        stage.start();
        stage.until("the pod runs", LATE, |stage| stage.running_pods() == 1).await;
        assert_eq!(stage.pve.files().len(), 1, "after a kill at call {last} of {before}..{after}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_goes_between_upload_and_restart_leaves_no_seed() {
    // The machine's seed is uploaded but not attached, because the machine is not configured yet.
    let mut stage = seeded().await;
    stage.kill();
    // The pool's seed has changed, so the machine with the old seed is given up.
    let other = text(&SEED.replace("/etc/zone", "/etc/place"));
    stage.reload(&other);
    stage.start();
    let first = stage.pve.files();
    stage.pve.forget_faults();
    stage.until("the pod runs", LATE, |stage| stage.running_pods() == 1).await;
    stage.until("one seed is left", SOON, |stage| stage.pve.files().len() == 1).await;
    assert_ne!(stage.pve.files(), first, "the machine with the old seed was given up");
    all_gone(&stage).await;
}

/// A stage whose first machine has its seed but is not configured, because all requests to configure it fail.
async fn seeded() -> Stage {
    let mut stage = stage();
    let path = "/nodes/*/qemu/*/config".to_owned();
    let effect = Effect::Answer { status: 595, reason: "No route to host".into(), body: String::new() };
    stage.pve.inject(Fault { method: "POST".into(), path, times: 1000, effect });
    stage.start();
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.until("the seed is uploaded", SOON, |stage| !stage.pve.files().is_empty()).await;
    stage
}

/// A host other than this one.
fn another(host: &str) -> &'static str {
    ["pve1", "pve2"].into_iter().find(|one| *one != host).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_vm_that_is_moved_before_it_has_its_seed_leaves_none_behind() {
    let stage = seeded().await;
    let first = stage.pve.files();
    stage.pve.migrate_by_hand(9100, another(&first[0].1));
    stage.pve.forget_faults();
    stage.until("the pod runs", LATE, |stage| stage.running_pods() == 1).await;
    stage.until("the first seed is gone", SOON, |stage| !stage.pve.files().contains(&first[0])).await;
    all_gone(&stage).await;
}

#[tokio::test(start_paused = true)]
async fn a_seed_on_a_host_that_is_off_goes_when_the_host_is_back() {
    let mut stage = stage();
    stage.start();
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    let there = stage.pve.files().remove(0).1;
    // An administrator removes the image from the drive; otherwise the VM could not be moved.
    stage.pve.set_config_by_hand(9100, "ide2", Some("none,media=cdrom"));
    let other = another(&there);
    stage.pve.migrate_by_hand(9100, other);
    let followed = |stage: &Stage| stage.status().machines.iter().all(|one| one.host == other);
    stage.until("it is followed", LATE, followed).await;
    stage.pve.power_off_host(&there);
    stage.kube.scale("default", "web", 0);
    let told = |stage: &Stage| {
        let why = format!("host {there} is down and may still hold the seed of VM 9100");
        stage.status().machines.iter().any(|one| one.why.contains(&why))
    };
    stage.until("it is reported", LATE, told).await;
    assert_eq!(stage.leftovers(), ["machine-workers-9100"]);
    stage.pve.power_on_host(&there);
    all_gone(&stage).await;
}

#[tokio::test(start_paused = true)]
async fn an_upload_that_arrives_after_its_machine_was_given_up_leaves_no_seed() {
    let mut stage = stage();
    let path = "/nodes/*/storage/local/upload".to_owned();
    stage.pve.inject(Fault { method: "POST".into(), path, times: 1000, effect: Effect::Lose });
    stage.start();
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.until("the VM exists", SOON, |stage| stage.pve.vm(9100).is_some()).await;
    let map = stage.kube.get("ConfigMap", "pve-autoscaler", "machine-workers-9100").unwrap();
    let record: serde_json::Value = serde_json::from_str(map["data"]["record"].as_str().unwrap()).unwrap();
    let file = format!("pve-autoscaler-{}.iso", record["id"].as_str().unwrap());
    stage.until("the VM is gone again", LATE, |stage| stage.pve.vm(9100).is_none()).await;
    stage.pve.put_iso_by_hand("local", record["host"].as_str().unwrap(), &file);
    stage.pve.forget_faults();
    stage.until("the pod runs", LATE, |stage| stage.running_pods() == 1).await;
    all_gone(&stage).await;
}

#[tokio::test(start_paused = true)]
async fn disks_that_an_administrator_has_to_remove_hold_no_seed_back() {
    let mut stage = stage();
    stage.start();
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    stage.pve.set_storage_busy("shared", true);
    stage.kube.scale("default", "web", 0);
    let told =
        |stage: &Stage| stage.status().machines.iter().any(|one| one.why.contains("pvesm free shared:"));
    stage.until("the command is reported", LATE, told).await;
    // After running the reported command, the administrator may drop the record.
    assert_eq!(stage.pve.files(), []);
    assert_eq!(stage.leftovers(), ["machine-workers-9100"]);
}

#[tokio::test(start_paused = true)]
async fn a_template_that_an_administrator_makes_of_a_machine_keeps_its_seed() {
    let mut stage = stage();
    stage.start();
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    let seed = stage.pve.config_of(9100, "ide2").unwrap();
    let volume = seed.split(',').next().unwrap();
    stage.pve.touch(9100, "root@pam", &Touch::Template);
    let forgotten = |stage: &Stage| stage.status().machines.iter().all(|one| one.vmid != Vmid(9100));
    stage.until("the machine is forgotten", LATE, forgotten).await;
    stage.until("the pod runs elsewhere", LATE, |stage| stage.running_pods() == 1).await;
    let files = stage.pve.files();
    assert!(files.iter().any(|(file, _)| file == volume), "clones of the template need {volume}: {files:?}");
}

#[tokio::test(start_paused = true)]
async fn dropping_the_record_of_a_vmid_that_another_vm_has_now_reports_the_seed() {
    let mut stage = stage();
    stage.start();
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    let (seed, host) = stage.pve.files().remove(0);
    // The daemon does not learn whether its request to destroy the VM arrived.
    let path = "/nodes/*/qemu/9100".to_owned();
    stage.pve.inject(Fault { method: "DELETE".into(), path, times: 1, effect: Effect::Lose });
    stage.kube.scale("default", "web", 0);
    let asked = |stage: &Stage| stage.pve.calls().iter().any(|call| call.method == "DELETE");
    stage.until("the VM's destruction is requested", LATE, asked).await;
    stage.pve.delete_by_hand(9100);
    assert!(stage.pve.create_by_hand(VmSpec::machine(9100, &host, "taken")));
    let command = format!(
        "or, if it is an unmanaged VM: on {host}: pvesm free {seed}; kubectl -n pve-autoscaler delete configmap -l "
    );
    let told = |stage: &Stage| stage.status().machines.iter().any(|one| one.why.contains(&command));
    stage.until("the commands are reported", LATE, told).await;
    stage.pve.free_by_hand(&seed);
    stage.kube.remove("ConfigMap", "pve-autoscaler", "machine-workers-9100");
    stage.until("the machine is forgotten", LATE, |stage| stage.status().machines.is_empty()).await;
    assert_eq!((stage.pve.files(), stage.vms(9100..=9109)), (vec![], vec![9100]));
}
