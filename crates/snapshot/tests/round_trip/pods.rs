//! Random pods and DaemonSets.

use kubernetes::convert::daemon_tolerations;
use model::features::Feature;
use model::pod::{
    Affinity, Deletion, HostPort, Owner, Pod, PodAffinityTerm, PodPhase, Scheduling, SpreadConstraint,
    Toleration, Volume, VolumeSource, Weighted,
};
use model::pod_spec::PodSpec;
use model::workload::{DaemonSet, InTreeDisk};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use crate::devices::pod_claims;
use crate::objects::in_tree_disk;
use crate::parts::{
    annotations, effect, features, labels, name, node_selector, node_term, resources, selector, text, time,
};

fn pod_term() -> impl Strategy<Value = PodAffinityTerm> {
    let keys = || vec(text(), 0..2);
    (option::of(selector()), keys(), option::of(selector()), text(), keys(), keys()).prop_map(
        |(selector, namespaces, namespace_selector, topology_key, match_label_keys, mismatch_label_keys)| {
            PodAffinityTerm {
                selector,
                namespaces,
                namespace_selector,
                topology_key,
                match_label_keys,
                mismatch_label_keys,
            }
        },
    )
}

fn weighted<T: std::fmt::Debug>(term: impl Strategy<Value = T>) -> impl Strategy<Value = Vec<Weighted<T>>> {
    vec((1..=100_i32, term).prop_map(|(weight, term)| Weighted { weight, term }), 0..2)
}

fn affinity() -> impl Strategy<Value = Affinity> {
    let terms = || vec(pod_term(), 0..2);
    let node = (option::of(node_selector()), weighted(node_term()));
    (node, terms(), weighted(pod_term()), terms(), weighted(pod_term())).prop_map(
        |((node, node_preferred), pods, pods_preferred, anti, anti_preferred)| Affinity {
            node,
            node_preferred,
            pods,
            pods_preferred,
            anti,
            anti_preferred,
        },
    )
}

fn spread() -> impl Strategy<Value = SpreadConstraint> {
    let sizes = (1..5_i32, 1..4_i32, any::<[bool; 3]>());
    (sizes, text(), option::of(selector()), vec(text(), 0..2)).prop_map(
        |((max_skew, min_domains, [hard, affinity, taints]), topology_key, selector, match_label_keys)| {
            SpreadConstraint {
                max_skew,
                min_domains,
                topology_key,
                hard,
                selector,
                match_label_keys,
                honor_node_affinity: affinity,
                honor_node_taints: taints,
            }
        },
    )
}

fn toleration() -> impl Strategy<Value = Toleration> {
    (option::of(text()), any::<bool>(), option::of(text()), option::of(effect())).prop_map(
        |(key, exists, value, effect)| Toleration {
            key: key.unwrap_or_default(),
            exists,
            value: value.unwrap_or_default(),
            effect,
        },
    )
}

/// In-tree disks of kinds that are not read as [`VolumeSource::Exclusive`].
fn in_tree_volume() -> impl Strategy<Value = InTreeDisk> {
    in_tree_disk().prop_filter("disks of this kind are read as exclusive", |disk| {
        !["gcePersistentDisk", "awsElasticBlockStore"].contains(&disk.kind.field())
    })
}

/// Random volumes. [`template`] names the claim of an ephemeral volume after the pod.
fn volume() -> impl Strategy<Value = Volume> {
    let disk = |kind: &'static str, read_only: bool, identity: String| VolumeSource::Exclusive {
        kind: kind.to_owned(),
        identity,
        read_only,
    };
    let source = prop_oneof![
        (text(), any::<bool>(), any::<bool>()).prop_map(|(name, ephemeral, read_only)| {
            VolumeSource::Claim { name, ephemeral, read_only: read_only && !ephemeral }
        }),
        any::<bool>().prop_map(|memory| VolumeSource::EmptyDir { memory }),
        Just(VolumeSource::HostPath),
        text().prop_map(|driver| VolumeSource::Csi { driver }),
        in_tree_volume().prop_map(VolumeSource::InTree),
        (text(), any::<bool>()).prop_map(move |(disk_name, ro)| disk("gcePersistentDisk", ro, disk_name)),
        text().prop_map(move |id| disk("awsElasticBlockStore", false, id)),
        (text(), any::<bool>()).prop_map(move |(iqn, ro)| disk("iscsi", ro, iqn)),
        (name(), name(), name(), any::<bool>()).prop_map(move |(monitor, pool, image, ro)| disk(
            "rbd",
            ro,
            format!("{monitor} {pool}/{image}")
        )),
    ];
    (name(), source).prop_map(|(name, source)| Volume { name, source })
}

fn scheduling() -> impl Strategy<Value = Scheduling> {
    prop_oneof![
        Just(Scheduling::Unprocessed),
        option::of(time()).prop_map(Scheduling::Unschedulable),
        Just(Scheduling::Gated),
        prop_oneof![Just(String::new()), Just("SchedulerError".to_owned())].prop_map(Scheduling::Refused),
        Just(Scheduling::Scheduled),
    ]
}

pub fn owner() -> impl Strategy<Value = Owner> {
    (text(), text(), name(), text()).prop_map(|(api_version, kind, name, uid)| Owner {
        api_version,
        kind,
        name,
        uid,
    })
}

/// The parts that a pod and a template have in common. A template has no node, owner, deletion or status.
pub fn template() -> impl Strategy<Value = Pod> {
    let port =
        (prop_oneof![Just("0.0.0.0"), Just("10.0.0.1")], prop_oneof![Just("TCP"), Just("UDP")], 1..65535_i32)
            .prop_map(|(ip, protocol, port)| HostPort {
                ip: ip.to_owned(),
                protocol: protocol.to_owned(),
                port,
            });
    let texts =
        (name(), name(), option::of(text()), prop_oneof![Just("default-scheduler".to_owned()), text()]);
    let maps = (labels(), annotations(), labels());
    let rules = (affinity(), vec(toleration(), 0..3), vec(spread(), 0..2));
    let parts = (vec(port, 0..3), vec(volume(), 0..4), resources(Just(1), 1));
    let numbers = (option::of(any::<i32>()), prop_oneof![Just(30), 0..600_i64], any::<[bool; 2]>());
    let state = (option::of(time()), any::<bool>(), features(), pod_claims(false));
    (texts, maps, rules, parts, numbers, state).prop_map(
        |(
            (namespace, name, class, scheduler),
            (labels, annotations, node_selector),
            (affinity, tolerations, spread),
            (host_ports, mut volumes, requests),
            (priority, grace_seconds, [never_preempts, restarts_always]),
            (created, gated, features, resource_claims),
        )| {
            for volume in &mut volumes {
                if let VolumeSource::Claim { name: claim, ephemeral: true, .. } = &mut volume.source {
                    *claim = format!("{name}-{}", volume.name);
                }
            }
            Pod {
                name,
                created,
                scheduling: if gated { Scheduling::Gated } else { Scheduling::Unprocessed },
                spec: PodSpec {
                    namespace,
                    labels,
                    annotations,
                    node_selector,
                    scheduler,
                    priority,
                    priority_class: class.unwrap_or_default(),
                    never_preempts,
                    requests,
                    affinity,
                    tolerations,
                    spread,
                    host_ports,
                    volumes,
                    features,
                    resource_claims,
                    restarts_always,
                    grace_seconds,
                    ..PodSpec::default()
                }
                .into(),
                ..Pod::default()
            }
        },
    )
}

pub fn pod() -> impl Strategy<Value = Pod> {
    use PodPhase::{Failed, Pending, Running, Succeeded, Unknown};
    let phase = prop::sample::select(vec![Failed, Pending, Running, Succeeded, Unknown]);
    let deletion =
        (time(), option::of(0..100_i64)).prop_map(|(at, grace_seconds)| Deletion { at, grace_seconds });
    let scheduling = (scheduling(), text());
    let bound = (
        option::of(name()),
        vec(option::of(name()), 2),
        phase,
        scheduling,
        any::<bool>(),
        option::of(time()),
    );
    let template = (template(), pod_claims(true));
    (template, option::of(text()), option::of(owner()), option::of(deletion), bound).prop_map(
        |(
            (mut pod, resource_claims),
            uid,
            owner,
            deletion,
            (node, mut names, phase, (scheduling, words), ready, started),
        )| {
            let (nominated_node, scheduling_group) = (names.pop().flatten(), names.pop().flatten());
            pod.owner = owner;
            pod.scheduling_group = scheduling_group;
            pod.resource_claims = resource_claims;
            Pod {
                uid: uid.unwrap_or_default(),
                deletion,
                node,
                nominated_node,
                phase,
                refusal: match scheduling {
                    Scheduling::Unschedulable(_) | Scheduling::Gated | Scheduling::Refused(_) => words,
                    Scheduling::Unprocessed | Scheduling::Scheduled => String::new(),
                },
                scheduling,
                ready,
                started,
                ..pod
            }
        },
    )
}

pub fn daemon_set() -> impl Strategy<Value = DaemonSet> {
    (template(), text(), any::<bool>()).prop_map(|(mut pod, uid, host_network)| {
        let host_network = host_network || pod.features.has(Feature::UserNamespacesOnHostNetwork);
        pod.tolerations.extend(daemon_tolerations(host_network));
        let owner = Owner {
            api_version: "apps/v1".to_owned(),
            kind: "DaemonSet".to_owned(),
            name: pod.name.clone(),
            uid: uid.clone(),
        };
        pod.owner = Some(owner);
        DaemonSet { namespace: pod.namespace.clone(), name: pod.name.clone(), uid, pod }
    })
}
