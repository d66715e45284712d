//! The columns of the tables that kubectl prints for each kind (`pkg/printers/internalversion`).

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{
    kinds::Kind,
    object::{self, list, number, text},
};

/// A column: its name, its priority (1: shown only with `-o wide`), and the function that computes its value
/// for an object at a given time.
pub(super) type Column = (&'static str, u8, fn(&Value, Timestamp) -> Value);

/// The columns of a kind.
pub(super) fn columns(kind: &Kind) -> Vec<Column> {
    let own: &[Column] = match kind.plural {
        "nodes" => NODE,
        "pods" => POD,
        "deployments" => DEPLOYMENT,
        "replicasets" | "replicationcontrollers" => REPLICA_SET,
        "statefulsets" => &[NAME, ("Ready", 0, |one, _| ready_of_wanted(one)), AGE],
        "daemonsets" => DAEMON_SET,
        "jobs" => JOB,
        "poddisruptionbudgets" => BUDGET,
        "events" => EVENT,
        "leases" => &[NAME, ("Holder", 0, |one, _| one["spec"]["holderIdentity"].clone()), AGE],
        "namespaces" => &[NAME, ("Status", 0, |one, _| one["status"]["phase"].clone()), AGE],
        "configmaps" => &[NAME, DATA, AGE],
        "secrets" => &[NAME, ("Type", 0, |one, _| one["type"].clone()), DATA, AGE],
        _ => &[NAME, AGE],
    };
    own.to_vec()
}

/// The JSON type of a column.
pub(super) fn type_of(column: &str) -> &'static str {
    match column {
        "Up-to-date" | "Available" | "Desired" | "Current" | "Data" | "Allowed Disruptions" => "integer",
        _ => "string",
    }
}

const NAME: Column = ("Name", 0, |object, _| object["metadata"]["name"].clone());
const AGE: Column = ("Age", 0, |object, now| since(text(object, "/metadata/creationTimestamp"), now));
const DATA: Column =
    ("Data", 0, |object, _| json!(object["data"].as_object().map_or(0, serde_json::Map::len)));

const NODE: &[Column] = &[
    NAME,
    ("Status", 0, |node, _| {
        let ready = match text(object::condition(node, "Ready").unwrap_or(&Value::Null), "/status") {
            "True" => "Ready",
            "" => "Unknown",
            _ => "NotReady",
        };
        let cordon = if node["spec"]["unschedulable"] == true { ",SchedulingDisabled" } else { "" };
        json!(format!("{ready}{cordon}"))
    }),
    ("Roles", 0, |node, _| {
        let labels = node["metadata"]["labels"].as_object().into_iter().flatten();
        let roles: Vec<&str> =
            labels.filter_map(|(key, _)| key.strip_prefix("node-role.kubernetes.io/")).collect();
        or_none(&roles.join(","))
    }),
    AGE,
    ("Version", 0, |node, _| node["status"]["nodeInfo"]["kubeletVersion"].clone()),
    ("Internal-IP", 1, |node, _| address(node, "InternalIP")),
    ("External-IP", 1, |node, _| address(node, "ExternalIP")),
    ("OS-Image", 1, |node, _| or_none(text(node, "/status/nodeInfo/osImage"))),
    ("Kernel-Version", 1, |node, _| {
        let part = |name: &str| text(node, &format!("/status/nodeInfo/{name}"));
        json!(format!("{} ({})", part("kernelVersion"), part("architecture")))
    }),
    ("Container-Runtime", 1, |node, _| or_none(text(node, "/status/nodeInfo/containerRuntimeVersion"))),
];

const POD: &[Column] = &[
    NAME,
    ("Ready", 0, |pod, _| {
        let ready = list(pod, "/status/containerStatuses").iter().filter(|one| one["ready"] == true).count();
        json!(format!("{ready}/{}", list(pod, "/spec/containers").len()))
    }),
    ("Status", 0, |pod, _| pod_status(pod)),
    ("Restarts", 0, |_, _| json!("0")),
    AGE,
    ("IP", 1, |pod, _| or_none(text(pod, "/status/podIP"))),
    ("Node", 1, |pod, _| or_none(text(pod, "/spec/nodeName"))),
    ("Nominated Node", 1, |pod, _| or_none(text(pod, "/status/nominatedNodeName"))),
    ("Readiness Gates", 1, |_, _| or_none("")),
];

const DEPLOYMENT: &[Column] = &[
    NAME,
    ("Ready", 0, |one, _| ready_of_wanted(one)),
    ("Up-to-date", 0, |one, _| count(one, "/status/updatedReplicas")),
    ("Available", 0, |one, _| count(one, "/status/availableReplicas")),
    AGE,
];

const REPLICA_SET: &[Column] = &[
    NAME,
    ("Desired", 0, |one, _| count(one, "/spec/replicas")),
    ("Current", 0, |one, _| count(one, "/status/replicas")),
    ("Ready", 0, |one, _| count(one, "/status/readyReplicas")),
    AGE,
];

const DAEMON_SET: &[Column] = &[
    NAME,
    ("Desired", 0, |one, _| count(one, "/status/desiredNumberScheduled")),
    ("Current", 0, |one, _| count(one, "/status/currentNumberScheduled")),
    ("Ready", 0, |one, _| count(one, "/status/numberReady")),
    ("Up-to-date", 0, |one, _| count(one, "/status/updatedNumberScheduled")),
    ("Available", 0, |one, _| count(one, "/status/numberAvailable")),
    AGE,
];

const JOB: &[Column] = &[
    NAME,
    ("Status", 0, |one, _| json!(if object::holds(one, "Complete") { "Complete" } else { "Running" })),
    ("Completions", 0, |one, _| {
        json!(format!("{}/{}", count(one, "/status/succeeded"), count(one, "/spec/completions")))
    }),
    AGE,
];

const BUDGET: &[Column] = &[
    NAME,
    ("Min Available", 0, |one, _| shown(&one["spec"]["minAvailable"])),
    ("Max Unavailable", 0, |one, _| shown(&one["spec"]["maxUnavailable"])),
    ("Allowed Disruptions", 0, |one, _| count(one, "/status/disruptionsAllowed")),
    AGE,
];

const EVENT: &[Column] = &[
    ("Last Seen", 0, |one, now| {
        let times = ["/lastTimestamp", "/eventTime", "/metadata/creationTimestamp"];
        let last = times.iter().map(|at| text(one, at)).find(|time| !time.is_empty());
        since(last.unwrap_or(""), now)
    }),
    ("Type", 0, |one, _| one["type"].clone()),
    ("Reason", 0, |one, _| one["reason"].clone()),
    ("Object", 0, |one, _| {
        let kind = text(one, "/involvedObject/kind").to_lowercase();
        json!(format!("{kind}/{}", text(one, "/involvedObject/name")))
    }),
    ("Message", 0, |one, _| json!(text(one, "/message").trim())),
    ("Name", 1, |one, _| one["metadata"]["name"].clone()),
];

fn address(node: &Value, of: &str) -> Value {
    let found = list(node, "/status/addresses").iter().find(|one| one["type"] == of);
    or_none(found.map_or("", |one| text(one, "/address")))
}

fn pod_status(pod: &Value) -> Value {
    let phase = text(pod, "/status/phase");
    let scheduled = object::condition(pod, "PodScheduled").map_or("", |one| text(one, "/reason"));
    json!(match phase {
        _ if object::is_terminating(pod) && phase != "Succeeded" && phase != "Failed" => "Terminating",
        "Succeeded" => "Completed",
        "Pending" if scheduled == "SchedulingGated" => scheduled,
        phase => phase,
    })
}

fn ready_of_wanted(workload: &Value) -> Value {
    json!(format!("{}/{}", count(workload, "/status/readyReplicas"), count(workload, "/spec/replicas")))
}

fn count(object: &Value, pointer: &str) -> Value {
    json!(number(object, pointer).unwrap_or(0))
}

fn or_none(text: &str) -> Value {
    json!(if text.is_empty() { "<none>" } else { text })
}

fn shown(value: &Value) -> Value {
    match value {
        Value::Null => json!("N/A"),
        Value::String(text) => json!(text),
        other => json!(other.to_string()),
    }
}

/// The time since `time`, in the format of apimachinery's `duration.HumanDuration`.
fn since(time: &str, now: Timestamp) -> Value {
    let Ok(time) = time.parse::<Timestamp>() else { return json!("<unknown>") };
    json!(human(now.duration_since(time)))
}

fn human(passed: SignedDuration) -> String {
    let seconds = passed.as_secs().max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let pair = |whole: i64, unit: char, rest: i64, small: char| match rest {
        0 => format!("{whole}{unit}"),
        rest => format!("{whole}{unit}{rest}{small}"),
    };
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 => pair(minutes, 'm', seconds % 60, 's'),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => pair(hours, 'h', minutes % 60, 'm'),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => pair(days, 'd', hours % 24, 'h'),
        691_200..63_072_000 => format!("{days}d"),
        _ => pair(days / 365, 'y', days % 365, 'd'),
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::human;

    #[test]
    fn durations_are_written_as_kubectl_writes_them() {
        let table = [
            (-5, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (323, "5m23s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (11_100, "3h5m"),
            (28_800, "8h"),
            (172_800, "2d"),
            (180_000, "2d2h"),
            (691_200, "8d"),
            (63_072_000, "2y"),
        ];
        for (seconds, expected) in table {
            assert_eq!(human(SignedDuration::from_secs(seconds)), expected, "{seconds}");
        }
    }
}
