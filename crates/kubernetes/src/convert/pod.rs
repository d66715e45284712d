//! Pods.

use k8s_openapi::api::apps::v1 as apps;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::node::effect;
use super::selector::{label_selector, node_selector, node_term};
use super::{ConvertError, devices, known_annotations, labels, requests, storage, text, time};
use model::KubernetesVersion;
use model::features::{Feature, Features};
use model::node::TaintEffect;
use model::pod::{
    Affinity, Deletion, HostPort, Owner, Pod, PodAffinityTerm, PodPhase, Scheduling, SpreadConstraint,
    Toleration, Volume, VolumeSource, Weighted,
};
use model::pod_spec::{PodSpec, Specs};
use model::storage::InTreeKind;

/// Converts a Pod and computes its digest once, because decisions need the digest in every round. Pods with
/// equal specs share one copy of the spec.
///
/// The resources that the pod uses on its node are counted in the same way as in kube-scheduler of this
/// `version`.
pub fn pod(object: &core::Pod, version: KubernetesVersion, specs: &mut Specs) -> Result<Pod, ConvertError> {
    let empty = core::PodSpec::default();
    let spec = object.spec.as_ref().unwrap_or(&empty);
    let mut pod = from_parts(&object.metadata, spec, object.status.as_ref(), version)?;
    specs.share(&mut pod);
    pod.digest();
    Ok(pod)
}

/// The pod that the DaemonSet controller would create for this DaemonSet, with the tolerations that the
/// controller adds, but without a node.
pub fn pod_of_daemon_set(object: &apps::DaemonSet) -> Result<Pod, ConvertError> {
    let template = &object.spec.template;
    let meta = ObjectMeta {
        namespace: object.metadata.namespace.clone(),
        name: object.metadata.name.clone(),
        ..template.metadata.clone().unwrap_or_default()
    };
    let empty = core::PodSpec::default();
    let spec = template.spec.as_ref().unwrap_or(&empty);
    let mut pod = from_parts(&meta, spec, None, KubernetesVersion::NEWEST)?;
    pod.owner = Some(Owner {
        api_version: "apps/v1".to_owned(),
        kind: "DaemonSet".to_owned(),
        name: text(object.metadata.name.as_ref()),
        uid: text(object.metadata.uid.as_ref()),
    });
    pod.tolerations.extend(daemon_tolerations(spec.host_network == Some(true)));
    Ok(pod)
}

/// The pod that a controller would create from this template, without a node. Returns `None` if the template
/// is empty.
pub(super) fn pod_of_template(
    meta: &ObjectMeta,
    template: &core::PodTemplateSpec,
) -> Result<Option<Pod>, ConvertError> {
    let Some(spec) = &template.spec else { return Ok(None) };
    let meta = ObjectMeta {
        namespace: meta.namespace.clone(),
        name: meta.name.clone(),
        ..template.metadata.clone().unwrap_or_default()
    };
    from_parts(&meta, spec, None, KubernetesVersion::NEWEST).map(Some)
}

/// The tolerations that the DaemonSet controller adds to each of its pods
/// (`AddOrUpdateDaemonPodTolerations`).
pub fn daemon_tolerations(host_network: bool) -> Vec<Toleration> {
    let mut added = vec![
        ("node.kubernetes.io/not-ready", TaintEffect::NoExecute),
        ("node.kubernetes.io/unreachable", TaintEffect::NoExecute),
        ("node.kubernetes.io/disk-pressure", TaintEffect::NoSchedule),
        ("node.kubernetes.io/memory-pressure", TaintEffect::NoSchedule),
        ("node.kubernetes.io/pid-pressure", TaintEffect::NoSchedule),
        ("node.kubernetes.io/unschedulable", TaintEffect::NoSchedule),
    ];
    if host_network {
        added.push(("node.kubernetes.io/network-unavailable", TaintEffect::NoSchedule));
    }
    let tolerated = |(key, effect): (&str, _)| Toleration {
        key: key.to_owned(),
        exists: true,
        value: String::new(),
        effect: Some(effect),
    };
    added.into_iter().map(tolerated).collect()
}

fn from_parts(
    meta: &ObjectMeta,
    spec: &core::PodSpec,
    status: Option<&core::PodStatus>,
    version: KubernetesVersion,
) -> Result<Pod, ConvertError> {
    let node = spec.node_name.clone().filter(|name| !name.is_empty());
    let conditions = || status.and_then(|status| status.conditions.as_ref()).into_iter().flatten();
    let common = common_parts(meta, spec, status, version)?;
    Ok(Pod {
        name: text(meta.name.as_ref()),
        uid: text(meta.uid.as_ref()),
        created: time(meta.creation_timestamp.as_ref()),
        started: time(status.and_then(|status| status.start_time.as_ref())),
        deletion: time(meta.deletion_timestamp.as_ref())
            .map(|at| Deletion { at, grace_seconds: meta.deletion_grace_period_seconds }),
        phase: phase(status, node.is_some())?,
        nominated_node: status
            .and_then(|status| status.nominated_node_name.clone())
            .filter(|name| !name.is_empty()),
        scheduling: scheduling(spec, conditions()),
        refusal: refusal(conditions()),
        ready: is_by_hand(status, node.is_some())
            || conditions().any(|one| one.type_ == "Ready" && one.status == "True"),
        node,
        spec: common.into(),
        ..Pod::default()
    })
}

/// Converts the part of a pod that pods with equal specs share.
fn common_parts(
    meta: &ObjectMeta,
    spec: &core::PodSpec,
    status: Option<&core::PodStatus>,
    version: KubernetesVersion,
) -> Result<PodSpec, ConvertError> {
    let running = status.filter(|_| spec.node_name.as_ref().is_some_and(|name| !name.is_empty()));
    // Each list is collected into a box before it becomes a `Vec`, which drops its spare capacity. This
    // matters with tens of thousands of pods.
    Ok(PodSpec {
        namespace: meta.namespace.clone().unwrap_or_else(|| "default".to_owned()),
        labels: labels(meta.labels.as_ref()),
        annotations: known_annotations(meta),
        owner: owner(meta),
        scheduling_group: spec.scheduling_group.as_ref().and_then(|group| group.pod_group_name.clone()),
        scheduler: spec.scheduler_name.clone().unwrap_or_else(|| "default-scheduler".to_owned()),
        priority: spec.priority,
        priority_class: text(spec.priority_class_name.as_ref()),
        never_preempts: spec.preemption_policy.as_deref() == Some("Never"),
        requests: match running {
            Some(status) => requests::taken(spec, status, version)?,
            None => requests::wanted(spec)?,
        },
        node_selector: labels(spec.node_selector.as_ref()),
        affinity: spec.affinity.as_ref().map(affinity).transpose()?.unwrap_or_default(),
        tolerations: spec
            .tolerations
            .iter()
            .flatten()
            .filter(|one| matches!(one.operator.as_deref(), None | Some("" | "Equal" | "Exists")))
            .map(toleration)
            .collect::<Result<Box<_>, _>>()?
            .into_vec(),
        spread: spec
            .topology_spread_constraints
            .iter()
            .flatten()
            .map(spread)
            .collect::<Result<Box<_>, _>>()?
            .into_vec(),
        host_ports: host_ports(spec),
        volumes: spec
            .volumes
            .iter()
            .flatten()
            .flat_map(|volume| volumes(meta, volume))
            .collect::<Box<_>>()
            .into_vec(),
        features: features(spec),
        resource_claims: devices::pod_claims(spec, status),
        extended: devices::extended_requests(spec),
        restarts_always: matches!(spec.restart_policy.as_deref(), None | Some("Always")),
        grace_seconds: spec.termination_grace_period_seconds.unwrap_or(30),
        ..PodSpec::default()
    })
}

/// Whether the pod was written by hand: it has a node but no status. Such a pod counts as running and ready.
fn is_by_hand(status: Option<&core::PodStatus>, bound: bool) -> bool {
    bound && status.is_none_or(|status| status.phase.is_none() && status.conditions.is_none())
}

pub(super) fn owner(meta: &ObjectMeta) -> Option<Owner> {
    let owner = meta.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))?;
    Some(Owner {
        api_version: owner.api_version.clone(),
        kind: owner.kind.clone(),
        name: owner.name.clone(),
        uid: owner.uid.clone(),
    })
}

fn phase(status: Option<&core::PodStatus>, bound: bool) -> Result<PodPhase, ConvertError> {
    Ok(match status.and_then(|status| status.phase.as_deref()) {
        None if bound => PodPhase::Running,
        None | Some("Pending") => PodPhase::Pending,
        Some("Running") => PodPhase::Running,
        Some("Succeeded") => PodPhase::Succeeded,
        Some("Failed") => PodPhase::Failed,
        Some("Unknown") => PodPhase::Unknown,
        Some(other) => {
            return Err(ConvertError::Word { field: "status.phase".to_owned(), value: other.to_owned() });
        }
    })
}

fn scheduling<'a>(
    spec: &core::PodSpec,
    mut conditions: impl Iterator<Item = &'a core::PodCondition>,
) -> Scheduling {
    let gated = spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty());
    let Some(condition) = conditions.find(|one| one.type_ == "PodScheduled") else {
        return if gated { Scheduling::Gated } else { Scheduling::Unprocessed };
    };
    match (condition.status.as_str(), condition.reason.as_deref()) {
        ("True", _) => Scheduling::Scheduled,
        (_, Some("Unschedulable")) => {
            Scheduling::Unschedulable(time(condition.last_transition_time.as_ref()))
        }
        (_, Some("SchedulingGated")) => Scheduling::Gated,
        (_, reason) => Scheduling::Refused(reason.unwrap_or_default().to_owned()),
    }
}

fn refusal<'a>(mut conditions: impl Iterator<Item = &'a core::PodCondition>) -> String {
    let refused = conditions.find(|one| one.type_ == "PodScheduled" && one.status != "True");
    text(refused.and_then(|condition| condition.message.as_ref()))
}

/// Converts a toleration with the operator `Equal` or `Exists`. The caller leaves out tolerations with `Lt`
/// or `Gt`: their feature gate is off by default, so they tolerate nothing.
fn toleration(toleration: &core::Toleration) -> Result<Toleration, ConvertError> {
    let word = toleration.effect.as_deref().filter(|effect| !effect.is_empty());
    Ok(Toleration {
        key: text(toleration.key.as_ref()),
        exists: toleration.operator.as_deref() == Some("Exists"),
        value: text(toleration.value.as_ref()),
        effect: word.map(|word| effect("spec.tolerations[].effect", word)).transpose()?,
    })
}

fn affinity(affinity: &core::Affinity) -> Result<Affinity, ConvertError> {
    let mut all = Affinity::default();
    if let Some(node) = &affinity.node_affinity {
        let required = node.required_during_scheduling_ignored_during_execution.as_ref();
        all.node =
            required.map(|required| node_selector("spec.affinity.nodeAffinity", required)).transpose()?;
        for one in node.preferred_during_scheduling_ignored_during_execution.iter().flatten() {
            let term = node_term("spec.affinity.nodeAffinity", &one.preference)?;
            all.node_preferred.push(Weighted { weight: one.weight, term });
        }
    }
    if let Some(pods) = &affinity.pod_affinity {
        all.pods = terms(pods.required_during_scheduling_ignored_during_execution.as_ref())?;
        all.pods_preferred = weighted(pods.preferred_during_scheduling_ignored_during_execution.as_ref())?;
    }
    if let Some(pods) = &affinity.pod_anti_affinity {
        all.anti = terms(pods.required_during_scheduling_ignored_during_execution.as_ref())?;
        all.anti_preferred = weighted(pods.preferred_during_scheduling_ignored_during_execution.as_ref())?;
    }
    Ok(all)
}

fn terms(list: Option<&Vec<core::PodAffinityTerm>>) -> Result<Vec<PodAffinityTerm>, ConvertError> {
    list.into_iter().flatten().map(term).collect()
}

fn weighted(
    list: Option<&Vec<core::WeightedPodAffinityTerm>>,
) -> Result<Vec<Weighted<PodAffinityTerm>>, ConvertError> {
    list.into_iter()
        .flatten()
        .map(|one| Ok(Weighted { weight: one.weight, term: term(&one.pod_affinity_term)? }))
        .collect()
}

fn term(term: &core::PodAffinityTerm) -> Result<PodAffinityTerm, ConvertError> {
    let field = "spec.affinity.podAffinity";
    Ok(PodAffinityTerm {
        selector: label_selector(field, term.label_selector.as_ref())?,
        namespaces: term.namespaces.clone().unwrap_or_default(),
        namespace_selector: label_selector(field, term.namespace_selector.as_ref())?,
        topology_key: term.topology_key.clone(),
        match_label_keys: term.match_label_keys.clone().unwrap_or_default(),
        mismatch_label_keys: term.mismatch_label_keys.clone().unwrap_or_default(),
    })
}

fn spread(constraint: &core::TopologySpreadConstraint) -> Result<SpreadConstraint, ConvertError> {
    Ok(SpreadConstraint {
        max_skew: constraint.max_skew,
        min_domains: constraint.min_domains.unwrap_or(1),
        topology_key: constraint.topology_key.clone(),
        hard: constraint.when_unsatisfiable != "ScheduleAnyway",
        selector: label_selector("spec.topologySpreadConstraints[]", constraint.label_selector.as_ref())?,
        match_label_keys: constraint.match_label_keys.clone().unwrap_or_default(),
        honor_node_affinity: constraint.node_affinity_policy.as_deref() != Some("Ignore"),
        honor_node_taints: constraint.node_taints_policy.as_deref() == Some("Honor"),
    })
}

/// The kubelet features that the pod needs. The scheduler may check only some of them.
fn features(spec: &core::PodSpec) -> Features {
    let all = || spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let restarts = all().flat_map(|one| one.restart_policy_rules.iter().flatten());
    let ephemeral = spec.ephemeral_containers.iter().flatten().map(|one| one.volume_mounts.as_ref());
    let mounts = all().map(|one| one.volume_mounts.as_ref()).chain(ephemeral).flatten().flatten();
    let options =
        |mount: &core::VolumeMount| mount.bind_mount_options.as_ref().is_some_and(|all| !all.is_empty());
    Features::default()
        .with(
            Feature::RestartAllContainers,
            restarts.into_iter().any(|rule| rule.action == "RestartAllContainers"),
        )
        .with(
            Feature::UserNamespacesOnHostNetwork,
            spec.host_network == Some(true) && spec.host_users == Some(false),
        )
        .with(Feature::BindMountOptions, mounts.into_iter().any(options))
}

/// The host ports of containers and sidecars. With `hostNetwork`, a container port that specifies no host
/// port is also a host port.
fn host_ports(spec: &core::PodSpec) -> Vec<HostPort> {
    let on_host = spec.host_network == Some(true);
    let sidecars =
        spec.init_containers.iter().flatten().filter(|one| one.restart_policy.as_deref() == Some("Always"));
    spec.containers
        .iter()
        .chain(sidecars)
        .flat_map(|container| container.ports.iter().flatten())
        .filter_map(|port| {
            let number = port.host_port.filter(|port| *port != 0).or(on_host.then_some(port.container_port));
            let number = number.filter(|port| *port > 0)?;
            Some(HostPort {
                ip: port.host_ip.clone().filter(|ip| !ip.is_empty()).unwrap_or_else(|| "0.0.0.0".to_owned()),
                protocol: port
                    .protocol
                    .clone()
                    .filter(|one| !one.is_empty())
                    .unwrap_or_else(|| "TCP".to_owned()),
                port: number,
            })
        })
        .collect()
}

/// The model's entries for a pod's volume. Kinds that no scheduling rule depends on (configMap, secret,
/// projected, nfs …) have no entry. An RBD volume has one entry for each monitor, because two RBD volumes
/// with the same image conflict if they share a monitor.
fn volumes(meta: &ObjectMeta, volume: &core::Volume) -> Vec<Volume> {
    let exclusive = |kind: &str, identity: String, read_only: Option<bool>| VolumeSource::Exclusive {
        kind: kind.to_owned(),
        identity,
        read_only: read_only.unwrap_or(false),
    };
    let sources = if let Some(claim) = &volume.persistent_volume_claim {
        let read_only = claim.read_only.unwrap_or(false);
        vec![VolumeSource::Claim { name: claim.claim_name.clone(), ephemeral: false, read_only }]
    } else if volume.ephemeral.is_some() {
        let name = format!("{}-{}", text(meta.name.as_ref()), volume.name);
        vec![VolumeSource::Claim { name, ephemeral: true, read_only: false }]
    } else if let Some(directory) = &volume.empty_dir {
        vec![VolumeSource::EmptyDir { memory: directory.medium.as_deref() == Some("Memory") }]
    } else if volume.host_path.is_some() {
        vec![VolumeSource::HostPath]
    } else if let Some(csi) = &volume.csi {
        vec![VolumeSource::Csi { driver: csi.driver.clone() }]
    } else if let Some(disk) = &volume.gce_persistent_disk {
        vec![exclusive("gcePersistentDisk", disk.pd_name.clone(), disk.read_only)]
    } else if let Some(disk) = &volume.aws_elastic_block_store {
        vec![exclusive("awsElasticBlockStore", disk.volume_id.clone(), None)]
    } else if let Some(disk) = &volume.iscsi {
        vec![exclusive("iscsi", disk.iqn.clone(), disk.read_only)]
    } else if let Some(disk) = &volume.rbd {
        let pool = disk.pool.as_deref().unwrap_or("rbd");
        let identity = |monitor: &String| format!("{monitor} {pool}/{}", disk.image);
        disk.monitors.iter().map(|monitor| exclusive("rbd", identity(monitor), disk.read_only)).collect()
    } else if let Some(disk) = &volume.azure_disk {
        vec![VolumeSource::InTree(storage::azure_disk(disk))]
    } else if let Some(disk) = &volume.cinder {
        vec![VolumeSource::InTree(storage::disk(InTreeKind::Cinder, disk.volume_id.clone()))]
    } else if let Some(disk) = &volume.portworx_volume {
        vec![VolumeSource::InTree(storage::disk(InTreeKind::PortworxVolume, disk.volume_id.clone()))]
    } else {
        Vec::new()
    };
    sources.into_iter().map(|source| Volume { name: volume.name.clone(), source }).collect()
}
