//! A refusal because of a missing right, parsed from Proxmox VE's text. The same text may be an answer, part
//! of another error, or a task's exit status.

/// The missing right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MissingRight {
    /// The token lacks all of these privileges on this path; any one of them would be enough.
    Privileges {
        /// The path, e.g. `/vms/9201`.
        path: String,
        /// The privileges, e.g. `VM.Config.Cloudinit`; one of them is enough.
        any: Vec<String>,
    },
    /// The token may not set or remove this tag.
    Tag(String),
    /// Only root may perform this action, which is described in Proxmox VE's words.
    ForRoot(String),
}

/// The beginning of a refusal for a missing privilege.
const REFUSED: &str = "Permission check failed (";
/// The beginning of a refusal if only root may perform the action, so that no privilege would help.
const FOR_ROOT: &str = "only root";

impl MissingRight {
    /// Parses the text of an error. `None` if the error has another cause.
    pub fn read(text: &str) -> Option<Self> {
        let Some((_, rest)) = text.split_once(REFUSED) else {
            let at = text.find(FOR_ROOT)?;
            let words = text.get(at..)?.trim_end();
            return Some(Self::ForRoot(words.to_owned()));
        };
        let inside = rest.split_once(')').map_or(rest, |(inside, _)| inside);
        let (path, what) = inside.split_once(", ")?;
        if let Some((_, tag)) = what.split_once("for modifying tag '") {
            return Some(Self::Tag(tag.trim_end_matches('\'').to_owned()));
        }
        let any: Vec<String> = what.split('|').map(|one| one.trim().to_owned()).collect();
        path.starts_with('/').then(|| Self::Privileges { path: path.to_owned(), any })
    }

    /// Returns two texts: what is missing, and what an administrator can do about it. `token` is the token's
    /// id.
    pub fn words(&self, token: &str) -> (String, String) {
        let user = token.split('!').next().unwrap_or_default();
        match self {
            Self::Privileges { path, any } => (
                format!("the token lacks {} on {path}", any.join(" or ")),
                format!(
                    "grant a role with this privilege: `pveum acl modify {path} --users {user} --tokens \
                        '{token}' --roles ROLE`"
                ),
            ),
            Self::Tag(tag) => (
                format!("the token may not set or remove the tag `{tag}`"),
                format!(
                    "add `{tag}` to `user-allow-list`, and remove it from `registered-tags` (Datacenter, \
                     Options)"
                ),
            ),
            Self::ForRoot(text) => (
                format!("Proxmox VE does not allow tokens to do this: {text}"),
                "remove the option from the template or from `vm_options`".to_owned(),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_read_wherever_they_stand() {
        let privileges = |path: &str, any: &[&str]| {
            let any = any.iter().map(|one| (*one).to_owned()).collect();
            Some(MissingRight::Privileges { path: path.to_owned(), any })
        };
        for (text, expected) in [
            ("Permission check failed (/vms/100, VM.Clone)", privileges("/vms/100", &["VM.Clone"])),
            (
                "failed to update VM 9201: 403 Permission check failed (/vms/9201, VM.Config.Cloudinit)",
                privileges("/vms/9201", &["VM.Config.Cloudinit"]),
            ),
            (
                "clone failed: 403 Permission check failed (/sdn/zones/localnetwork/vmbr7/40, SDN.Use)",
                privileges("/sdn/zones/localnetwork/vmbr7/40", &["SDN.Use"]),
            ),
            (
                "Permission check failed (/vms/100, VM.Config.Cloudinit|VM.Config.Network)",
                privileges("/vms/100", &["VM.Config.Cloudinit", "VM.Config.Network"]),
            ),
            (
                "failed to update VM 9402: 403 Permission check failed (/, Sys.Modify for modifying tag 'pve-autoscaler')",
                Some(MissingRight::Tag("pve-autoscaler".to_owned())),
            ),
            (
                "only root can set 'usb0' config for real devices",
                Some(MissingRight::ForRoot("only root can set 'usb0' config for real devices".to_owned())),
            ),
            ("Permission check failed", None),
            ("Permission check failed (pool 'x' does not exist)", None),
            ("VM is locked (clone)", None),
        ] {
            assert_eq!(MissingRight::read(text), expected, "{text}");
        }
    }
}
