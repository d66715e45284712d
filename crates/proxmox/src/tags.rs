//! The tags that a token may set and remove. Datacenter options can restrict them (`user-tag-access`,
//! `registered-tags`).

use std::collections::BTreeSet;

use runtime::boxed;
use serde_json::Value;

use super::client::{Client, Lane};
use super::error::Error;
use super::property::Properties;

/// The cluster's rules for tags.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TagRules {
    /// Whether every user may use any tag except registered ones.
    free: bool,
    /// Tags that only a user with `Sys.Modify` on `/` may use.
    registered: BTreeSet<String>,
    /// Tags that the token may always use.
    allowed: BTreeSet<String>,
    /// Whether the token may use every tag.
    all: bool,
}

impl Client {
    /// The rules for tags, as they apply to the token. Without `Sys.Audit` on `/`, Proxmox VE does not show
    /// whether any rules exist.
    ///
    /// # Errors
    /// Returns an error if a call fails.
    #[boxed]
    pub async fn tag_rules(&self) -> Result<TagRules, Error> {
        let rules = TagRules::read(&self.get(Lane::Free, "/cluster/options", &[]).await?);
        if rules.free && rules.registered.is_empty() {
            return Ok(rules);
        }
        let all = self.privileges_on("/").await?.contains("Sys.Modify");
        Ok(TagRules { all, ..rules })
    }
}

impl TagRules {
    /// Rules without restrictions.
    pub fn free() -> Self {
        Self { free: true, ..Self::default() }
    }

    /// Rules under which only this tag is registered, and any other tag may be used.
    pub fn with_registered(tag: &str) -> Self {
        Self { registered: BTreeSet::from([tag.to_owned()]), ..Self::free() }
    }

    fn read(options: &Value) -> Self {
        let access = match options.get("user-tag-access") {
            Some(Value::String(text)) => {
                Properties::of("user-tag-access", text).get("user-allow").map(ToOwned::to_owned)
            }
            Some(object) => object["user-allow"].as_str().map(ToOwned::to_owned),
            None => None,
        };
        Self {
            free: access.is_none_or(|access| access == "free"),
            registered: list(options.get("registered-tags")),
            allowed: list(options.get("allowed-tags")),
            all: false,
        }
    }

    /// Whether the token may add this tag to a VM and remove it.
    pub fn allow(&self, tag: &str) -> bool {
        self.all || (self.free && !self.registered.contains(tag)) || self.allowed.contains(tag)
    }

    /// Why a tag is refused, and what an administrator can do about it.
    pub fn refusal(&self, tag: &str) -> (String, String) {
        if self.registered.contains(tag) {
            let what = format!(
                "the tag `{tag}` is registered in the datacenter's options, so the token may not set it"
            );
            let help = "remove it from `registered-tags` (Datacenter, Options, Registered Tags)";
            return (what, help.to_owned());
        }
        let what = format!(
            "`user-tag-access` in the datacenter's options does not let the token set the tag `{tag}`"
        );
        let help = format!("add `{tag}` to `user-allow-list` (Datacenter, Options, User Tag Access)");
        (what, help)
    }
}

fn list(value: Option<&Value>) -> BTreeSet<String> {
    match value {
        Some(Value::Array(items)) => items.iter().filter_map(Value::as_str).map(ToOwned::to_owned).collect(),
        Some(Value::String(text)) => {
            text.split([';', ',', ' ']).filter(|tag| !tag.is_empty()).map(ToOwned::to_owned).collect()
        }
        _ => BTreeSet::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tags_are_allowed_as_the_datacenter_says() {
        for (options, tag, expected) in [
            (json!({"allowed-tags": []}), "pve-autoscaler", true),
            (json!({"allowed-tags": [], "registered-tags": ["prod"]}), "prod", false),
            (json!({"allowed-tags": [], "registered-tags": "prod;test"}), "test", false),
            (json!({"allowed-tags": [], "registered-tags": ["prod"]}), "other", true),
            (json!({"allowed-tags": ["k8s"], "user-tag-access": {"user-allow": "list"}}), "k8s", true),
            (
                json!({"allowed-tags": ["k8s"], "user-tag-access": "user-allow=list,user-allow-list=k8s"}),
                "other",
                false,
            ),
            (json!({"allowed-tags": [], "user-tag-access": {"user-allow": "none"}}), "pve-autoscaler", false),
            (json!({"allowed-tags": ["a"], "user-tag-access": {"user-allow": "existing"}}), "a", true),
            // For a user with `Sys.Modify`, Proxmox VE lists registered tags as allowed too.
            (json!({"allowed-tags": ["prod"], "registered-tags": ["prod"]}), "prod", true),
        ] {
            assert_eq!(TagRules::read(&options).allow(tag), expected, "{options} {tag}");
        }
    }
}
