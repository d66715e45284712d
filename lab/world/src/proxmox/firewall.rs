//! VM firewalls: options, rules that name security groups, and IP sets. No packets are filtered. A clone gets
//! a copy of its template's firewall.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{
    ApiCall, Pve,
    answer::{Answer, Refusal},
};

/// The options of a VM's firewall.
const OPTIONS: [&str; 9] = [
    "dhcp",
    "enable",
    "ipfilter",
    "log_level_in",
    "log_level_out",
    "macfilter",
    "ndp",
    "policy_in",
    "policy_out",
];

/// The content of a VM's firewall file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Firewall {
    /// Its options.
    pub options: BTreeMap<String, String>,
    /// The rules, ordered by position.
    pub rules: Vec<BTreeMap<String, String>>,
    /// The IP sets with their networks.
    pub ip_sets: BTreeMap<String, BTreeSet<String>>,
}

impl Firewall {
    /// 40 hexadecimal digits that change with the file.
    fn digest(&self) -> String {
        let digest = Sha256::digest(format!("{self:?}"));
        digest.iter().take(20).fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    }
}

/// The firewall of the whole cluster.
#[derive(Clone, Debug, Default)]
pub struct ClusterFirewall {
    /// Whether the firewalls of VMs have any effect.
    pub enabled: bool,
    /// The security groups.
    pub groups: BTreeSet<String>,
}

impl Pve {
    pub(super) fn cluster_firewall_options(&self, call: &ApiCall) -> Result<Answer, Refusal> {
        let state = self.state();
        call.who.need(&state, "/", &["Sys.Audit"])?;
        // An option that was never set is not listed.
        Ok(if state.firewall.enabled { json!({ "enable": 1 }) } else { json!({}) }.into())
    }

    pub(super) fn security_groups(&self) -> Answer {
        let state = self.state();
        let rows = state.firewall.groups.iter().map(|group| json!({ "group": group, "digest": "0" }));
        Value::Array(rows.collect()).into()
    }

    pub(super) fn firewall(&self, method: &str, rest: &str, call: &ApiCall) -> Result<Answer, Refusal> {
        let privilege = if method == "GET" { "VM.Audit" } else { "VM.Config.Network" };
        call.who.need(&self.state(), &format!("/vms/{}", call.vmid()), &[privilege])?;
        let mut state = self.state();
        let groups = state.firewall.groups.clone();
        let (node, vmid) = (call.node().to_owned(), call.vmid());
        let vm = state.vms.get_mut(&vmid).filter(|vm| vm.node == node);
        let Some(vm) = vm else {
            return Err(Refusal::failed(format!(
                "Configuration file 'nodes/{node}/qemu-server/{vmid}.conf' does not exist"
            )));
        };
        let firewall = &mut vm.firewall;
        let named = |key: &str| call.path.get(key).cloned().unwrap_or_default();
        match (method, rest) {
            ("GET", "options") => {
                let mut options: serde_json::Map<_, _> =
                    firewall.options.iter().map(|(key, value)| (key.clone(), typed(value))).collect();
                options.insert("digest".to_owned(), firewall.digest().into());
                Ok(Value::Object(options).into())
            }
            ("PUT", "options") => {
                for key in OPTIONS {
                    if let Some(value) = call.params.text(key) {
                        firewall.options.insert(key.to_owned(), value);
                    }
                }
                Ok(Value::Null.into())
            }
            ("GET", "rules") => {
                let rows = firewall.rules.iter().enumerate().map(|(pos, rule)| {
                    let mut row: serde_json::Map<_, _> =
                        rule.iter().map(|(key, value)| (key.clone(), typed(value))).collect();
                    row.insert("pos".to_owned(), pos.into());
                    row.insert("digest".to_owned(), firewall.digest().into());
                    Value::Object(row)
                });
                Ok(Value::Array(rows.collect()).into())
            }
            ("POST", "rules") => {
                let mut rule = BTreeMap::new();
                for key in ["type", "action", "enable", "iface", "comment"] {
                    if let Some(value) = call.params.text(key) {
                        rule.insert(key.to_owned(), value);
                    }
                }
                let group = rule.get("action").cloned().unwrap_or_default();
                if rule.get("type").is_some_and(|kind| kind == "group") && !groups.contains(&group) {
                    return Err(Refusal::parameter(
                        "action",
                        format!("security group '{group}' does not exist"),
                    ));
                }
                // A rule without `enable` is stored but inactive. New rules come first.
                rule.entry("enable".to_owned()).or_insert_with(|| "0".to_owned());
                firewall.rules.insert(0, rule);
                Ok(Value::Null.into())
            }
            ("GET", "ipset") => {
                let rows = firewall.ip_sets.keys().map(|name| json!({ "name": name, "digest": "0" }));
                Ok(Value::Array(rows.collect()).into())
            }
            ("POST", "ipset") => {
                let name = call.params.text("name").unwrap_or_default();
                if firewall.ip_sets.contains_key(&name) {
                    return Err(Refusal::parameter("name", format!("IPSet '{name}' already exists")));
                }
                firewall.ip_sets.insert(name, BTreeSet::new());
                Ok(Value::Null.into())
            }
            (_, set) if set.starts_with("ipset/") => {
                let name = named("name");
                let Some(members) = firewall.ip_sets.get_mut(&name) else {
                    return Err(Refusal::failed(format!("no such IPSet '{name}'")));
                };
                match method {
                    "POST" => drop(members.insert(call.params.text("cidr").unwrap_or_default())),
                    "DELETE" => drop(members.remove(&named("cidr"))),
                    _ => {
                        let rows = members.iter().map(|cidr| json!({ "cidr": cidr, "digest": "0" }));
                        return Ok(Value::Array(rows.collect()).into());
                    }
                }
                Ok(Value::Null.into())
            }
            _ => Err(Refusal::NotImplemented(format!("Method '{method} firewall/{rest}' not implemented"))),
        }
    }

    /// Creates a security group, as an administrator does.
    pub fn add_security_group(&self, group: &str) {
        self.state().firewall.groups.insert(group.to_owned());
    }

    /// Switches the firewall of the whole cluster on or off.
    pub fn set_cluster_firewall(&self, enabled: bool) {
        self.state().firewall.enabled = enabled;
    }

    /// The content of a VM's firewall file.
    pub fn firewall_of(&self, vmid: u32) -> Option<Firewall> {
        self.state().vms.get(&vmid).map(|vm| vm.firewall.clone())
    }

    /// Changes a VM's firewall file, as an administrator does.
    pub fn change_firewall_by_hand(&self, vmid: u32, change: impl FnOnce(&mut Firewall)) {
        if let Some(vm) = self.state().vms.get_mut(&vmid) {
            change(&mut vm.firewall);
        }
    }
}

/// Returns numbers as JSON numbers, and other values as text.
fn typed(text: &str) -> Value {
    text.parse::<i64>().map_or_else(|_| text.into(), Value::from)
}
