//! Orders from operators to the leader: to pause everything, and to retry something now.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A pause. The daemon begins nothing new while a pause is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Pause {
    /// When the pause was set. `None` if the ConfigMap was edited by hand.
    pub since: Option<Timestamp>,
    /// The instance of the daemon that received the order.
    pub by: String,
    /// The reason that the operator gave.
    pub reason: String,
}

/// An order to end back-offs and retry now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Retry {
    /// The host or pool to retry. `None` means all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The instance of the daemon that received the order.
    pub by: String,
}

impl Pause {
    /// The reason, or a text that says that none was given.
    pub fn words(&self) -> &str {
        if self.reason.is_empty() { "no reason was given" } else { &self.reason }
    }
}
