//! Orders from operators to the leader: to pause everything, and to try something again.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A pause: the daemon begins nothing new while it is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Pause {
    /// When it was set; `None` if the ConfigMap was edited by hand.
    pub since: Option<Timestamp>,
    /// The instance that received the order.
    pub by: String,
    /// Why, in the operator's words.
    pub reason: String,
}

/// An order to end back-offs and retry now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Retry {
    /// A host or a pool; `None`: all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The instance that received the order.
    pub by: String,
}

impl Pause {
    /// The reason in words.
    pub fn words(&self) -> &str {
        if self.reason.is_empty() { "no reason was given" } else { &self.reason }
    }
}
