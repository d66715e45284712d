//! The ConfigMap `cluster-info`, from which a joining machine learns where the API server is, and how to
//! verify it.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::config::Kubeconfig;
use runtime::boxed;
use sha2::{Digest, Sha256};
use tokio::time::{Instant, sleep};
use x509_parser::pem::Pem;

use super::cluster::Cluster;
use super::error::Error;

const ACTION: &str = "read the ConfigMap `cluster-info` in `kube-public`";
/// The initial and the maximum wait between two checks for a signature.
const LOOKS: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// The facts that kubeadm needs to trust a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterInfo {
    /// The API server's URL.
    pub server: String,
    /// The CA certificates, in PEM format.
    pub ca_pem: String,
    /// `sha256:` and the hash of the first CA's public key (SubjectPublicKeyInfo, DER), as in
    /// `caCertHashes`.
    pub ca_hash: String,
}

impl Cluster {
    /// Reads the cluster's address and CA.
    ///
    /// # Errors
    /// Returns an error if the call fails, or the ConfigMap contains no usable kubeconfig.
    #[boxed]
    pub async fn cluster_info(&self) -> Result<ClusterInfo, Error> {
        let map = self.cluster_info_map().await?;
        let text = map.data.as_ref().and_then(|data| data.get("kubeconfig"));
        read(text.ok_or_else(|| unusable("it has no key `kubeconfig`"))?)
    }

    /// Waits for at most `limit` until cluster-info contains the signature for a token. If a machine tried to
    /// join without the signature, kubeadm would wait silently for minutes.
    ///
    /// # Errors
    /// Returns an error if the limit has passed: the last call's error if that call failed, otherwise a
    /// timeout.
    #[boxed]
    pub async fn wait_for_signature(&self, token_id: &str, limit: Duration) -> Result<(), Error> {
        let key = format!("jws-kubeconfig-{token_id}");
        let end = Instant::now() + limit;
        let (mut wait, longest) = LOOKS;
        loop {
            let seen = match self.cluster_info_map().await {
                Ok(map) if map.data.as_ref().is_some_and(|data| data.contains_key(&key)) => return Ok(()),
                Ok(_) => None,
                Err(error) => Some(error),
            };
            if Instant::now() + wait > end {
                let action = "get the signature for a bootstrap token".to_owned();
                return Err(seen.unwrap_or(Error::Timeout { action, limit }));
            }
            sleep(wait).await;
            wait = (wait * 2).min(longest);
        }
    }

    async fn cluster_info_map(&self) -> Result<ConfigMap, Error> {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), "kube-public");
        self.call(ACTION, maps.get("cluster-info")).await
    }
}

fn unusable(reason: impl Into<String>) -> Error {
    Error::Unusable { action: ACTION.to_owned(), reason: reason.into() }
}

fn malformed(source: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::Malformed { action: ACTION.to_owned(), source: Box::new(source) }
}

fn read(kubeconfig: &str) -> Result<ClusterInfo, Error> {
    let parsed = Kubeconfig::from_yaml(kubeconfig).map_err(malformed)?;
    let cluster =
        parsed.clusters.into_iter().find_map(|one| one.cluster).ok_or_else(|| unusable("no cluster"))?;
    let server = cluster.server.ok_or_else(|| unusable("the cluster in its kubeconfig has no server"))?;
    let data = cluster
        .certificate_authority_data
        .ok_or_else(|| unusable("the cluster in its kubeconfig has no CA"))?;
    let pem = STANDARD.decode(data.trim()).map_err(malformed)?;
    let ca_pem = String::from_utf8(pem).map_err(malformed)?;
    let ca_hash = hash_of_first(&ca_pem)?;
    Ok(ClusterInfo { server, ca_pem, ca_hash })
}

/// The hash of the first CA's public key. One hash is enough, because kubeadm accepts a cluster if the key of
/// any of its CAs matches (`pubkeypin.Set.CheckAny`).
fn hash_of_first(pem: &str) -> Result<String, Error> {
    let first = Pem::iter_from_buffer(pem.as_bytes()).next().ok_or_else(|| unusable("its CA is not PEM"))?;
    let first = first.map_err(malformed)?;
    let certificate = first.parse_x509().map_err(malformed)?;
    let digest = Sha256::digest(certificate.public_key().raw);
    let hex = digest.iter().fold(String::from("sha256:"), |hex, byte| hex + &format!("{byte:02x}"));
    Ok(hex)
}
