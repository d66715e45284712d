//! The facts about the cluster that a join needs, cached for later joins.

use std::sync::Arc;

use runtime::boxed;
use tokio::sync::Mutex;

use kubernetes::{Cluster, ClusterInfo, Error};

/// The release that is assumed if the API server's version cannot be read: the first with kubeadm's current
/// configuration format.
const MINOR: u32 = 31;

/// The facts about the cluster that a join needs.
#[derive(Clone, Debug)]
pub struct ClusterFacts {
    /// The API server's address and the CA.
    pub info: ClusterInfo,
    /// The Kubernetes minor version.
    pub minor: u32,
}

/// The facts about the cluster, as last read. Cheap to clone.
///
/// A failed join discards the facts: the cluster may have a new CA, address or release, and every later join
/// that is pinned to the old CA would fail.
#[derive(Clone, Debug, Default)]
pub struct KnownFacts(Arc<Mutex<Option<ClusterFacts>>>);

impl KnownFacts {
    /// Returns the facts. They are read from the cluster if they are unknown. Concurrent callers wait for the
    /// same answer.
    ///
    /// # Errors
    /// Returns an error if the facts cannot be read.
    #[boxed]
    pub async fn get(&self, cluster: &Cluster) -> Result<ClusterFacts, Error> {
        let mut known = self.0.lock().await;
        if let Some(facts) = &*known {
            return Ok(facts.clone());
        }
        let facts = read(cluster).await?;
        Ok(known.insert(facts).clone())
    }

    /// Discards the facts, so that they are read again for the next join.
    #[boxed]
    pub async fn forget(&self) {
        *self.0.lock().await = None;
    }
}

async fn read(cluster: &Cluster) -> Result<ClusterFacts, Error> {
    let info = cluster.cluster_info().await?;
    let version = cluster.version().await?;
    let minor = version.trim_start_matches('v').split('.').nth(1).and_then(|minor| minor.parse().ok());
    Ok(ClusterFacts { info, minor: minor.unwrap_or(MINOR) })
}
