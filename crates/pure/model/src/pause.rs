//! Orders from operators to the leader: to pause the daemon, or to end back-offs and retry now.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A pause. The daemon begins nothing new while a pause is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Pause {
    /// The time at which the pause was set. `None` if the ConfigMap was edited by hand.
    pub since: Option<Timestamp>,
    /// The daemon instance that received the order.
    pub by: String,
    /// The reason that the operator gave.
    pub reason: String,
}

/// An order to end back-offs and retry now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Retry {
    /// The host or pool to retry. `None` means all hosts and pools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The daemon instance that received the order.
    pub by: String,
}

impl Pause {
    /// Returns the reason, or a text that says that no reason was given.
    pub fn words(&self) -> &str {
        if self.reason.is_empty() { "no reason was given" } else { &self.reason }
    }
}
