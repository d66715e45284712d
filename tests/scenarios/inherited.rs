//! Templates with options that no machine should have, and rights that Proxmox VE requires in unexpected
//! places.

use std::time::Duration;

use world::kubernetes::spec::KubeSpec;
use world::proxmox::rights::TagAccess;
use world::proxmox::spec::{ClusterSpec, Grant};

use crate::stage::{ONE_POOL, Stage};

const SOON: Duration = Duration::from_mins(5);
const LATE: Duration = Duration::from_hours(1);
const SEED: &str =
    "[pool.cloud_init]\nmethod = \"seed\"\nstorage = \"local\"\nuser_data = \"#cloud-config\\n\"\n";

/// A stage whose template has these options.
fn stage(template: &[(&str, &str)], more: &str) -> Stage {
    let mut spec = ClusterSpec::demo();
    let options = template.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    spec.vms[0].config.extend(options);
    let quick = "[scale_down]\nunneeded_time = \"30s\"\ndelay_after_add = \"0s\"\n[[pool]]";
    Stage::of(&format!("{}{more}", ONE_POOL.replace("[[pool]]", quick)), spec, KubeSpec::demo())
}

fn clones(stage: &Stage) -> usize {
    stage.pve.task_exits().iter().filter(|(upid, _)| upid.contains(":qmclone:")).count()
}

fn problem(stage: &Stage) -> String {
    stage.status().problems.get("rights").cloned().unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn a_machine_keeps_nothing_of_its_template_that_it_must_not_have() {
    let template = [
        ("protection", "1"),
        ("vcpus", "1"),
        ("numa0", "cpus=0-1,memory=2048"),
        ("sshkeys", "ssh-ed25519%20AAAA%20template"),
        ("cicustom", "network=local:snippets/n.yml,vendor=local:snippets/v.yml"),
        ("ipconfig1", "ip=10.1.0.5/24"),
        ("net0", "virtio=BC:24:11:00:23:28,bridge=vmbr0,link_down=1"),
    ];
    let mut stage = stage(
        &template,
        "ssh_keys = [\"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgIC pool\"]\nuser = \"k8s\"\n",
    );
    stage.start();
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    for gone in ["protection", "vcpus", "numa0", "ipconfig1"] {
        assert_eq!(stage.pve.config_of(9100, gone), None, "{gone}");
    }
    let own = |key: &str| stage.pve.config_of(9100, key).unwrap_or_default();
    assert_eq!(own("cicustom"), "vendor=local:snippets/v.yml");
    assert!(
        own("sshkeys").contains("%20pool") && !own("sshkeys").contains("AAAA%20template"),
        "{}",
        own("sshkeys")
    );
    assert!(own("net0").contains("link_down=0"), "{}", own("net0"));
    assert_eq!(own("tags"), "pve-autoscaler");
    stage.kube.scale("default", "web", 0);
    stage.until("the VM is gone", LATE, |stage| stage.vms(9100..=9109).is_empty()).await;
    stage.until("nothing is left over", SOON, |stage| stage.leftovers().is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_was_protected_later_goes_once_an_administrator_says_so() {
    let mut stage = stage(&[], "");
    stage.start();
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    stage.pve.set_config_by_hand(9100, "protection", Some("1"));
    stage.kube.scale("default", "web", 0);
    let told = |stage: &Stage| {
        let status = serde_json::to_string(&stage.status()).unwrap();
        status.contains("qm set 9100 --protection 0")
    };
    stage.until("the command is reported", LATE, told).await;
    stage.pve.set_config_by_hand(9100, "protection", None);
    stage.until("the VM is gone", LATE, |stage| stage.vms(9100..=9109).is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn a_missing_right_holds_the_pool_until_it_is_granted() {
    let mut spec = ClusterSpec::demo();
    let words = |text: &str| text.split_whitespace().map(ToOwned::to_owned).collect::<Vec<_>>();
    spec.access
        .roles
        .insert("Seeds".into(), words("Datastore.AllocateTemplate Datastore.Allocate Datastore.Audit"));
    // Replacing a cloud-init drive with the seed also requires VM.Config.Cloudinit.
    spec.access.roles.get_mut("KasWorker").unwrap().push("VM.Config.CDROM".into());
    for who in ["autoscaler@pve", ClusterSpec::DEMO_TOKEN] {
        let (path, role) = ("/storage/local".into(), "Seeds".into());
        spec.access.grants.push(Grant { path, who: who.into(), role, propagate: false });
    }
    let mut stage = Stage::of(&format!("{ONE_POOL}{SEED}"), spec, KubeSpec::demo());
    stage.start();
    stage.deploy("web", 1, "1500m", "1Gi");
    stage
        .until("the missing right is a problem in the status", SOON, |stage| !problem(stage).is_empty())
        .await;
    let said = problem(&stage);
    for part in ["lacks VM.Config.Cloudinit on /pool/k8s-workers", "pveum acl modify /pool/k8s-workers"] {
        assert!(said.contains(part), "no {part:?} in {said}");
    }
    let cloned = clones(&stage);
    stage.throughout("nothing is cloned", Duration::from_mins(10), |stage| clones(stage) == cloned).await;
    stage.pve.change_access(|access| {
        access.roles.get_mut("KasWorker").unwrap().push("VM.Config.Cloudinit".into());
    });
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    assert_eq!(problem(&stage), "");
}

#[tokio::test(start_paused = true)]
async fn tags_that_the_token_may_not_set_are_said_before_anything_is_cloned() {
    let mut stage = stage(&[], "");
    let list = |tags: &[&str]| TagAccess {
        user_allow: "list".to_owned(),
        user_allow_list: tags.iter().map(|tag| (*tag).to_owned()).collect(),
        registered: Vec::new(),
    };
    stage.pve.restrict_tags(list(&["k8s"]));
    stage.start();
    stage.deploy("web", 1, "1500m", "1Gi");
    let told = |stage: &Stage| {
        serde_json::to_string(&stage.status()).unwrap().contains("`pve-autoscaler` to `user-allow-list`")
    };
    stage.until("the fix is reported", SOON, told).await;
    stage.throughout("nothing is cloned", SOON, |stage| clones(stage) == 0).await;
    stage.pve.restrict_tags(list(&["k8s", "pve-autoscaler"]));
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    // If the token cannot remove one of the template's tags, the machine keeps the tag.
    assert_eq!(stage.pve.config_of(9100, "tags").as_deref(), Some("pve-autoscaler;template"));
}
