//! Why devices cannot be allocated for a pod.

use std::fmt;

use crate::cel::Fault;

/// Why devices cannot be allocated for a pod on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceProblem {
    /// A claim does not exist, or the daemon cannot read it.
    ClaimMissing(String),
    /// The claim has not been created from its template yet.
    ClaimNotMade(String),
    /// The claim is being deleted.
    ClaimDeleted(String),
    /// The claim was created for another pod.
    ClaimOfAnother(String),
    /// The pod names a claim in an unsupported way.
    ClaimUnknown(String),
    /// A claim that the scheduler created for extended resources still has to be deleted.
    ExtendedClaimLeft(String),
    /// The claim's devices are allocated, but the node cannot use them.
    Elsewhere(String),
    /// A class does not exist.
    ClassMissing {
        /// The claim.
        claim: String,
        /// The request.
        request: String,
        /// The class.
        class: String,
    },
    /// A request, its allocation mode or a selector of its class is of an unsupported kind.
    Unknown {
        /// The claim.
        claim: String,
        /// What is unknown.
        what: String,
    },
    /// The claim asks for more devices than a claim may have.
    TooMany(String),
    /// There are too few devices for a request.
    Short(Box<Shortage>),
    /// There are enough devices for each request alone, but not for all requests together.
    Together(Vec<String>),
    /// The request needs all devices, and a pool is incomplete or invalid.
    Pool {
        /// `driver/pool`.
        pool: String,
        /// Why the pool cannot be used.
        why: String,
    },
    /// The request needs all matching devices, but a constraint excludes some.
    Constraint {
        /// The claim.
        claim: String,
        /// The request.
        request: String,
    },
    /// The amount of a capacity that the request would use is negative or cannot be computed.
    Capacity {
        /// Its name.
        name: String,
    },
    /// A selector could not be evaluated for a device.
    Selector {
        /// The class or claim that contains the selector.
        of: String,
        /// The expression.
        expression: String,
        /// The device.
        device: String,
        /// What is wrong.
        fault: Fault,
    },
    /// There are too many combinations of devices to try.
    Steps,
}

/// Too few devices for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// The claim, or the pod if the request is for its extended resources.
    pub claim: String,
    /// The request.
    pub request: String,
    /// The device class.
    pub class: String,
    /// Selectors of the request.
    pub selectors: Vec<String>,
    /// The number of requested devices. `None` if all devices are requested.
    pub wanted: Option<i64>,
    /// The number of devices that match.
    pub matching: usize,
    /// The number of matching devices that are free.
    pub free: usize,
}

impl fmt::Display for DeviceProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClaimMissing(claim) => {
                write!(f, "the resource claim {claim} does not exist or cannot be read")
            }
            Self::ClaimNotMade(name) => write!(f, "the resource claim for `{name}` has not been created yet"),
            Self::ClaimDeleted(claim) => write!(f, "the resource claim {claim} is being deleted"),
            Self::ClaimOfAnother(claim) => write!(f, "the resource claim {claim} belongs to another pod"),
            Self::ClaimUnknown(name) => {
                write!(f, "the pod refers to the resource claim `{name}` in an unsupported way")
            }
            Self::ExtendedClaimLeft(claim) => {
                write!(f, "the scheduler still has to delete the resource claim {claim}")
            }
            Self::Elsewhere(claim) => {
                write!(f, "this node cannot use the devices allocated for the resource claim {claim}")
            }
            Self::ClassMissing { claim, request, class } => {
                write!(
                    f,
                    "{claim}, request {request}: the device class {class} does not exist or cannot be \
                        read"
                )
            }
            Self::Unknown { claim, what } => write!(f, "{claim}: {what} is not supported"),
            Self::TooMany(claim) => write!(f, "{claim} requests more devices than a claim may have"),
            Self::Short(shortage) => shortage.fmt(f),
            Self::Together(claims) => {
                write!(f, "no combination of free devices satisfies all requests of {}", claims.join(", "))
            }
            Self::Pool { pool, why } => {
                write!(f, "all devices are requested, but the resource pool {pool} cannot be used: {why}")
            }
            Self::Constraint { claim, request } => {
                write!(
                    f,
                    "{claim}, request {request}: all matching devices are requested, but a \
                    constraint excludes one of them"
                )
            }
            Self::Capacity { name } => write!(f, "the requested amount of the capacity {name} is not valid"),
            Self::Selector { of, expression, device, fault } => {
                write!(
                    f,
                    "{of}: the selector `{expression}` cannot be evaluated for the device {device}: {fault}"
                )
            }
            Self::Steps => f.write_str("there are too many combinations of devices to try"),
        }
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { claim, request, class, wanted, matching, free, .. } = self;
        write!(f, "{claim}, request {request}: wants ")?;
        match wanted {
            Some(1) => write!(f, "1 device of class {class}")?,
            Some(count) => write!(f, "{count} devices of class {class}")?,
            None => write!(f, "all devices of class {class}")?,
        }
        for (at, selector) in self.selectors.iter().enumerate() {
            write!(f, "{} `{selector}`", if at == 0 { " with" } else { " and" })?;
        }
        match (matching, free) {
            (0, _) => f.write_str(", none match here"),
            (1, _) => write!(f, ", 1 matches, {free} free"),
            _ => write!(f, ", {matching} match, {free} free"),
        }
    }
}
