//! Devices that are allocated dynamically (`resource.k8s.io/v1`), with the fields that kube-scheduler reads.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::amount::Amount;
use super::pod::Owner;
use super::selector::NodeSelector;

/// The prefix of the extended resources that stand for a DeviceClass. The name of the class follows the
/// prefix.
pub const CLASS_PREFIX: &str = "deviceclass.resource.kubernetes.io/";

/// Amounts of counters or of capacities, by name.
pub type Amounts = BTreeMap<String, Amount>;

/// A ResourceClaim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceClaim {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// The controller of the claim: the pod that the claim was generated for.
    pub owner: Option<Owner>,
    /// Whether the scheduler created the claim for the extended resources of its pod.
    pub extended: bool,
    /// Whether the claim is being deleted.
    pub deleted: bool,
    /// `spec.devices.requests`.
    pub requests: Vec<DeviceRequest>,
    /// `spec.devices.constraints`.
    pub constraints: Vec<DeviceConstraint>,
    /// `status.allocation`.
    pub allocation: Option<Allocation>,
    /// The uids in `status.reservedFor`.
    pub reserved_for: Vec<String>,
}

/// `spec.devices.requests[]` of a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceRequest {
    /// Its name.
    pub name: String,
    /// The devices that the request asks for.
    pub kind: RequestKind,
}

/// The form in which a request describes its devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum RequestKind {
    /// `exactly`.
    Exactly(DeviceAsk),
    /// `firstAvailable`: a list of alternatives. The first one that can be satisfied is used.
    FirstAvailable(Vec<DeviceAsk>),
    /// An unknown form of request.
    #[default]
    Unknown,
}

/// Requested devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceAsk {
    /// The name of the request or subrequest.
    pub name: String,
    /// `deviceClassName`.
    pub class: String,
    /// CEL expressions that must all be true; `None` stands for a selector of another kind.
    pub selectors: Vec<Option<String>>,
    /// How many devices are requested.
    pub mode: AllocationMode,
    /// `adminAccess`: the devices may already be in use.
    pub admin: bool,
    /// `tolerations`.
    pub tolerations: Vec<DeviceToleration>,
    /// `capacity.requests`.
    pub capacity: Amounts,
    /// `derivedAttributes`, which no scheduler supports by default.
    pub derived: bool,
}

/// How many devices a request asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AllocationMode {
    /// This many.
    ExactCount(i64),
    /// All that match.
    All,
    /// An unknown mode.
    Other(String),
}

impl Default for AllocationMode {
    fn default() -> Self {
        Self::ExactCount(1)
    }
}

/// A toleration of a device's taints.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceToleration {
    /// The key of the taint. If empty, every key matches.
    pub key: String,
    /// `Equal` or `Exists`. If empty, the operator is `Equal`.
    pub operator: String,
    /// Value for `Equal`.
    pub value: String,
    /// The effect of the taint. If empty, every effect matches.
    pub effect: String,
}

/// What the devices of a claim must, or must not, have in common.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceConstraint {
    /// The requests (or `request/subrequest`) that the constraint applies to. If empty, it applies to all
    /// requests.
    pub requests: Vec<String>,
    /// What it requires.
    pub kind: ConstraintKind,
}

/// What a constraint requires.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConstraintKind {
    /// All devices must have the same value of this attribute.
    Match(String),
    /// Each device must have a different value of this attribute.
    Distinct(String),
    /// An unknown constraint.
    Unknown,
}

/// The devices that were allocated for a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allocation {
    /// The devices.
    pub devices: Vec<AllocatedDevice>,
    /// The nodes that can use the devices. `None` means all nodes.
    pub nodes: Option<NodeSelector>,
}

/// `status.allocation.devices.results[]` of a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocatedDevice {
    /// The driver.
    pub driver: String,
    /// The pool.
    pub pool: String,
    /// The device.
    pub device: String,
    /// Whether the claim has admin access, so that the device remains available to other claims.
    pub admin: bool,
    /// The id of the share (`shareID`), if only a share of the device is allocated.
    pub share: Option<String>,
    /// The amounts that the share consumes.
    pub consumed: Option<Amounts>,
}

/// A DeviceClass.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceClass {
    /// Its name.
    pub name: String,
    /// CEL expressions that must all be true; `None` stands for a selector of another kind.
    pub selectors: Vec<Option<String>>,
    /// `spec.extendedResourceName`.
    pub extended_resource: Option<String>,
    /// `metadata.creationTimestamp`.
    pub created: Option<Timestamp>,
}

/// The nodes that can use a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reach {
    /// `nodeName`.
    pub node: Option<String>,
    /// `allNodes`.
    pub all: bool,
    /// `nodeSelector`.
    pub selector: Option<NodeSelector>,
}

/// A ResourceSlice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceSlice {
    /// Its name.
    pub name: String,
    /// `spec.driver`.
    pub driver: String,
    /// `spec.pool.name`.
    pub pool: String,
    /// `spec.pool.generation`.
    pub generation: i64,
    /// `spec.pool.resourceSliceCount`.
    pub slices: i64,
    /// The nodes that can use the slice's devices.
    pub reach: Reach,
    /// `perDeviceNodeSelection`: the nodes are selected for each device separately.
    pub reach_by_device: bool,
    /// `sharedCounters`.
    pub counters: Vec<CounterSet>,
    /// Its devices.
    pub devices: Vec<Device>,
}

/// A set of counters, or the amounts that a device consumes from such a set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CounterSet {
    /// The set's name.
    pub name: String,
    /// Its counters.
    pub counters: Amounts,
}

/// A device of a slice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// The name of the device, unique in its pool.
    pub name: String,
    /// The attributes by name. A name without a domain belongs to the driver's domain.
    pub attributes: BTreeMap<String, Attribute>,
    /// The capacities by name. A name without a domain belongs to the driver's domain.
    pub capacity: BTreeMap<String, Capacity>,
    /// `allowMultipleAllocations`.
    pub shared: bool,
    /// `consumesCounters`.
    pub consumes: Vec<CounterSet>,
    /// Taints.
    pub taints: Vec<DeviceTaint>,
    /// The nodes that can use the device, if the slice selects nodes for each device separately.
    pub reach: Reach,
    /// Whether the device has binding conditions, which must hold before a pod is bound. Such devices are
    /// used last.
    pub waits: bool,
    /// `bindsToNode`: a pod that uses the device stays on the node.
    pub binds_to_node: bool,
}

/// An attribute's value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Attribute {
    /// A string.
    String(String),
    /// A number.
    Int(i64),
    /// A boolean.
    Bool(bool),
    /// A semantic version.
    Version(String),
    /// Strings.
    Strings(Vec<String>),
    /// Numbers.
    Ints(Vec<i64>),
    /// Booleans.
    Bools(Vec<bool>),
    /// Semantic versions.
    Versions(Vec<String>),
    /// An unknown type.
    Unknown,
}

/// A capacity of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capacity {
    /// The total amount of the capacity.
    pub value: Amount,
    /// The rules for the amount that a request uses (`requestPolicy`).
    pub policy: Option<CapacityPolicy>,
}

/// `requestPolicy` of a capacity.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapacityPolicy {
    /// The amount that a request uses if it does not specify one.
    pub default: Option<Amount>,
    /// `validRange`.
    pub range: Option<CapacityRange>,
    /// `validValues`, the smallest first.
    pub values: Vec<Amount>,
}

/// `validRange` of a capacity's policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapacityRange {
    /// The minimum.
    pub min: Amount,
    /// The maximum.
    pub max: Option<Amount>,
    /// The step.
    pub step: Option<Amount>,
}

/// A taint of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceTaint {
    /// Key.
    pub key: String,
    /// Value.
    pub value: String,
    /// `NoSchedule`, `NoExecute`, or an effect that does not keep pods away.
    pub effect: String,
}

/// A DeviceTaintRule: a taint that another client sets on devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceTaintRule {
    /// Its name.
    pub name: String,
    /// The devices that the rule taints. `None` if it taints no device.
    pub selector: Option<TaintedDevices>,
    /// The taint.
    pub taint: DeviceTaint,
}

/// `deviceSelector` of a DeviceTaintRule. An absent field matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaintedDevices {
    /// The driver.
    pub driver: Option<String>,
    /// The pool.
    pub pool: Option<String>,
    /// The device.
    pub device: Option<String>,
}

/// An entry in a pod's `spec.resourceClaims`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PodClaim {
    /// The name by which the pod refers to the claim.
    pub name: String,
    /// The claim.
    pub source: ClaimSource,
}

/// Which claim a pod uses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ClaimSource {
    /// An existing claim, by name.
    Named(String),
    /// The pod's own claim, created from a template.
    Template {
        /// The template's name.
        template: String,
        /// The claim that was created.
        made: Made,
    },
    /// An unknown source.
    Unknown,
}

impl PodClaim {
    /// Returns the part of the claim that matters when pods are grouped by kind. For an existing claim, this
    /// is its name. For a claim from a template, this is the template's name and whether the claim has yet to
    /// be created. The name of a claim that was created from a template does not matter.
    pub fn kind(&self) -> (&str, &str, bool) {
        match &self.source {
            ClaimSource::Named(name) => ("", name, true),
            ClaimSource::Template { template, made } => (template, "", *made == Made::NotYet),
            ClaimSource::Unknown => ("", "", false),
        }
    }
}

/// The claim that was created from a template, if any.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Made {
    /// The claim has not been created yet.
    NotYet,
    /// No claim is needed.
    None,
    /// The claim was created with this name.
    As(String),
}

/// The amount of an extended resource that one container requests.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ExtendedRequest {
    /// The resource.
    pub resource: String,
    /// The number of devices that the container needs in addition to those of other containers. An init
    /// container that ends can use the devices of containers that start later and keep running, so only its
    /// additional need counts.
    pub count: i64,
}

/// Whether devices may be allocated for a resource of this name (`IsDRAExtendedResourceName`).
pub fn may_be_devices(resource: &str) -> bool {
    let native = !resource.contains('/') || resource.contains("kubernetes.io/");
    resource.starts_with(CLASS_PREFIX) || !native && !resource.starts_with("requests.")
}
