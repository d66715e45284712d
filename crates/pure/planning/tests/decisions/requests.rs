//! ProvisioningRequests: room for all of their pods, or for none.

use model::Plan;
use model::plan::{PodOutcome, RequestOutcome, RequestVerdict};

use crate::cluster::{Cluster, of_pool, pod_verdict, pools, removed};

const CHECK: &str = "check-capacity.autoscaling.x-k8s.io";
const ATOMIC: &str = "best-effort-atomic-scale-up.autoscaling.x-k8s.io";
const TEMPLATE: &str = "apiVersion: v1\nkind: PodTemplate\nmetadata: {name: t, namespace: d}\n\
     template: {spec: {containers: [{name: c, resources: {requests: {cpu: 3, memory: 1Gi}}}]}}";

/// A request for this many pods, each of which takes up most of a node. It was created at 11:30, half an hour
/// ago.
fn request(name: &str, class: &str, count: u32, status: &str) -> String {
    format!(
        "apiVersion: autoscaling.x-k8s.io/v1\nkind: ProvisioningRequest\n\
         metadata: {{name: {name}, namespace: d, uid: {name}, creationTimestamp: \"2026-01-01T11:30:00Z\"}}\n\
         spec: {{provisioningClassName: {class}, podSets: [{{podTemplateRef: {{name: t}}, count: {count}}}]}}\n\
         status: {{conditions: [{status}]}}"
    )
}

fn is(kind: &str, minute: u32) -> String {
    format!(
        "{{type: {kind}, status: \"True\", reason: R, message: \"\", lastTransitionTime: \"2026-01-01T11:{minute}:00Z\"}}"
    )
}

fn with(class: &str, count: u32, status: &str) -> Cluster {
    Cluster::new().with(TEMPLATE).with(&request("r", class, count, status))
}

fn only(plan: &Plan) -> &RequestVerdict {
    assert_eq!(plan.requests.len(), 1);
    &plan.requests[0]
}

fn machines(plan: &Plan) -> usize {
    plan.scale_up.iter().map(|pool| pool.machines.len()).sum()
}

/// A pod of the request `r`.
fn consumer(name: &str, node: &str) -> String {
    let node = if node.is_empty() { String::new() } else { format!("nodeName: {node}, ") };
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: d, annotations: {{autoscaling.x-k8s.io/consume-provisioning-request: r}}}}\n\
         spec: {{{node}containers: [{{name: c, resources: {{requests: {{cpu: 3, memory: 1Gi}}}}}}]}}"
    )
}

#[test]
fn machines_are_made_for_all_of_an_atomic_request_or_none() {
    let mut config = of_pool("", "");
    config.pools[0].max = 3;
    for (count, outcome, made) in [
        (1, RequestOutcome::Provisioned, 1),
        (3, RequestOutcome::Provisioned, 3),
        (4, RequestOutcome::NotFound, 0),
    ] {
        let plan = with(ATOMIC, count, "").plan(&config);
        assert_eq!((only(&plan).verdict, machines(&plan)), (outcome, made), "{count}");
        assert!(plan.pods.is_empty(), "the request's imagined pods are not listed");
    }
    let plan = with(ATOMIC, 4, "").plan(&config);
    assert!(
        only(&plan).message.starts_with("there is no room for all of its 4 pods"),
        "{}",
        only(&plan).message
    );
    // Two nodes exist already.
    let plan = with(ATOMIC, 3, "").idle("w0", "w").idle("w1", "w").plan(&config);
    assert_eq!((only(&plan).verdict, machines(&plan)), (RequestOutcome::Provisioned, 1));
    let plan = with(ATOMIC, 2, "").idle("w0", "w").idle("w1", "w").plan(&config);
    assert_eq!((only(&plan).verdict, machines(&plan)), (RequestOutcome::Found, 0));
}

#[test]
fn a_check_of_capacity_makes_nothing_and_counts_what_is_there() {
    for (count, outcome) in
        [(1, RequestOutcome::Found), (2, RequestOutcome::Found), (3, RequestOutcome::NotFound)]
    {
        let plan = with(CHECK, count, "").idle("w0", "w").idle("w1", "w").plan(&pools(0, 9, ""));
        assert_eq!((only(&plan).verdict, machines(&plan)), (outcome, 0), "{count}");
    }
    // Pods are placed before requests. A machine that this decision creates for a pod does not count as room
    // for a request of this class, because it does not exist yet.
    let plan = with(CHECK, 1, "").idle("w0", "w").pod("p", "3", "").plan(&pools(0, 9, ""));
    assert_eq!(
        (only(&plan).verdict, pod_verdict(&plan, "d/p")),
        (RequestOutcome::NotFound, PodOutcome::ExistingNode)
    );
    let plan = with(CHECK, 1, "").pod("p", "1", "").plan(&pools(0, 9, ""));
    assert_eq!((only(&plan).verdict, machines(&plan)), (RequestOutcome::NotFound, 1));
}

#[test]
fn of_two_requests_the_older_one_is_met_and_the_other_leaves_it_alone() {
    let mut config = of_pool("", "");
    config.pools[0].max = 3;
    let old = request("z", ATOMIC, 2, "").replace("T11:30", "T11:00");
    let plan = Cluster::new().with(TEMPLATE).with(&request("a", ATOMIC, 2, "")).with(&old).plan(&config);
    let shown: Vec<_> = plan.requests.iter().map(|one| (one.request.as_str(), one.verdict)).collect();
    assert_eq!(shown, [("d/z", RequestOutcome::Provisioned), ("d/a", RequestOutcome::NotFound)]);
    assert_eq!(machines(&plan), 2);
}

#[test]
fn pods_of_a_request_make_no_machine_until_it_is_provisioned() {
    for (status, outcome) in [
        (String::new(), PodOutcome::AwaitsRequest),
        (is("Accepted", 50), PodOutcome::AwaitsRequest),
        (is("Failed", 50), PodOutcome::AwaitsRequest),
        (is("Provisioned", 55), PodOutcome::NewNode),
        (format!("{}, {}", is("Provisioned", 31), is("BookingExpired", 41)), PodOutcome::NewNode),
    ] {
        // A request that only checks capacity creates no machine, so any new machine is for the pod.
        let plan = with(CHECK, 1, &status).with(&consumer("p", "")).plan(&pools(0, 9, ""));
        assert_eq!(pod_verdict(&plan, "d/p"), outcome, "{status}");
    }
    // In the first case, the pod names a request that does not exist. In the second case, the cluster has no
    // requests at all.
    let other = consumer("p", "").replace("request: r", "request: other");
    let plan = with(CHECK, 1, "").with(&other).plan(&pools(0, 9, ""));
    assert_eq!(pod_verdict(&plan, "d/p"), PodOutcome::AwaitsRequest);
    let plan = Cluster::new().with(&consumer("p", "")).plan(&pools(0, 9, ""));
    assert_eq!(pod_verdict(&plan, "d/p"), PodOutcome::NewNode);
    let old =
        consumer("p", "").replace("autoscaling.x-k8s.io/consume", "cluster-autoscaler.kubernetes.io/consume");
    assert_eq!(
        pod_verdict(&with(CHECK, 1, "").with(&old).plan(&pools(0, 9, "")), "d/p"),
        PodOutcome::AwaitsRequest
    );
}

#[test]
fn promised_room_is_held_for_ten_minutes_less_what_its_pods_took() {
    let two = |minute: u32| with(ATOMIC, 2, &is("Provisioned", minute)).idle("w0", "w").idle("w1", "w");
    let plan = two(51).plan(&pools(0, 9, ""));
    assert_eq!((only(&plan).verdict, removed(&plan).len()), (RequestOutcome::Booked, 0));
    let said = plan.nodes[0].message.clone().unwrap();
    assert_eq!(said, "its room is kept for ProvisioningRequest d/r");
    // No further machine is created for a request that has been granted.
    assert_eq!(machines(&with(ATOMIC, 2, &is("Provisioned", 51)).plan(&pools(0, 9, ""))), 0);
    let plan = two(51).with(&consumer("p", "w0")).plan(&pools(0, 9, ""));
    assert_eq!((only(&plan).verdict, removed(&plan).len()), (RequestOutcome::Booked, 0));
    let plan = two(51).with(&consumer("p", "w0")).with(&consumer("q", "w1")).plan(&pools(0, 9, ""));
    assert_eq!(only(&plan).verdict, RequestOutcome::Consumed);
    let plan = two(49).plan(&pools(0, 9, ""));
    assert_eq!((only(&plan).verdict, removed(&plan).len()), (RequestOutcome::BookingExpired, 2));
    let over = format!("{}, {}", is("Provisioned", 51), is("BookingExpired", 52));
    let plan = with(ATOMIC, 2, &over).idle("w0", "w").plan(&pools(0, 9, ""));
    assert_eq!((only(&plan).verdict, removed(&plan).len()), (RequestOutcome::Over, 1));
}

#[test]
fn a_real_pod_replaces_a_pod_of_the_set_that_it_belongs_to() {
    let small = TEMPLATE.replace("name: t,", "name: small,").replace("cpu: 3", "cpu: 2");
    let both = request("r", ATOMIC, 1, &is("Provisioned", 55))
        .replace("podSets: [", "podSets: [{podTemplateRef: {name: t}, count: 1}, ");
    let both = both.replacen(
        "{podTemplateRef: {name: t}, count: 1}]",
        "{podTemplateRef: {name: small}, count: 1}]",
        1,
    );
    let cluster = Cluster::new().with(TEMPLATE).with(&small).with(&both).idle("w0", "w").idle("w1", "w");
    for (cpu, removes) in [("2", 0), ("1", 1)] {
        let real = consumer("p", "w1").replace("cpu: 3", &format!("cpu: {cpu}"));
        let plan = cluster.clone().with(&real).plan(&pools(0, 9, ""));
        assert_eq!((only(&plan).verdict, removed(&plan).len()), (RequestOutcome::Booked, removes), "{cpu}");
    }
}

#[test]
fn requests_for_too_many_pods_take_turns() {
    let config = of_pool("", "");
    let cluster =
        with(ATOMIC, 9_999, "").with(&request("s", ATOMIC, 2, "")).with(&request("t", CHECK, 1, ""));
    let outcomes = |time: &str| {
        let mut snapshot = cluster.snapshot();
        snapshot.time = time.parse().unwrap();
        let plan = planning::plan(&snapshot, &config);
        plan.requests.iter().map(|one| one.verdict == RequestOutcome::Unfinished).collect::<Vec<_>>()
    };
    // Whether the requests r, s and t are postponed. The request whose turn it is comes first.
    assert_eq!(outcomes("2026-01-01T12:00:00Z"), [false, true, false]);
    assert_eq!(outcomes("2026-01-01T12:01:00Z"), [true, false, false]);
    assert_eq!(outcomes("2026-01-01T12:02:59Z"), [false, true, false]);
    assert_eq!(outcomes("2026-01-01T12:04:00Z"), [true, false, false]);
}

#[test]
fn a_request_waits_if_others_are_for_too_many_pods_and_keeps_what_it_has() {
    let config = of_pool("", "");
    let second = |count, status: &str| {
        let plan = with(ATOMIC, 9_999, "").with(&request("s", ATOMIC, count, status)).plan(&config);
        plan.requests.into_iter().find(|one| one.request == "d/s").unwrap()
    };
    assert_eq!(second(1, "").verdict, RequestOutcome::Provisioned);
    let waits = second(2, "");
    assert_eq!(waits.verdict, RequestOutcome::Unfinished, "{}", waits.message);
    assert!(waits.message.contains("more than 10000 pods"), "{}", waits.message);
    assert_eq!(second(2, &is("Provisioned", 55)).verdict, RequestOutcome::Booked);
    let granted = second(2_000_000_000, &is("Provisioned", 55));
    assert_eq!(granted.verdict, RequestOutcome::Booked);
    assert!(granted.message.contains("the limit is 10000, so no room is held"), "{}", granted.message);
    let broken = second(10_001, "");
    assert_eq!(broken.verdict, RequestOutcome::Broken);
    assert_eq!(broken.message, "it is for 10001 pods; the limit is 10000");
}

#[test]
fn a_granted_request_stays_granted_if_its_pod_template_is_gone() {
    let granted = request("r", ATOMIC, 2, &is("Provisioned", 55));
    let plan = Cluster::new().with(&granted).plan(&of_pool("", ""));
    assert_eq!(only(&plan).verdict, RequestOutcome::Booked, "{}", only(&plan).message);
}

#[test]
fn what_cannot_be_met_says_why() {
    // A PodTemplate may be seen after the request.
    for class in [CHECK, ATOMIC] {
        let at = |time: &str| {
            let request = request("r", class, 1, "").replace("T11:30:00", time);
            only(&Cluster::new().with(&request).plan(&pools(0, 9, ""))).clone()
        };
        let young = at("T11:58:01");
        assert_eq!(young.verdict, RequestOutcome::Unfinished);
        assert_eq!(
            young.message,
            "there is no PodTemplate `t` in namespace `d` yet; a later round checks again"
        );
        assert_eq!(at("T11:58:00").verdict, RequestOutcome::Broken);
    }
    let broken = Cluster::new().with(&request("r", ATOMIC, 1, "")).plan(&pools(0, 9, ""));
    assert_eq!(only(&broken).verdict, RequestOutcome::Broken);
    assert_eq!(only(&broken).message, "there is no PodTemplate `t` in namespace `d`");
    let other = with("queued.example.com", 1, "").plan(&pools(0, 9, ""));
    assert_eq!((only(&other).verdict, machines(&other)), (RequestOutcome::NotOurs, 0));
    let huge = Cluster::new()
        .with(&TEMPLATE.replace("cpu: 3", "cpu: 64"))
        .with(&request("r", ATOMIC, 1, ""))
        .plan(&pools(0, 9, ""));
    assert_eq!(only(&huge).verdict, RequestOutcome::NotFound);
    assert!(only(&huge).message.contains("w: "), "{}", only(&huge).message);
    let late = |seconds: u32| {
        let parameters = format!("spec: {{parameters: {{ValidUntilSeconds: \"{seconds}\"}}, ");
        let mut config = of_pool("", "");
        config.pools[0].max = 0;
        let cluster =
            Cluster::new().with(TEMPLATE).with(&request("r", ATOMIC, 1, "").replace("spec: {", &parameters));
        only(&cluster.plan(&config)).verdict
    };
    assert_eq!((late(1799), late(1801)), (RequestOutcome::Expired, RequestOutcome::NotFound));
    let old = request("r", CHECK, 1, "").replace("2026-01-01T11:30", "2025-12-25T11:30");
    assert_eq!(
        only(&Cluster::new().with(TEMPLATE).with(&old).plan(&pools(0, 9, ""))).verdict,
        RequestOutcome::Expired
    );
}
