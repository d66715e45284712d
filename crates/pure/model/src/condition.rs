//! Conditions in the status of an object.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// One of `status.conditions[]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusCondition {
    /// e.g. `Provisioning`.
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// The reason in one word.
    pub reason: String,
    /// The reason in words.
    pub message: String,
    /// When the condition last changed its status.
    pub since: Option<Timestamp>,
    /// `observedGeneration`: the generation of the object for which the condition was set.
    pub generation: Option<i64>,
}
