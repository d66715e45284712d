//! The embedded Proxmox VE and Kubernetes over TLS, and the files that clients need to reach them.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use jiff::Timestamp;
use serde_json::json;
use tokio::task::JoinHandle;
use world::clock::WorldClock;
use world::guest::control_plane::ControlPlane;
use world::kubernetes::Kube;
use world::kubernetes::spec::KubeSpec;
use world::proxmox::Pve;
use world::proxmox::spec::ClusterSpec;
use world::serve::tls::ServerTls;
use world::serve::{Serving, serve_https};

use crate::network;

/// An embedded Proxmox VE over TLS with its guests' network. It stops when this value is dropped.
pub struct Proxmox {
    /// Proxmox VE.
    pub pve: Pve,
    /// The base URL of its API.
    pub url: String,
    /// Whether guests become visible on the network when they boot.
    pub probing: bool,
    serving: Serving,
    network: JoinHandle<()>,
}

impl Proxmox {
    /// Starts Proxmox VE on a free port, with this control plane for its guests, and writes `pve-token` and
    /// `pve-ca.pem` into the directory.
    ///
    /// # Errors
    /// Returns an error if the port cannot be bound, or a file cannot be written.
    pub async fn start(
        directory: &Path,
        cluster: ClusterSpec,
        clock: WorldClock,
        control_plane: Arc<dyn ControlPlane>,
    ) -> anyhow::Result<Self> {
        let tls = ServerTls::for_loopback("Proxmox lab CA")?;
        let pve = Pve::new(cluster, clock, fastrand::u64(..), control_plane);
        let api = pve.clone();
        let answer = move |request| {
            let api = api.clone();
            async move { api.handle(request).await }
        };
        let serving = serve_https(answer, ANY, &tls).await.context("cannot serve the Proxmox VE API")?;
        let directory = &made(directory)?;
        write(directory, "pve-ca.pem", &tls.ca_pem)?;
        write(directory, "pve-token", ClusterSpec::DEMO_SECRET)?;
        Ok(Self {
            url: format!("https://{}", serving.address()),
            probing: network::is_there(network::SOME).await,
            network: network::keep(pve.clone()),
            pve,
            serving,
        })
    }
}

impl Drop for Proxmox {
    fn drop(&mut self) {
        self.network.abort();
        self.serving.shutdown();
    }
}

/// Embedded Proxmox VE and Kubernetes clusters. They stop when this value is dropped.
pub struct Clusters {
    /// Proxmox VE.
    pub pve: Pve,
    /// The server of the embedded Proxmox VE.
    pub proxmox: Proxmox,
    /// Kubernetes.
    pub kube: Kube,
    /// URL of the Kubernetes API.
    pub kube_url: String,
    /// The Kubernetes server. It stops when this value is dropped.
    pub serving: Serving,
}

impl Clusters {
    /// Starts both clusters on free ports, and writes `kubeconfig`, `pve-token` and `pve-ca.pem` into the
    /// directory.
    ///
    /// # Errors
    /// Returns an error if a port cannot be bound, or a file cannot be written.
    pub async fn start(directory: &Path, cluster: ClusterSpec, kube: KubeSpec) -> anyhow::Result<Self> {
        let clock = WorldClock::starting_at(now());
        let tls = ServerTls::for_loopback("Kubernetes lab CA")?;
        let kube = KubeSpec { ca_pem: tls.ca_pem.clone(), ca_hash: tls.ca_public_key_hash.clone(), ..kube };
        let kube = Kube::new(kube, clock.clone(), fastrand::u64(..));
        let proxmox = Proxmox::start(directory, cluster, clock, Arc::new(kube.clone())).await?;
        let api = kube.clone();
        let answer = move |request| {
            let api = api.clone();
            async move { api.handle(request).await }
        };
        let serving = serve_https(answer, ANY, &tls).await.context("cannot serve Kubernetes")?;
        kube.set_endpoint(&serving.address().to_string());
        let kube_url = format!("https://{}", serving.address());
        write(&made(directory)?, "kubeconfig", &kube.kubeconfig(&kube_url))?;
        // The daemon keeps its records in this namespace, which the package's manifest creates on a real
        // cluster.
        let namespace = json!({ "kind": "Namespace", "metadata": { "name": "pve-autoscaler" } });
        kube.apply(&namespace).map_err(anyhow::Error::msg)?;
        Ok(Self { pve: proxmox.pve.clone(), proxmox, kube, kube_url, serving })
    }
}

/// A loopback address with port 0, which lets the system choose a free port.
const ANY: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0));

/// Creates the directory so that only its owner can access it, and returns its path.
fn made(directory: &Path) -> anyhow::Result<PathBuf> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
    made.and_then(|()| directory.canonicalize())
        .with_context(|| format!("cannot create `{}`", directory.display()))
}

/// Writes a file that only its owner may read: the daemon refuses secrets that others can read.
pub fn write(directory: &Path, name: &str, text: &str) -> anyhow::Result<()> {
    let path = directory.join(name);
    // An existing file may have other permissions, so it is removed first.
    let _ = fs::remove_file(&path);
    let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
    let written = opened.and_then(|mut file| file.write_all(text.as_bytes()));
    written.with_context(|| format!("cannot write `{}`", path.display()))
}

/// The current time, for embedded clusters that real clients use.
#[expect(clippy::disallowed_methods, reason = "real clients of the lab need the real time")]
pub fn now() -> Timestamp {
    Timestamp::now()
}
