//! Converts the objects of dynamic resource allocation (claims, classes, slices and taint rules), and the
//! devices that pods request.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::resource::v1 as resource;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::pod::owner;
use super::selector::node_selector;
use super::{ConvertError, text, time};
use model::amount::Amount;
use model::devices::{
    AllocatedDevice, Allocation, AllocationMode, Amounts, Attribute, Capacity, CapacityPolicy, CapacityRange,
    ClaimSource, ConstraintKind, CounterSet, Device, DeviceAsk, DeviceClass, DeviceConstraint, DeviceRequest,
    DeviceTaint, DeviceTaintRule, DeviceToleration, ExtendedRequest, Made, PodClaim, Reach, RequestKind,
    ResourceClaim, ResourceSlice, TaintedDevices, may_be_devices,
};

/// The annotation on claims that the scheduler has created for extended resources.
pub const EXTENDED: &str = "resource.kubernetes.io/extended-resource-claim";

/// A ResourceClaim.
pub fn resource_claim(object: &resource::ResourceClaim) -> Result<ResourceClaim, ConvertError> {
    let meta = &object.metadata;
    let devices = object.spec.as_ref().and_then(|spec| spec.devices.as_ref());
    let status = object.status.as_ref();
    let requests = devices.and_then(|devices| devices.requests.as_ref()).into_iter().flatten();
    let constraints = devices.and_then(|devices| devices.constraints.as_ref()).into_iter().flatten();
    let reserved = status.and_then(|status| status.reserved_for.as_ref()).into_iter().flatten();
    let annotation = meta.annotations.as_ref().and_then(|all| all.get(EXTENDED));
    Ok(ResourceClaim {
        namespace: meta.namespace.clone().unwrap_or_else(|| "default".to_owned()),
        name: text(meta.name.as_ref()),
        uid: text(meta.uid.as_ref()),
        owner: owner(meta),
        extended: annotation.is_some_and(|value| value == "true"),
        deleted: meta.deletion_timestamp.is_some(),
        requests: requests.map(request).collect::<Result<_, _>>()?,
        constraints: constraints.map(constraint).collect(),
        allocation: status.and_then(|status| status.allocation.as_ref()).map(allocation).transpose()?,
        reserved_for: reserved.map(|one| one.uid.clone()).collect(),
    })
}

/// A DeviceClass.
pub fn device_class(object: &resource::DeviceClass) -> DeviceClass {
    let spec = object.spec.as_ref();
    DeviceClass {
        name: text(object.metadata.name.as_ref()),
        selectors: selectors(spec.and_then(|spec| spec.selectors.as_ref())),
        extended_resource: spec.and_then(|spec| spec.extended_resource_name.clone()),
        created: time(object.metadata.creation_timestamp.as_ref()),
    }
}

/// A ResourceSlice.
pub fn resource_slice(object: &resource::ResourceSlice) -> Result<ResourceSlice, ConvertError> {
    let spec = &object.spec;
    let devices = spec.devices.iter().flatten().map(device);
    Ok(ResourceSlice {
        name: text(object.metadata.name.as_ref()),
        driver: spec.driver.clone(),
        pool: spec.pool.name.clone(),
        generation: spec.pool.generation,
        slices: spec.pool.resource_slice_count,
        reach: reach(spec.node_name.as_ref(), spec.all_nodes, spec.node_selector.as_ref())?,
        reach_by_device: spec.per_device_node_selection == Some(true),
        counters: spec
            .shared_counters
            .iter()
            .flatten()
            .map(|set| counters("spec.sharedCounters", &set.name, &set.counters))
            .collect::<Result<_, _>>()?,
        devices: devices.collect::<Result<_, _>>()?,
    })
}

/// A DeviceTaintRule.
pub fn device_taint_rule(object: &resource::DeviceTaintRule) -> DeviceTaintRule {
    let selector = object.spec.device_selector.as_ref();
    DeviceTaintRule {
        name: text(object.metadata.name.as_ref()),
        selector: selector.map(|one| TaintedDevices {
            driver: one.driver.clone(),
            pool: one.pool.clone(),
            device: one.device.clone(),
        }),
        taint: taint(&object.spec.taint),
    }
}

/// Returns a pod's resource claims.
pub(super) fn pod_claims(spec: &core::PodSpec, status: Option<&core::PodStatus>) -> Vec<PodClaim> {
    let made = |name: &str| {
        let mut all = status.and_then(|status| status.resource_claim_statuses.as_ref()).into_iter().flatten();
        match all.find(|one| one.name == name) {
            None => Made::NotYet,
            Some(one) => one.resource_claim_name.clone().map_or(Made::None, Made::As),
        }
    };
    let source = |claim: &core::PodResourceClaim| match (
        &claim.resource_claim_name,
        &claim.resource_claim_template_name,
    ) {
        (Some(name), _) => ClaimSource::Named(name.clone()),
        (None, Some(template)) => {
            ClaimSource::Template { template: template.clone(), made: made(&claim.name) }
        }
        (None, None) => ClaimSource::Unknown,
    };
    let claims = spec.resource_claims.iter().flatten();
    claims.map(|claim| PodClaim { name: claim.name.clone(), source: source(claim) }).collect()
}

/// How much of an extended resource a container requests.
fn amount_of(container: &core::Container, resource: &str) -> i64 {
    let resources = container.resources.as_ref();
    let of = |list: Option<&BTreeMap<String, Quantity>>| list.and_then(|list| list.get(resource)).cloned();
    let requested = resources
        .and_then(|resources| of(resources.requests.as_ref()).or_else(|| of(resources.limits.as_ref())));
    requested.and_then(|amount| Amount::read(&amount.0).ok()).and_then(Amount::whole).unwrap_or(0)
}

/// Returns each container's requests for extended resources. A resource for which one request suffices is
/// left out. An init container that runs to completion leaves its devices to later containers, so it only
/// requests the devices that it needs in addition to theirs. Of several such init containers, only the one
/// that needs the most additional devices gets a request.
pub(super) fn extended_requests(spec: &core::PodSpec) -> Vec<ExtendedRequest> {
    let init = spec.init_containers.iter().flatten();
    let ends = |one: &core::Container| one.restart_policy.as_deref() != Some("Always");
    let containers: Vec<(&core::Container, bool)> =
        init.map(|one| (one, ends(one))).chain(spec.containers.iter().map(|one| (one, false))).collect();
    if containers.len() < 2 {
        return Vec::new();
    }
    let lists = containers.iter().filter_map(|(one, _)| one.resources.as_ref());
    let lists = lists.flat_map(|all| [all.requests.as_ref(), all.limits.as_ref()]).flatten();
    let mut names: Vec<&String> =
        lists.flat_map(BTreeMap::keys).filter(|name| may_be_devices(name)).collect();
    names.sort();
    names.dedup();
    let mut all = Vec::new();
    for name in names {
        let amounts: Vec<i64> = containers.iter().map(|(one, _)| amount_of(one, name)).collect();
        let lasting: Vec<i64> = amounts
            .iter()
            .zip(&containers)
            .map(|(amount, (_, ends))| if *ends { 0 } else { *amount })
            .collect();
        let mut counts: Vec<(usize, i64)> =
            lasting.iter().copied().enumerate().filter(|one| one.1 > 0).collect();
        let later = |at: usize| lasting[at..].iter().fold(0_i64, |sum, one| sum.saturating_add(*one));
        let beyond = |at: usize| amounts[at].saturating_sub(later(at));
        let short = (0..containers.len()).filter(|at| containers[*at].1).map(|at| (at, beyond(at)));
        // If two init containers need the same number of additional devices, the first one is used.
        counts.extend(short.filter(|one| one.1 > 0).rev().max_by_key(|one| one.1));
        counts.sort_unstable();
        if counts.len() > 1 {
            let request = |(_, count)| ExtendedRequest { resource: name.clone(), count };
            all.extend(counts.into_iter().map(request));
        }
    }
    all
}

fn request(request: &resource::DeviceRequest) -> Result<DeviceRequest, ConvertError> {
    let alternatives = request.first_available.as_ref().filter(|all| !all.is_empty());
    let kind = match (&request.exactly, alternatives) {
        (Some(one), _) => RequestKind::Exactly(exactly(&request.name, one)?),
        (None, Some(all)) => RequestKind::FirstAvailable(all.iter().map(sub).collect::<Result<_, _>>()?),
        (None, None) => RequestKind::Unknown,
    };
    Ok(DeviceRequest { name: request.name.clone(), kind })
}

fn exactly(name: &str, one: &resource::ExactDeviceRequest) -> Result<DeviceAsk, ConvertError> {
    Ok(DeviceAsk {
        name: name.to_owned(),
        class: one.device_class_name.clone(),
        selectors: selectors(one.selectors.as_ref()),
        mode: mode(one.allocation_mode.as_deref(), one.count),
        admin: one.admin_access == Some(true),
        tolerations: one.tolerations.iter().flatten().map(toleration).collect(),
        capacity: requested(one.capacity.as_ref())?,
        derived: one.derived_attributes.as_ref().is_some_and(|all| !all.is_empty()),
    })
}

fn sub(one: &resource::DeviceSubRequest) -> Result<DeviceAsk, ConvertError> {
    Ok(DeviceAsk {
        name: one.name.clone(),
        class: one.device_class_name.clone(),
        selectors: selectors(one.selectors.as_ref()),
        mode: mode(one.allocation_mode.as_deref(), one.count),
        admin: false,
        tolerations: one.tolerations.iter().flatten().map(toleration).collect(),
        capacity: requested(one.capacity.as_ref())?,
        derived: one.derived_attributes.as_ref().is_some_and(|all| !all.is_empty()),
    })
}

fn mode(word: Option<&str>, count: Option<i64>) -> AllocationMode {
    match word {
        None | Some("" | "ExactCount") => {
            AllocationMode::ExactCount(count.filter(|count| *count != 0).unwrap_or(1))
        }
        Some("All") => AllocationMode::All,
        Some(other) => AllocationMode::Other(other.to_owned()),
    }
}

fn selectors(list: Option<&Vec<resource::DeviceSelector>>) -> Vec<Option<String>> {
    let expression = |one: &resource::DeviceSelector| one.cel.as_ref().map(|cel| cel.expression.clone());
    list.into_iter().flatten().map(expression).collect()
}

fn toleration(one: &resource::DeviceToleration) -> DeviceToleration {
    DeviceToleration {
        key: text(one.key.as_ref()),
        operator: text(one.operator.as_ref()),
        value: text(one.value.as_ref()),
        effect: text(one.effect.as_ref()),
    }
}

fn taint(one: &resource::DeviceTaint) -> DeviceTaint {
    DeviceTaint { key: one.key.clone(), value: text(one.value.as_ref()), effect: one.effect.clone() }
}

fn constraint(one: &resource::DeviceConstraint) -> DeviceConstraint {
    let kind = match (&one.match_attribute, &one.distinct_attribute) {
        (Some(name), _) => ConstraintKind::Match(name.clone()),
        (None, Some(name)) => ConstraintKind::Distinct(name.clone()),
        (None, None) => ConstraintKind::Unknown,
    };
    DeviceConstraint { requests: one.requests.clone().unwrap_or_default(), kind }
}

fn allocation(one: &resource::AllocationResult) -> Result<Allocation, ConvertError> {
    let results = one.devices.as_ref().and_then(|devices| devices.results.as_ref()).into_iter().flatten();
    let device = |result: &resource::DeviceRequestAllocationResult| {
        let consumed = result.consumed_capacity.as_ref();
        Ok(AllocatedDevice {
            driver: result.driver.clone(),
            pool: result.pool.clone(),
            device: result.device.clone(),
            admin: result.admin_access == Some(true),
            share: result.share_id.clone(),
            consumed: consumed
                .map(|all| amounts("status.allocation.devices.results[].consumedCapacity", all))
                .transpose()?,
        })
    };
    let nodes = one.node_selector.as_ref();
    Ok(Allocation {
        devices: results.map(device).collect::<Result<_, _>>()?,
        nodes: nodes.map(|selector| node_selector("status.allocation.nodeSelector", selector)).transpose()?,
    })
}

fn device(one: &resource::Device) -> Result<Device, ConvertError> {
    let attributes = one.attributes.iter().flatten();
    let capacity = one.capacity.iter().flatten();
    let consumes = one.consumes_counters.iter().flatten();
    let field = "spec.devices[].consumesCounters";
    Ok(Device {
        name: one.name.clone(),
        attributes: attributes.map(|(name, value)| (name.clone(), attribute(value))).collect(),
        capacity: capacity
            .map(|(name, value)| Ok((name.clone(), device_capacity(value)?)))
            .collect::<Result<_, ConvertError>>()?,
        shared: one.allow_multiple_allocations == Some(true),
        consumes: consumes
            .map(|set| counters(field, &set.counter_set, &set.counters))
            .collect::<Result<_, _>>()?,
        taints: one.taints.iter().flatten().map(taint).collect(),
        reach: reach(one.node_name.as_ref(), one.all_nodes, one.node_selector.as_ref())?,
        waits: one.binding_conditions.is_some(),
        binds_to_node: one.binds_to_node == Some(true),
    })
}

fn attribute(one: &resource::DeviceAttribute) -> Attribute {
    if let Some(all) = &one.ints {
        Attribute::Ints(all.clone())
    } else if let Some(all) = &one.bools {
        Attribute::Bools(all.clone())
    } else if let Some(all) = &one.strings {
        Attribute::Strings(all.clone())
    } else if let Some(all) = &one.versions {
        Attribute::Versions(all.clone())
    } else if let Some(value) = one.int {
        Attribute::Int(value)
    } else if let Some(value) = one.bool {
        Attribute::Bool(value)
    } else if let Some(text) = &one.string {
        Attribute::String(text.clone())
    } else if let Some(text) = &one.version {
        Attribute::Version(text.clone())
    } else {
        Attribute::Unknown
    }
}

fn device_capacity(one: &resource::DeviceCapacity) -> Result<Capacity, ConvertError> {
    let field = "spec.devices[].capacity";
    let policy = |policy: &resource::CapacityRequestPolicy| {
        let range = |range: &resource::CapacityRequestPolicyRange| {
            let min = Some(&range.min).filter(|min| !min.0.is_empty());
            Ok::<_, ConvertError>(CapacityRange {
                min: min.map_or(Ok(Amount::default()), |min| amount(field, min))?,
                max: range.max.as_ref().map(|max| amount(field, max)).transpose()?,
                step: range.step.as_ref().map(|step| amount(field, step)).transpose()?,
            })
        };
        Ok::<_, ConvertError>(CapacityPolicy {
            default: policy.default.as_ref().map(|one| amount(field, one)).transpose()?,
            range: policy.valid_range.as_ref().map(range).transpose()?,
            values: policy
                .valid_values
                .iter()
                .flatten()
                .map(|one| amount(field, one))
                .collect::<Result<_, _>>()?,
        })
    };
    Ok(Capacity {
        value: amount(field, &one.value)?,
        policy: one.request_policy.as_ref().map(policy).transpose()?,
    })
}

fn reach(
    node: Option<&String>,
    all: Option<bool>,
    selector: Option<&core::NodeSelector>,
) -> Result<Reach, ConvertError> {
    Ok(Reach {
        node: node.filter(|name| !name.is_empty()).cloned(),
        all: all == Some(true),
        selector: selector.map(|one| node_selector("spec.nodeSelector", one)).transpose()?,
    })
}

fn counters(
    field: &str,
    name: &str,
    all: &BTreeMap<String, resource::Counter>,
) -> Result<CounterSet, ConvertError> {
    let counter = |(name, one): (&String, &resource::Counter)| Ok((name.clone(), amount(field, &one.value)?));
    let counters = all.iter().map(counter).collect::<Result<_, ConvertError>>()?;
    Ok(CounterSet { name: name.to_owned(), counters })
}

fn requested(capacity: Option<&resource::CapacityRequirements>) -> Result<Amounts, ConvertError> {
    let requests = capacity.and_then(|capacity| capacity.requests.as_ref());
    requests.map_or(Ok(Amounts::new()), |all| amounts("spec.devices.requests[].capacity.requests", all))
}

fn amounts(field: &str, all: &BTreeMap<String, Quantity>) -> Result<Amounts, ConvertError> {
    all.iter().map(|(name, one)| Ok((name.clone(), amount(field, one)?))).collect()
}

fn amount(field: &str, quantity: &Quantity) -> Result<Amount, ConvertError> {
    Amount::read(&quantity.0).map_err(|source| ConvertError::Quantity { field: field.to_owned(), source })
}
