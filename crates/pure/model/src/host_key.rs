//! Hosts of several Proxmox VE clusters: two clusters may each have a `pve1`.

use crate::text_id::text_id;

text_id! {
    /// A host of any of the clusters.
    ///
    /// Wherever hosts of several clusters can occur together (a decision's input and outcome, back-offs,
    /// status, metrics), a host of a further cluster is written `REGION/HOST`, and a host of the cluster in
    /// `[proxmox]` has its plain name. A host's name has no `/`. Records, and requests to a cluster, contain
    /// the plain name.
    HostKey
}

impl HostKey {
    /// The key of this host in this region. The region is empty for the cluster in `[proxmox]`.
    pub fn new(region: &str, host: &str) -> Self {
        Self(if region.is_empty() { host.to_owned() } else { format!("{region}/{host}") })
    }

    /// Its region, empty for the cluster in `[proxmox]`.
    pub fn region(&self) -> &str {
        Self::split(self).0
    }

    /// Its plain name.
    pub fn host(&self) -> &str {
        Self::split(self).1
    }

    /// The region and the plain name of a key that is only available as text.
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
