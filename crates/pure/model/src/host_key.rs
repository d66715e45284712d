//! Host keys, which are unique across all Proxmox VE clusters. Host names are not: two clusters may each have
//! a host `pve1`.

use crate::text_id::text_id;

text_id! {
    /// Identifies a host across all Proxmox VE clusters.
    ///
    /// For a host in the `[proxmox]` cluster, the key is the host's plain name. For a host in another
    /// cluster, the key is `REGION/HOST`. Host names contain no `/`. Keys are used wherever hosts of several
    /// clusters can occur together: in the input and the result of a decision, in back-offs, in `status` and
    /// in metrics. Records, and requests to a cluster, contain the plain name.
    HostKey
}

impl HostKey {
    /// The key of the host with this name in this region. The region is empty for the cluster in `[proxmox]`.
    pub fn new(region: &str, host: &str) -> Self {
        Self(if region.is_empty() { host.to_owned() } else { format!("{region}/{host}") })
    }

    /// The region of the host, empty for the cluster in `[proxmox]`.
    pub fn region(&self) -> &str {
        Self::split(self).0
    }

    /// Its plain name.
    pub fn host(&self) -> &str {
        Self::split(self).1
    }

    /// Splits a key that is only available as text into the region and the plain name.
    pub fn split(key: &str) -> (&str, &str) {
        key.split_once('/').unwrap_or(("", key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_its_region_and_nothing_in_the_first_cluster() {
        for (region, host, expected) in [("", "pve1", "pve1"), ("east", "pve1", "east/pve1")] {
            let key = HostKey::new(region, host);
            assert_eq!(key, expected);
            assert_eq!((key.region(), key.host()), (region, host));
            assert_eq!(HostKey::split(expected), (region, host));
        }
    }
}
