//! Why a node does not take a pod.

use std::fmt;
use std::sync::Arc;

use super::dynamic_resources::DeviceProblem;
use model::features::Feature;
use model::quantity::{binary, from_milli};

/// The filter that refused the pod, with its findings. Creating a refusal is cheap, because its text is only
/// built when it is needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The node is cordoned.
    Unschedulable,
    /// A taint that the pod does not tolerate.
    Taint {
        /// The taint's key.
        key: String,
        /// The taint's value.
        value: String,
    },
    /// The node does not match the pod's node selector or required node affinity.
    NodeAffinity,
    /// The host port is already in use.
    Port(i32),
    /// No pod slot is left.
    Pods {
        /// The maximum number of pods on the node.
        most: i64,
    },
    /// Too little CPU is free. Contains the requested and the free CPU, in thousandths of a core.
    Cpu(i64, i64),
    /// Too little memory is free. Contains the requested and the free memory, in bytes.
    Memory(i64, i64),
    /// Too little ephemeral storage is free. Contains the requested and the free amount, in bytes.
    EphemeralStorage(i64, i64),
    /// Too little of an extended resource is free. Contains the resource's name, the requested amount and the
    /// free amount.
    Extended(String, i64, i64),
    /// A claim does not exist. The first filter that needs it refuses the pod: VolumeRestrictions, or
    /// NodeVolumeLimits for the claim of an ephemeral volume.
    ClaimMissing {
        /// Whether the claim belongs to an ephemeral volume.
        ephemeral: bool,
    },
    /// Another pod on the node uses the same disk, or a pod on any node uses the same ReadWriteOncePod claim.
    VolumeInUse,
    /// The node takes no more volumes of a driver.
    VolumeLimit {
        /// The driver.
        driver: Arc<str>,
        /// The maximum number of this driver's volumes on the node.
        most: i64,
    },
    /// The node lacks a CSI driver that the pod's volumes need, and the driver keeps pods away from such
    /// nodes (from Kubernetes 1.37 on).
    DriverMissing(Arc<str>),
    /// A volume of the pod, or of a pod on the node, cannot be counted: an in-tree disk that its driver does
    /// not support, or an ephemeral volume whose claim belongs to another pod.
    VolumesUncountable,
    /// A claim's volume cannot be used or bound on this node.
    VolumeBinding(VolumeProblem),
    /// A volume is in another zone.
    VolumeZone,
    /// The node lacks a spread constraint's label.
    SpreadLabel(Arc<str>),
    /// The pod would violate a spread constraint.
    Spread(Arc<str>),
    /// Required pod affinity is not satisfied.
    Affinity,
    /// Required pod anti-affinity is not satisfied.
    AntiAffinity,
    /// A running pod's anti-affinity keeps the pod away.
    OthersAntiAffinity,
    /// The node's kubelet lacks a feature that the pod uses.
    Feature(Feature),
    /// Devices cannot be allocated for the pod's claims.
    DynamicResources(Box<DeviceProblem>),
}

/// What is wrong with a pod's claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeProblem {
    /// The claim is being deleted or has lost its volume.
    ClaimGone,
    /// The claim of an ephemeral volume belongs to another pod.
    ClaimOfAnother,
    /// The claim is not bound, although its class binds immediately.
    UnboundImmediate,
    /// The bound volume does not exist.
    VolumeMissing,
    /// The bound volume cannot be used on this node.
    NodeAffinity,
    /// No volume is available, and none can be created for this node.
    NothingToBind,
    /// No storage that the node can reach reports enough room for the volume.
    NoRoom,
}

impl Refusal {
    /// The filter's name in kube-scheduler.
    pub fn filter(&self) -> &'static str {
        match self {
            Self::Unschedulable => "NodeUnschedulable",
            Self::Taint { .. } => "TaintToleration",
            Self::NodeAffinity => "NodeAffinity",
            Self::Port(_) => "NodePorts",
            Self::Pods { .. }
            | Self::Cpu(..)
            | Self::Memory(..)
            | Self::EphemeralStorage(..)
            | Self::Extended(..) => "NodeResourcesFit",
            Self::VolumeInUse | Self::ClaimMissing { ephemeral: false } => "VolumeRestrictions",
            Self::VolumeLimit { .. }
            | Self::DriverMissing(_)
            | Self::VolumesUncountable
            | Self::ClaimMissing { ephemeral: true } => "NodeVolumeLimits",
            Self::VolumeBinding(_) => "VolumeBinding",
            Self::VolumeZone => "VolumeZone",
            Self::SpreadLabel(_) | Self::Spread(_) => "PodTopologySpread",
            Self::Affinity | Self::AntiAffinity | Self::OthersAntiAffinity => "InterPodAffinity",
            Self::DynamicResources(_) => "DynamicResources",
            Self::Feature(_) => "NodeDeclaredFeatures",
        }
    }

    /// Whether a node that refuses for this reason keeps refusing equal pods while pods are only added to the
    /// world.
    pub fn lasts(&self) -> bool {
        !matches!(self, Self::Spread(_) | Self::Affinity)
    }

    /// The reason's name in a plan.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Unschedulable | Self::Taint { .. } => "Taint",
            Self::NodeAffinity => "NodeAffinity",
            Self::Port(_) => "NodePorts",
            Self::Pods { .. } => "InsufficientPods",
            Self::Cpu(..) => "InsufficientCpu",
            Self::Memory(..) => "InsufficientMemory",
            Self::EphemeralStorage(..) => "InsufficientEphemeralStorage",
            Self::Extended(..) | Self::DynamicResources(_) => "InsufficientExtendedResource",
            Self::Feature(_) => "NodeDeclaredFeatures",
            Self::ClaimMissing { .. }
            | Self::VolumeInUse
            | Self::VolumeLimit { .. }
            | Self::DriverMissing(_)
            | Self::VolumesUncountable
            | Self::VolumeBinding(_)
            | Self::VolumeZone => "Volume",
            Self::SpreadLabel(_) | Self::Spread(_) => "PodTopologySpread",
            Self::Affinity | Self::AntiAffinity | Self::OthersAntiAffinity => "PodAffinity",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unschedulable => f.write_str("the node is cordoned"),
            Self::Taint { key, value } => write!(f, "untolerated taint {{{key}: {value}}}"),
            Self::NodeAffinity => {
                f.write_str("the node's labels do not match the pod's node affinity or selector")
            }
            Self::Port(port) => write!(f, "host port {port} is taken"),
            Self::Pods { most } => write!(f, "too many pods: the node runs at most {most}"),
            Self::Cpu(wanted, free) => {
                write!(f, "wants {} CPU, {} free", from_milli(*wanted), from_milli(*free))
            }
            Self::Memory(wanted, free) => {
                write!(f, "wants {} memory, {} free", binary(*wanted), binary(*free))
            }
            Self::EphemeralStorage(wanted, free) => {
                write!(f, "wants {} ephemeral storage, {} free", binary(*wanted), binary(*free))
            }
            Self::Extended(name, wanted, free) => write!(f, "wants {wanted} {name}, {free} free"),
            Self::ClaimMissing { .. } => f.write_str("a persistent volume claim does not exist"),
            Self::VolumeInUse => f.write_str("a volume is in use by another pod"),
            Self::VolumeLimit { driver, most } => {
                write!(f, "too many volumes: the node's limit for the CSI driver {driver} is {most}")
            }
            Self::DriverMissing(driver) => write!(f, "the node lacks the CSI driver {driver}"),
            Self::VolumesUncountable => {
                f.write_str("a volume of this pod, or of another pod on the node, cannot be counted towards volume limits")
            }
            Self::VolumeBinding(problem) => f.write_str(match problem {
                VolumeProblem::ClaimGone => {
                    "a persistent volume claim is being deleted or has lost its volume"
                }
                VolumeProblem::ClaimOfAnother => "the claim of an ephemeral volume belongs to another pod",
                VolumeProblem::UnboundImmediate => {
                    "a persistent volume claim with immediate binding is not bound"
                }
                VolumeProblem::VolumeMissing => "a bound persistent volume does not exist",
                VolumeProblem::NodeAffinity => "a volume cannot be used on this node",
                VolumeProblem::NothingToBind => "no persistent volume can be bound or created for this node",
                VolumeProblem::NoRoom => "no storage that the node can reach has room for the volume",
            }),
            Self::VolumeZone => f.write_str("a volume is in another zone"),
            Self::SpreadLabel(key) => {
                write!(f, "the node lacks the label {key}, which a topology spread constraint requires")
            }
            Self::Spread(key) => write!(f, "the topology spread constraint for {key} would be violated"),
            Self::Affinity => f.write_str("required pod affinity is not satisfied"),
            Self::AntiAffinity => f.write_str("required pod anti-affinity is not satisfied"),
            Self::OthersAntiAffinity => f.write_str("a running pod's anti-affinity excludes this pod"),
            Self::Feature(feature) => {
                write!(f, "the node's kubelet does not declare {}, which the pod needs", feature.name())
            }
            Self::DynamicResources(problem) => problem.fmt(f),
        }
    }
}
