//! Random CapacityBuffers, ProvisioningRequests and PodTemplates, and the templates of controllers that
//! buffers refer to.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::Snapshot;
use model::buffer::{ACTIVE, BufferStatus, CapacityBuffer, PodTemplate, TemplateRef};
use model::condition::StatusCondition;
use model::request::ProvisioningRequest;
use model::workload::Controller;
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;

use crate::parts::{name, text, time};
use crate::pods::template;
use crate::returned;

pub fn capacity_buffer() -> impl Strategy<Value = CapacityBuffer> {
    let reference = prop_oneof![
        name().prop_map(TemplateRef::PodTemplate),
        (text(), text(), name()).prop_map(|(group, kind, name)| TemplateRef::Scalable { group, kind, name }),
    ];
    let strategy = prop_oneof![Just(ACTIVE.to_owned()), text()];
    let numbers = (option::of(0..99_i64), option::of(0..99_i64));
    let limits = option::of(btree_map(name(), 0..9_000_000_i64, 0..3));
    let meta = (name(), name(), text(), 0..9_i64, option::of(time()));
    (meta, strategy, option::of(reference), numbers, limits).prop_map(
        |(
            (namespace, name, uid, generation, created),
            strategy,
            template,
            (replicas, percentage),
            limits,
        )| {
            CapacityBuffer {
                namespace,
                name,
                uid,
                resource_version: String::new(),
                generation,
                created,
                strategy,
                template,
                replicas,
                percentage,
                limits,
                status: BufferStatus::default(),
            }
        },
    )
}

/// Random ProvisioningRequests; `None` if the API server does not know the kind.
pub fn requests() -> impl Strategy<Value = Option<Vec<Arc<ProvisioningRequest>>>> {
    let condition = (name(), text(), text(), option::of(time()), option::of(0..9_i64));
    let condition = condition.prop_map(|(kind, reason, message, since, generation)| StatusCondition {
        kind,
        status: "True".to_owned(),
        reason,
        message,
        since,
        generation,
    });
    let meta = (name(), name(), text(), 0..9_i64, option::of(time()));
    let request =
        (meta, name(), vec((name(), 1..9_i64), 0..3), btree_map(name(), text(), 0..3), vec(condition, 0..3));
    let request = request.prop_map(
        |((namespace, name, uid, generation, created), class, sets, parameters, conditions)| {
            Arc::new(ProvisioningRequest {
                namespace,
                name,
                uid,
                resource_version: String::new(),
                generation,
                created,
                class,
                sets,
                parameters,
                conditions,
            })
        },
    );
    option::of(vec(request, 0..3))
}

pub fn pod_template() -> impl Strategy<Value = PodTemplate> {
    (template(), 0..9_i64).prop_map(|(pod, generation)| PodTemplate {
        namespace: pod.namespace.clone(),
        name: pod.name.clone(),
        generation,
        pod,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_template_that_a_buffer_refers_to_comes_back(
        (pod, kind) in (template(), prop::sample::select(vec![
            ("apps/v1", "Deployment"), ("apps/v1", "ReplicaSet"), ("apps/v1", "StatefulSet"),
            ("v1", "ReplicationController"), ("batch/v1", "Job"),
        ])),
        referred in any::<bool>(),
    ) {
        let (api_version, kind) = kind;
        let controller = Controller {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            uid: String::new(),
            replicas: 1,
            selector: None,
            deleted: false,
            template: Some(Box::new(pod.clone())),
        };
        let buffer = CapacityBuffer {
            namespace: pod.namespace.clone(),
            name: "b".to_owned(),
            strategy: ACTIVE.to_owned(),
            template: Some(TemplateRef::Scalable {
                group: api_version.split_once('/').map_or("", |(group, _)| group).to_owned(),
                kind: kind.to_owned(),
                name: if referred { pod.name.clone() } else { "another-one".to_owned() },
            }),
            limits: Some(BTreeMap::new()),
            ..CapacityBuffer::default()
        };
        let (controllers, buffers) = ([Arc::new(controller)].to_vec(), [Arc::new(buffer)].to_vec());
        let written = Snapshot { controllers, buffers, ..Snapshot::default() };
        let mut expected = written.clone();
        if !referred {
            Arc::make_mut(&mut expected.controllers[0]).template = None;
        }
        prop_assert_eq!(returned(&written), expected);
    }
}
