//! Nodes that are replaced while their pods run: because settings or templates have changed, because of the
//! nodes' age, or because their hosts are in maintenance.

use std::time::Duration;

use serde_json::json;
use world::proxmox::{TaskFault, Touch};

use crate::stage::{ONE_POOL, Stage, name};

const SOON: Duration = Duration::from_mins(5);
const LATER: Duration = Duration::from_hours(2);

fn with_drift() -> String {
    ONE_POOL.replace("[[pool]]", "[replace]\ndrift = true\n[[pool]]")
}

/// Two nodes, each with a pod that fills it.
async fn two_nodes(text: &str) -> Stage {
    let stage = Stage::running(text);
    stage.deploy("web", 2, "1500m", "1Gi");
    stage.until("the pods run", SOON, |stage| stage.running_pods() == 2).await;
    stage.until("both are ready", SOON, |stage| stage.ready_nodes("workers").len() == 2).await;
    stage
}

/// Waits until none of these nodes is left. Asserts meanwhile that at least two nodes are always ready, that
/// only one new machine exists at a time, and that at least one pod runs.
async fn replaced(stage: &Stage, old: &[String]) {
    let before = stage.vms(9100..=9109).len();
    stage
        .until("all old nodes are gone", LATER, |stage| {
            let ready = stage.ready_nodes("workers");
            assert!(ready.len() >= 2, "two nodes stay ready: {ready:?}; {}", stage.scene());
            assert!(stage.vms(9100..=9109).len() <= before + 1, "one at a time: {}", stage.scene());
            assert!(stage.running_pods() >= 1, "one pod moves at a time: {}", stage.scene());
            old.iter().all(|name| !ready.contains(name)) && ready.len() == 2
        })
        .await;
    stage.until("the pods run", SOON, |stage| stage.running_pods() == 2).await;
    let after = stage.ready_nodes("workers");
    stage
        .throughout("nothing more is replaced", Duration::from_mins(30), |stage| {
            stage.ready_nodes("workers") == after
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn another_setting_replaces_nodes_one_by_one_with_the_new_one_first() {
    let stage = two_nodes(&with_drift()).await;
    let old = stage.ready_nodes("workers");
    stage.reload(&with_drift().replace("bridge =", "max_pods = 60\nbridge ="));
    replaced(&stage, &old).await;
    // Machines for a pool's minimum have a reason with the same text. This pool has no minimum, so both new
    // machines replace nodes.
    let decisions = stage.status().decisions;
    let told =
        decisions.iter().filter(|one| one.what.ends_with("or to replace a node that is being removed"));
    assert_eq!(told.count(), 2, "{decisions:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_template_that_was_replaced_under_its_name_replaces_nodes() {
    let stage = two_nodes(&with_drift()).await;
    let old = stage.ready_nodes("workers");
    // The description of a template does not affect its clones.
    stage.pve.set_config_by_hand(9000, "description", Some("made on Monday"));
    stage
        .throughout("a description replaces nothing", Duration::from_mins(20), |stage| {
            stage.ready_nodes("workers") == old
        })
        .await;
    let uuid = "uuid=6f0e2f1c-8c5e-4c55-9c49-0d4cde0a7a51";
    stage.pve.set_config_by_hand(9000, "smbios1", Some(uuid));
    replaced(&stage, &old).await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_cloned_of_a_template_that_has_just_changed_is_none_of_the_older_one() {
    let stage = Stage::running(&with_drift());
    tokio::time::sleep(Duration::from_secs(30)).await;
    // The template changes now, but the daemon does not read templates again for a few minutes.
    stage.pve.set_config_by_hand(9000, "scsihw", Some("virtio-scsi-pci"));
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    let made = stage.ready_nodes("workers");
    let stays = |stage: &Stage| {
        let drifted = stage.status().nodes.iter().any(|node| node.why.contains("template"));
        !drifted && stage.ready_nodes("workers") == made
    };
    stage.throughout("the new node has not drifted", Duration::from_mins(30), stays).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_vm_is_protected_takes_no_turn_and_goes_once_it_is_not() {
    for early in [true, false] {
        let stage = two_nodes(&with_drift()).await;
        let [first, second] = &stage.ready_nodes("workers")[..] else { panic!("{}", stage.scene()) };
        let vmid = stage.status().machines.iter().find(|one| one.name == *first).unwrap().vmid;
        stage.pve.touch(vmid.0, "root@pam", &Touch::Protected);
        if early {
            // Without this pause, the removal begins before the daemon has read that the VM is protected.
            tokio::time::sleep(Duration::from_secs(40)).await;
        }
        stage.reload(&with_drift().replace("bridge =", "max_pods = 60\nbridge ="));
        let gone = |stage: &Stage, name: &String| !stage.ready_nodes("workers").contains(name);
        stage.until("the unprotected node is replaced", LATER, |stage| gone(stage, second)).await;
        stage.until("the pods run", SOON, |stage| stage.running_pods() == 2).await;
        let why = |stage: &Stage| {
            let nodes = stage.status().nodes;
            nodes.into_iter().find(|node| node.name == *first).map(|node| node.why).unwrap_or_default()
        };
        stage.until("the reason is reported", SOON, |stage| why(stage).contains("its VM is protected")).await;
        stage.until("only two VMs are left", LATER, |stage| stage.vms(9100..=9109).len() == 2).await;
        stage
            .throughout("no machine replaces the protected one", Duration::from_mins(30), |stage| {
                stage.vms(9100..=9109).len() == 2 && !gone(stage, first)
            })
            .await;
        stage.pve.set_config_by_hand(vmid.0, "protection", None);
        stage.until("it is replaced", LATER, |stage| gone(stage, first)).await;
        stage.until("the pods run", SOON, |stage| stage.running_pods() == 2).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_has_drifted_stays_and_is_said_where_replacing_is_off() {
    let stage = two_nodes(ONE_POOL).await;
    let old = stage.ready_nodes("workers");
    stage.reload(&ONE_POOL.replace("bridge =", "max_pods = 60\nbridge ="));
    stage
        .until("it is said", SOON, |stage| {
            let nodes = stage.status().nodes;
            nodes.iter().any(|one| one.why.contains("`max_pods` was 110 and is now 60"))
        })
        .await;
    stage.throughout("they stay", Duration::from_mins(20), |stage| stage.ready_nodes("workers") == old).await;
}

#[tokio::test(start_paused = true)]
async fn a_template_that_can_no_longer_be_cloned_costs_no_node() {
    let stage = two_nodes(&with_drift()).await;
    let old = stage.ready_nodes("workers");
    for _ in 0..50 {
        stage.pve.inject_task("qmclone", TaskFault::Fails("the storage is broken".into()));
    }
    stage.reload(&with_drift().replace("bridge =", "max_pods = 60\nbridge ="));
    stage
        .throughout("the old nodes stay", LATER, |stage| {
            stage.ready_nodes("workers") == old && stage.running_pods() == 2
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn nodes_that_are_too_old_are_replaced() {
    let stage = two_nodes(&ONE_POOL.replace("bridge =", "max_node_age = \"2h\"\nbridge =")).await;
    let old = stage.ready_nodes("workers");
    stage
        .throughout("young ones stay", Duration::from_mins(100), |stage| stage.ready_nodes("workers") == old)
        .await;
    replaced(&stage, &old).await;
}

#[tokio::test(start_paused = true)]
async fn a_host_in_maintenance_is_emptied_with_new_nodes_first() {
    let stage = two_nodes(ONE_POOL).await;
    let old = stage.ready_nodes("workers");
    let host = |name: &String| {
        let machines = stage.status().machines;
        machines.iter().find(|one| one.node.as_ref() == Some(name)).map(|one| one.host.clone())
    };
    let first = host(&old[0]).unwrap();
    let there: Vec<String> = old.iter().filter(|name| host(name).as_ref() == Some(&first)).cloned().collect();
    stage.pve.set_maintenance(&first, true);
    replaced(&stage, &there).await;
    assert!(stage.status().machines.iter().all(|one| one.host != first), "{}", stage.scene());
}

#[tokio::test(start_paused = true)]
async fn nodes_are_replaced_in_their_window_alone() {
    let nights =
        "[[disruption]]\nreasons = [\"drifted\"]\nwindows = [{ start = \"0 3 * * *\", duration = \"2h\" }]\n";
    let text = with_drift().replace("[[pool]]", &format!("{nights}[[pool]]"));
    let stage = two_nodes(&text).await;
    let old = stage.ready_nodes("workers");
    stage.reload(&text.replace("bridge =", "max_pods = 60\nbridge ="));
    // The virtual time begins at midnight.
    let three: jiff::Timestamp = "2026-11-21T03:00:00Z".parse().unwrap();
    stage
        .until("the start of the window is reported", SOON, |stage| {
            let nodes = stage.status().nodes;
            nodes.iter().any(|one| one.why.contains("the next one opens at 2026-11-21T03:00:00Z"))
        })
        .await;
    let wait =
        Duration::try_from(three.duration_since(stage.now()) - jiff::SignedDuration::from_secs(1)).unwrap();
    stage.throughout("they stay", wait, |stage| stage.ready_nodes("workers") == old).await;
    replaced(&stage, &old).await;
    let five: jiff::Timestamp = "2026-11-21T05:00:00Z".parse().unwrap();
    assert!(stage.now() < five, "{}", stage.now());
}

#[tokio::test(start_paused = true)]
async fn a_pool_grows_for_its_schedule_and_shrinks_after_it() {
    let schedule = "[[pool.schedule]]\nmin = 2\nstart = \"0 1 * * *\"\nduration = \"1h\"\n";
    let stage = Stage::running(&format!("{ONE_POOL}{schedule}"));
    stage
        .throughout("no machine is made before the scheduled time", Duration::from_mins(55), |stage| {
            stage.vms(9100..=9109).is_empty()
        })
        .await;
    stage
        .until("two nodes are ready", Duration::from_mins(10), |stage| {
            stage.ready_nodes("workers").len() == 2
        })
        .await;
    assert_eq!(stage.status().pools[0].min, 2);
    stage
        .throughout("they stay", Duration::from_mins(50), |stage| stage.ready_nodes("workers").len() == 2)
        .await;
    stage.until("nothing is left", Duration::from_mins(40), |stage| stage.vms(9100..=9109).is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn nodes_carry_their_annotations_and_their_providers_id() {
    let own = "annotations = { \"example.org/where\" = \"{{ host }} {{ vmid }}\" }\nprovider_id = \"proxmox://lab/{{ vmid }}\"\nbridge =";
    let stage = two_nodes(&ONE_POOL.replace("bridge =", own)).await;
    for machine in stage.status().machines {
        let node = stage.kube.get("Node", "", &machine.name).unwrap();
        assert_eq!(node["spec"]["providerID"], format!("proxmox://lab/{}", machine.vmid));
        let where_it_is = format!("{} {}", machine.host, machine.vmid);
        assert_eq!(node["metadata"]["annotations"]["example.org/where"], where_it_is);
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_cannot_be_emptied_holds_up_no_other_and_is_tried_less_and_less() {
    let stage = two_nodes(&with_drift()).await;
    let mut nodes = stage.kube.list("Node");
    nodes.retain(|node| node["metadata"]["labels"]["pve-autoscaler/pool"] == "workers");
    nodes.sort_by_key(|node| (node["metadata"]["creationTimestamp"].to_string(), name(node)));
    let [first, second] = [name(&nodes[0]), name(&nodes[1])];
    // A volume attachment remains because the volume's driver never detaches it, although its pod is long
    // gone.
    let attachment = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": { "name": "csi-left" },
        "spec": { "attacher": "csi.example.com", "nodeName": first, "source": { "persistentVolumeName": "left" } },
        "status": { "attached": true },
    });
    stage.kube.apply(&attachment).unwrap();
    stage.reload(&with_drift().replace("bridge =", "max_pods = 60\nbridge ="));
    let gone = |stage: &Stage| !stage.ready_nodes("workers").contains(&second);
    stage.until("the other node is replaced", Duration::from_hours(1), gone).await;
    let tried = std::cell::Cell::new(0);
    let began = stage.now();
    while stage.now().duration_since(began) < jiff::SignedDuration::from_hours(4) {
        let before =
            stage.status().decisions.iter().filter(|one| one.what.contains("still attached")).count();
        tried.set(before);
        tokio::time::sleep(Duration::from_mins(1)).await;
    }
    assert!((2..=8).contains(&tried.get()), "{} times: {}", tried.get(), stage.scene());
    stage.kube.remove("VolumeAttachment", "", "csi-left");
    stage.until("it is replaced", LATER * 2, |stage| !stage.ready_nodes("workers").contains(&first)).await;
}

/// The daemon's clock differs from the clock by which Kubernetes dates the kubelet's silence.
#[tokio::test(start_paused = true)]
async fn a_kubelet_that_is_silent_for_a_moment_costs_no_node_however_wrong_a_clock_is() {
    for minutes in [-10, 0, 60, 600] {
        let more = "[scale_down]\nunneeded_time = \"30h\"\n[replace]\nunready_after = \"30m\"\n[[pool]]";
        let mut stage = Stage::new(&ONE_POOL.replace("[[pool]]", more));
        stage.ahead = jiff::SignedDuration::from_mins(minutes);
        stage.start();
        stage.deploy("web", 2, "1500m", "1Gi");
        stage.until("the pods run", SOON, |stage| stage.running_pods() == 2).await;
        stage.deploy("small", 2, "100m", "128Mi");
        stage.until("all run", SOON, |stage| stage.running_pods() == 4).await;
        stage.kube.scale("default", "web", 0);
        let all = stage.vms(9100..=9109);
        let node = stage.ready_nodes("workers").remove(0);
        stage.kube.set_kubelet_silent(&node, true);
        let is_silent = |stage: &Stage| !stage.ready_nodes("workers").contains(&node);
        stage.until("it is silent", SOON, is_silent).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        stage.kube.set_kubelet_silent(&node, false);
        let stay = |stage: &Stage| stage.vms(9100..=9109) == all;
        stage.throughout(&format!("{minutes} min: all machines stay"), Duration::from_mins(20), stay).await;
        // If the kubelet stays silent, its node is removed.
        stage.kube.set_kubelet_silent(&node, true);
        let goes = |stage: &Stage| stage.vms(9100..=9109) != all;
        let took = stage.until("it goes", LATER, goes).await;
        assert!(took > Duration::from_mins(19), "{minutes} min: {took:?}");
    }
}
