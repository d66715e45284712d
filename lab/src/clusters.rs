//! Both clusters over TLS, and the files by which clients reach them.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use anyhow::Context as _;
use jiff::Timestamp;
use serde_json::json;
use tokio::task::JoinHandle;
use world::clock::WorldClock;
use world::kubernetes::Kube;
use world::kubernetes::spec::KubeSpec;
use world::proxmox::Pve;
use world::proxmox::spec::ClusterSpec;
use world::serve::tls::ServerTls;
use world::serve::{Serving, serve_https};

use crate::network;

/// Both clusters, up for as long as this lives.
pub struct Clusters {
    /// Proxmox VE.
    pub pve: Pve,
    /// Kubernetes.
    pub kube: Kube,
    /// Base URL of Proxmox VE.
    pub pve_url: String,
    /// URL of the Kubernetes API.
    pub kube_url: String,
    /// Whether guests can be seen to come up on the network.
    pub probing: bool,
    serving: [Serving; 2],
    network: JoinHandle<()>,
}

impl Clusters {
    /// Starts both on free ports, and writes `kubeconfig`, `pve-token` and `pve-ca.pem` into the directory.
    ///
    /// # Errors
    /// A port cannot be bound, or a file cannot be written.
    pub async fn start(directory: &Path, cluster: ClusterSpec, kube: KubeSpec) -> anyhow::Result<Self> {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let clock = WorldClock::starting_at(now());
        let (pve_tls, kube_tls) =
            (ServerTls::for_loopback("Proxmox lab CA")?, ServerTls::for_loopback("Kubernetes lab CA")?);
        let kube = KubeSpec {
            ca_pem: kube_tls.ca_pem.clone(),
            ca_hash: kube_tls.ca_public_key_hash.clone(),
            ..kube
        };
        let kube = Kube::new(kube, clock.clone(), fastrand::u64(..));
        let pve = Pve::new(cluster, clock, fastrand::u64(..), std::sync::Arc::new(kube.clone()));

        let api = kube.clone();
        let kube_serving = serve_https(
            move |request| {
                let api = api.clone();
                async move { api.handle(request).await }
            },
            any,
            &kube_tls,
        )
        .await
        .context("cannot serve Kubernetes")?;
        let api = pve.clone();
        let pve_serving = serve_https(
            move |request| {
                let api = api.clone();
                async move { api.handle(request).await }
            },
            any,
            &pve_tls,
        )
        .await
        .context("cannot serve Proxmox VE")?;
        kube.set_endpoint(&kube_serving.address().to_string());
        let (pve_url, kube_url) =
            (format!("https://{}", pve_serving.address()), format!("https://{}", kube_serving.address()));
        let probing = network::is_there(network::SOME).await;
        let network = network::keep(pve.clone());

        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .with_context(|| format!("cannot make `{}`", directory.display()))?;
        let directory = &directory.canonicalize()?;
        write(directory, "pve-ca.pem", &pve_tls.ca_pem)?;
        write(directory, "pve-token", ClusterSpec::DEMO_SECRET)?;
        write(directory, "kubeconfig", &kube.kubeconfig(&kube_url))?;
        // The daemon keeps its records in this namespace, which its package's manifest makes on a real cluster.
        let namespace = json!({ "kind": "Namespace", "metadata": { "name": "pve-autoscaler" } });
        kube.apply(&namespace).map_err(anyhow::Error::msg)?;
        Ok(Self { pve, kube, pve_url, kube_url, probing, serving: [kube_serving, pve_serving], network })
    }
}

impl Drop for Clusters {
    fn drop(&mut self) {
        self.network.abort();
        self.serving.iter().for_each(Serving::shutdown);
    }
}

/// Writes a file that only its owner may read: the daemon refuses secrets that others can read.
pub(crate) fn write(directory: &Path, name: &str, text: &str) -> anyhow::Result<()> {
    let path = directory.join(name);
    // One that is there already may have other rights.
    let _ = fs::remove_file(&path);
    let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
    let written = opened.and_then(|mut file| file.write_all(text.as_bytes()));
    written.with_context(|| format!("cannot write `{}`", path.display()))
}

#[expect(clippy::disallowed_methods, reason = "the lab shows real time to real clients")]
fn now() -> Timestamp {
    Timestamp::now()
}
