//! What a pod requests, as kube-scheduler computes it: `PodRequests` of `k8s.io/component-helpers/resource` with
//! `UseStatusResources`, after the API server's defaulting.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::{ConvertError, resources};
use crate::model::resources::Resources;

type List = BTreeMap<String, Quantity>;

/// The pod's effective requests; `pods` is 1.
pub(super) fn pod_requests(
    spec: &core::PodSpec,
    status: Option<&core::PodStatus>,
) -> Result<Resources, ConvertError> {
    let infeasible = status.is_some_and(resize_is_infeasible);
    let of_containers = |list: Option<&Vec<core::ContainerStatus>>, container: &core::Container| {
        let seen = list.into_iter().flatten().find(|one| one.name == container.name);
        container_requests(container, seen, infeasible)
    };
    let running = status.and_then(|status| status.container_statuses.as_ref());
    let initial = status.and_then(|status| status.init_container_statuses.as_ref());

    let mut sum = Resources::default();
    for container in &spec.containers {
        sum.add(&of_containers(running, container)?);
    }
    let mut sidecars = Resources::default();
    let mut peak = Resources::default();
    for container in spec.init_containers.iter().flatten() {
        if container.restart_policy.as_deref() == Some("Always") {
            let own = of_containers(initial, container)?;
            sum.add(&own);
            sidecars.add(&own);
            peak.raise_to(&sidecars);
        } else {
            // It cannot be resized, so its status does not count.
            let mut with_sidecars = container_requests(container, None, infeasible)?;
            with_sidecars.add(&sidecars);
            peak.raise_to(&with_sidecars);
        }
    }
    sum.raise_to(&peak);
    if let Some(level) = &spec.resources {
        pod_level(&mut sum, level)?;
        if let Some(status) = status {
            resized_pod_level(&mut sum, level, status, infeasible)?;
        }
    }
    sum.add(&resources("spec.overhead", spec.overhead.as_ref())?);
    sum.other.retain(|_, amount| *amount != 0);
    sum.pods = 1;
    Ok(sum)
}

fn resize_is_infeasible(status: &core::PodStatus) -> bool {
    status.resize.as_deref() == Some("Infeasible")
        || status
            .conditions
            .iter()
            .flatten()
            .any(|one| one.type_ == "PodResizePending" && one.reason.as_deref() == Some("Infeasible"))
}

/// A container's requests: from its spec (an absent request equals its limit), and while a resize is under way the
/// largest of spec, actual and allocated (without the spec where the resize cannot happen).
fn container_requests(
    container: &core::Container,
    seen: Option<&core::ContainerStatus>,
    infeasible: bool,
) -> Result<Resources, ConvertError> {
    let wanted = match &container.resources {
        Some(wanted) => resources(
            "spec.containers[].resources.requests",
            Some(&with_limits(wanted.requests.as_ref(), wanted.limits.as_ref())),
        )?,
        None => Resources::default(),
    };
    let Some((seen, actual)) = seen.and_then(|seen| seen.resources.as_ref().map(|actual| (seen, actual)))
    else {
        return Ok(wanted);
    };
    let mut most = resources("status.containerStatuses[].resources.requests", actual.requests.as_ref())?;
    most.raise_to(&resources(
        "status.containerStatuses[].allocatedResources",
        seen.allocated_resources.as_ref(),
    )?);
    if !infeasible {
        most.raise_to(&wanted);
    }
    Ok(most)
}

fn with_limits(requests: Option<&List>, limits: Option<&List>) -> List {
    let mut all = limits.cloned().unwrap_or_default();
    all.extend(requests.cloned().unwrap_or_default());
    all
}

/// Pod-level resources (`spec.resources`) win over the containers' sum for CPU, memory and hugepages. With limits only,
/// the request is the containers' sum, or the limit where no container requests that resource.
fn pod_level(sum: &mut Resources, level: &core::ResourceRequirements) -> Result<(), ConvertError> {
    let requests = resources("spec.resources.requests", level.requests.as_ref())?;
    let limits = resources("spec.resources.limits", level.limits.as_ref())?;
    let given = |name: &str| level.requests.as_ref().is_some_and(|list| list.contains_key(name));
    let choose = |name: &str, request: i64, limit: i64, sum: i64| {
        if given(name) {
            request
        } else if sum == 0 {
            limit
        } else {
            sum
        }
    };
    sum.cpu_milli = choose("cpu", requests.cpu_milli, limits.cpu_milli, sum.cpu_milli);
    sum.memory = choose("memory", requests.memory, limits.memory, sum.memory);
    let names: Vec<String> = requests
        .other
        .keys()
        .chain(limits.other.keys())
        .filter(|name| name.starts_with("hugepages-"))
        .cloned()
        .collect();
    for name in names {
        let of = |list: &Resources| list.other.get(&name).copied().unwrap_or(0);
        let chosen = choose(&name, of(&requests), of(&limits), of(sum));
        sum.other.insert(name, chosen);
    }
    Ok(())
}

/// While pod-level resources are being resized: the largest of spec, actual and allocated for what the spec requests
/// (without the spec where the resize cannot happen).
fn resized_pod_level(
    sum: &mut Resources,
    level: &core::ResourceRequirements,
    status: &core::PodStatus,
    infeasible: bool,
) -> Result<(), ConvertError> {
    let Some(actual) = &status.resources else { return Ok(()) };
    let mut most = resources("status.resources.requests", actual.requests.as_ref())?;
    most.raise_to(&resources("status.allocatedResources", status.allocated_resources.as_ref())?);
    for name in level.requests.iter().flatten().map(|(name, _)| name.as_str()) {
        let (wanted, seen) = match name {
            "cpu" => (&mut sum.cpu_milli, most.cpu_milli),
            "memory" => (&mut sum.memory, most.memory),
            _ => continue,
        };
        *wanted = if infeasible { seen } else { (*wanted).max(seen) };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn cpu(spec: serde_json::Value, status: serde_json::Value) -> i64 {
        let spec: core::PodSpec = serde_json::from_value(spec).unwrap();
        let status: core::PodStatus = serde_json::from_value(status).unwrap();
        pod_requests(&spec, Some(&status)).unwrap().cpu_milli
    }

    fn container(name: &str, cpu: &str) -> serde_json::Value {
        json!({"name": name, "resources": {"requests": {"cpu": cpu}}})
    }

    fn sidecar(name: &str, cpu: &str) -> serde_json::Value {
        json!({"name": name, "restartPolicy": "Always", "resources": {"requests": {"cpu": cpu}}})
    }

    #[test]
    fn requests_follow_the_scheduler() {
        let cases = [
            ("containers add up", json!({"containers": [container("a", "1"), container("b", "500m")]}), 1500),
            (
                "an absent request equals the limit",
                json!({"containers": [{"name": "a", "resources": {"limits": {"cpu": "2"}}}]}),
                2000,
            ),
            (
                "a large init container decides",
                json!({"containers": [container("a", "1")], "initContainers": [container("i", "3")]}),
                3000,
            ),
            (
                "a sidecar adds to the containers",
                json!({"containers": [container("a", "1")], "initContainers": [sidecar("s", "1")]}),
                2000,
            ),
            (
                "an init container after a sidecar runs beside it",
                json!({"containers": [container("a", "1")],
                       "initContainers": [sidecar("s", "1"), container("i", "3")]}),
                4000,
            ),
            (
                "an init container before a sidecar runs alone",
                json!({"containers": [container("a", "1")],
                       "initContainers": [container("i", "3"), sidecar("s", "1")]}),
                3000,
            ),
            (
                "less than nothing is nothing",
                json!({"containers": [container("a", "-2"), container("b", "1")]}),
                1000,
            ),
            (
                "overhead comes on top",
                json!({"containers": [container("a", "1")], "overhead": {"cpu": "250m"}}),
                1250,
            ),
            (
                "pod-level requests win",
                json!({"containers": [container("a", "1")], "resources": {"requests": {"cpu": "3"}}}),
                3000,
            ),
            (
                "pod-level limits do not, where containers request",
                json!({"containers": [container("a", "1")], "resources": {"limits": {"cpu": "3"}}}),
                1000,
            ),
            (
                "pod-level limits count where no container requests",
                json!({"containers": [{"name": "a"}], "resources": {"limits": {"cpu": "3"}}}),
                3000,
            ),
        ];
        for (what, spec, expected) in cases {
            assert_eq!(cpu(spec, json!({})), expected, "{what}");
        }
    }

    #[test]
    fn a_resize_under_way_counts_its_largest_figure() {
        let spec = json!({"containers": [container("a", "2")]});
        let seen = |allocated: &str, actual: &str| {
            json!([{"name": "a", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                    "allocatedResources": {"cpu": allocated}, "resources": {"requests": {"cpu": actual}}}])
        };
        let pending = json!({"containerStatuses": seen("1", "3")});
        assert_eq!(cpu(spec.clone(), pending), 3000);
        let infeasible = json!({"containerStatuses": seen("1", "1"),
            "conditions": [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]});
        assert_eq!(cpu(spec, infeasible), 1000);
    }
}
