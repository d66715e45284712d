//! Where the embedded cluster's answers differ from the recorded ones, and why.

/// Each entry: a scenario, the numbers of the exchanges that differ, and the reason.
pub const KNOWN: &[(&str, &[u64], &str)] = &[
    (
        "01-errors",
        &[50, 66, 67, 68],
        "the API server repeats a cause two or four times; the embedded cluster names it once",
    ),
    ("01-errors", &[51], "embedded objects have no field managers, so a server-side apply never conflicts"),
    ("01-errors", &[60], NO_SCHEMA),
    ("01b-evictions-budget", &[25], "the embedded disruption controller writes no events"),
    (
        "02-list-watch",
        &[3, 12],
        "the embedded cluster publishes no CA to the namespaces, so this page is the last one",
    ),
    ("02-list-watch", &[36], "the embedded nodes report a different operating system"),
    (
        "02-list-watch",
        &[66],
        "in the recording, the kubelets had registered before the watch cache was started",
    ),
    (
        "02b-expired-and-restart",
        &[9, 10, 12],
        "the embedded API server is fully functional as soon as it is back",
    ),
    ("04-node-join-to-removal", &[42], KUBELET_EVENTS),
    ("04b-node-dead-with-pods", &[11], "the hash of a revision differs"),
    ("04b-node-dead-with-pods", &[15], KUBELET_EVENTS),
    ("04b-node-dead-with-pods", &[16], NO_REQUESTS),
    ("04c-node-reboot-and-reset", &[6], KUBELET_EVENTS),
    ("05-bootstrap-tokens-and-join", &[1, 12], "the secret of the token wu6816 is replaced in the recording"),
    ("05-bootstrap-tokens-and-join", &[30, 31], "the recorded cluster has its own configuration"),
    (
        "05-bootstrap-tokens-and-join",
        &[34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45],
        "the permissions of bootstrap tokens are built in, without Roles",
    ),
    ("05-bootstrap-tokens-and-join", &[62], NO_REQUESTS),
    ("07-leases", &[21], NO_LEADERS),
];

/// Each entry: a scenario, the number of a watch, the objects for which the watch reports changes that differ
/// from the recorded ones, and the reason.
pub const STORIES: &[(&str, u64, &[&str], &str)] = &[
    (
        "03-pods-scheduling",
        2,
        &["cpu-and-taint 1", "other-scheduler 1"],
        "these pods never ran in the recording",
    ),
    ("03-pods-scheduling", 2, &["vol-now 1"], "the recording ends while PodGC is at work"),
    ("04-node-join-to-removal", 3, &["csr-(chance) 1"], NO_REQUESTS),
    (
        "04-node-join-to-removal",
        5,
        &["events of worker-1 1"],
        "the embedded cluster reports the removal of a Node at once",
    ),
    (
        "04-node-join-to-removal",
        27,
        &["n4-ds-(chance) 1"],
        "the embedded DaemonSet's pod is bound before the watch begins",
    ),
    (
        "04b-node-dead-with-pods",
        4,
        &["events of five-minutes-(chance) 1"],
        "the embedded cluster does not report that the eviction for a taint was cancelled",
    ),
    (
        "05-bootstrap-tokens-and-join",
        2,
        &["cluster-info 1"],
        "the signatures of tokens that are created within 10 ms of each other arrive together",
    ),
    (
        "07-leases",
        23,
        &["apiserver-wlv32tlttr4jl3gtroqexyxapa 1", "kube-controller-manager 1", "kube-scheduler 1"],
        NO_LEADERS,
    ),
];

const NO_SCHEMA: &str = "the embedded cluster has no schema, so the types of fields are not checked";
const KUBELET_EVENTS: &str = "the embedded kubelets write no events";
const NO_REQUESTS: &str = "an embedded join creates no certificate signing request";
const NO_LEADERS: &str = "the embedded control-plane components hold no Leases";

/// Each entry: a scenario, the numbers of the exchanges that are skipped, and the reason.
pub const SKIPPED: &[(&str, &[u64], &str)] = &[
    ("04c-node-reboot-and-reset", &[11], "kubeadm's preflight checks in the guest failed"),
    ("05-bootstrap-tokens-and-join", &[61], "kubeadm's preflight checks in the guest failed"),
];
