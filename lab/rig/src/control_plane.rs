//! The control plane. Each component is a process. kubeadm's phases create the certificates and the cluster
//! objects.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};

use crate::admin::Admin;
use crate::process::Process;
use crate::programs::Programs;

/// How long a component may take to come up.
const LIMIT: Duration = Duration::from_mins(2);
/// How often the rig checks whether a component has come up.
const LOOK: Duration = Duration::from_millis(100);
/// kubeadm and the API server refuse to advertise a loopback address. This address leads nowhere (RFC 5737),
/// and is never used: all clients connect to `controlPlaneEndpoint`.
const ADVERTISED: &str = "192.0.2.1";

/// The options of a control plane.
#[derive(Clone, Debug)]
pub struct Options {
    /// The address at which the API server listens, and by which machines and clients reach it.
    pub address: IpAddr,
    /// How long a Node may be unresponsive before it counts as dead.
    pub node_monitor_grace: Duration,
    /// The maximum number of calls per second for the controllers and for the scheduler (20 and 50 by
    /// default). Filling a large cluster needs more.
    pub calls: Option<u32>,
    /// Whether PodGroups are served, and the scheduler keeps gangs together. Has no effect if the Kubernetes
    /// version lacks PodGroups as `v1beta1`.
    pub pod_groups: bool,
}

impl Default for Options {
    /// Listens on loopback. Everything else is as kubeadm sets it up.
    fn default() -> Self {
        Self {
            address: Ipv4Addr::LOCALHOST.into(),
            node_monitor_grace: Duration::from_secs(50),
            calls: None,
            pod_groups: false,
        }
    }
}

/// A running control plane. Its processes are killed when this value is dropped.
#[derive(Debug)]
pub struct ControlPlane {
    programs: Programs,
    directory: PathBuf,
    endpoint: String,
    api_server: Vec<String>,
    // The processes are ended in this order, etcd last.
    processes: Mutex<Vec<(&'static str, Process)>>,
}

impl ControlPlane {
    /// Starts a control plane. Its keys, data and logs are written to the directory.
    ///
    /// # Errors
    /// Returns an error with the end of the log if a component cannot be started or does not come up.
    pub async fn start(programs: Programs, directory: &Path, options: &Options) -> anyhow::Result<Self> {
        let [api, etcd, peer, manager, scheduler] = free_ports(options.address)?;
        let endpoint = format!("{}:{api}", options.address);
        let mut plane = Self {
            programs,
            directory: directory.to_owned(),
            endpoint,
            api_server: Vec::new(),
            processes: Mutex::default(),
        };
        let etcd_url = format!("http://127.0.0.1:{etcd}");
        plane.write("kubeadm.yaml", &plane.configuration(options, api, &etcd_url, true))?;
        plane.write("cluster.yaml", &plane.configuration(options, api, &etcd_url, false))?;
        plane.write("audit.yaml", AUDIT)?;
        plane.launch("etcd", etcd_flags(directory, &etcd_url, peer))?;
        plane.kubeadm("kubeadm.yaml", &["certs", "all"]).await?;
        let folder = directory.display().to_string();
        plane.kubeadm("kubeadm.yaml", &["kubeconfig", "all", "--kubeconfig-dir", &folder]).await?;
        plane.lead_to_endpoint("controller-manager.conf", api)?;
        plane.lead_to_endpoint("scheduler.conf", api)?;
        plane.api_server = plane.api_server_flags(options, api, &etcd_url);
        plane.start_api_server().await?;
        plane.launch("kube-controller-manager", plane.manager_flags(options, manager))?;
        plane.launch("kube-scheduler", plane.scheduler_flags(options, scheduler))?;
        let admin = plane.at("super-admin.conf");
        for phase in [&["upload-config", "all"][..], &["bootstrap-token", "--skip-token-print"]] {
            plane.kubeadm("cluster.yaml", &[phase, &["--kubeconfig", &admin]].concat()).await?;
        }
        plane.settled().await?;
        Ok(plane)
    }

    /// `host:port` of the API server.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// The directory with the keys, data and logs.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The programs of the control plane.
    pub fn programs(&self) -> &Programs {
        &self.programs
    }

    /// An administrator's access. Must be called inside a tokio runtime, and may be used only in that
    /// runtime.
    ///
    /// # Errors
    /// Returns an error if the kubeconfig is not as kubeadm writes it.
    pub fn admin(&self) -> anyhow::Result<Admin> {
        Admin::new(self.programs.clone(), Path::new(&self.at("super-admin.conf")))
    }

    /// The audit events of all requests so far by service accounts outside `kube-system`.
    ///
    /// # Errors
    /// Returns an error if the log cannot be read.
    pub fn audit(&self) -> anyhow::Result<Vec<Value>> {
        let text = fs::read_to_string(self.at(AUDIT_LOG)).context("cannot read the audit log")?;
        // The last line may be incomplete, so lines that are not JSON are skipped.
        Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
    }

    fn at(&self, name: &str) -> String {
        self.directory.join(name).display().to_string()
    }

    fn write(&self, name: &str, text: &str) -> anyhow::Result<()> {
        fs::write(self.at(name), text).with_context(|| format!("cannot write {name}"))
    }

    /// kubeadm's configuration. The copy in the cluster must not contain `certificatesDir`: machines that
    /// join use this copy, and a kubelet fails if that folder does not exist.
    fn configuration(&self, options: &Options, port: u16, etcd: &str, own_certificates: bool) -> String {
        let certificates =
            if own_certificates { format!("certificatesDir: {}\n", self.at("pki")) } else { String::new() };
        format!(
            "apiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration\n\
             localAPIEndpoint: {{ advertiseAddress: {ADVERTISED}, bindPort: {port} }}\n\
             nodeRegistration: {{ name: rig, criSocket: \"unix:///run/containerd/containerd.sock\" }}\n\
             ---\napiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\n\
             kubernetesVersion: {}\ncontrolPlaneEndpoint: \"{}\"\n{certificates}\
             apiServer: {{ certSANs: [\"127.0.0.1\", \"{}\", \"localhost\"] }}\n\
             networking: {{ serviceSubnet: 10.96.0.0/16 }}\n\
             etcd: {{ external: {{ endpoints: [\"{etcd}\"] }} }}\n",
            self.programs.version(),
            self.endpoint,
            options.address
        )
    }

    /// Points a kubeconfig at the endpoint. This is needed because kubeadm writes the advertised address,
    /// which leads nowhere, into the kubeconfigs of the controllers and the scheduler.
    fn lead_to_endpoint(&self, name: &str, port: u16) -> anyhow::Result<()> {
        let text = fs::read_to_string(self.at(name)).with_context(|| format!("cannot read {name}"))?;
        self.write(name, &text.replace(&format!("{ADVERTISED}:{port}"), &self.endpoint))
    }

    async fn kubeadm(&self, configuration: &str, phase: &[&str]) -> anyhow::Result<()> {
        let file = self.at(configuration);
        let arguments = [&["init", "phase"][..], phase, &["--config", &file]].concat();
        timeout(LIMIT, self.programs.run("kubeadm", &arguments, ""))
            .await
            .context("kubeadm did not finish in time")??;
        Ok(())
    }

    fn launch(&self, name: &'static str, flags: Vec<String>) -> anyhow::Result<()> {
        let log = self.directory.join(format!("{name}.log"));
        let process = Process::start(&self.programs.path(name), &flags, &log)?;
        self.processes().insert(0, (name, process));
        Ok(())
    }

    fn processes(&self) -> MutexGuard<'_, Vec<(&'static str, Process)>> {
        self.processes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Kills the API server.
    pub fn kill_api_server(&self) {
        self.processes().retain(|(name, _)| *name != API_SERVER);
    }

    /// Starts the API server if it is not running, and waits until it is ready.
    ///
    /// # Errors
    /// Returns an error if the API server cannot be started or does not come up.
    pub async fn start_api_server(&self) -> anyhow::Result<()> {
        if !self.processes().iter().any(|(name, _)| *name == API_SERVER) {
            self.launch(API_SERVER, self.api_server.clone())?;
        }
        let admin = self.admin()?;
        self.until("the API server is ready", async || {
            admin.text("/readyz").await.is_ok_and(|said| said == "ok")
        })
        .await
    }

    /// Waits until the controllers work: cluster-info is signed, and the namespace `default` has its service
    /// account.
    async fn settled(&self) -> anyhow::Result<()> {
        let admin = self.admin()?;
        self.until("the controllers work", async || {
            let signed = admin.get("/api/v1/namespaces/kube-public/configmaps/cluster-info").await;
            let account = admin.get("/api/v1/namespaces/default/serviceaccounts/default").await;
            let signed = signed.is_ok_and(|map| {
                map["data"].as_object().is_some_and(|data| data.keys().any(|key| key.starts_with("jws-")))
            });
            signed && account.is_ok()
        })
        .await
    }

    async fn until(&self, what: &str, is_so: impl AsyncFn() -> bool) -> anyhow::Result<()> {
        let end = Instant::now() + LIMIT;
        while !is_so().await {
            for (name, process) in self.processes().iter_mut() {
                if let Some(status) = process.ended() {
                    let said =
                        fs::read_to_string(self.directory.join(format!("{name}.log"))).unwrap_or_default();
                    let last: Vec<&str> = said.lines().rev().take(10).collect();
                    bail!(
                        "{name} ended with {status}; the last lines of its log, newest first:\n{}",
                        last.join("\n")
                    );
                }
            }
            if Instant::now() > end {
                bail!(
                    "still not true after {LIMIT:?}: {what}; see the logs in `{}`",
                    self.directory.display()
                );
            }
            sleep(LOOK).await;
        }
        Ok(())
    }

    fn api_server_flags(&self, options: &Options, port: u16, etcd: &str) -> Vec<String> {
        let pki = |name: &str| self.at(&format!("pki/{name}"));
        let served = [("runtime-config", "scheduling.k8s.io/v1beta1=true".to_owned())];
        let served = if self.has_pod_groups(options) { flags(&served) } else { Vec::new() };
        let own = flags(&[
            ("advertise-address", ADVERTISED.to_owned()),
            ("audit-log-path", self.at(AUDIT_LOG)),
            ("audit-policy-file", self.at("audit.yaml")),
            ("allow-privileged", "true".to_owned()),
            ("authorization-mode", "Node,RBAC".to_owned()),
            ("bind-address", options.address.to_string()),
            ("client-ca-file", pki("ca.crt")),
            ("enable-admission-plugins", "NodeRestriction".to_owned()),
            ("enable-bootstrap-token-auth", "true".to_owned()),
            ("etcd-servers", etcd.to_owned()),
            ("kubelet-client-certificate", pki("apiserver-kubelet-client.crt")),
            ("kubelet-client-key", pki("apiserver-kubelet-client.key")),
            ("kubelet-preferred-address-types", "InternalIP,ExternalIP,Hostname".to_owned()),
            ("proxy-client-cert-file", pki("front-proxy-client.crt")),
            ("proxy-client-key-file", pki("front-proxy-client.key")),
            ("requestheader-allowed-names", "front-proxy-client".to_owned()),
            ("requestheader-client-ca-file", pki("front-proxy-ca.crt")),
            ("requestheader-extra-headers-prefix", "X-Remote-Extra-".to_owned()),
            ("requestheader-group-headers", "X-Remote-Group".to_owned()),
            ("requestheader-username-headers", "X-Remote-User".to_owned()),
            ("secure-port", port.to_string()),
            ("service-account-issuer", "https://kubernetes.default.svc.cluster.local".to_owned()),
            ("service-account-key-file", pki("sa.pub")),
            ("service-account-signing-key-file", pki("sa.key")),
            ("service-cluster-ip-range", "10.96.0.0/16".to_owned()),
            ("tls-cert-file", pki("apiserver.crt")),
            ("tls-private-key-file", pki("apiserver.key")),
        ]);
        [own, served, self.gates(options)].concat()
    }

    fn has_pod_groups(&self, options: &Options) -> bool {
        options.pod_groups && !self.programs.version().starts_with("v1.36.")
    }

    /// The flags for feature gates that are off by default.
    fn gates(&self, options: &Options) -> Vec<String> {
        let gates = [("feature-gates", "GenericWorkload=true".to_owned())];
        if self.has_pod_groups(options) { flags(&gates) } else { Vec::new() }
    }

    fn manager_flags(&self, options: &Options, port: u16) -> Vec<String> {
        let pki = |name: &str| self.at(&format!("pki/{name}"));
        let kubeconfig = self.at("controller-manager.conf");
        let manager = flags(&[
            ("authentication-kubeconfig", kubeconfig.clone()),
            ("authorization-kubeconfig", kubeconfig.clone()),
            ("bind-address", "127.0.0.1".to_owned()),
            ("client-ca-file", pki("ca.crt")),
            ("cluster-signing-cert-file", pki("ca.crt")),
            ("cluster-signing-key-file", pki("ca.key")),
            ("controllers", "*,bootstrapsigner,tokencleaner".to_owned()),
            ("kubeconfig", kubeconfig),
            ("leader-elect", "false".to_owned()),
            ("node-monitor-grace-period", format!("{}s", options.node_monitor_grace.as_secs())),
            ("requestheader-client-ca-file", pki("front-proxy-ca.crt")),
            ("root-ca-file", pki("ca.crt")),
            ("secure-port", port.to_string()),
            ("service-account-private-key-file", pki("sa.key")),
            ("use-service-account-credentials", "true".to_owned()),
        ]);
        [manager, rates(options), self.gates(options)].concat()
    }

    fn scheduler_flags(&self, options: &Options, port: u16) -> Vec<String> {
        let kubeconfig = self.at("scheduler.conf");
        let scheduler = flags(&[
            ("authentication-kubeconfig", kubeconfig.clone()),
            ("authorization-kubeconfig", kubeconfig.clone()),
            ("bind-address", "127.0.0.1".to_owned()),
            ("kubeconfig", kubeconfig),
            ("leader-elect", "false".to_owned()),
            ("secure-port", port.to_string()),
        ]);
        [scheduler, rates(options), self.gates(options)].concat()
    }
}

/// The flags that limit how often a component may call the API server.
fn rates(options: &Options) -> Vec<String> {
    let Some(calls) = options.calls else { return Vec::new() };
    flags(&[("kube-api-qps", calls.to_string()), ("kube-api-burst", (calls * 2).to_string())])
}

const API_SERVER: &str = "kube-apiserver";
/// The file to which the API server logs requests.
const AUDIT_LOG: &str = "audit.log";

/// The audit policy: logs who requested what, but not the contents.
const AUDIT: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: None
    userGroups: [\"system:serviceaccounts:kube-system\"]
  - level: Metadata
    userGroups: [\"system:serviceaccounts\"]
  - level: None
";

fn etcd_flags(directory: &Path, url: &str, peer: u16) -> Vec<String> {
    let peer = format!("http://127.0.0.1:{peer}");
    flags(&[
        ("name", "rig".to_owned()),
        ("data-dir", directory.join("etcd").display().to_string()),
        ("listen-client-urls", url.to_owned()),
        ("advertise-client-urls", url.to_owned()),
        ("listen-peer-urls", peer.clone()),
        ("initial-advertise-peer-urls", peer.clone()),
        ("initial-cluster", format!("rig={peer}")),
        // The data is not kept after the test, so it need not be synced to disk.
        ("unsafe-no-fsync", "true".to_owned()),
        ("log-level", "warn".to_owned()),
    ])
}

fn flags(pairs: &[(&str, String)]) -> Vec<String> {
    pairs.iter().map(|(name, value)| format!("--{name}={value}")).collect()
}

/// Returns ports that are not in use. All of them stay bound until the last one is found, so that they
/// differ. No port is returned twice in the same process, because the process may start another control plane
/// before the earlier one listens.
fn free_ports<const N: usize>(address: IpAddr) -> anyhow::Result<[u16; N]> {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut held = Vec::new();
    let mut ports = [0; N];
    for port in &mut ports {
        loop {
            let listener = TcpListener::bind((address, 0)).context("cannot find a free port")?;
            *port = listener.local_addr().context("cannot find a free port")?.port();
            held.push(listener);
            if given.insert(*port) {
                break;
            }
        }
    }
    Ok(ports)
}
