//! Settings for the demo clusters. Scenarios, measurements and the simulation build on them.

/// One pool of small nodes that scales from zero.
pub const ONE_POOL: &str = r#"
cluster = "lab"
[proxmox]
endpoints = ["https://127.0.0.1:8006"]
token_id = "autoscaler@pve!agent"
token_file = "/unused"
ca = "system"
resource_pool = "k8s-workers"
[kubernetes]
kubeconfig_file = "/unused"
[bootstrap]
method = "kubeadm"
[[pool]]
name = "workers"
max = 5
cores = 2
memory = "4GiB"
template = 9000
vmids = "9100-9109"
addresses = "10.10.10.11-10.10.10.20"
prefix = 24
gateway = "10.10.10.1"
dns = ["10.10.10.1"]
bridge = "vmbr0"
"#;

/// The settings of [`ONE_POOL`] without the pool. More tables may be appended.
pub fn without_pools() -> &'static str {
    ONE_POOL.split_once("[[pool]]").map_or(ONE_POOL, |(head, _)| head)
}
