//! Gangs: pods of a PodGroup, for which machines are created together or not at all.

use std::time::Duration;

use pve_autoscaler::settings::{self, Needs};
use pve_autoscaler::{planning, snapshot};
use serde_json::{Value, json};
use tempfile::TempDir;
use world::kubernetes::spec::KubeSpec;
use world::proxmox::spec::ClusterSpec;

use crate::stage::{ONE_POOL, Stage};

const SOON: Duration = Duration::from_mins(3);

/// A pool of up to this many machines, each of which has room for one pod of a gang.
fn pool(max: u32) -> String {
    let scaling = "[scale_down]\nunneeded_time = \"1m\"\ndelay_after_add = \"0s\"\n[[pool]]";
    let text = ONE_POOL.replace("[[pool]]", scaling);
    assert!(text.contains("max = 5"), "{text}");
    text.replace("max = 5", &format!("max = {max}"))
}

fn stage(text: &str) -> Stage {
    Stage::of(text, ClusterSpec::demo(), KubeSpec { pod_groups: true, ..KubeSpec::demo() })
}

/// A PodGroup in the namespace `default`.
pub fn group(name: &str, minimum: u32) -> Value {
    json!({
        "apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup",
        "metadata": { "name": name, "namespace": "default" },
        "spec": { "schedulingPolicy": { "gang": { "minCount": minimum } } },
    })
}

/// Deploys this many pods that are part of the group of this name.
fn members(stage: &Stage, name: &str, count: u32) {
    let group = json!({ "schedulingGroup": { "podGroupName": name } });
    stage.deploy_with(name, count, "1500m", "1Gi", &group);
}

/// The verdicts of the pending pods, with their reasons.
fn shown(stage: &Stage) -> Vec<(String, String)> {
    stage.status().pods.iter().map(|pod| (pod.verdict.clone(), pod.why.clone())).collect()
}

fn is_said(stage: &Stage, words: &str) -> bool {
    let all = shown(stage);
    !all.is_empty() && all.iter().all(|(verdict, why)| verdict == "AwaitsGang" && why.contains(words))
}

fn none(stage: &Stage) -> bool {
    stage.vms(9100..=9109).is_empty()
}

#[tokio::test(start_paused = true)]
async fn machines_are_made_for_a_whole_gang_once_its_group_and_its_pods_are_there() {
    let mut stage = stage(&pool(5));
    stage.start();
    members(&stage, "train", 2);
    stage
        .until("pods await their group", SOON, |stage| is_said(stage, "is waiting for the pod's PodGroup"))
        .await;
    stage.kube.apply(&group("train", 3)).unwrap();
    stage.until("the gang waits for its pods", SOON, |stage| is_said(stage, "needs 3 pods, and")).await;
    stage.throughout("nothing is made", Duration::from_mins(5), none).await;
    stage.kube.scale("default", "train", 3);
    stage.until("all run", SOON * 2, |stage| stage.running_pods() == 3).await;
    assert_eq!(stage.vms(9100..=9109).len(), 3);
    // The gang's minimum is running, so an additional pod is treated like any other.
    stage.kube.scale("default", "train", 4);
    stage.until("the fourth pod runs", SOON, |stage| stage.running_pods() == 4).await;
    stage.kube.scale("default", "train", 0);
    stage.until("nothing is left", SOON * 2, none).await;
}

#[tokio::test(start_paused = true)]
async fn no_machine_is_made_for_a_part_of_a_gang() {
    let folder = TempDir::new().unwrap();
    let record = format!("[record]\nrounds = 1000\ndirectory = \"{}\"\n", folder.path().display());
    let text = pool(2).replace("[scale_down]", &format!("{record}[scale_down]"));
    let mut stage = stage(&text);
    stage.start();
    stage.kube.apply(&group("train", 3)).unwrap();
    members(&stage, "train", 3);
    let words =
        "its gang needs 3 pods to run at the same time, but only 2 would fit (workers: at its maximum of 2)";
    stage.until("the reason is reported", SOON, |stage| is_said(stage, words)).await;
    let told = |stage: &Stage| {
        let events = stage.kube.list("Event");
        events.iter().filter(|one| one["message"].as_str().is_some_and(|note| note.contains(words))).count()
    };
    stage.until("each pod has an event with the reason", SOON, |stage| told(stage) == 3).await;
    stage.throughout("nothing is made", Duration::from_mins(10), none).await;
    // Other pods get nodes while the gang waits.
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.until("the other pod runs", SOON, |stage| stage.running_pods() == 1).await;
    stage.kube.scale("default", "web", 0);
    stage.until("the other pod's machine is gone", SOON * 2, none).await;
    stage.reload(&text.replace("max = 2", "max = 3"));
    stage.until("all run", SOON * 2, |stage| stage.running_pods() == 3).await;
    // Planning each recorded round again gives the same decision.
    let mut replayed = 0;
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|ending| ending != "yaml") {
            continue;
        }
        let (mut read, time) = snapshot::read(&std::fs::read_to_string(&path).unwrap()).unwrap();
        read.time = time.unwrap();
        if read.nodes.len() > 1 || read.pods.len() != 3 {
            continue;
        }
        let config = settings::parse("lab.toml", &text, Needs::Plan).unwrap();
        let taken = std::fs::read_to_string(path.with_extension("json")).unwrap();
        if taken.contains("AwaitsGang") {
            let again = serde_json::to_string_pretty(&planning::plan(&read, &config)).unwrap() + "\n";
            assert_eq!(again, taken, "{}", path.display());
            replayed += 1;
        }
    }
    assert!(replayed > 3, "only {replayed} rounds");
}

#[tokio::test(start_paused = true)]
async fn machines_that_fail_for_a_gang_are_made_again_and_none_is_left_over() {
    let mut stage = stage(&pool(3));
    stage.start();
    stage.kube.apply(&group("train", 3)).unwrap();
    members(&stage, "train", 3);
    stage.until("machines come", SOON, |stage| stage.vms(9100..=9109).len() == 3).await;
    let lost = stage.vms(9100..=9109)[0];
    stage.pve.delete_by_hand(lost);
    stage.until("all run", Duration::from_mins(30), |stage| stage.running_pods() == 3).await;
    assert_eq!(stage.vms(9100..=9109).len(), 3);
}

#[tokio::test(start_paused = true)]
async fn without_the_api_pods_are_placed_one_by_one() {
    let mut stage = Stage::new(&pool(2));
    stage.start();
    members(&stage, "train", 3);
    stage.until("as many as possible run", SOON, |stage| stage.running_pods() == 2).await;
    assert!(stage.status().problems.is_empty(), "{:?}", stage.status().problems);
    assert_eq!(stage.vms(9100..=9109).len(), 2);
}
