//! The JoinConfiguration that kubeadm reads from its standard input.
//!
//! The API version is `kubeadm.k8s.io/v1beta4` from Kubernetes 1.31 on, and `v1beta3` for older versions.
//! kubeadm only warns about an unknown field and joins without it, so the daemon reads the Node back
//! afterwards.

use std::collections::BTreeMap;

use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};

use super::script::PATCHES;
use model::node::{Taint, TaintEffect};
use model::selector::Labels;
use settings::own_labels::{may_set_itself, starting_taint};

/// The values in a machine's join configuration.
#[derive(Clone, Debug)]
pub struct JoinFacts {
    /// The Node's name.
    pub name: String,
    /// `host:port` of the API server.
    pub api_server: String,
    /// The pinned hash of the CA's public key, `sha256:<hex>`.
    pub ca_hash: String,
    /// The bootstrap token, `id.secret`.
    pub token: SecretString,
    /// The minor version of the cluster's Kubernetes, such as 36 for 1.36.
    pub minor: u32,
    /// The Node's labels. Labels that a kubelet may not set itself are left out.
    pub labels: Labels,
    /// The Node's taints; [`starting_taint`] is added.
    pub taints: Vec<Taint>,
    /// Additional kubelet arguments, without dashes.
    pub kubelet_args: BTreeMap<String, String>,
    /// `--max-pods`, if it is not the kubelet's default.
    pub max_pods: Option<u32>,
    /// Whether the guest contains a patch whose fields override those of the cluster's kubelet configuration.
    pub patched: bool,
    /// Preflight checks whose failure only causes a warning.
    pub ignore_preflight_errors: Vec<String>,
}

/// The JoinConfiguration as JSON, which is valid YAML. It contains the token, so it is only passed on
/// standard input.
pub fn configuration(facts: &JoinFacts) -> SecretString {
    let taints: Vec<Value> = facts.taints.iter().chain([&starting_taint()]).map(taint).collect();
    let mut registration = json!({
        "name": facts.name,
        "taints": taints,
        "kubeletExtraArgs": arguments(facts),
    });
    if !facts.ignore_preflight_errors.is_empty() {
        registration["ignorePreflightErrors"] = json!(facts.ignore_preflight_errors);
    }
    let patches = facts.patched.then(|| json!({ "directory": PATCHES }));
    let version = if facts.minor >= 31 { "v1beta4" } else { "v1beta3" };
    let mut whole = json!({
        "apiVersion": format!("kubeadm.k8s.io/{version}"),
        "kind": "JoinConfiguration",
        "discovery": { "bootstrapToken": {
            "apiServerEndpoint": facts.api_server,
            "token": facts.token.expose_secret(),
            "caCertHashes": [facts.ca_hash],
        } },
        "nodeRegistration": registration,
    });
    if let Some(patches) = patches {
        whole["patches"] = patches;
    }
    format!("{whole:#}\n").into()
}

fn taint(taint: &Taint) -> Value {
    let effect = match taint.effect {
        TaintEffect::NoSchedule => "NoSchedule",
        TaintEffect::PreferNoSchedule => "PreferNoSchedule",
        TaintEffect::NoExecute => "NoExecute",
    };
    json!({ "key": taint.key, "value": taint.value, "effect": effect })
}

fn arguments(facts: &JoinFacts) -> Value {
    let mut arguments = facts.kubelet_args.clone();
    let labels: Vec<String> = facts
        .labels
        .iter()
        .filter(|(key, _)| may_set_itself(key))
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    arguments.insert("node-labels".to_owned(), labels.join(","));
    if let Some(most) = facts.max_pods {
        arguments.insert("max-pods".to_owned(), most.to_string());
    }
    if facts.minor >= 31 {
        arguments.iter().map(|(name, value)| json!({ "name": name, "value": value })).collect()
    } else {
        json!(arguments)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::snapshot::STARTING_TAINT;

    fn facts(minor: u32) -> JoinFacts {
        let labels = [
            ("pve-autoscaler/pool", "w"),
            ("topology.kubernetes.io/zone", "z1"),
            ("node-role.kubernetes.io/worker", ""),
        ];
        JoinFacts {
            name: "w-1".to_owned(),
            api_server: "10.0.0.1:6443".to_owned(),
            ca_hash: "sha256:00".to_owned(),
            token: "abcdef.0123456789abcdef".to_owned().into(),
            minor,
            labels: labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            taints: vec![Taint {
                key: "d".to_owned(),
                value: "b".to_owned(),
                effect: TaintEffect::NoExecute,
                time_added: None,
            }],
            kubelet_args: BTreeMap::from([("v".to_owned(), "2".to_owned())]),
            max_pods: Some(50),
            patched: minor == 36,
            ignore_preflight_errors: Vec::new(),
        }
    }

    #[test]
    fn each_release_gets_the_form_that_its_kubeadm_reads() {
        let read =
            |minor| -> Value { serde_json::from_str(configuration(&facts(minor)).expose_secret()).unwrap() };
        let new = read(36);
        assert_eq!(new["apiVersion"], "kubeadm.k8s.io/v1beta4");
        let labels = "pve-autoscaler/pool=w,topology.kubernetes.io/zone=z1";
        assert_eq!(
            new["nodeRegistration"]["kubeletExtraArgs"],
            json!([{"name": "max-pods", "value": "50"}, {"name": "node-labels", "value": labels}, {"name": "v", "value": "2"}])
        );
        assert_eq!(
            new["nodeRegistration"]["taints"],
            json!([{"key": "d", "value": "b", "effect": "NoExecute"},
                   {"key": STARTING_TAINT, "value": "", "effect": "NoSchedule"}])
        );
        assert_eq!(new["patches"], json!({"directory": "/run/pve-autoscaler/patches"}));
        let old = read(30);
        assert_eq!(old.get("patches"), None);
        assert_eq!(old["apiVersion"], "kubeadm.k8s.io/v1beta3");
        assert_eq!(old["nodeRegistration"]["kubeletExtraArgs"]["max-pods"], "50");
    }

    #[test]
    fn the_token_is_not_shown() {
        assert!(!format!("{:?}", facts(36)).contains("0123456789abcdef"));
    }
}
