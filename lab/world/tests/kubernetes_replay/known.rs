//! Where the embedded cluster's answers differ from the recorded ones, and why.

/// Each entry: a scenario, the numbers of the exchanges that differ, and the reason.
pub const KNOWN: &[(&str, &[u64], &str)] = &[
    (
        "01-errors",
        &[50, 66, 67, 68],
        "the API server names a cause two or four times, the embedded cluster names it once",
    ),
    ("01-errors", &[51], "fields have no managers, so a server-side apply conflicts with none"),
    ("01-errors", &[60], NO_SCHEMA),
    ("01b-evictions-budget", &[25], "the controller of budgets writes no events"),
    ("02-list-watch", &[3, 12], "no CA is published into the namespaces, so this page is the last one"),
    ("02-list-watch", &[36], "the kubelets of the embedded nodes report another system"),
    (
        "02-list-watch",
        &[66],
        "the nodes' kubelets of the recording had registered before its watch cache began",
    ),
    ("02b-expired-and-restart", &[9, 10, 12], "the API server works completely as soon as it is back"),
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
    ("03-pods-scheduling", 2, &["cpu-and-taint 1", "other-scheduler 1"], "these never ran in the recording"),
    ("03-pods-scheduling", 2, &["vol-now 1"], "the recording ends while PodGC is at work"),
    ("04-node-join-to-removal", 3, &["csr-(chance) 1"], NO_REQUESTS),
    ("04-node-join-to-removal", 5, &["events of worker-1 1"], "the end of a Node is reported at once"),
    ("04-node-join-to-removal", 27, &["n4-ds-(chance) 1"], "the daemon pod is bound before the watch begins"),
    (
        "04b-node-dead-with-pods",
        4,
        &["events of five-minutes-(chance) 1"],
        "the cancellation of an eviction for a taint is not reported",
    ),
    (
        "05-bootstrap-tokens-and-join",
        2,
        &["cluster-info 1"],
        "the signatures of tokens that are made within ten milliseconds arrive together",
    ),
    (
        "07-leases",
        23,
        &["apiserver-wlv32tlttr4jl3gtroqexyxapa 1", "kube-controller-manager 1", "kube-scheduler 1"],
        NO_LEADERS,
    ),
];

const NO_SCHEMA: &str = "the embedded cluster has no schema: types of fields are not checked";
const KUBELET_EVENTS: &str = "kubelets write no events";
const NO_REQUESTS: &str = "a join makes no certificate signing request";
const NO_LEADERS: &str = "the components of the control plane hold no Leases";

/// Each entry: a scenario, the numbers of the exchanges that are skipped, and the reason.
pub const SKIPPED: &[(&str, &[u64], &str)] = &[
    ("04c-node-reboot-and-reset", &[11], "refused by kubeadm's own checks of the guest"),
    ("05-bootstrap-tokens-and-join", &[61], "refused by kubeadm's own checks of the guest"),
];
