//! CapacityBuffers: how many chunks they have, what is created for the chunks, and which pods take precedence
//! over them.

use model::Plan;
use model::drain::NodeReason;
use model::plan::{BufferOutcome, BufferVerdict, NodeOutcome, PodOutcome};

use crate::cluster::{Cluster, of_pool, pod_verdict, pools, removed};

const TEMPLATE: &str = "apiVersion: v1\nkind: PodTemplate\nmetadata: {name: t, namespace: d, generation: 4}\n\
     template: {spec: {containers: [{name: c, resources: {requests: {cpu: 2, memory: 1Gi}}}]}}";

/// A buffer in namespace `d` with this spec.
fn buffer(name: &str, spec: &str) -> String {
    format!(
        "apiVersion: autoscaling.x-k8s.io/v1beta1\nkind: CapacityBuffer\n\
         metadata: {{name: {name}, namespace: d, uid: {name}}}\nspec: {{{spec}}}"
    )
}

/// A buffer whose chunks have 2 CPUs and 1 GiB each.
fn of_template(more: &str) -> String {
    buffer("b", &format!("podTemplateRef: {{name: t}}, {more}"))
}

fn with(spec: &str) -> Cluster {
    Cluster::new().with(TEMPLATE).with(&of_template(spec))
}

fn only(plan: &Plan) -> &BufferVerdict {
    assert_eq!(plan.buffers.len(), 1);
    &plan.buffers[0]
}

fn machines(plan: &Plan) -> usize {
    plan.scale_up.iter().map(|pool| pool.machines.len()).sum()
}

#[test]
fn machines_are_made_for_chunks_that_fit_nowhere_and_say_for_which_buffer() {
    let plan = with("replicas: 3").plan(&pools(0, 9, ""));
    // Two chunks fit a machine of 4 CPUs.
    assert_eq!(machines(&plan), 2);
    let named = plan.scale_up.iter().flat_map(|pool| &pool.machines).flat_map(|machine| &machine.pods);
    assert!(named.clone().any(|one| &**one == "d/b (chunk 1 of a CapacityBuffer)"));
    assert_eq!(named.count(), 3);
    assert!(plan.pods.is_empty(), "chunks are not listed as pods: {:?}", plan.pods);
    let verdict = only(&plan);
    assert_eq!(
        (verdict.buffer.as_str(), verdict.verdict, verdict.chunks),
        ("d/b", BufferOutcome::Filling, Some(3))
    );
    assert_eq!(verdict.on_new_machines, 3);
    assert_eq!(verdict.message, "3 chunks: 3 get new machines");
    assert_eq!(verdict.template, Some(("t".to_owned(), 4)));
}

#[test]
fn the_number_of_chunks_is_what_cluster_autoscaler_makes_of_it() {
    let deployment = |replicas: u32| {
        format!(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web, namespace: d}}\n\
             spec: {{replicas: {replicas}, selector: {{matchLabels: {{app: web}}}}, template: {{metadata: {{labels: {{app: web}}}}, \
             spec: {{containers: [{{name: c, resources: {{requests: {{cpu: 2, memory: 1Gi}}}}}}]}}}}}}"
        )
    };
    const WEB: &str = "scalableRef: {apiGroup: apps, kind: Deployment, name: web}";
    for (replicas, spec, expected) in [
        (10, format!("{WEB}, percentage: 20"), 2),
        (10, format!("{WEB}, percentage: 21"), 3),
        (10, format!("{WEB}, percentage: 1"), 1),
        (0, format!("{WEB}, percentage: 50"), 0),
        (10, format!("{WEB}, percentage: 0"), 0),
        (10, format!("{WEB}, percentage: 250"), 25),
        // If both `percentage` and `replicas` are set, the larger result is used.
        (10, format!("{WEB}, percentage: 20, replicas: 1"), 2),
        (10, format!("{WEB}, percentage: 20, replicas: 5"), 5),
        // `limits` bounds the number of chunks, and determines it if nothing else does.
        (10, format!("{WEB}, percentage: 50, limits: {{cpu: 4}}"), 2),
        (10, format!("{WEB}, percentage: 50, limits: {{cpu: 4, memory: 1Gi}}"), 1),
        (10, format!("{WEB}, limits: {{cpu: \"7\", memory: 99Gi, nvidia.com/gpu: 0}}"), 3),
        (10, format!("{WEB}, limits: {{cpu: 0}}"), 0),
        // As in Karpenter, the group is `apps` if none is named.
        (10, "scalableRef: {kind: Deployment, name: web}, percentage: 10".to_owned(), 1),
        // A percentage has no effect with a PodTemplate, which has no replicas.
        (10, "podTemplateRef: {name: t}, percentage: 50, replicas: 2".to_owned(), 2),
    ] {
        let cluster = Cluster::new().with(TEMPLATE).with(&deployment(replicas)).with(&buffer("b", &spec));
        assert_eq!(only(&cluster.plan(&pools(0, 99, ""))).chunks, Some(expected), "{replicas}: {spec}");
    }
}

#[test]
fn a_buffer_that_cannot_be_resolved_says_why_and_makes_nothing() {
    for (spec, reason, words) in [
        (
            "podTemplateRef: {name: other}, replicas: 2",
            "PodTemplateNotFound",
            "no PodTemplate `other` in namespace `d`",
        ),
        (
            "scalableRef: {apiGroup: apps, kind: Deployment, name: web}, replicas: 2",
            "ScalableRefNotFound",
            "no Deployment `web`",
        ),
        (
            "scalableRef: {apiGroup: argoproj.io, kind: Rollout, name: web}, replicas: 2",
            "ResolutionFailed",
            "kind `Rollout` of group `argoproj.io`",
        ),
        // Nothing shows what a chunk looks like: there is neither a pod of the ReplicaSet nor its pod
        // template.
        (
            "scalableRef: {apiGroup: apps, kind: ReplicaSet, name: rs}, replicas: 2",
            "ResolutionFailed",
            "neither a pod nor",
        ),
        ("replicas: 2", "ResolutionFailed", "neither `podTemplateRef` nor `scalableRef`"),
        ("podTemplateRef: {name: t}", "ResolutionFailed", "none of `replicas`, `percentage` and `limits`"),
        (
            "podTemplateRef: {name: t}, limits: {nvidia.com/gpu: 4}",
            "ResolutionFailed",
            "none of the resources in `limits`",
        ),
    ] {
        let plan = Cluster::new().with(TEMPLATE).with(&buffer("b", spec)).plan(&pools(0, 9, ""));
        let verdict = only(&plan);
        assert_eq!((verdict.verdict, verdict.reason), (BufferOutcome::NotReady, Some(reason)), "{spec}");
        assert!(verdict.message.contains(words), "{spec}: {}", verdict.message);
        assert_eq!((machines(&plan), verdict.chunks), (0, None), "{spec}");
    }
    let other = with("replicas: 2, provisioningStrategy: other.example.com/standby").plan(&pools(0, 9, ""));
    assert_eq!((only(&other).verdict, machines(&other)), (BufferOutcome::NotOurs, 0));
}

#[test]
fn the_newest_pod_of_a_controller_shows_what_a_chunk_is() {
    // Pod templates do not contain what admission adds to pods.
    let deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: d}\n\
         spec: {selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, \
         spec: {containers: [{name: c, resources: {requests: {cpu: 1}}}]}}}";
    let pod = |name: &str, minute: u32, cpu: u32| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: d, labels: {{app: web}}, creationTimestamp: \"2026-01-01T10:{minute}:00Z\"}}\n\
             spec: {{nodeName: w0, volumes: [{{name: v, persistentVolumeClaim: {{claimName: v}}}}], containers: [{{name: c, resources: {{requests: {{cpu: {cpu}}}}}}}]}}"
        )
    };
    let spec = "scalableRef: {apiGroup: apps, kind: Deployment, name: web}, limits: {cpu: 12}";
    let cluster = Cluster::new().with(deployment).with(&buffer("b", spec));
    assert_eq!(only(&cluster.plan(&pools(0, 99, ""))).chunks, Some(12));
    let cluster = cluster.idle("w0", "w").with(&pod("old", 10, 2)).with(&pod("new", 11, 3));
    let plan = cluster.plan(&pools(0, 99, ""));
    // Chunks lack the pod's claim, which is bound to a node. Otherwise, no chunk would fit another node.
    assert_eq!((only(&plan).chunks, only(&plan).on_new_machines), (Some(4), 4));
}

#[test]
fn a_chunk_gives_way_to_every_pod_whatever_their_priorities() {
    let urgent = TEMPLATE.replace("{containers", "{priority: 1000000, containers");
    // There is one node, and the pool may have one more machine. In the last case, the pods fill the node and
    // the machine, and no room is left for the buffer.
    let cluster = Cluster::new().with(&urgent).with(&of_template("replicas: 2")).idle("w0", "w");
    let mut config = of_pool("", "");
    config.pools[0].max = 2;
    let plan = cluster.clone().plan(&config);
    assert_eq!((only(&plan).verdict, machines(&plan)), (BufferOutcome::Filled, 0));
    let plan = cluster.clone().pod("p", "4", "").plan(&config);
    assert_eq!(pod_verdict(&plan, "d/p"), PodOutcome::ExistingNode);
    assert_eq!(
        (only(&plan).verdict, only(&plan).on_new_machines, machines(&plan)),
        (BufferOutcome::Filling, 2, 1)
    );
    let plan = cluster.pod("p", "4", "").pod("q", "3", "").plan(&config);
    assert_eq!(
        (pod_verdict(&plan, "d/p"), pod_verdict(&plan, "d/q")),
        (PodOutcome::ExistingNode, PodOutcome::NewNode)
    );
    let verdict = only(&plan);
    assert_eq!((verdict.verdict, verdict.nowhere), (BufferOutcome::Short, 2));
    assert_eq!(verdict.message, "2 chunks: 2 find no room (w: at its maximum of 2)");
}

#[test]
fn chunks_change_nothing_for_pods() {
    // With and without the buffer, the pods go to the same places and get the same machines.
    for cpus in [["1", "3", "2"], ["4", "1", "1"], ["2", "2", "2"]] {
        let mut cluster = Cluster::new().idle("w0", "w");
        for (at, cpu) in cpus.iter().enumerate() {
            cluster = cluster.pod(&format!("p{at}"), cpu, "");
        }
        let without = cluster.clone().plan(&pools(0, 9, ""));
        let with = cluster.with(TEMPLATE).with(&of_template("replicas: 3")).plan(&pools(0, 9, ""));
        let places = |plan: &Plan| {
            plan.pods
                .iter()
                .map(|one| (one.pod.clone(), one.verdict, one.destination.clone()))
                .collect::<Vec<_>>()
        };
        assert_eq!(places(&with), places(&without), "{cpus:?}");
        assert!(machines(&with) >= machines(&without));
    }
}

#[test]
fn a_node_stays_for_the_chunks_that_fit_nowhere_else_and_goes_with_the_buffer() {
    let two = |spec: &str| with(spec).idle("w0", "w").idle("w1", "w");
    // Four chunks fill both nodes; two chunks fill one node.
    let plan = two("replicas: 4").plan(&pools(0, 9, ""));
    assert_eq!(removed(&plan), Vec::<&str>::new());
    assert_eq!(only(&plan).verdict, BufferOutcome::Filled);
    for node in ["w0", "w1"] {
        let verdict = plan.nodes.iter().find(|one| one.node == node).unwrap();
        assert_eq!(
            (verdict.verdict, verdict.reason),
            (NodeOutcome::NoPlaceToMovePods, Some(NodeReason::CapacityBuffer))
        );
        assert_eq!(verdict.message.as_deref(), Some("its room is kept for CapacityBuffer d/b"));
    }
    let plan = two("replicas: 2").plan(&pools(0, 9, ""));
    assert_eq!((removed(&plan).len(), only(&plan).verdict), (1, BufferOutcome::Filled));
    let plan = two("replicas: 0").plan(&pools(0, 9, ""));
    assert_eq!((removed(&plan).len(), only(&plan).verdict), (2, BufferOutcome::Empty));
    let plan = Cluster::new().idle("w0", "w").idle("w1", "w").plan(&pools(0, 9, ""));
    assert_eq!((removed(&plan).len(), plan.buffers.len()), (2, 0));
}

#[test]
fn chunks_hold_no_room_that_expendable_pods_run_in_and_are_none_themselves() {
    // A pod below the cut-off gives way to other pods, but not to chunks.
    let low = "apiVersion: v1\nkind: Pod\nmetadata: {name: low, namespace: d}\n\
         spec: {priority: -11, nodeName: w0, containers: [{name: c, resources: {requests: {cpu: 3}}}]}";
    let plan = with("replicas: 1").idle("w0", "w").with(low).plan(&pools(0, 9, ""));
    assert_eq!((only(&plan).on_nodes, only(&plan).on_new_machines), (0, 1));
    let expendable = TEMPLATE.replace("{containers", "{priority: -11, containers");
    let plan = Cluster::new().with(&expendable).with(&of_template("replicas: 1")).plan(&pools(0, 9, ""));
    assert_eq!((only(&plan).verdict, machines(&plan)), (BufferOutcome::Short, 0));
    assert_eq!(only(&plan).message, "1 chunk: 1 finds no room (Expendable)");
}

#[test]
fn chunks_are_spread_as_their_template_says_and_each_is_seen_by_the_others() {
    let apart = "apiVersion: v1\nkind: PodTemplate\nmetadata: {name: t, namespace: d}\n\
         template: {metadata: {labels: {app: x}}, spec: {containers: [{name: c, resources: {requests: {cpu: 1}}}], \
         affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: \
         [{labelSelector: {matchLabels: {app: x}}, topologyKey: kubernetes.io/hostname}]}}}}";
    let plan =
        Cluster::new().with(apart).with(&of_template("replicas: 3")).idle("w0", "w").plan(&pools(0, 9, ""));
    assert_eq!((only(&plan).on_nodes, machines(&plan)), (1, 2));
}

/// The only node runs a pod whose label `run` differs from the template's.
#[test]
fn label_keys_of_a_template_are_merged_into_its_selectors_as_in_a_pod() {
    for (terms, keys, on_nodes) in [
        ("podAntiAffinity", "", 0),
        ("podAntiAffinity", ", matchLabelKeys: [run]", 1),
        ("podAntiAffinity", ", mismatchLabelKeys: [run]", 0),
        ("podAntiAffinity", ", matchLabelKeys: [app]", 0),
        ("podAntiAffinity", ", matchLabelKeys: [other]", 0),
        ("podAffinity", "", 1),
        ("podAffinity", ", mismatchLabelKeys: [run]", 1),
    ] {
        let template = format!(
            "apiVersion: v1\nkind: PodTemplate\nmetadata: {{name: t, namespace: d}}\n\
             template: {{metadata: {{labels: {{app: x, run: two}}}}, spec: {{containers: [{{name: c, resources: {{requests: {{cpu: 1}}}}}}], \
             affinity: {{{terms}: {{requiredDuringSchedulingIgnoredDuringExecution: \
             [{{labelSelector: {{matchLabels: {{app: x}}}}, topologyKey: kubernetes.io/hostname{keys}}}]}}}}}}}}"
        );
        let other = "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: d, labels: {app: x, run: one}}\n\
                     spec: {nodeName: w0, containers: [{name: c}]}";
        let cluster =
            Cluster::new().with(&template).with(&of_template("replicas: 1")).idle("w0", "w").with(other);
        assert_eq!(only(&cluster.plan(&pools(0, 9, ""))).on_nodes, on_nodes, "{terms}{keys}");
    }
}

#[test]
fn no_more_chunks_are_provided_for_than_a_decision_can_bear() {
    let plan = with("limits: {cpu: 999999}").plan(&pools(0, 5, ""));
    let verdict = only(&plan);
    assert_eq!((verdict.verdict, verdict.chunks), (BufferOutcome::Short, Some(499_999)));
    let limit = "beyond the namespace's share of the limit of 10000 chunks for all buffers";
    assert!(verdict.message.ends_with(&format!("489999 {limit}")), "{}", verdict.message);
    // The second buffer is small, but an older buffer in the same namespace uses up the namespace's share.
    let second = buffer("c", "podTemplateRef: {name: t}, replicas: 2");
    let plan = with("limits: {cpu: 999999}").with(&second).plan(&pools(0, 5, ""));
    assert_eq!(plan.buffers[1].message, format!("2 chunks: 2 {limit}"));
}

#[test]
fn a_namespace_with_a_huge_buffer_leaves_the_others_their_share() {
    let elsewhere =
        |text: &str, namespace: &str| text.replace("namespace: d", &format!("namespace: {namespace}"));
    let small = elsewhere(&buffer("c", "podTemplateRef: {name: t}, replicas: 2"), "e");
    let large = elsewhere(&of_template("limits: {cpu: 999999}"), "f");
    let cluster = with("limits: {cpu: 999999}").with(&small).with(&large);
    let cluster = cluster.with(&elsewhere(TEMPLATE, "e")).with(&elsewhere(TEMPLATE, "f"));
    let plan = cluster.plan(&pools(0, 5, ""));
    let beyond = |at: usize| {
        let message = &plan.buffers[at].message;
        message.rsplit(", ").next().unwrap().split(' ').next().unwrap().parse::<i64>().ok()
    };
    assert_eq!(
        plan.buffers.iter().map(|one| one.chunks).collect::<Vec<_>>(),
        [499_999, 2, 499_999].map(Some)
    );
    assert_eq!([beyond(0), beyond(2)], [499_999 - 4_999; 2].map(Some));
    assert!(!plan.buffers[1].message.contains("exceed"), "{}", plan.buffers[1].message);
}
