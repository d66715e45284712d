//! Objects of dynamic resource allocation.

use jiff::Timestamp;
use serde_json::Value;

use super::fields::Fields;
use super::selector::node_selector;
use model::devices::{
    AllocatedDevice, Allocation, AllocationMode, Amounts, Attribute, Capacity, CapacityPolicy, ClaimSource,
    ConstraintKind, CounterSet, Device, DeviceAsk, DeviceClass, DeviceConstraint, DeviceRequest, DeviceTaint,
    DeviceTaintRule, DeviceToleration, Made, PodClaim, Reach, RequestKind, ResourceClaim, ResourceSlice,
};
use model::pod::Pod;

const VERSION: &str = "resource.k8s.io/v1";

/// A ResourceClaim. The time of its deletion is not known, so `now` is written if the claim is being deleted.
pub(super) fn resource_claim(claim: &ResourceClaim, now: Timestamp) -> Value {
    let mark =
        Fields::default().when(claim.extended, "resource.kubernetes.io/extended-resource-claim", "true");
    let metadata = Fields::named(&claim.namespace, &claim.name)
        .text("uid", &claim.uid)
        .part("annotations", mark)
        .time("deletionTimestamp", claim.deleted.then_some(now))
        .list("ownerReferences", claim.owner.iter().map(super::pod::owner));
    let devices = Fields::default()
        .list("requests", claim.requests.iter().map(request))
        .list("constraints", claim.constraints.iter().map(constraint));
    let reserved = claim.reserved_for.iter().map(|uid| {
        Fields::default().with("resource", "pods").with("name", uid.as_str()).with("uid", uid.as_str())
    });
    let status = Fields::default()
        .some("allocation", claim.allocation.as_ref().map(allocation))
        .list("reservedFor", reserved);
    Fields::object(VERSION, "ResourceClaim")
        .part("metadata", metadata)
        .with("spec", Fields::default().part("devices", devices))
        .part("status", status)
        .into()
}

/// A DeviceClass.
pub(super) fn device_class(class: &DeviceClass) -> Value {
    let spec = Fields::default()
        .list("selectors", class.selectors.iter().map(|one| selector(one.as_ref())))
        .some("extendedResourceName", class.extended_resource.as_deref());
    Fields::object(VERSION, "DeviceClass")
        .part("metadata", Fields::named("", &class.name).time("creationTimestamp", class.created))
        .with("spec", spec)
        .into()
}

/// A ResourceSlice.
pub(super) fn resource_slice(slice: &ResourceSlice) -> Value {
    let pool = Fields::default()
        .with("name", slice.pool.as_str())
        .with("generation", slice.generation)
        .with("resourceSliceCount", slice.slices);
    let spec = reach(&slice.reach)
        .with("driver", slice.driver.as_str())
        .with("pool", pool)
        .when(slice.reach_by_device, "perDeviceNodeSelection", true)
        .list("sharedCounters", slice.counters.iter().map(|set| counters("name", set)))
        .list("devices", slice.devices.iter().map(device));
    Fields::object(VERSION, "ResourceSlice")
        .part("metadata", Fields::named("", &slice.name))
        .with("spec", spec)
        .into()
}

/// A DeviceTaintRule.
pub(super) fn device_taint_rule(rule: &DeviceTaintRule) -> Value {
    let selector = rule.selector.as_ref().map(|devices| {
        Fields::default()
            .some("driver", devices.driver.as_deref())
            .some("pool", devices.pool.as_deref())
            .some("device", devices.device.as_deref())
    });
    let spec = Fields::default().some("deviceSelector", selector).with("taint", taint(&rule.taint));
    Fields::object(VERSION, "DeviceTaintRule")
        .part("metadata", Fields::named("", &rule.name))
        .with("spec", spec)
        .into()
}

/// One claim in a pod's spec.
pub(super) fn pod_claim(claim: &PodClaim) -> Fields {
    let fields = Fields::default().with("name", claim.name.as_str());
    match &claim.source {
        ClaimSource::Named(name) => fields.with("resourceClaimName", name.as_str()),
        ClaimSource::Template { template, .. } => fields.with("resourceClaimTemplateName", template.as_str()),
        ClaimSource::Unknown => fields,
    }
}

/// `status.resourceClaimStatuses` of a pod.
pub(super) fn claim_statuses(pod: &Pod) -> impl Iterator<Item = Fields> {
    pod.resource_claims.iter().filter_map(|claim| {
        let fields = Fields::default().with("name", claim.name.as_str());
        match &claim.source {
            ClaimSource::Template { made: Made::As(name), .. } => {
                Some(fields.with("resourceClaimName", name.as_str()))
            }
            ClaimSource::Template { made: Made::None, .. } => Some(fields),
            _ => None,
        }
    })
}

fn request(request: &DeviceRequest) -> Fields {
    let fields = Fields::default().with("name", request.name.as_str());
    match &request.kind {
        RequestKind::Exactly(one) => fields.with("exactly", ask(one).when(one.admin, "adminAccess", true)),
        RequestKind::FirstAvailable(all) => {
            fields.list("firstAvailable", all.iter().map(|one| ask(one).with("name", one.name.as_str())))
        }
        RequestKind::Unknown => fields,
    }
}

fn ask(ask: &DeviceAsk) -> Fields {
    let (mode, count) = match &ask.mode {
        AllocationMode::ExactCount(count) => ("ExactCount", Some(*count)),
        AllocationMode::All => ("All", None),
        AllocationMode::Other(word) => (word.as_str(), None),
    };
    let expression = Fields::default().with("name", "unknown").with("expression", "");
    Fields::default()
        .with("deviceClassName", ask.class.as_str())
        .list("selectors", ask.selectors.iter().map(|one| selector(one.as_ref())))
        .with("allocationMode", mode)
        .some("count", count)
        .list("tolerations", ask.tolerations.iter().map(toleration))
        .part("capacity", Fields::default().part("requests", amounts(&ask.capacity)))
        .list("derivedAttributes", ask.derived.then_some(expression))
}

fn selector(expression: Option<&String>) -> Fields {
    let cel = expression.map(|text| Fields::default().with("expression", text.as_str()));
    Fields::default().some("cel", cel)
}

fn toleration(one: &DeviceToleration) -> Fields {
    Fields::default()
        .text("key", &one.key)
        .text("operator", &one.operator)
        .text("value", &one.value)
        .text("effect", &one.effect)
}

fn constraint(one: &DeviceConstraint) -> Fields {
    let fields = Fields::default().list("requests", one.requests.iter().map(String::as_str));
    match &one.kind {
        ConstraintKind::Match(name) => fields.with("matchAttribute", name.as_str()),
        ConstraintKind::Distinct(name) => fields.with("distinctAttribute", name.as_str()),
        ConstraintKind::Unknown => fields,
    }
}

fn allocation(one: &Allocation) -> Fields {
    let devices = Fields::default().list("results", one.devices.iter().map(allocated));
    Fields::default().part("devices", devices).some("nodeSelector", one.nodes.as_ref().map(node_selector))
}

fn allocated(one: &AllocatedDevice) -> Fields {
    Fields::default()
        .with("request", "request")
        .with("driver", one.driver.as_str())
        .with("pool", one.pool.as_str())
        .with("device", one.device.as_str())
        .when(one.admin, "adminAccess", true)
        .some("shareID", one.share.as_deref())
        .some("consumedCapacity", one.consumed.as_ref().map(amounts))
}

fn device(one: &Device) -> Fields {
    let attributes = one
        .attributes
        .iter()
        .fold(Fields::default(), |fields, (name, value)| fields.with(name, attribute(value)));
    let capacities = one
        .capacity
        .iter()
        .fold(Fields::default(), |fields, (name, value)| fields.with(name, capacity(value)));
    reach(&one.reach)
        .with("name", one.name.as_str())
        .part("attributes", attributes)
        .part("capacity", capacities)
        .when(one.shared, "allowMultipleAllocations", true)
        .list("consumesCounters", one.consumes.iter().map(|set| counters("counterSet", set)))
        .list("taints", one.taints.iter().map(taint))
        .when(one.waits, "bindingConditions", vec!["condition"])
        .when(one.binds_to_node, "bindsToNode", true)
}

fn attribute(value: &Attribute) -> Fields {
    let fields = Fields::default();
    match value {
        Attribute::String(text) => fields.with("string", text.as_str()),
        Attribute::Int(number) => fields.with("int", *number),
        Attribute::Bool(value) => fields.with("bool", *value),
        Attribute::Version(text) => fields.with("version", text.as_str()),
        Attribute::Strings(all) => fields.with("strings", all.clone()),
        Attribute::Ints(all) => fields.with("ints", all.clone()),
        Attribute::Bools(all) => fields.with("bools", all.clone()),
        Attribute::Versions(all) => fields.with("versions", all.clone()),
        Attribute::Unknown => fields,
    }
}

fn capacity(one: &Capacity) -> Fields {
    let policy = |policy: &CapacityPolicy| {
        let range = policy.range.as_ref().map(|range| {
            Fields::default()
                .with("min", range.min.to_string())
                .some("max", range.max.map(|max| max.to_string()))
                .some("step", range.step.map(|step| step.to_string()))
        });
        Fields::default()
            .some("default", policy.default.map(|default| default.to_string()))
            .some("validRange", range)
            .list("validValues", policy.values.iter().map(ToString::to_string))
    };
    Fields::default()
        .with("value", one.value.to_string())
        .some("requestPolicy", one.policy.as_ref().map(policy))
}

fn counters(key: &str, set: &CounterSet) -> Fields {
    let all = set.counters.iter().fold(Fields::default(), |fields, (name, amount)| {
        fields.with(name, Fields::default().with("value", amount.to_string()))
    });
    Fields::default().with(key, set.name.as_str()).with("counters", all)
}

fn taint(one: &DeviceTaint) -> Fields {
    Fields::default()
        .with("key", one.key.as_str())
        .text("value", &one.value)
        .with("effect", one.effect.as_str())
}

fn reach(reach: &Reach) -> Fields {
    Fields::default()
        .some("nodeName", reach.node.as_deref())
        .when(reach.all, "allNodes", true)
        .some("nodeSelector", reach.selector.as_ref().map(node_selector))
}

fn amounts(all: &Amounts) -> Fields {
    all.iter().fold(Fields::default(), |fields, (name, amount)| fields.with(name, amount.to_string()))
}
