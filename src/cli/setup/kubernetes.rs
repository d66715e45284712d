//! The Kubernetes side: the objects of `rbac.yaml`, and the service account's token.

use std::time::Duration;

use super::{Arguments, Steps};
use crate::cli::exit::Failure;
use files::ReadSecret;
use kubernetes::{AccountToken, Cluster, ConnectOptions, Error};
use settings::SecretSource;

/// The manifest that the package also contains as a file, for applying it by hand.
const MANIFEST: &str = include_str!("../../../packaging/rbac.yaml");
const NAMESPACE: &str = "pve-autoscaler";
const SECRET: &str = "pve-autoscaler-token";
/// How long to wait for the cluster to put the token into its Secret.
const TOKEN_LIMIT: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(200);

/// Returns a client for the cluster that uses the administrator's kubeconfig.
pub(super) async fn administrator(arguments: &Arguments) -> Result<Cluster, Failure> {
    let wrong = |error| {
        let what = "the administrator's kubeconfig (`--admin-kubeconfig`; on a control plane node it is \
            /etc/kubernetes/admin.conf)";
        Failure::Named(what.to_owned(), error)
    };
    let text = SecretSource::File(arguments.admin_kubeconfig.clone()).read();
    let text = text.map_err(|error| wrong(error.into()))?;
    let options = ConnectOptions {
        context: None,
        namespace: NAMESPACE.to_owned(),
        request_timeout: Duration::from_secs(15),
    };
    Cluster::connect(&text, &options).await.map_err(|error| wrong(error.into()))
}

/// Applies the manifest, and waits for the token; `None` in a dry run.
pub(super) async fn make(cluster: &Cluster, say: &Steps) -> Result<Option<AccountToken>, Failure> {
    if say.dry {
        say.made("the objects of rbac.yaml: namespace, service account, rights, admission policy")?;
        return Ok(None);
    }
    let applied = cluster.apply_manifest(MANIFEST).await.map_err(|error| failed(cluster, error))?;
    say.made(&format!("{} objects from rbac.yaml; those that existed were updated", applied.len()))?;
    let waiting = async {
        loop {
            if let Some(token) = cluster.account_token(SECRET).await? {
                return Ok(token);
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    match tokio::time::timeout(TOKEN_LIMIT, waiting).await {
        Ok(token) => token.map(Some).map_err(|error| failed(cluster, error)),
        Err(_) => Err(Failure::NotFound(format!(
            "the cluster put no token into the secret {NAMESPACE}/{SECRET} within {} s",
            TOKEN_LIMIT.as_secs()
        ))),
    }
}

fn failed(cluster: &Cluster, error: Error) -> Failure {
    Failure::Unreachable(format!("Kubernetes at {}", cluster.server()), error.into())
}
