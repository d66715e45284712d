//! The switch that stops everything.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Nothing new is begun since then.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Pause {
    /// Since when; `None` where somebody switched it by hand.
    pub since: Option<Timestamp>,
    /// The instance that was told to.
    pub by: String,
    /// Why, in the operator's words.
    pub reason: String,
}

impl Pause {
    /// Why, for people.
    pub fn words(&self) -> &str {
        if self.reason.is_empty() { "no reason was given" } else { &self.reason }
    }
}
