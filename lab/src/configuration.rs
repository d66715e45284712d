//! What the demo tells the daemon.

use std::net::Ipv4Addr;
use std::path::Path;

use crate::network;

/// The first guest's address.
pub const FIRST_ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 10, 10, 11);
/// VMIDs and addresses of each pool.
const SLOTS: u8 = 20;

/// The addresses of all pools.
pub fn addresses() -> Vec<Ipv4Addr> {
    (0..2 * SLOTS).map(|at| Ipv4Addr::from(u32::from(FIRST_ADDRESS) + u32::from(at))).collect()
}

/// The configuration file.
pub fn text(directory: &Path, pve_url: &str, probing: bool) -> String {
    let at = |name: &str| directory.join(name).display().to_string();
    let probe = if probing { format!("probe_port = {}", network::PORT) } else { String::new() };
    let address = |at: u8| Ipv4Addr::from(u32::from(FIRST_ADDRESS) + u32::from(at));
    let (first, second) = (
        format!("{}-{}", address(0), address(SLOTS - 1)),
        format!("{}-{}", address(SLOTS), address(2 * SLOTS - 1)),
    );
    format!(
        r#"# The demo's configuration. Removals come after seconds instead of minutes; all else is as in a real one.
cluster = "demo"

[proxmox]
endpoints = ["{pve_url}"]
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

[scale_down]
unneeded_time = "3s"
delay_after_add = "1s"

[[pool]]
name = "small"
max = 10
cores = 2
memory = "4GiB"
template = "k8s-worker"
vmids = "9100-9119"
addresses = "{first}"
prefix = 8
bridge = "vmbr0"
labels = {{ "topology.kubernetes.io/zone" = "{{{{ host }}}}" }}

[[pool]]
name = "large"
max = 4
cores = 8
memory = "32GiB"
template = "k8s-worker-local"
vmids = "9200-9219"
addresses = "{second}"
prefix = 8
bridge = "vmbr0"
"#,
        token = at("pve-token"),
        ca = at("pve-ca.pem"),
        kubeconfig = at("kubeconfig"),
    )
}
