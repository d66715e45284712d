//! Pods, and the templates of DaemonSets.

use serde_json::Value;

use super::devices;
use super::fields::{Fields, amounts};
use super::node::effect;
use super::selector::{label_selector, node_selector, node_term};
use super::storage::in_tree;
use kubernetes::convert::daemon_tolerations;
use model::devices::ExtendedRequest;
use model::features::Feature;
use model::pod::{
    Affinity, HostPort, Owner, Pod, PodAffinityTerm, PodPhase, Scheduling, SpreadConstraint, Toleration,
    Volume, VolumeSource, Weighted,
};
use model::resources::Resources;

/// A Pod.
pub(super) fn pod(pod: &Pod) -> Value {
    let deletion = pod.deletion.as_ref();
    let metadata = metadata(pod)
        .with("namespace", pod.namespace.as_str())
        .text("name", &pod.name)
        .time("deletionTimestamp", deletion.map(|deletion| deletion.at))
        .some("deletionGracePeriodSeconds", deletion.and_then(|deletion| deletion.grace_seconds))
        .list("ownerReferences", pod.owner.iter().map(owner));
    let status = Fields::default()
        .with("phase", phase(pod.phase))
        .time("startTime", pod.started)
        .some("nominatedNodeName", pod.nominated_node.as_deref())
        .list("conditions", conditions(pod))
        .list("resourceClaimStatuses", devices::claim_statuses(pod));
    Fields::object("v1", "Pod")
        .part("metadata", metadata)
        .part("spec", spec(pod, &pod.tolerations))
        .part("status", status)
        .into()
}

/// A DaemonSet's pod template, without the tolerations that the controller adds. The added tolerations depend
/// on `hostNetwork`.
pub(super) fn template(pod: &Pod) -> Fields {
    let own = |host_network| {
        Some((pod.tolerations.strip_suffix(&*daemon_tolerations(host_network))?, host_network))
    };
    let (tolerations, host_network) = own(true).or_else(|| own(false)).unwrap_or((&pod.tolerations, false));
    let spec = spec(pod, tolerations).when(host_network, "hostNetwork", true);
    Fields::default().part("metadata", metadata(pod)).part("spec", spec)
}

/// A pod template with all of the pod's tolerations, for PodTemplates and for controllers other than
/// DaemonSets.
pub(super) fn plain_template(pod: &Pod) -> Fields {
    Fields::default().part("metadata", metadata(pod)).part("spec", spec(pod, &pod.tolerations))
}

fn metadata(pod: &Pod) -> Fields {
    Fields::default()
        .text("uid", &pod.uid)
        .labels("labels", &pod.labels)
        .labels("annotations", &pod.annotations)
        .time("creationTimestamp", pod.created)
}

pub(super) fn owner(owner: &Owner) -> Fields {
    Fields::default()
        .with("apiVersion", owner.api_version.as_str())
        .with("kind", owner.kind.as_str())
        .with("name", owner.name.as_str())
        .with("uid", owner.uid.as_str())
        .with("controller", true)
}

fn phase(phase: PodPhase) -> &'static str {
    match phase {
        PodPhase::Pending => "Pending",
        PodPhase::Running => "Running",
        PodPhase::Succeeded => "Succeeded",
        PodPhase::Failed => "Failed",
        PodPhase::Unknown => "Unknown",
    }
}

fn conditions(pod: &Pod) -> Vec<Fields> {
    let condition = |kind: &str, status: &str| Fields::default().with("type", kind).with("status", status);
    let refused = |reason: &str| {
        Some(condition("PodScheduled", "False").text("reason", reason).text("message", &pod.refusal))
    };
    let scheduled = match &pod.scheduling {
        Scheduling::Unprocessed => None,
        Scheduling::Unschedulable(since) => {
            refused("Unschedulable").map(|condition| condition.time("lastTransitionTime", *since))
        }
        Scheduling::Gated => refused("SchedulingGated"),
        Scheduling::Refused(reason) => refused(reason),
        Scheduling::Scheduled => Some(condition("PodScheduled", "True")),
    };
    scheduled.into_iter().chain(pod.ready.then(|| condition("Ready", "True"))).collect()
}

fn spec(pod: &Pod, tolerations: &[Toleration]) -> Fields {
    let named = |name: &str| Fields::default().with("name", name);
    let own_users = pod.features.has(Feature::UserNamespacesOnHostNetwork);
    Fields::default()
        .when(own_users, "hostNetwork", true)
        .when(own_users, "hostUsers", false)
        .some("nodeName", pod.node.as_deref())
        .part("schedulingGroup", Fields::default().some("podGroupName", pod.scheduling_group.as_deref()))
        .when(pod.scheduler != "default-scheduler", "schedulerName", pod.scheduler.as_str())
        .some("priority", pod.priority)
        .text("priorityClassName", &pod.priority_class)
        .when(pod.never_preempts, "preemptionPolicy", "Never")
        .labels("nodeSelector", &pod.node_selector)
        .part("affinity", affinity(&pod.affinity))
        .list("tolerations", tolerations.iter().map(toleration))
        .list("topologySpreadConstraints", pod.spread.iter().map(spread))
        .list("volumes", pod.volumes.iter().map(volume))
        .list("containers", std::iter::once(container(pod)).chain(further_containers(pod)))
        .list("resourceClaims", pod.resource_claims.iter().map(devices::pod_claim))
        .when(pod.scheduling == Scheduling::Gated, "schedulingGates", vec![Value::from(named("gate"))])
        .when(!pod.restarts_always, "restartPolicy", "Never")
        .when(pod.grace_seconds != 30, "terminationGracePeriodSeconds", pod.grace_seconds)
}

/// One container that combines all containers of the pod, with their total requests except those in
/// [`further`].
fn container(pod: &Pod) -> Fields {
    let mut requests = Resources { pods: 0, ..pod.requests.clone() };
    for one in further(pod).flatten() {
        let own = requests.other.entry(one.resource.clone()).or_default();
        *own -= one.count;
    }
    let requests = amounts(&requests);
    let restarts_all = pod.features.has(Feature::RestartAllContainers);
    let mounts = pod.features.has(Feature::BindMountOptions);
    let mount = Fields::default().with("name", "all").with("mountPath", "/all");
    Fields::default()
        .with("name", "all")
        .part("resources", Fields::default().part("requests", requests))
        .list(
            "restartPolicyRules",
            restarts_all.then(|| Fields::default().with("action", "RestartAllContainers")),
        )
        .list("volumeMounts", mounts.then(|| mount.with("bindMountOptions", vec!["noexec"])))
        .list("ports", pod.host_ports.iter().map(port))
}

/// The requests of the additional containers, one list for each container. If several of the pod's containers
/// request the same extended resource, each request after the first is in one of these lists.
fn further(pod: &Pod) -> impl Iterator<Item = Vec<&ExtendedRequest>> {
    let mut containers: Vec<Vec<&ExtendedRequest>> = Vec::new();
    let mut place = 0;
    for (at, one) in pod.extended.iter().enumerate() {
        let same = at > 0 && pod.extended[at - 1].resource == one.resource;
        place = if same { place + 1 } else { 0 };
        if place > 0 {
            if containers.len() < place {
                containers.push(Vec::new());
            }
            containers[place - 1].push(one);
        }
    }
    containers.into_iter()
}

fn further_containers(pod: &Pod) -> impl Iterator<Item = Fields> {
    further(pod).enumerate().map(|(at, all)| {
        let requests = all
            .into_iter()
            .fold(Fields::default(), |fields, one| fields.with(&one.resource, one.count.to_string()));
        Fields::default()
            .with("name", format!("also-{at}"))
            .part("resources", Fields::default().part("requests", requests))
    })
}

fn port(port: &HostPort) -> Fields {
    Fields::default()
        .with("containerPort", port.port)
        .with("hostPort", port.port)
        .when(port.protocol != "TCP", "protocol", port.protocol.as_str())
        .when(port.ip != "0.0.0.0", "hostIP", port.ip.as_str())
}

fn toleration(toleration: &Toleration) -> Fields {
    Fields::default()
        .text("key", &toleration.key)
        .when(toleration.exists, "operator", "Exists")
        .text("value", &toleration.value)
        .some("effect", toleration.effect.map(effect))
}

fn affinity(affinity: &Affinity) -> Fields {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
    let preferred = |one: &Weighted<PodAffinityTerm>| {
        Fields::default().with("weight", one.weight).with("podAffinityTerm", term(&one.term))
    };
    let pods = |required: &[PodAffinityTerm], weighted: &[Weighted<PodAffinityTerm>]| {
        Fields::default()
            .list(REQUIRED, required.iter().map(term))
            .list(PREFERRED, weighted.iter().map(preferred))
    };
    let nodes = affinity
        .node_preferred
        .iter()
        .map(|one| Fields::default().with("weight", one.weight).with("preference", node_term(&one.term)));
    let node =
        Fields::default().some(REQUIRED, affinity.node.as_ref().map(node_selector)).list(PREFERRED, nodes);
    Fields::default()
        .part("nodeAffinity", node)
        .part("podAffinity", pods(&affinity.pods, &affinity.pods_preferred))
        .part("podAntiAffinity", pods(&affinity.anti, &affinity.anti_preferred))
}

fn term(term: &PodAffinityTerm) -> Fields {
    Fields::default()
        .some("labelSelector", term.selector.as_ref().map(label_selector))
        .list("namespaces", term.namespaces.iter().map(String::as_str))
        .some("namespaceSelector", term.namespace_selector.as_ref().map(label_selector))
        .with("topologyKey", term.topology_key.as_str())
        .list("matchLabelKeys", term.match_label_keys.iter().map(String::as_str))
        .list("mismatchLabelKeys", term.mismatch_label_keys.iter().map(String::as_str))
}

fn spread(one: &SpreadConstraint) -> Fields {
    Fields::default()
        .with("maxSkew", one.max_skew)
        .when(one.min_domains != 1, "minDomains", one.min_domains)
        .with("topologyKey", one.topology_key.as_str())
        .with("whenUnsatisfiable", if one.hard { "DoNotSchedule" } else { "ScheduleAnyway" })
        .some("labelSelector", one.selector.as_ref().map(label_selector))
        .list("matchLabelKeys", one.match_label_keys.iter().map(String::as_str))
        .when(!one.honor_node_affinity, "nodeAffinityPolicy", "Ignore")
        .when(one.honor_node_taints, "nodeTaintsPolicy", "Honor")
}

fn volume(volume: &Volume) -> Fields {
    let source = Fields::default();
    let (key, source) = match &volume.source {
        VolumeSource::Claim { ephemeral: true, .. } => ("ephemeral", source),
        VolumeSource::Claim { name, read_only, .. } => (
            "persistentVolumeClaim",
            source.with("claimName", name.as_str()).when(*read_only, "readOnly", true),
        ),
        VolumeSource::EmptyDir { memory } => ("emptyDir", source.when(*memory, "medium", "Memory")),
        VolumeSource::HostPath => ("hostPath", source.with("path", "/")),
        VolumeSource::Csi { driver } => ("csi", source.with("driver", driver.as_str())),
        VolumeSource::Exclusive { kind, identity, read_only } => {
            (kind.as_str(), exclusive(kind, identity).when(*read_only, "readOnly", true))
        }
        VolumeSource::InTree(disk) => (disk.kind.field(), in_tree(disk)),
    };
    Fields::default().with("name", volume.name.as_str()).with(key, source)
}

/// The fields that identify an in-tree disk.
fn exclusive(kind: &str, identity: &str) -> Fields {
    let source = Fields::default();
    match kind {
        "gcePersistentDisk" => source.with("pdName", identity),
        "awsElasticBlockStore" => source.with("volumeID", identity),
        "iscsi" => source.with("iqn", identity),
        _ => {
            let (monitor, disk) = identity.split_once(' ').unwrap_or((identity, ""));
            let (pool, image) = disk.split_once('/').unwrap_or(("rbd", disk));
            source.list("monitors", [monitor]).with("pool", pool).with("image", image)
        }
    }
}
