//! The mark of a template that `pve-autoscaler template` creates: the first line of its description.
//!
//! The mark of a template differs from the mark of a machine, so neither is ever taken for the other. A clone
//! made by hand inherits the description, and with it the mark. So a mark names the VM that it was given to,
//! and proves nothing about any other VM.

use std::collections::BTreeMap;

use model::Vmid;

const PREFIX: &str = "pve-autoscaler-template/v1";

/// Identifies a VM as a specific version of a specific template.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TemplateMark {
    /// The Kubernetes cluster's id.
    pub cluster: String,
    /// The template's name in the configuration.
    pub template: String,
    /// The template's version ([`super::version`]).
    pub version: String,
    /// The number of this template among the templates of the same version on a host, starting at 1. A higher
    /// number means that the template was replaced although nothing had changed (`--force`).
    pub turn: u32,
    /// The VM that the mark was given to. `None` if the mark has not been given to a VM yet, or if an earlier
    /// release wrote it.
    pub vmid: Option<Vmid>,
}

impl TemplateMark {
    /// The same mark, given to this VM.
    pub fn given_to(&self, vmid: Vmid) -> Self {
        Self { vmid: Some(vmid), ..self.clone() }
    }

    /// Whether this can be the VM's own mark. If it names no VMID, the VM's name decides.
    pub fn may_be_of(&self, vmid: Vmid, name: Option<&str>) -> bool {
        let named = || name.is_some_and(|name| name == self.template || name == self.aside());
        self.vmid.map_or_else(named, |own| own == vmid)
    }

    /// A description with the mark, and a text for people below it.
    pub fn describe(&self, text: &str) -> String {
        let vmid = self.vmid.map(|vmid| format!(" vmid={vmid}")).unwrap_or_default();
        format!(
            "{PREFIX} cluster={} template={} version={} turn={}{vmid}\n\n{text}",
            self.cluster, self.template, self.version, self.turn
        )
    }

    /// The mark in a description; `None` if there is none.
    pub fn read(description: Option<&str>) -> Option<Self> {
        let first = description?.lines().next()?.trim();
        let mut words = first.split_whitespace();
        words.next().filter(|word| *word == PREFIX)?;
        let fields: BTreeMap<_, _> = words.filter_map(|field| field.split_once('=')).collect();
        let field =
            |name: &str| fields.get(name).filter(|value| !value.is_empty()).map(|it| (*it).to_owned());
        Some(Self {
            cluster: field("cluster")?,
            template: field("template")?,
            version: field("version")?,
            turn: field("turn")?.parse().ok()?,
            vmid: match fields.get("vmid") {
                Some(text) => Some(text.parse().ok()?),
                None => None,
            },
        })
    }

    /// The VM's name while pools do not use its version.
    pub fn aside(&self) -> String {
        format!("{}-{}-{}", self.template, self.version, self.turn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proxmox::marker::{self, Description};

    #[test]
    fn a_mark_is_read_back_and_is_no_machines() {
        let mark = TemplateMark {
            cluster: "home".to_owned(),
            template: "k8s-worker".to_owned(),
            version: "0123abcd".to_owned(),
            turn: 2,
            vmid: Some(Vmid(9010)),
        };
        let text = mark.describe("Made from an image.").trim_end().replace("\n\n", "\n");
        assert_eq!(TemplateMark::read(Some(&text)), Some(mark.clone()));
        assert_eq!(marker::read(Some(&text)), Description::Foreign);
        assert_eq!(mark.aside(), "k8s-worker-0123abcd-2");
        let older = text.replace(" vmid=9010", "");
        assert_eq!(TemplateMark::read(Some(&older)), Some(TemplateMark { vmid: None, ..mark.clone() }));
        let garbled = text.replace(" vmid=9010", " vmid=");
        for other in
            [&garbled, "", "pve-autoscaler-template/v1 cluster=home template=a version=b", "a\nb", &text[1..]]
        {
            assert_eq!(TemplateMark::read(Some(other)), None, "{other}");
        }
        assert_eq!(TemplateMark::read(None), None);
    }

    #[test]
    fn a_mark_proves_nothing_of_another_vm() {
        let older = TemplateMark {
            cluster: "home".to_owned(),
            template: "k8s-worker".to_owned(),
            version: "0123abcd".to_owned(),
            turn: 1,
            vmid: None,
        };
        let mark = older.given_to(Vmid(9010));
        assert!(
            mark.may_be_of(Vmid(9010), Some("renamed")) && !mark.may_be_of(Vmid(9011), Some("k8s-worker"))
        );
        assert!(older.may_be_of(Vmid(9011), Some("k8s-worker-0123abcd-1")));
        assert!(!older.may_be_of(Vmid(9011), Some("games")) && !older.may_be_of(Vmid(9011), None));
    }
}
