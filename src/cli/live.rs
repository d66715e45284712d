//! Reads the live clusters once.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use secrecy::ExposeSecret;
use tokio_util::sync::CancellationToken;

use super::exit::Failure;
use files::{ReadSecret, SecretError};
use kubernetes::{Cluster, ConnectOptions, ErrorKind, Watches};
use machines::{DeviceSurvey, MachineView};
use model::workload::Backoff;
use model::{HostKey, Snapshot};
use proxmox::redfish;
use proxmox::{Client, Settings, Trust};
use runtime::clock::{Clock, SystemClock};
use settings::{Config, Proxmox, ProxmoxTrust, Redfish};

/// The time limit for listing the objects of all kinds once.
const SYNC_LIMIT: Duration = Duration::from_mins(1);

/// How long an unreachable cluster is left out of decisions, starting at the time of the plan.
const LEFT_OUT: SignedDuration = SignedDuration::from_mins(1);

/// The file of certificate authorities that Debian systems, including Proxmox VE hosts, trust.
const SYSTEM_AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Runs a future on a new runtime.
pub(super) fn block_on<T>(future: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    // Fails if a TLS provider is already installed, which then stays in use.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(Failure::Output)?.block_on(future)
}

/// The current state of both clusters. Without a `[proxmox]` table, the hosts are unknown, and their room
/// counts as unlimited.
pub(super) fn snapshot(config: &Config, now: Option<Timestamp>) -> Result<Snapshot, Failure> {
    block_on(async {
        let cluster = kubernetes(config).await?;
        let mut snapshot = kubernetes_objects(&cluster).await?;
        let time = now.unwrap_or_else(|| SystemClock.now());
        snapshot.time = time;
        daemons_own(config, &cluster, &mut snapshot, time).await?;
        hosts(config, &mut snapshot).await?;
        Ok(snapshot)
    })
}

/// Reads the hosts of all Proxmox VE clusters. If one of several clusters cannot be reached, a warning is
/// printed, and nothing is decided for that cluster's pools.
async fn hosts(config: &Config, snapshot: &mut Snapshot) -> Result<(), Failure> {
    let mut all = Vec::new();
    for settings in config.clusters() {
        let prefix = config.prefix(settings.region.as_deref());
        let client = client(settings)?;
        let looked = async {
            let seen = client.resources().await?;
            let devices = DeviceSurvey::default().look(&client, &config.alone(prefix), &seen).await?;
            Ok::<_, proxmox::Error>((seen, devices))
        };
        let (seen, devices) = match looked.await {
            Ok(seen) => seen,
            Err(error) if config.also.is_empty() => {
                return Err(Failure::Unreachable("Proxmox VE".to_owned(), error.into()));
            }
            Err(error) => {
                let region = settings.region.as_deref().unwrap_or_default();
                anstream::eprintln!("warning: region {region} is left out: {error}");
                let why = format!("region `{region}` cannot be acted on: {error}");
                leave_out(config, prefix, &why, snapshot);
                continue;
            }
        };
        let mut hosts = seen.hosts(settings.count_stopped);
        devices.give(&mut hosts);
        for host in &mut hosts {
            host.name = HostKey::new(prefix, &host.name);
        }
        all.extend(hosts);
    }
    if config.proxmox.is_some() {
        Arc::make_mut(&mut snapshot.proxmox).hosts = Some(all);
    }
    Ok(())
}

/// Leaves the pools of a cluster out of the decision, as the daemon does.
fn leave_out(config: &Config, prefix: &str, why: &str, snapshot: &mut Snapshot) {
    let until = snapshot.time.saturating_add(LEFT_OUT).unwrap_or(Timestamp::MAX);
    for pool in config.pools.iter().filter(|pool| pool.prefix == prefix) {
        let memory = snapshot.memory.pools.entry(pool.name.clone()).or_default();
        memory.out_of_sight = Some(why.to_owned());
        memory.backoff.get_or_insert(Backoff { until, reason: why.to_owned(), seconds: 0 });
    }
}

/// Adds what the daemon has stored in Kubernetes: its machines, including those without a Node yet, and its
/// timers and back-offs.
async fn daemons_own(
    config: &Config,
    cluster: &Cluster,
    snapshot: &mut Snapshot,
    now: Timestamp,
) -> Result<(), Failure> {
    let read = async { Ok((cluster.list_records().await?, cluster.load_memory().await?.0)) };
    let (records, memory) = match read.await {
        Ok(read) => read,
        Err(error) if kubernetes::Error::kind(&error) == ErrorKind::Forbidden => {
            anstream::eprintln!("warning: the daemon's saved state is left out: {error}");
            return Ok(());
        }
        Err(error) => {
            return Err(Failure::Unreachable(format!("Kubernetes at {}", cluster.server()), error.into()));
        }
    };
    let machines: Vec<_> = records
        .readable
        .iter()
        .map(|stored| {
            let uuid = stored.record.smbios_uuid.as_ref();
            let node = snapshot.nodes.iter().find(|node| uuid == Some(&node.system_uuid));
            MachineView::found(stored, node.map(|node| node.name.clone()), now).machine(config)
        })
        .collect();
    // If there are no records, only the pools' Nodes are known.
    let machines = Some(machines).filter(|machines| !machines.is_empty());
    Arc::make_mut(&mut snapshot.proxmox).machines = machines;
    snapshot.memory = memory;
    Ok(())
}

/// Creates a client for the Kubernetes cluster. Nothing is sent yet.
pub(super) async fn kubernetes(config: &Config) -> Result<Cluster, Failure> {
    let settings = config.kubernetes.as_ref().ok_or(Failure::Lacking("kubernetes"))?;
    let kubeconfig = settings
        .kubeconfig
        .read()
        .map_err(|error| Failure::Named("the kubeconfig".to_owned(), error.into()))?;
    let options = ConnectOptions {
        context: settings.context.clone(),
        namespace: settings.namespace.clone(),
        request_timeout: settings.request_timeout,
    };
    let cluster = Cluster::connect(&kubeconfig, &options).await;
    cluster.map_err(|error| Failure::Named("the kubeconfig".to_owned(), error.into()))
}

/// The objects in the Kubernetes cluster, listed once.
pub(super) async fn kubernetes_objects(cluster: &Cluster) -> Result<Snapshot, Failure> {
    let unreachable = |error| Failure::Unreachable(format!("Kubernetes at {}", cluster.server()), error);
    // This call comes first so that a wrong address or certificate is reported immediately, not after the
    // time limit.
    cluster.version().await.map_err(|error| unreachable(error.into()))?;
    let cancel = CancellationToken::new();
    let watches = Watches::start(cluster, &cancel);
    let synced = tokio::time::timeout(SYNC_LIMIT, watches.synced()).await;
    let (snapshot, current) = (watches.snapshot(), watches.is_current());
    cancel.cancel();
    match synced {
        Ok(()) if current => {
            for problem in watches.problems() {
                anstream::eprintln!("warning: {}: {}", problem.kind, problem.what);
            }
            Ok(snapshot)
        }
        Ok(()) => Err(unreachable("the objects that were read may be out of date".into())),
        Err(elapsed) => {
            let problems: Vec<_> =
                watches.problems().iter().map(|one| format!("{}: {}", one.kind, one.what)).collect();
            let what = if problems.is_empty() { elapsed.to_string() } else { problems.join("; ") };
            Err(unreachable(format!("some objects could not be listed: {what}").into()))
        }
    }
}

/// Creates a client for the Proxmox VE cluster in `[proxmox]`. Nothing is sent yet.
pub(super) fn proxmox(config: &Config) -> Result<Client, Failure> {
    client(config.proxmox.as_ref().ok_or(Failure::Lacking("proxmox"))?)
}

/// Returns the files and credentials of a Proxmox VE client that cannot be read, each with its name and the
/// error.
pub(super) fn unreadable(settings: &Proxmox) -> Vec<(String, SecretError)> {
    let region = settings.region.as_ref().map(|name| format!("region `{name}`: ")).unwrap_or_default();
    let file = |path: &Path| {
        let unreadable = |source| SecretError::Unreadable { path: path.to_owned(), source };
        std::fs::read_to_string(path).map_err(unreadable).err()
    };
    let authority = match &settings.trust {
        ProxmoxTrust::CaCredential(credential) => credential.read().err(),
        ProxmoxTrust::CaFile(path) => file(path),
        ProxmoxTrust::System => file(Path::new(SYSTEM_AUTHORITIES)),
        ProxmoxTrust::Fingerprint(_) => None,
    };
    let token = settings.token.read().err().map(|error| (format!("{region}the API token"), error));
    let authority = authority.map(|error| (format!("{region}{}", certificates(&settings.trust)), error));
    token.into_iter().chain(authority).collect()
}

/// Describes what the API's certificate is checked against, and names the setting.
fn certificates(trust: &ProxmoxTrust) -> String {
    match trust {
        ProxmoxTrust::CaCredential(_) => "the certificates in `ca_credential`".to_owned(),
        ProxmoxTrust::CaFile(_) => "the certificates in `ca_file`".to_owned(),
        ProxmoxTrust::System => format!("the certificates in `{SYSTEM_AUTHORITIES}` (`ca`)"),
        ProxmoxTrust::Fingerprint(_) => "`fingerprint`".to_owned(),
    }
}

/// Creates a client for one Proxmox VE cluster. Nothing is sent yet.
pub(super) fn client(settings: &Proxmox) -> Result<Client, Failure> {
    let trust = trust(&settings.trust)?;
    let token =
        settings.token.read().map_err(|error| Failure::Named("the API token".to_owned(), error.into()))?;
    let transport = proxmox::connect(&trust, settings.connect_timeout, settings.request_timeout)
        .map_err(|error| Failure::Named(certificates(&settings.trust), error))?;
    let client_settings = Settings {
        endpoints: settings.endpoints.clone(),
        token_id: settings.token_id.clone(),
        agent_lane: settings.agent_calls_per_host,
        lifecycle_lane: settings.calls_per_host,
        linked_clones: settings.linked_clones_per_storage,
        full_clones: settings.full_clones_per_storage,
    };
    Client::new(transport, client_settings, &token)
        .map_err(|error| Failure::Named("the API token".to_owned(), error.into()))
}

/// Creates a client for a management controller, which switches a host or machine on and off. The password is
/// read again for each client.
pub(super) fn controller(settings: &Redfish) -> Result<redfish::Client, Failure> {
    let trust = trust(&settings.trust)?;
    let password = settings
        .password
        .read()
        .map_err(|error| Failure::Named("a management controller's password".to_owned(), error.into()))?;
    let transport = proxmox::connect(&trust, settings.timeout, settings.timeout)
        .map_err(|error| Failure::Named("a management controller's certificates".to_owned(), error))?;
    let client_settings = redfish::Settings {
        endpoint: settings.endpoint.clone(),
        system: settings.system.clone(),
        user: settings.user.clone(),
        timeout: settings.timeout,
    };
    redfish::Client::new(transport, client_settings, &password)
        .map_err(|error| Failure::Named("a management controller's password".to_owned(), error.into()))
}

fn trust(trust: &ProxmoxTrust) -> Result<Trust, Failure> {
    Ok(match trust {
        ProxmoxTrust::Fingerprint(text) => Trust::Fingerprint(text.clone()),
        ProxmoxTrust::CaFile(path) => authorities(path)?,
        ProxmoxTrust::System => authorities(Path::new(SYSTEM_AUTHORITIES))?,
        ProxmoxTrust::CaCredential(credential) => {
            let pem = credential.read().map_err(|error| Failure::Named(certificates(trust), error.into()))?;
            Trust::Authorities(pem.expose_secret().to_owned())
        }
    })
}

pub(super) fn authorities(path: &Path) -> Result<Trust, Failure> {
    let named =
        |error: std::io::Error| Failure::Named(format!("cannot read `{}`", path.display()), error.into());
    Ok(Trust::Authorities(std::fs::read_to_string(path).map_err(named)?))
}
