//! Devices that are allocated dynamically (`resource.k8s.io/v1`), as far as kube-scheduler reads them.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::amount::Amount;
use super::pod::Owner;
use super::selector::NodeSelector;

/// Prefix of the extended resource that every DeviceClass serves; the name of the class follows.
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
    /// Its controller: the pod that it was generated for.
    pub owner: Option<Owner>,
    /// The scheduler created it for the extended resources of its pod.
    pub extended: bool,
    /// It is being deleted.
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
    /// The devices that it asks for.
    pub kind: RequestKind,
}

/// How a request describes the devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum RequestKind {
    /// `exactly`.
    Exactly(DeviceAsk),
    /// `firstAvailable`: the first of these that can be satisfied.
    FirstAvailable(Vec<DeviceAsk>),
    /// An unknown form of request.
    #[default]
    Unknown,
}

/// Requested devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceAsk {
    /// The name of the request, or of the subrequest.
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
    /// Key; every key if empty.
    pub key: String,
    /// `Equal` (also if empty) or `Exists`.
    pub operator: String,
    /// Value for `Equal`.
    pub value: String,
    /// Effect; every effect if empty.
    pub effect: String,
}

/// What the devices of a claim must, or must not, have in common.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceConstraint {
    /// The requests (or `request/subrequest`) that it applies to. If empty, it applies to all.
    pub requests: Vec<String>,
    /// What it requires.
    pub kind: ConstraintKind,
}

/// What a constraint requires.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConstraintKind {
    /// All devices have the same value of this attribute.
    Match(String),
    /// Each device has a different value of this attribute.
    Distinct(String),
    /// An unknown constraint.
    Unknown,
}

/// What was allocated for a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allocation {
    /// The devices.
    pub devices: Vec<AllocatedDevice>,
    /// The nodes that can use them; `None`: all.
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
    /// Admin access: the device stays free for others.
    pub admin: bool,
    /// The id of the share (`shareID`), if only a share of the device is allocated.
    pub share: Option<String>,
    /// What the share consumes.
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
    /// The nodes that can use its devices.
    pub reach: Reach,
    /// `perDeviceNodeSelection`: each device has its own selection.
    pub reach_by_device: bool,
    /// `sharedCounters`.
    pub counters: Vec<CounterSet>,
    /// Its devices.
    pub devices: Vec<Device>,
}

/// A set of counters, or what a device consumes of one.
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
    /// Its name, unique in its pool.
    pub name: String,
    /// Attributes; a name without a domain belongs to the driver's domain.
    pub attributes: BTreeMap<String, Attribute>,
    /// Capacities, named in the same way.
    pub capacity: BTreeMap<String, Capacity>,
    /// `allowMultipleAllocations`.
    pub shared: bool,
    /// `consumesCounters`.
    pub consumes: Vec<CounterSet>,
    /// Taints.
    pub taints: Vec<DeviceTaint>,
    /// The nodes that can use it, if the slice leaves this to the devices.
    pub reach: Reach,
    /// It has conditions that must hold before a pod is bound, so it is used last.
    pub waits: bool,
    /// `bindsToNode`: a pod that uses it stays on the node.
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
    /// How much there is.
    pub value: Amount,
    /// The rules for the amount that a request takes (`requestPolicy`).
    pub policy: Option<CapacityPolicy>,
}

/// `requestPolicy` of a capacity.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapacityPolicy {
    /// The amount for a request that names none.
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
    /// The devices that get the taint; `None`: none of them.
    pub selector: Option<TaintedDevices>,
    /// The taint.
    pub taint: DeviceTaint,
}

/// `deviceSelector` of a DeviceTaintRule: an absent field matches anything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaintedDevices {
    /// The driver.
    pub driver: Option<String>,
    /// The pool.
    pub pool: Option<String>,
    /// The device.
    pub device: Option<String>,
}

/// One of `spec.resourceClaims[]` of a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PodClaim {
    /// Its name in the pod.
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
    /// The part that counts when pods are grouped by kind: the claim's name, or else its template and whether
    /// the claim has yet to be created. The name of a claim that was created from a template does not count.
    pub fn kind(&self) -> (&str, &str, bool) {
        match &self.source {
            ClaimSource::Named(name) => ("", name, true),
            ClaimSource::Template { template, made } => (template, "", *made == Made::NotYet),
            ClaimSource::Unknown => ("", "", false),
        }
    }
}

/// Whether a claim was created from a template.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Made {
    /// It has not been created yet.
    NotYet,
    /// No claim is needed.
    None,
    /// It was created with this name.
    As(String),
}

/// An amount of an extended resource for one container.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ExtendedRequest {
    /// The resource.
    pub resource: String,
    /// How many devices the container adds. An init container that ends shares the devices of later
    /// containers that keep running, so it adds only what it needs beyond those.
    pub count: i64,
}

/// Whether devices may be allocated for a resource of this name (`IsDRAExtendedResourceName`).
pub fn may_be_devices(resource: &str) -> bool {
    let native = !resource.contains('/') || resource.contains("kubernetes.io/");
    resource.starts_with(CLASS_PREFIX) || !native && !resource.starts_with("requests.")
}
