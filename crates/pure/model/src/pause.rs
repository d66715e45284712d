//! What operators say to the leader: the switch that stops everything, and that something is to be tried
//! again.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Nothing new is begun since then.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Pause {
    /// Since when; `None` if it was switched by hand.
    pub since: Option<Timestamp>,
    /// The instance that got the order.
    pub by: String,
    /// Why, in the operator's words.
    pub reason: String,
}

/// What is left alone after failures is to be tried again now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Retry {
    /// A host or a pool; `None`: all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The instance that got the order.
    pub by: String,
}

impl Pause {
    /// Why, for people.
    pub fn words(&self) -> &str {
        if self.reason.is_empty() { "no reason was given" } else { &self.reason }
    }
}
