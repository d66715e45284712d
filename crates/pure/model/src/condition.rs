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
    /// In one word.
    pub reason: String,
    /// In words.
    pub message: String,
    /// Since when the condition has had this status.
    pub since: Option<Timestamp>,
    /// The generation of the object that it is about.
    pub generation: Option<i64>,
}
