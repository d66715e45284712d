//! Both embedded clusters behind TLS, and a folder with what a command needs to reach them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use pve_autoscaler::runtime::clock::{Clock, SystemClock};
use serde_json::json;
use tempfile::TempDir;
use world::clock::WorldClock;
use world::kubernetes::Kube;
use world::kubernetes::spec::KubeSpec;
use world::proxmox::Pve;
use world::proxmox::spec::ClusterSpec;
use world::serve::{Serving, serve_https, tls::ServerTls};

/// A pool that has no problems in the demo cluster.
pub const POOL: &str = "\
name = \"workers\"
max = 3
cores = 4
memory = \"8GiB\"
template = 9000
vmids = \"9100-9109\"
addresses = \"10.10.10.11-10.10.10.20\"
prefix = 24
bridge = \"vmbr0\"
";

/// Both clusters with their servers, and a folder with a configuration for them.
pub struct Bench {
    folder: TempDir,
    pub proxmox: Serving,
    pub kubernetes: Serving,
    pub kube: Kube,
    token: String,
}

impl Bench {
    pub async fn demo() -> Self {
        Self::new(ClusterSpec::demo(), KubeSpec::demo()).await
    }

    /// Creates clusters that match these specifications. The Kubernetes client uses the token of the first
    /// service account, or the administrator's token if there is none.
    pub async fn new(spec: ClusterSpec, kube: KubeSpec) -> Self {
        Self::of(crate::lab::pve(spec), kube).await
    }

    /// Like [`Self::new`], but with an existing Proxmox VE cluster, as a test has left it.
    pub async fn of(pve: Pve, kube: KubeSpec) -> Self {
        let tls = ServerTls::for_loopback("Both").unwrap();
        let any = || "127.0.0.1:0".parse().unwrap();
        let handler = move |request| {
            let pve = pve.clone();
            async move { pve.handle(request).await }
        };
        let proxmox = serve_https(handler, any(), &tls).await.unwrap();
        let token =
            kube.service_accounts.first().map_or(KubeSpec::DEMO_ADMIN_TOKEN, |one| &one.token).to_owned();
        let kube = KubeSpec { ca_pem: tls.ca_pem.clone(), ca_hash: tls.ca_public_key_hash.clone(), ..kube };
        // The program under test uses the real time, so the embedded Kubernetes starts at the real time.
        let kube = Kube::new(kube, WorldClock::starting_at(SystemClock.now()), 11);
        let served = kube.clone();
        let handler = move |request| {
            let kube = served.clone();
            async move { kube.handle(request).await }
        };
        let kubernetes = serve_https(handler, any(), &tls).await.unwrap();
        let bench = Self { folder: TempDir::new().unwrap(), proxmox, kubernetes, kube, token };
        let namespace = json!({ "kind": "Namespace", "metadata": { "name": "pve-autoscaler" } });
        bench.kube.apply(&namespace).unwrap();
        bench.write("ca.pem", &tls.ca_pem, 0o644);
        bench.write("token", ClusterSpec::DEMO_SECRET, 0o600);
        bench.kubeconfig(&bench.kubernetes.address().to_string());
        bench.configure(POOL);
        bench
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn write(&self, name: &str, text: &str, mode: u32) {
        fs::write(self.path(name), text).unwrap();
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(mode)).unwrap();
    }

    /// Writes a kubeconfig for an API server at this address.
    pub fn kubeconfig(&self, address: &str) {
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "k", "cluster": {"server": format!("https://{address}"),
                                                    "certificate-authority": self.path("ca.pem")}}],
            "users": [{"name": "u", "user": {"token": self.token}}],
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        });
        self.write("kubeconfig", &text.to_string(), 0o600);
    }

    /// The `[proxmox]` table.
    pub fn proxmox(&self) -> String {
        format!(
            "[proxmox]\nendpoints = [\"https://{}\"]\ntoken_id = \"{}\"\ntoken_file = \"{}\"\nca_file = \"{}\"\n\
             resource_pool = \"k8s-workers\"\n",
            self.proxmox.address(),
            ClusterSpec::DEMO_TOKEN,
            self.path("token").display(),
            self.path("ca.pem").display(),
        )
    }

    /// Writes a complete configuration with this pool.
    pub fn configure(&self, pool: &str) {
        let kubeconfig = self.path("kubeconfig").display().to_string();
        let text = format!(
            "scan_interval = \"1s\"\n[metrics]\nlisten = \"127.0.0.1:0\"\n{}[kubernetes]\nkubeconfig_file = \"{kubeconfig}\"\n[bootstrap]\n[[pool]]\n{pool}",
            self.proxmox(),
        );
        self.write("config.toml", &text, 0o644);
    }

    /// Replaces a text in the configuration.
    pub fn change(&self, from: &str, to: &str) {
        let text = fs::read_to_string(self.path("config.toml")).unwrap();
        assert!(text.contains(from), "{text}");
        self.write("config.toml", &text.replace(from, to), 0o644);
    }
}

/// Panics if a text contains one of the bench's secrets.
pub fn no_secret_in(text: &str) {
    for secret in [ClusterSpec::DEMO_SECRET, KubeSpec::DEMO_ADMIN_TOKEN] {
        assert!(!text.contains(secret), "a secret is shown");
    }
}
