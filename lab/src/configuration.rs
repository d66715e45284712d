//! The daemon's configuration.

use std::path::Path;

use crate::clusters::{self, Proxmox};
use crate::network;

/// Writes `config.toml` into the directory: the addresses of both clusters, followed by `rest`.
///
/// # Errors
/// Returns an error if the file cannot be written.
pub fn write(directory: &Path, proxmox: &Proxmox, rest: &str) -> anyhow::Result<()> {
    let directory = &directory.canonicalize()?;
    let at = |name: &str| directory.join(name).display().to_string();
    let probe = if proxmox.probing { format!("probe_port = {}", network::PORT) } else { String::new() };
    let text = format!(
        r#"cluster = "lab"

[proxmox]
endpoints = ["{url}"]
token_id = "autoscaler@pve!agent"
token_file = "{token}"
ca_file = "{ca}"
resource_pool = "k8s-workers"

[kubernetes]
kubeconfig_file = "{kubeconfig}"

[metrics]
enabled = false

[bootstrap]
method = "kubeadm"
{probe}
{rest}"#,
        url = proxmox.url,
        token = at("pve-token"),
        ca = at("pve-ca.pem"),
        kubeconfig = at("kubeconfig"),
    );
    clusters::write(directory, "config.toml", &text)
}

/// The demo's pools. Nodes are removed after seconds instead of minutes. `nodes` is the number of nodes that
/// are kept even if no pod needs them. A quarter of these nodes are in the pool of large nodes.
pub fn demo(nodes: u32) -> String {
    let (large, few) = (nodes / 4, 10);
    let small = nodes - large;
    format!(
        r#"
[scale_down]
unneeded_time = "3s"
delay_after_add = "1s"

[[pool]]
name = "small"
min = {small}
max = {most}
cores = 2
memory = "4GiB"
template = "k8s-worker"
vmids = "9100-{last}"
addresses = "127.10.10.11-127.10.10.250"
prefix = 8
bridge = "vmbr0"
labels = {{ "topology.kubernetes.io/zone" = "{{{{ host }}}}" }}

[[pool]]
name = "large"
min = {large}
max = {most_large}
cores = 8
memory = "32GiB"
template = "k8s-worker-local"
vmids = "9200-{last_large}"
addresses = "127.10.11.11-127.10.11.250"
prefix = 8
bridge = "vmbr0"
"#,
        most = small + few,
        last = 9119 + small,
        most_large = large + 4,
        last_large = 9219 + large,
    )
}
