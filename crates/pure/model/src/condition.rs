//! Conditions in the status of an object.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// An entry in `status.conditions`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusCondition {
    /// e.g. `Provisioning`.
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// The reason in one word.
    pub reason: String,
    /// A human-readable explanation of the status.
    pub message: String,
    /// The time at which the condition's status last changed.
    pub since: Option<Timestamp>,
    /// `observedGeneration`: the object's generation when the condition was set.
    pub generation: Option<i64>,
}
