//! Building blocks for random worlds.

use std::sync::Arc;

use model::Resources;
use model::pod::{Owner, Pod, PodPhase, Scheduling};
use model::pod_spec::PodSpec;
use model::workload::Controller;
use proptest::prelude::ProptestConfig;

/// The time of every decision.
pub const NOW: &str = "2026-01-15T12:00:00Z";

/// Returns resources with the given CPU (in thousandths of a core), memory (in MiB) and number of pods.
pub fn resources(cpu: i64, memory: i64, pods: i64) -> Resources {
    Resources { cpu_milli: cpu, memory: memory << 20, pods, ..Resources::default() }
}

/// A pod of the ReplicaSet, on a node or pending.
pub fn pod(number: usize, cpu: i64, memory: i64, node: Option<String>) -> Pod {
    Pod {
        name: format!("p{number:03}"),
        uid: format!("u{number}"),
        phase: if node.is_some() { PodPhase::Running } else { PodPhase::Pending },
        ready: node.is_some(),
        scheduling: if node.is_some() { Scheduling::Scheduled } else { Scheduling::Unprocessed },
        node,
        spec: PodSpec {
            namespace: "d".to_owned(),
            owner: Some(Owner {
                api_version: "apps/v1".to_owned(),
                kind: "ReplicaSet".to_owned(),
                name: "rs".to_owned(),
                uid: "rs".to_owned(),
            }),
            requests: resources(cpu, memory, 1),
            restarts_always: true,
            grace_seconds: 30,
            ..PodSpec::default()
        }
        .into(),
        ..Pod::default()
    }
}

/// The ReplicaSet.
pub fn replica_set() -> Arc<Controller> {
    Arc::new(Controller {
        api_version: "apps/v1".to_owned(),
        kind: "ReplicaSet".to_owned(),
        namespace: "d".to_owned(),
        name: "rs".to_owned(),
        uid: "rs".to_owned(),
        replicas: 100,
        selector: None,
        deleted: false,
        template: None,
    })
}

/// The number of cases to run for each property: `PLANNER_CASES` (for a long run of a release build), or else
/// `usual`.
#[expect(clippy::disallowed_methods, reason = "only the duration of a test depends on it")]
pub fn cases(usual: u32) -> ProptestConfig {
    let asked = std::env::var("PLANNER_CASES").ok().and_then(|text| text.parse().ok());
    ProptestConfig { cases: asked.unwrap_or(usual), ..ProptestConfig::default() }
}
