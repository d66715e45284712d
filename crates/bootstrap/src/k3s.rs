//! The configuration of a K3s agent, in a file that only root can read.
//!
//! The file is in `/etc/rancher/k3s/config.yaml.d/`, and is read after the template's own `config.yaml`.
//! Lists whose keys end in `+` extend the lists in `config.yaml`. The token never appears in the arguments or
//! the environment of a process.

use std::collections::BTreeMap;

use secrecy::{ExposeSecret, SecretString};
use serde_json::json;

use model::node::Taint;
use model::selector::Labels;
use settings::own_labels::{may_set_itself, starting_taint, taint_text};

/// The values in the configuration of a machine's agent.
#[derive(Clone, Debug)]
pub struct K3sFacts {
    /// The Node's name.
    pub name: String,
    /// `host:port` of the server.
    pub server: String,
    /// The agent token, or the server token.
    pub token: SecretString,
    /// The Node's labels. Labels that a kubelet may not set itself are left out.
    pub labels: Labels,
    /// The Node's taints. The starting taint is added to them. It keeps pods away until the daemon has read
    /// the Node back.
    pub taints: Vec<Taint>,
    /// The Node's address, if known. With two address families, this is one address of each family, separated
    /// by a comma.
    pub addresses: Option<String>,
    /// Additional kubelet arguments, without dashes.
    pub kubelet_args: BTreeMap<String, String>,
    /// `--max-pods`, if it is not the kubelet's default.
    pub max_pods: Option<u32>,
}

/// The configuration as JSON, which is valid YAML. It contains the token, so it is only passed on standard
/// input.
pub fn configuration(facts: &K3sFacts) -> SecretString {
    let own = facts.labels.iter().filter(|(key, _)| may_set_itself(key));
    let labels: Vec<String> = own.map(|(key, value)| format!("{key}={value}")).collect();
    let taints: Vec<String> = facts.taints.iter().chain([&starting_taint()]).map(taint_text).collect();
    let mut arguments: Vec<String> =
        facts.kubelet_args.iter().map(|(name, value)| format!("{name}={value}")).collect();
    arguments.extend(facts.max_pods.map(|most| format!("max-pods={most}")));
    let mut whole = json!({
        "server": format!("https://{}", facts.server),
        "token": facts.token.expose_secret(),
        "node-name": facts.name,
        "node-label+": labels,
        "node-taint+": taints,
    });
    if !arguments.is_empty() {
        whole["kubelet-arg+"] = json!(arguments);
    }
    if let Some(addresses) = &facts.addresses {
        whole["node-ip"] = json!(addresses);
    }
    format!("{whole:#}\n").into()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn an_agent_is_told_what_its_node_is_like() {
        let labels = [("pve-autoscaler/pool", "w"), ("node-role.kubernetes.io/worker", "")];
        let facts = K3sFacts {
            name: "w-1".to_owned(),
            server: "10.0.0.1:6443".to_owned(),
            token: "K10abc::server:s3cret-and-long".to_owned().into(),
            labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            taints: Vec::new(),
            addresses: Some("10.0.0.5".to_owned()),
            kubelet_args: BTreeMap::from([("v".to_owned(), "2".to_owned())]),
            max_pods: Some(50),
        };
        let read: Value = serde_json::from_str(configuration(&facts).expose_secret()).unwrap();
        assert_eq!(
            read,
            json!({
                "server": "https://10.0.0.1:6443", "token": "K10abc::server:s3cret-and-long", "node-name": "w-1",
                "node-label+": ["pve-autoscaler/pool=w"], "node-taint+": ["pve-autoscaler/starting=:NoSchedule"],
                "kubelet-arg+": ["v=2", "max-pods=50"], "node-ip": "10.0.0.5",
            })
        );
        assert!(!format!("{facts:?}").contains("s3cret"));
    }
}
