//! All filters assume that DaemonSet pods are on a node before other pods arrive. This applies to new nodes,
//! to nodes that are being created, and to young nodes.

use model::Plan;
use model::plan::PodOutcome;
use settings::{self, Config, Needs};

use crate::cluster::{Cluster, inventory, machine};

use PodOutcome::{ExistingNode, NewNode, NoPoolFits, UpcomingNode};

/// Machines of 4 cores.
fn pool(own: &str) -> Config {
    let text = format!(
        "[[pool]]\nname = \"w\"\nmax = 9\ncores = 4\nmemory = \"8GiB\"\n\
         allocatable = {{ cpu = \"4\", memory = \"8Gi\", pods = 10 }}\n{own}\n"
    );
    settings::parse("test", &text, Needs::Plan).unwrap()
}

/// A node of 4 CPUs that was created at this time.
fn node(name: &str, created: &str, ready: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Node\nmetadata:\n  name: {name}\n  creationTimestamp: {created}\n  \
         labels: {{pve-autoscaler/pool: w, kubernetes.io/hostname: {name}}}\n\
         status:\n  allocatable: {{cpu: 4, memory: 8Gi, pods: 10}}\n  conditions: [{{type: Ready, status: \"{ready}\"}}]"
    )
}

const LATELY: &str = "2026-01-01T11:58:00Z";

/// A DaemonSet in namespace `d`. Its pods have the label `app` with the DaemonSet's name as the value. They
/// request 1 CPU unless `spec` has containers.
fn set(name: &str, spec: &str) -> String {
    format!(
        "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {{name: {name}, namespace: d, uid: {name}}}\n\
         spec: {{template: {{metadata: {{labels: {{app: {name}}}}}, spec: {{{}}}}}}}",
        with_containers(spec)
    )
}

/// This pod spec. If it has no containers, one that requests 1 CPU is added.
fn with_containers(spec: &str) -> String {
    if spec.contains("containers:") {
        return spec.to_owned();
    }
    format!("containers: [{{name: c, resources: {{requests: {{cpu: 1}}}}}}], {spec}")
}

/// A pending pod `web-1` with `app: web` that requests 1 CPU.
fn web(namespace: &str, spec: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web-1\n  namespace: {namespace}\n  labels: {{app: web}}\n  \
         ownerReferences: [{{apiVersion: apps/v1, kind: ReplicaSet, name: rs, uid: rs, controller: true}}]\n\
         spec: {{{}}}",
        with_containers(spec)
    )
}

/// The DaemonSet's pod for a node. It is pending if `waits` is set; otherwise it runs on the node.
fn its_pod(set: &str, node: &str, waits: bool) -> String {
    let fields = format!("[{{key: metadata.name, operator: In, values: [{node}]}}]");
    let place = if waits {
        format!(
            "affinity: {{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: \
             {{nodeSelectorTerms: [{{matchFields: {fields}}}]}}}}}}"
        )
    } else {
        format!("nodeName: {node}")
    };
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {set}-{node}\n  namespace: d\n  labels: {{app: {set}}}\n  \
         ownerReferences: [{{apiVersion: apps/v1, kind: DaemonSet, name: {set}, uid: {set}, controller: true}}]\n\
         spec: {{{}}}",
        with_containers(&place)
    )
}

/// Required affinity or anti-affinity to pods of this app on the same node.
fn beside(kind: &str, app: &str, more: &str) -> String {
    format!(
        "affinity: {{{kind}: {{requiredDuringSchedulingIgnoredDuringExecution: [{{topologyKey: kubernetes.io/hostname, \
         labelSelector: {{matchLabels: {{app: {app}}}}}{more}}}]}}}}"
    )
}

fn near(app: &str) -> String {
    beside("podAffinity", app, "")
}

fn apart(app: &str) -> String {
    beside("podAntiAffinity", app, "")
}

fn cpu(amount: &str, more: &str) -> String {
    format!("containers: [{{name: c, resources: {{requests: {{cpu: {amount}}}}}{more}}}]")
}

fn port(amount: &str, number: u32) -> String {
    cpu(amount, &format!(", ports: [{{containerPort: {number}, hostPort: {number}}}]"))
}

fn verdict(plan: &Plan) -> PodOutcome {
    plan.pods.iter().find(|one| one.pod.ends_with("/web-1")).unwrap().verdict
}

/// What happens to the pod if the cluster contains nothing but these DaemonSets.
fn on_a_new_node(sets: &[String], web: &str) -> PodOutcome {
    let cluster = sets.iter().fold(Cluster::new(), |all, set| all.with(set));
    verdict(&cluster.with(web).plan(&pool("taints = [\"t:NoSchedule\"]")))
}

const TOLERATES: &str = "tolerations: [{operator: Exists}]";

#[test]
fn a_new_node_has_the_pods_of_daemon_sets_on_it_for_every_filter() {
    let agent = |spec: &str| set("agent", &format!("{TOLERATES}, {spec}"));
    let here = |spec: &str| web("d", &format!("{TOLERATES}, {spec}"));
    let elsewhere = |spec: &str| web("e", &format!("{TOLERATES}, {spec}"));
    let listed = beside("podAffinity", "agent", ", namespaces: [d]");
    let all_namespaces = beside("podAntiAffinity", "agent", ", namespaceSelector: {}");
    let picky = "nodeSelector: {other: pool}";
    let claims = "resourceClaims: [{name: gpu, resourceClaimTemplateName: t}]";
    for (what, agent, web, expected) in [
        ("the web pod repels the agent", agent(""), here(&apart("agent")), NoPoolFits),
        ("the agent repels the web pod", agent(&apart("web")), here(""), NoPoolFits),
        ("neither pod selects the other", agent(&apart("db")), here(&apart("db")), NewNode),
        ("the web pod needs the agent beside it", agent(""), here(&near("agent")), NewNode),
        ("the agent does not tolerate the pool's taint", set("agent", ""), here(&near("agent")), NoPoolFits),
        (
            "an agent that lacks the toleration repels no pod",
            set("agent", ""),
            here(&apart("agent")),
            NewNode,
        ),
        ("an agent that selects other nodes is not in the way", agent(picky), here(&apart("agent")), NewNode),
        ("the affinity applies to another namespace", agent(""), elsewhere(&near("agent")), NoPoolFits),
        ("the affinity names the agent's namespace", agent(""), elsewhere(&listed), NewNode),
        ("the anti-affinity applies to every namespace", agent(""), elsewhere(&all_namespaces), NoPoolFits),
        ("both pods use the same port", agent(&port("1", 80)), here(&port("1", 80)), NoPoolFits),
        ("the pods use different ports", agent(&port("1", 80)), here(&port("1", 81)), NewNode),
        ("the node has room for both pods", agent(""), here(&cpu("3", "")), NewNode),
        ("the node lacks room for both pods", agent(""), here(&cpu("3001m", "")), NoPoolFits),
        (
            "the node lacks room for both pods, and the agent has claims",
            agent(claims),
            here(&cpu("3001m", "")),
            NoPoolFits,
        ),
        ("the agent is larger than any node", agent(&cpu("5", "")), here(&cpu("4", "")), NewNode),
        (
            "the agent waits for the web pod on its node",
            agent(&near("web")),
            here(&cpu("3001m", "")),
            NoPoolFits,
        ),
        ("an agent that waits is not in the way", agent(&near("web")), here(&apart("agent")), NewNode),
    ] {
        assert_eq!(on_a_new_node(&[agent], &web), expected, "{what}");
    }
}

#[test]
fn what_is_in_the_way_is_named() {
    let plan = Cluster::new().with(&set("agent", "")).with(&web("d", &apart("agent"))).plan(&pool(""));
    let why = &plan.pods[0].reasons()[0];
    assert_eq!(why.reason, "PodAffinity");
    assert!(why.message.ends_with(": each new node runs a pod of DaemonSet d/agent"), "{}", why.message);
    // The pod would not fit without the DaemonSet's pod either, so the DaemonSet is not named.
    let plan = Cluster::new().with(&set("agent", "")).with(&web("d", &cpu("9", ""))).plan(&pool(""));
    assert_eq!(plan.pods[0].reasons()[0].message, "wants 9 CPU, 3 free");
}

#[test]
fn of_daemon_sets_that_get_in_each_others_way_the_first_is_there() {
    let first = "priorityClassName: system-node-critical";
    let class = "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: system-node-critical}\nvalue: 2000001000";
    let large = |own: &str| format!("{TOLERATES}, {}, {own}", port("2", 80));
    for (a, b) in [(large(""), large(first)), (large(first), large(""))] {
        let sets = [class.to_owned(), set("a", &a), set("b", &b)];
        let here = |spec: &str| on_a_new_node(&sets, &web("d", &format!("{TOLERATES}, {spec}")));
        assert_eq!(here(&cpu("2", "")), NewNode);
        assert_eq!(here(&cpu("2001m", "")), NoPoolFits);
        let there = if a.contains(first) { "a" } else { "b" };
        for one in ["a", "b"] {
            let expected = if one == there { NewNode } else { NoPoolFits };
            assert_eq!(here(&near(one)), expected, "{one} of {there}");
        }
    }
    // The anti-affinity of `a`'s pods keeps the pods of `b` off the node.
    let sets = [set("a", &format!("{TOLERATES}, {}", apart("b"))), set("b", TOLERATES)];
    assert_eq!(on_a_new_node(&sets, &web("d", &format!("{TOLERATES}, {}", cpu("3", "")))), NewNode);
}

/// A constraint that spreads the pods of this app over nodes, with a skew of one.
fn spread(app: &str) -> String {
    format!(
        "topologySpreadConstraints: [{{maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, \
         labelSelector: {{matchLabels: {{app: {app}}}}}}}]"
    )
}

#[test]
fn pods_of_daemon_sets_count_for_spread() {
    let full = |taint: &str| Cluster::new().node("a", "w", taint, "True").pod("fills", "3", "a");
    let waits = web("d", &spread("web"));
    let both = |cluster: Cluster| cluster.with(&set("web", "")).with(&waits);
    // No pod of the DaemonSet runs on the tainted node, so a second pod on the new node would exceed the
    // skew.
    let tainted = full("{key: t, effect: NoSchedule}");
    assert_eq!(verdict(&both(tainted).plan(&pool(""))), NoPoolFits);
    // Each node has one DaemonSet pod, and the pending pod may be the second pod on one of them.
    assert_eq!(verdict(&both(full("").with(&its_pod("web", "a", false))).plan(&pool(""))), NewNode);
    let fuller = full("").pod("more", "1", "a");
    assert_eq!(verdict(&fuller.with(&waits).plan(&pool(""))), NewNode);
}

#[test]
fn a_machine_on_its_way_will_have_them_too() {
    let on_its_way = Cluster::new().with(&inventory(&machine("m", "Booting", false)));
    let registered = Cluster::new().with(&node("m", LATELY, "False"));
    for coming in [on_its_way, registered] {
        let with = |spec: &str| coming.clone().with(&set("agent", "")).with(&web("d", spec)).plan(&pool(""));
        assert_eq!(verdict(&with(&cpu("3", ""))), UpcomingNode);
        assert_eq!(verdict(&with(&near("agent"))), UpcomingNode);
        assert_eq!(verdict(&with(&apart("agent"))), NoPoolFits);
        assert_eq!(verdict(&with(&cpu("3001m", ""))), NoPoolFits);
    }
}

#[test]
fn what_a_node_has_before_it_is_ready_stays_on_it() {
    let registered = Cluster::new().with(&node("m", LATELY, "False"));
    let with_pod =
        registered.pod("early", "2", "m").with(&set("agent", "")).with(&its_pod("agent", "m", false));
    let waits = |amount: &str| with_pod.clone().with(&web("d", &cpu(amount, ""))).plan(&pool(""));
    assert_eq!(verdict(&waits("1")), UpcomingNode);
    assert_eq!(verdict(&waits("1001m")), NewNode);
}

#[test]
fn a_young_node_is_still_to_get_them_and_an_old_one_is_as_it_is() {
    let at = |created: &str| Cluster::new().with(&node("a", created, "True")).with(&set("agent", ""));
    let (young, old) = (|| at(LATELY), || at("2026-01-01T09:00:00Z"));
    let with = |cluster: Cluster, spec: &str| verdict(&cluster.with(&web("d", spec)).plan(&pool("")));
    assert_eq!(with(young(), &cpu("3", "")), ExistingNode);
    assert_eq!(with(young(), &cpu("3001m", "")), NoPoolFits);
    assert_eq!(with(young(), &near("agent")), ExistingNode);
    assert_eq!(with(young(), &apart("agent")), NoPoolFits);
    // The young node has the DaemonSet's pod already.
    assert_eq!(with(young().with(&its_pod("agent", "a", false)), &cpu("3", "")), ExistingNode);
    assert_eq!(with(old(), &cpu("4", "")), ExistingNode);
    assert_eq!(with(old(), &near("agent")), NewNode);
    // A pod of the DaemonSet that is pending for the old node will run there.
    let waiting = || old().with(&its_pod("agent", "a", true));
    assert_eq!(with(waiting(), &cpu("3", "")), ExistingNode);
    assert_eq!(with(waiting(), &cpu("3001m", "")), NoPoolFits);
    assert_eq!(with(waiting(), &near("agent")), ExistingNode);
    // A DaemonSet pod for which there is no room does not keep other pods out.
    let full = || waiting().pod("fills", "3500m", "a");
    assert_eq!(with(full(), &cpu("500m", "")), ExistingNode);
}
