//! Computes a pod's resource requests in the same way as kube-scheduler, which calls `PodRequests` of
//! `k8s.io/component-helpers/resource` after the API server's defaulting. For pods with a node,
//! kube-scheduler sets `UseStatusResources`, and the result depends on the Kubernetes version.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::{ConvertError, resources};
use model::KubernetesVersion;
use model::resources::Resources;

/// The field with the resources that the kubelet has allocated to a container.
const ALLOCATED: &str = "status.containerStatuses[].allocatedResources";

type List = BTreeMap<String, Quantity>;

/// Returns the requests of a pod without a node. They depend only on the spec, as in the `PreFilter` step of
/// NodeResourcesFit.
pub(super) fn wanted(spec: &core::PodSpec) -> Result<Resources, ConvertError> {
    let containers = of_spec(spec)?;
    let mut sum = containers.clone();
    // Without a status, the version makes no difference.
    for (name, amount) in level_requests(spec, &containers, KubernetesVersion::NEWEST)? {
        set(&mut sum, &name, amount);
    }
    finished(spec, sum)
}

/// Returns the resources that a pod uses on its node, as computed by the scheduler of this version. The
/// amount of `pods` is 1. During an in-place resize, the result can differ from the pod's spec.
pub(super) fn taken(
    spec: &core::PodSpec,
    status: &core::PodStatus,
    version: KubernetesVersion,
) -> Result<Resources, ConvertError> {
    let reckoning = Reckoning { spec, status, infeasible: resize_is_infeasible(status), version };
    let mut sum = reckoning.of_containers()?;
    reckoning.pod_level(&mut sum)?;
    finished(spec, sum)
}

fn finished(spec: &core::PodSpec, mut sum: Resources) -> Result<Resources, ConvertError> {
    sum.add(&resources("spec.overhead", spec.overhead.as_ref())?);
    sum.other.retain(|_, amount| *amount != 0);
    sum.pods = 1;
    Ok(sum)
}

/// Whether a pending resize cannot be carried out. Only the reason in the first `PodResizePending` condition
/// matters, not the condition's status.
fn resize_is_infeasible(status: &core::PodStatus) -> bool {
    let pending = status.conditions.iter().flatten().find(|one| one.type_ == "PodResizePending");
    pending.is_some_and(|one| one.reason.as_deref() == Some("Infeasible"))
}

fn is_sidecar(container: &core::Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// Returns the sum over all containers and sidecars, but at least the amount that any init container needs
/// together with the sidecars that start before it.
fn aggregate(
    spec: &core::PodSpec,
    of: impl Fn(&core::Container) -> Result<Resources, ConvertError>,
) -> Result<Resources, ConvertError> {
    let mut sum = Resources::default();
    for container in &spec.containers {
        sum.add(&of(container)?);
    }
    let mut sidecars = Resources::default();
    let mut peak = Resources::default();
    for container in spec.init_containers.iter().flatten() {
        let own = of(container)?;
        if is_sidecar(container) {
            sum.add(&own);
            sidecars.add(&own);
            peak.raise_to(&sidecars);
        } else {
            let mut with_sidecars = own;
            with_sidecars.add(&sidecars);
            peak.raise_to(&with_sidecars);
        }
    }
    sum.raise_to(&peak);
    Ok(sum)
}

fn of_spec(spec: &core::PodSpec) -> Result<Resources, ConvertError> {
    aggregate(spec, spec_requests)
}

/// Returns the requests in a container's spec. A missing request defaults to the limit.
fn spec_requests(container: &core::Container) -> Result<Resources, ConvertError> {
    let field = "spec.containers[].resources.requests";
    match &container.resources {
        Some(wanted) => {
            resources(field, Some(&with_limits(wanted.requests.as_ref(), wanted.limits.as_ref())))
        }
        None => Ok(Resources::default()),
    }
}

fn with_limits(requests: Option<&List>, limits: Option<&List>) -> List {
    let mut all = limits.cloned().unwrap_or_default();
    all.extend(requests.cloned().unwrap_or_default());
    all
}

/// Whether this resource can be requested at the pod level: CPU, memory and huge pages.
fn is_pod_level(name: &str) -> bool {
    name == "cpu" || name == "memory" || is_huge(name)
}

fn is_huge(name: &str) -> bool {
    name.starts_with("hugepages-")
}

fn amount(of: &Resources, name: &str) -> i64 {
    match name {
        "cpu" => of.cpu_milli,
        "memory" => of.memory,
        _ => of.other.get(name).copied().unwrap_or(0),
    }
}

fn set(of: &mut Resources, name: &str, amount: i64) {
    match name {
        "cpu" => of.cpu_milli = amount,
        "memory" => of.memory = amount,
        _ => {
            of.other.insert(name.to_owned(), amount);
        }
    }
}

/// Returns the amounts in a list, but only of the resources that can be requested at the pod level.
fn pod_level_amounts(field: &str, list: Option<&List>) -> Result<BTreeMap<String, i64>, ConvertError> {
    let all = resources(field, list)?;
    let names = list.into_iter().flatten().map(|(name, _)| name).filter(|name| is_pod_level(name));
    Ok(names.map(|name| (name.clone(), amount(&all, name))).collect())
}

/// `spec.resources.requests` after the API server's defaulting, which applies if the pod has limits (since
/// 1.37, also if it only has requests). A missing request is set to the sum of the containers' requests, or
/// to the pod's limit if no container requests the resource. Huge pages cannot be overcommitted, so their
/// request equals their limit.
fn level_requests(
    spec: &core::PodSpec,
    containers: &Resources,
    version: KubernetesVersion,
) -> Result<BTreeMap<String, i64>, ConvertError> {
    let Some(level) = &spec.resources else { return Ok(BTreeMap::new()) };
    let mut requests = pod_level_amounts("spec.resources.requests", level.requests.as_ref())?;
    let mut limits = pod_level_amounts("spec.resources.limits", level.limits.as_ref())?;
    let all = || spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let wanted = all().filter_map(|container| container.resources.as_ref());
    let mut named: BTreeSet<&String> = BTreeSet::new();
    for one in wanted {
        named.extend(one.requests.iter().chain(&one.limits).flat_map(BTreeMap::keys));
    }
    let stated = |list: Option<&List>| list.is_some_and(|list| !list.is_empty());
    let is_stated = stated(level.requests.as_ref()) || stated(level.limits.as_ref());
    if is_stated {
        for name in named.iter().filter(|name| is_huge(name) && !requests.contains_key(**name)) {
            limits.entry((*name).clone()).or_insert_with(|| amount(containers, name));
        }
    }
    let with_requests = is_stated && version >= KubernetesVersion::V1_37;
    if with_requests || !limits.is_empty() || stated(level.limits.as_ref()) {
        for name in ["cpu", "memory"].map(str::to_owned).iter().filter(|name| named.contains(name)) {
            requests.entry(name.clone()).or_insert_with(|| amount(containers, name));
        }
    }
    for (name, limit) in limits {
        requests.entry(name).or_insert(limit);
    }
    Ok(requests)
}

/// Computes the resources that a pod uses on its node.
struct Reckoning<'a> {
    spec: &'a core::PodSpec,
    status: &'a core::PodStatus,
    /// Whether the node cannot provide what the spec requests after a resize. If so, the spec is ignored.
    infeasible: bool,
    version: KubernetesVersion,
}

impl Reckoning<'_> {
    fn of_containers(&self) -> Result<Resources, ConvertError> {
        if self.version < KubernetesVersion::V1_37 {
            return aggregate(self.spec, |container| self.most_of(container));
        }
        // Since Kubernetes 1.37, the sums over all containers are compared, not the amounts of individual
        // containers.
        let (allocated, actual) = match self.pod_status()? {
            Some(both) => both,
            None => (
                aggregate(self.spec, |container| self.allocated(container))?,
                aggregate(self.spec, |container| self.actual(container))?,
            ),
        };
        let mut most = actual;
        most.raise_to(&allocated);
        if !self.infeasible {
            most.raise_to(&of_spec(self.spec)?);
        }
        Ok(most)
    }

    /// The allocated and actual amounts in the kubelet's pod-level status. Since Kubernetes 1.36, every pod
    /// has this status, and it includes the overhead.
    fn pod_status(&self) -> Result<Option<(Resources, Resources)>, ConvertError> {
        let actual = self.status.resources.as_ref().and_then(|actual| actual.requests.as_ref());
        let (Some(allocated), Some(actual)) = (&self.status.allocated_resources, actual) else {
            return Ok(None);
        };
        let allocated = resources("status.allocatedResources", Some(allocated))?;
        Ok(Some((allocated, resources("status.resources.requests", Some(actual))?)))
    }

    fn seen(&self, container: &core::Container) -> Option<&core::ContainerStatus> {
        let all = self.status.container_statuses.iter().chain(&self.status.init_container_statuses).flatten();
        let mut all = all.filter(|one| one.name == container.name);
        all.next()
    }

    /// Returns the resources that a container uses, as computed before Kubernetes 1.37. For each resource,
    /// this is the largest of the request in the spec, the actual amount and the allocated amount. If there
    /// is no status, or if the container cannot be resized, only its spec is used.
    fn most_of(&self, container: &core::Container) -> Result<Resources, ConvertError> {
        let is_initial = self.spec.init_containers.iter().flatten().any(|one| std::ptr::eq(one, container));
        let resizable = !is_initial || is_sidecar(container);
        let seen = self.seen(container).filter(|_| resizable);
        let Some((seen, actual)) = seen.and_then(|seen| Some((seen, seen.resources.as_ref()?))) else {
            return spec_requests(container);
        };
        let mut most = resources("status.containerStatuses[].resources.requests", actual.requests.as_ref())?;
        most.raise_to(&resources(ALLOCATED, seen.allocated_resources.as_ref())?);
        if !self.infeasible {
            most.raise_to(&spec_requests(container)?);
        }
        Ok(most)
    }

    fn allocated(&self, container: &core::Container) -> Result<Resources, ConvertError> {
        let seen = self.seen(container);
        match seen.and_then(|seen| seen.allocated_resources.as_ref()) {
            Some(allocated) => resources(ALLOCATED, Some(allocated)),
            None if self.infeasible => Ok(Resources::default()),
            None => spec_requests(container),
        }
    }

    fn actual(&self, container: &core::Container) -> Result<Resources, ConvertError> {
        let actual = self.seen(container).and_then(|seen| seen.resources.as_ref());
        match actual.and_then(|actual| actual.requests.as_ref()) {
            Some(actual) => resources("status.containerStatuses[].resources.requests", Some(actual)),
            None => self.allocated(container),
        }
    }

    /// Replaces the sum of the containers' requests with the pod-level requests, if there are any.
    fn pod_level(&self, sum: &mut Resources) -> Result<(), ConvertError> {
        let level = level_requests(self.spec, &of_spec(self.spec)?, self.version)?;
        if level.is_empty() {
            return Ok(());
        }
        // Kubernetes 1.36 added pod-level resize.
        let actual = self.status.resources.as_ref().filter(|_| self.version >= KubernetesVersion::V1_36);
        let Some(actual) = actual else {
            for (name, amount) in &level {
                set(sum, name, *amount);
            }
            return Ok(());
        };
        let actual = pod_level_amounts("status.resources.requests", actual.requests.as_ref())?;
        let allocated =
            pod_level_amounts("status.allocatedResources", self.status.allocated_resources.as_ref())?;
        let of = |list: &BTreeMap<String, i64>, name: &str| list.get(name).copied().unwrap_or(0);
        let before_1_37 = self.version < KubernetesVersion::V1_37;
        // Kubernetes 1.36 considers the resources that the spec names. Kubernetes 1.37 considers those that
        // the status names and, if the resize is feasible, also those that the spec names.
        let mut names: BTreeSet<&String> = BTreeSet::new();
        if before_1_37 || !self.infeasible {
            names.extend(level.keys());
        }
        if !before_1_37 {
            names.extend(actual.keys().chain(allocated.keys()));
        }
        for name in names {
            let seen = of(&actual, name).max(of(&allocated, name));
            set(sum, name, if self.infeasible { seen } else { seen.max(of(&level, name)) });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn cpu_in(version: KubernetesVersion, spec: &serde_json::Value, status: &serde_json::Value) -> i64 {
        let spec: core::PodSpec = serde_json::from_value(spec.clone()).unwrap();
        let status: core::PodStatus = serde_json::from_value(status.clone()).unwrap();
        taken(&spec, &status, version).unwrap().cpu_milli
    }

    fn cpu(spec: serde_json::Value, status: serde_json::Value) -> i64 {
        let counted = cpu_in(KubernetesVersion::V1_36, &spec, &status);
        assert_eq!(
            cpu_in(KubernetesVersion::V1_37, &spec, &status),
            counted,
            "1.36 and 1.37 agree on {spec} {status}"
        );
        counted
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
                "a missing request defaults to the limit",
                json!({"containers": [{"name": "a", "resources": {"limits": {"cpu": "2"}}}]}),
                2000,
            ),
            (
                "an init container counts if it requests more than the containers",
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
                "a negative request counts as zero",
                json!({"containers": [container("a", "-2"), container("b", "1")]}),
                1000,
            ),
            (
                "the overhead is added",
                json!({"containers": [container("a", "1")], "overhead": {"cpu": "250m"}}),
                1250,
            ),
            (
                "pod-level requests replace the containers' requests",
                json!({"containers": [container("a", "1")], "resources": {"requests": {"cpu": "3"}}}),
                3000,
            ),
            (
                "pod-level limits do not replace the containers' requests",
                json!({"containers": [container("a", "1")], "resources": {"limits": {"cpu": "3"}}}),
                1000,
            ),
            (
                "pod-level limits count if no container requests the resource",
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

    fn status(name: &str, allocated: &str, actual: &str) -> serde_json::Value {
        json!({"name": name, "image": "", "imageID": "", "ready": true, "restartCount": 0,
               "allocatedResources": {"cpu": allocated}, "resources": {"requests": {"cpu": actual}}})
    }

    #[test]
    fn versions_differ_in_what_counts_while_pods_run() {
        let grow_and_shrink = json!({"containers": [container("a", "2"), container("b", "1")]});
        let one = json!({"containers": [container("a", "1")]});
        let with_overhead = json!({"containers": [container("a", "1")], "overhead": {"cpu": "500m"}});
        let with_init = json!({"containers": [container("a", "1")], "initContainers": [container("i", "1")]});
        let level = json!({"containers": [{"name": "a"}], "resources": {"requests": {"memory": "1Gi"}}});
        let whole = |allocated: &str, actual: &str| json!({"allocatedResources": {"cpu": allocated}, "resources": {"requests": {"cpu": actual}}});
        for (what, spec, status, before, since) in [
            (
                "1.37 compares the sums, not the amounts of each container",
                &grow_and_shrink,
                json!({"containerStatuses": [status("a", "1", "1"), status("b", "2", "2")]}),
                4000,
                3000,
            ),
            ("1.37 counts the pod-level status", &one, whole("3", "1"), 1000, 3000),
            ("1.37 counts the overhead twice", &with_overhead, whole("1500m", "1"), 1500, 2000),
            (
                "1.37 counts an init container's status",
                &with_init,
                json!({"initContainerStatuses": [status("i", "3", "1")]}),
                1000,
                3000,
            ),
            (
                "a pod-level status without actual amounts is ignored",
                &one,
                json!({"allocatedResources": {"cpu": "3"}}),
                1000,
                1000,
            ),
            (
                "1.37 also counts a resource that only the pod-level status names",
                &level,
                whole("3", "2"),
                0,
                3000,
            ),
        ] {
            assert_eq!(cpu_in(KubernetesVersion::V1_36, spec, &status), before, "1.36: {what}");
            assert_eq!(cpu_in(KubernetesVersion::V1_37, spec, &status), since, "1.37: {what}");
        }
    }

    #[test]
    fn a_pod_without_a_node_requests_what_its_spec_says() {
        let spec = json!({"containers": [container("a", "2")]});
        let spec: core::PodSpec = serde_json::from_value(spec).unwrap();
        assert_eq!(wanted(&spec).unwrap().cpu_milli, 2000);
    }

    #[test]
    fn limits_of_a_pod_stand_in_for_what_no_container_requests() {
        let huge = |amount: &str| json!({"limits": {"hugepages-2Mi": amount, "cpu": "0"}});
        let spec = json!({"containers": [{"name": "a", "resources": huge("4Mi")}],
                          "resources": {"limits": {"hugepages-2Mi": "8Mi", "cpu": "2", "memory": "1Gi"}}});
        let spec: core::PodSpec = serde_json::from_value(spec).unwrap();
        let found = wanted(&spec).unwrap();
        assert_eq!(found.other["hugepages-2Mi"], 8 << 20, "huge pages are not overcommitted");
        assert_eq!((found.cpu_milli, found.memory), (0, 1 << 30), "a request of zero is a request");
    }
}
