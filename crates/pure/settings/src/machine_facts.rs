//! The variables in texts that the operator writes, such as bootstrap commands and cloud-init seeds, and how
//! these texts are filled in.
//!
//! The texts are minijinja templates (the syntax of Jinja2): `{{ machine.name }}`, `{% for … %}`, filters
//! such as `tojson`, and `sh`, which quotes a value for a shell. An undefined name is an error, never an
//! empty text. None of the variables is a secret.

use std::collections::BTreeMap;

use jiff::Timestamp;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, UndefinedBehavior, Value};
use serde::Serialize;
use thiserror::Error;

use super::own_labels::{may_set_itself, starting_taint, taint_text};
use super::{Addressing, Pool};
use model::machine::Slot;
use model::selector::Labels;
use model::snapshot::POOL_LABEL;
use model::{HostKey, Record, Vmid};

/// Maximum amount of work for filling in one text, in units of minijinja's fuel. An endless loop exceeds this
/// limit and causes an error.
const FUEL: u64 = 1_000_000;

/// The variables available in a text: `machine`, `pool`, `host`, `region` and `cluster`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MachineFacts {
    machine: Machine,
    pool: PoolFacts,
    host: HostFacts,
    region: Named,
    cluster: Named,
}

/// The variable `machine`. Values that the machine does not have are empty.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Machine {
    id: String,
    name: String,
    vmid: Vmid,
    /// SMBIOS uuid.
    uuid: String,
    cores: u32,
    /// In bytes.
    memory: i64,
    address: String,
    prefix: u8,
    gateway: String,
    dns: Vec<String>,
    search: String,
    /// Additional addresses by device and family, as in [`Slot::further`].
    further: BTreeMap<String, String>,
    /// MAC address of the first network device, in lower case. It is set only if the VM's configuration is
    /// available.
    #[serde(skip_serializing_if = "Option::is_none")]
    mac: Option<String>,
    labels: Labels,
    /// Each taint as `key=value:Effect`, including the taint that keeps pods away until the daemon has
    /// checked the Node.
    taints: Vec<String>,
}

/// The variable `pool`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct PoolFacts {
    name: String,
    /// Maximum number of pods; 0: the kubelet's default.
    max_pods: u32,
    kubelet_args: BTreeMap<String, String>,
    /// Fields of the kubelet's configuration.
    kubelet: serde_json::Map<String, serde_json::Value>,
}

/// The variable `host`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct HostFacts {
    name: String,
    /// The host's zone, or the host's name if no zone is set.
    zone: String,
}

/// The variable `cluster` or `region`. A region's name is empty if the only Proxmox VE cluster has no name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Named {
    name: String,
}

/// Why a text cannot be filled in. The error never quotes the values that were filled in.
#[derive(Debug, Error)]
#[error("line {line}: {what}")]
pub struct FillError {
    /// The line of the text, counted from 1.
    pub line: usize,
    /// What is wrong in this line.
    pub what: String,
}

impl MachineFacts {
    /// Returns the values of the variables for a machine.
    pub fn new(cluster: &str, record: &Record, pool: &Pool) -> Self {
        let slot = &record.slot;
        let mut labels = pool.labels_for(&record.host, &record.name, slot.vmid);
        // A kubelet does not start if it is given labels that it may not set on its own Node. The daemon sets
        // them instead.
        labels.retain(|key, _| may_set_itself(key));
        labels.insert(POOL_LABEL.to_owned(), pool.name.to_string());
        let taints = pool
            .taints
            .iter()
            .chain(&pool.startup_taints)
            .chain([&starting_taint()])
            .map(taint_text)
            .collect();
        let (prefix, gateway, dns, search) = match &pool.addressing {
            Addressing::Static { prefix, gateway, dns, search, .. } => {
                let gateway = gateway.map(|it| it.to_string()).unwrap_or_default();
                let dns = dns.iter().map(ToString::to_string).collect();
                (*prefix, gateway, dns, search.clone().unwrap_or_default())
            }
            Addressing::Dhcp => (0, String::new(), Vec::new(), String::new()),
        };
        Self {
            machine: Machine {
                id: record.id.to_string(),
                name: record.name.clone(),
                vmid: slot.vmid,
                uuid: record.smbios_uuid.clone().unwrap_or_default(),
                cores: record.cores,
                memory: record.memory,
                address: slot.address.map(|it| it.to_string()).unwrap_or_default(),
                prefix,
                gateway,
                dns,
                search,
                further: slot.further.iter().map(|(key, own)| (key.clone(), own.to_string())).collect(),
                mac: None,
                labels,
                taints,
            },
            pool: PoolFacts {
                name: pool.name.to_string(),
                max_pods: pool.max_pods.unwrap_or_default(),
                kubelet_args: pool.kubelet_args.clone(),
                kubelet: pool.kubelet.fields().clone(),
            },
            host: HostFacts {
                name: record.host.clone(),
                zone: pool.zones.get(&record.host).unwrap_or(&record.host).clone(),
            },
            region: Named { name: pool.region.clone().unwrap_or_default() },
            cluster: Named { name: cluster.to_owned() },
        }
    }

    /// Returns sample values for a machine of the pool, so that a text can be tested before a machine exists.
    pub fn sample(cluster: &str, pool: &Pool) -> Self {
        const ID: &str = "00000000-0000-4000-8000-000000000000";
        let host = pool.hosts.first().map_or("pve", HostKey::host).to_owned();
        let slot = pool.slots().into_iter().next().unwrap_or(Slot { vmid: Vmid(100), ..Slot::default() });
        let name = format!("{}-00000", pool.name);
        let record = Record {
            cores: pool.cores,
            memory: pool.memory,
            smbios_uuid: Some(ID.to_owned()),
            ..Record::new(ID.into(), pool.name.clone(), name, slot, host, Timestamp::UNIX_EPOCH)
        };
        Self::new(cluster, &record, pool).with_mac("02:00:00:00:00:01")
    }

    /// Adds the MAC address of the first network device.
    pub fn with_mac(mut self, mac: &str) -> Self {
        self.machine.mac = Some(mac.to_lowercase());
        self
    }

    /// Removes the MAC address of the first network device.
    pub fn without_mac(mut self) -> Self {
        self.machine.mac = None;
        self
    }

    /// Fills in the variables of a text.
    ///
    /// # Errors
    /// Returns an error if the text is not a valid template, uses an unknown name, or requires too much work.
    pub fn fill(&self, text: &str) -> Result<String, FillError> {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        // A line that contains only `{% … %}` leaves no empty line behind.
        let syntax = SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .keep_trailing_newline(true)
            .build()
            .map_err(|error| fault(&error))?;
        environment.set_syntax(syntax);
        environment.set_fuel(Some(FUEL));
        environment.add_filter("sh", |value: String| quoted(&value));
        environment.render_str(text, Value::from(Serde(self))).map_err(|error| fault(&error))
    }
}

fn fault(error: &minijinja::Error) -> FillError {
    let what = match error.detail() {
        Some(detail) => format!("{}: {detail}", error.kind()),
        None => error.kind().to_string(),
    };
    FillError { line: error.line().unwrap_or(1), what }
}

/// Quotes the text as one shell word, whatever it contains.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Needs, parse};

    fn facts() -> MachineFacts {
        let text = "cluster = \"home\"\n[[pool]]\nname = \"w\"\nmax = 1\ncores = 2\nmemory = \"4GiB\"\n\
                    vmids = \"9100\"\naddresses = \"10.0.0.5\"\nprefix = 24\ngateway = \"10.0.0.1\"\n\
                    labels = { size = \"small\", \"node-role.kubernetes.io/worker\" = \"\" }\ntaints = [\"a=b:NoExecute\"]\naddresses6 = \"fd00::5\"\nprefix6 = 64\nkubelet_args = { v = 2 }\n";
        let config = parse("c.toml", text, Needs::Plan).unwrap();
        MachineFacts::sample(&config.cluster, &config.pools[0])
    }

    #[test]
    fn a_text_says_what_is_known_of_the_machine() {
        for (text, expected) in [
            ("{{ machine.name }} {{ machine.vmid }}\n", "w-00000 9100\n"),
            ("{{ machine.address }}/{{ machine.prefix }} {{ machine.gateway }}", "10.0.0.5/24 10.0.0.1"),
            ("{{ machine.further['net0/ip6'] }}", "fd00::5"),
            ("{{ machine.memory // 1048576 }} {{ host.name }} {{ cluster.name }}", "4096 pve home"),
            ("{{ machine.labels['size'] }} {{ machine.taints[0] }}", "small a=b:NoExecute"),
            ("{% for k, v in pool.kubelet_args | items %}--{{ k }}={{ v }}{% endfor %}", "--v=2"),
            // A kubelet does not start if it is given labels that it may not set on its own Node. The daemon
            // sets them instead.
            ("{{ machine.labels | list | join(' ') }}", "pve-autoscaler/pool size"),
            ("{{ \"a'b\" | sh }} {{ machine.labels['size'] | tojson }}", "'a'\\''b' \"small\""),
        ] {
            assert_eq!(facts().fill(text).unwrap(), expected);
        }
    }

    #[test]
    fn what_is_not_there_is_an_error_with_its_line() {
        for (text, line) in [
            ("a\n{{ machine.nam }}", 2),
            ("{{ token }}", 1),
            ("{% if machine.swap %}x{% endif %}", 1),
            ("\n\n{{ machine.name", 3),
            ("{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}", 1),
        ] {
            assert_eq!(facts().fill(text).unwrap_err().line, line, "{text}");
        }
        assert!(facts().without_mac().fill("{{ machine.mac }}").is_err());
    }
}
