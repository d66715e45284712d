//! What a join needs to know about the cluster, cached for later joins.

use std::sync::Arc;

use runtime::boxed;
use tokio::sync::Mutex;

use kubernetes::{Cluster, ClusterInfo, Error};

/// The release that is assumed if the API server's version cannot be read: the first with kubeadm's current
/// configuration format.
const MINOR: u32 = 31;

/// What a join needs to know about the cluster.
#[derive(Clone, Debug)]
pub struct ClusterFacts {
    /// The API server's address and the CA.
    pub info: ClusterInfo,
    /// The minor version of Kubernetes.
    pub minor: u32,
}

/// The facts as they were last read. Cheap to clone.
///
/// A failed join discards them: the cluster may have a new CA, address or release, and a pin of the old CA
/// would make every further join fail.
#[derive(Clone, Debug, Default)]
pub struct KnownFacts(Arc<Mutex<Option<ClusterFacts>>>);

impl KnownFacts {
    /// The facts, read from the cluster if they are unknown. Concurrent callers wait for the same answer.
    ///
    /// # Errors
    /// The facts cannot be read.
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
