//! What `explain` shows for a pod in addition to the nodes' answers: the pools' answers, and what happens to
//! the pod if its node is removed.

use model::drain::Blocking;
use planning::{PoolAnswer, Prospects, Treatment, prospects};
use settings::{self, Config, Needs};

use crate::cluster::{Cluster, of_pool};

fn of(cluster: &Cluster, config: &Config, pod: &str) -> Prospects {
    prospects(&cluster.snapshot(), config, [pod]).remove(pod).unwrap()
}

/// The only pool's answer.
fn pool(cluster: &Cluster, config: &Config, pod: &str) -> PoolAnswer {
    let pools = of(cluster, config, pod).pools;
    assert_eq!(pools.len(), 1, "{pools:?}");
    pools.into_iter().next().unwrap()
}

fn treated(cluster: &Cluster, config: &Config, pod: &str) -> (Treatment, Option<&'static str>) {
    let removal = of(cluster, config, pod).removal.unwrap();
    assert_eq!(removal.node, "n");
    assert_eq!(removal.message.is_some(), removal.reason.is_some());
    (removal.treatment, removal.reason.map(Blocking::code))
}

/// A running pod on node `n`, with these additions to its metadata and spec.
fn running(name: &str, metadata: &str, spec: &str) -> Cluster {
    Cluster::new().idle("n", "w").with(&format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n  namespace: d\n{metadata}\n\
         spec: {{{spec}nodeName: n, containers: [{{name: c, resources: {{requests: {{cpu: 1, memory: 1Gi}}}}}}]}}\n\
         status: {{phase: Running}}"
    ))
}

const SET: &str =
    "  ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: rs, uid: rs, controller: true}]";

#[test]
fn each_pool_answers_with_the_filter_or_with_what_it_has_no_room_for() {
    let config = of_pool("", "");
    let small = Cluster::new().pod("p", "1", "");
    assert!(pool(&small, &config, "d/p").fits);
    let answer = pool(&Cluster::new().pod("p", "9", ""), &config, "d/p");
    assert_eq!((answer.fits, answer.filter, answer.reason), (false, Some("NodeResourcesFit"), None));
    assert_eq!(answer.message.unwrap(), "wants 9 CPU, 4 free");

    let full = (0..9).fold(small.clone(), |all, at| all.idle(&format!("n{at}"), "w"));
    let answer = pool(&full, &config, "d/p");
    assert_eq!((answer.fits, answer.filter, answer.reason), (false, None, Some("PoolAtMax")), "{answer:?}");

    let host = "hosts: [{name: pve1, online: true, cores: 64, memory: 32Gi, memoryUsed: 30Gi}]";
    let small = small.with(&format!("apiVersion: pve-autoscaler/v1\nkind: ProxmoxInventory\n{host}"));
    let answer = pool(&small, &config, "d/p");
    assert_eq!((answer.fits, answer.reason), (false, Some("NoHostCapacity")), "{answer:?}");
    assert!(answer.message.unwrap().contains("pve1"), "the message names the host");
}

#[test]
fn a_pool_with_several_sizes_answers_once() {
    let text = "[[pool]]\nname = \"w\"\nmax = 9\ncores = 4\nmemory = \"16GiB\"\n\
                sizes = [{ cores = 16, memory = \"64GiB\" }, { cores = 2, memory = \"8GiB\" }]\n";
    let config = settings::parse("test", text, Needs::Plan).unwrap();
    assert!(pool(&Cluster::new().pod("p", "9", ""), &config, "d/p").fits, "the pod fits the largest size");
    let answer = pool(&Cluster::new().pod("p", "17", ""), &config, "d/p");
    assert_eq!((answer.fits, answer.filter), (false, Some("NodeResourcesFit")));
}

#[test]
fn a_pod_that_runs_is_not_in_its_own_way() {
    let alone = "affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: pve-autoscaler/pool, labelSelector: {matchLabels: {app: a}}}]}}, ";
    let one = running("p", &format!("  labels: {{app: a}}\n{SET}"), alone);
    assert!(pool(&one, &of_pool("", ""), "d/p").fits);
    let other = one.with(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: q, namespace: d, labels: {app: a}}\nspec: {nodeName: n, containers: [{name: c}]}\nstatus: {phase: Running}",
    );
    assert_eq!(pool(&other, &of_pool("", ""), "d/p").filter, Some("InterPodAffinity"));
}

#[test]
fn the_end_of_its_node_is_judged_by_the_drain_rules() {
    let (config, none) = (of_pool("", ""), None);
    let safe = |value: &str| {
        format!("{SET}\n  annotations: {{cluster-autoscaler.kubernetes.io/safe-to-evict: \"{value}\"}}")
    };
    let daemon =
        "  ownerReferences: [{apiVersion: apps/v1, kind: DaemonSet, name: ds, uid: ds, controller: true}]";
    for (metadata, spec, expected) in [
        (SET.to_owned(), "", (Treatment::Evicted, none)),
        (String::new(), "", (Treatment::KeepsNode, Some("NotReplicated"))),
        (safe("false"), "", (Treatment::KeepsNode, Some("NotSafeToEvictAnnotation"))),
        (safe("on-completion"), "", (Treatment::Awaited, none)),
        (daemon.to_owned(), "", (Treatment::EndsWithNode, none)),
        (SET.to_owned(), "priority: -20, ", (Treatment::Expendable, none)),
    ] {
        let cluster = running("p", &metadata, spec).with(
            "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: ds, namespace: d, uid: ds}\nspec: {template: {spec: {containers: [{name: c}]}}}",
        );
        assert_eq!(treated(&cluster, &config, "d/p"), expected, "{metadata} {spec}");
    }
    let waits = of(&Cluster::new().pod("p", "1", ""), &config, "d/p");
    assert_eq!(waits.removal, None, "the pod has no node");
}
