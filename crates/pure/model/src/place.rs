//! Hosts of several Proxmox VE clusters: two clusters may each have a `pve1`.
//!
//! Where hosts of all clusters meet (a decision's input and outcome, back-offs, status, figures) a host of a
//! further cluster is called `REGION/HOST`; one of the cluster in `[proxmox]` has its plain name, as if there
//! were no other. A host's name has no `/`. Records and everything that is asked of a cluster hold the plain
//! name.

/// The name of a host among those of all clusters; `prefix` is empty for the cluster in `[proxmox]`.
pub fn key(prefix: &str, host: &str) -> String {
    if prefix.is_empty() { host.to_owned() } else { format!("{prefix}/{host}") }
}

/// The prefix, empty for the cluster in `[proxmox]`, and the host's plain name.
pub fn split(key: &str) -> (&str, &str) {
    key.split_once('/').unwrap_or(("", key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hosts_name_says_its_cluster_and_nothing_where_it_is_the_first() {
        for (prefix, host, expected) in [("", "pve1", "pve1"), ("east", "pve1", "east/pve1")] {
            assert_eq!(key(prefix, host), expected);
            assert_eq!(split(expected), (prefix, host));
        }
    }
}
