//! Random PodGroups.

use std::sync::Arc;

use model::gang::PodGroup;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use crate::parts::{name, time};

/// Random PodGroups; `None` if the API server does not know the kind.
pub fn pod_groups() -> impl Strategy<Value = Option<Vec<Arc<PodGroup>>>> {
    let meta = (name(), name(), option::of(time()));
    let spec = (option::of(1..99_i64), option::of(any::<i32>()), option::of(name()), option::of(name()));
    let group = (meta, spec, option::of(any::<bool>()), any::<bool>()).prop_map(
        |(
            (namespace, name, created),
            (minimum, priority, topology, parent),
            never_preempts,
            shares_claims,
        )| {
            let group = PodGroup {
                namespace,
                name,
                created,
                minimum,
                priority,
                never_preempts,
                topology,
                parent,
                shares_claims,
            };
            Arc::new(group)
        },
    );
    option::of(vec(group, 0..3))
}
