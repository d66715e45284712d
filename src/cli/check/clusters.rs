//! Checks whether both clusters answer, and whether the daemon has the rights it needs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::declared_devices;
use super::findings::{Answer, Line};
use super::hosts;
use super::kubelet;
use super::proxmox_view::Pve;
use super::reach;
use super::serving;
use crate::cli::exit::{FINDINGS, Failure, SUCCESS, UNREACHABLE, USAGE, chain};
use crate::cli::live;
use crate::cli::plan_text::count;
use bootstrap::TokenHost;
use files::ReadSecret;
use kubernetes::{Cluster, Right};
use machines::DeviceSurvey;
use model::{KubernetesVersion, Snapshot};
use proxmox::{Client, Kind, agent_privilege};
use settings::{Bootstrap, BootstrapMethod, Config, Power, Ssh};

/// The Proxmox VE privileges for machines, from creation to removal (tested on 9.2.11), and for seeing hosts,
/// storages and quorum. The privilege for agent calls is not listed, because it depends on the release.
const PRIVILEGES: [&str; 13] = [
    "Datastore.AllocateSpace",
    "Datastore.Audit",
    "SDN.Use",
    "Sys.Audit",
    "VM.Allocate",
    "VM.Audit",
    "VM.Clone",
    "VM.Config.CPU",
    "VM.Config.Disk",
    "VM.Config.Memory",
    "VM.Config.Network",
    "VM.Config.Options",
    "VM.PowerMgmt",
];

/// The privileges that are needed on the path of the machines themselves; the others concern templates,
/// storages, networks and hosts.
const ON_MACHINES: [&str; 8] = [
    "VM.Allocate",
    "VM.Audit",
    "VM.Config.CPU",
    "VM.Config.Disk",
    "VM.Config.Memory",
    "VM.Config.Network",
    "VM.Config.Options",
    "VM.PowerMgmt",
];

/// How long to wait for a control plane node on which tokens are created over SSH.
const TOKEN_HOST: Duration = Duration::from_secs(15);

/// Checks that the secrets for joining machines and for switching hosts on and off can be read. The
/// credentials for the clusters themselves are read when the clusters are contacted.
pub(super) fn secrets(config: &Config, answer: &mut Answer) {
    for (pool, bootstrap) in config.bootstraps() {
        let what = pool.map_or_else(|| "joining".to_owned(), |pool| format!("joining, pool {}", pool.name));
        for (name, secret) in bootstrap.secrets() {
            if let Err(error) = secret.read() {
                let line = Line::wrong(what.clone(), format!("{name}: {}", chain(&error)));
                answer.say(line.key("bootstrap"), USAGE);
            }
        }
    }
    for (name, host) in &config.hosts {
        let Some(Power::Redfish(controller)) = &host.power else { continue };
        if let Err(error) = controller.password.read() {
            let words = format!("the management controller's password: {}", chain(&error));
            answer.say(Line::wrong(format!("host {name}"), words).key("host.redfish"), USAGE);
        }
    }
}

/// Checks the Proxmox VE cluster as a whole. Returns `None` if nothing else about the cluster can be checked.
pub(super) async fn proxmox(config: &Config, answer: &mut Answer) -> Option<Pve> {
    let settings = config.proxmox.as_ref()?;
    let region = settings.region.as_ref().map(|name| format!("{name}: ")).unwrap_or_default();
    let what = format!("proxmox {region}{}", settings.endpoints.join(", "));
    let unreadable = live::unreadable(settings);
    if !unreadable.is_empty() {
        for (name, error) in unreadable {
            let key =
                if name.ends_with("token") { "proxmox.token_credential" } else { "proxmox.ca_credential" };
            let line = Line::wrong(what.clone(), format!("{name}: {}", chain(&error)));
            answer.say(line.key(key), USAGE);
        }
        return None;
    }
    let client = match live::proxmox(config) {
        Ok(client) => client,
        Err(failure) => {
            failed(&what, &failure, answer);
            return None;
        }
    };
    let (version, seen) = match (client.version().await, client.resources().await) {
        (Ok(version), Ok(seen)) => (version, seen),
        (Err(error), _) | (_, Err(error)) => {
            let help = reach::proxmox(&error, settings);
            answer.say(Line { help, ..Line::wrong(what, chain(&error)).key("proxmox") }, UNREACHABLE);
            return None;
        }
    };
    let number = count(seen.hosts.len(), "host");
    answer.say(Line::good(what, format!("PVE {version}, {number}")), SUCCESS);
    let mut hosts = seen.hosts(settings.count_stopped);
    match DeviceSurvey::default().look(&client, config, &seen).await {
        Ok(devices) => devices.give(&mut hosts),
        Err(error) => answer.say(Line::wrong("PCI devices", chain(&error)), UNREACHABLE),
    }
    let mut pve = Pve {
        agent: any(config, Bootstrap::needs_agent).then(|| agent_privilege(&version)),
        version,
        token_id: settings.token_id.clone(),
        resource_pool: settings.resource_pool.clone(),
        hosts,
        special: config.hosts.clone(),
        storages: BTreeMap::new(),
        bridges: tokio::sync::Mutex::default(),
        lacking: BTreeSet::new(),
        client,
        seen,
    };
    hosts::special(&pve, answer);
    token(&mut pve, answer).await;
    cluster(&pve.client, answer).await;
    match pve.client.storage_config().await {
        Ok(all) => pve.storages = all.into_iter().map(|one| (one.name.clone(), one)).collect(),
        Err(error) => answer.say(Line::wrong("storages", chain(&error)), UNREACHABLE),
    }
    resource_pool(config, &pve, answer).await;
    Some(pve)
}

/// Warns if two regions seem to be the same Proxmox VE cluster: each region would regard the other's machines
/// as unmanaged VMs.
pub(super) fn apart(all: &[(Option<Pve>, Config)], answer: &mut Answer) {
    let name =
        |config: &Config| config.proxmox.as_ref().and_then(|one| one.region.clone()).unwrap_or_default();
    for (at, (one, config)) in all.iter().enumerate() {
        for (other, theirs) in &all[..at] {
            let (Some(one), Some(other)) = (one, other) else { continue };
            let guests = |pve: &Pve| {
                let named = pve
                    .seen
                    .guests
                    .values()
                    .map(|guest| (guest.vmid, guest.host.clone(), guest.name.clone()));
                named.collect::<BTreeSet<_>>()
            };
            let mine = guests(one);
            if !mine.is_empty() && mine == guests(other) {
                let what = format!("regions {} and {}", name(theirs), name(config));
                let line = Line::doubtful(
                    what,
                    "have the same guests on the same hosts: they may be the same \
                        Proxmox VE cluster",
                );
                answer.say(
                    line.key("proxmox.also")
                        .help("list all hosts of a cluster in the `endpoints` of one table"),
                    FINDINGS,
                );
            }
        }
    }
}

async fn token(pve: &mut Pve, answer: &mut Answer) {
    let what = format!("  token {}", pve.token_id);
    let has = match pve.client.privileges().await {
        Ok(has) => has,
        Err(error) => return answer.say(Line::wrong(what, chain(&error)), UNREACHABLE),
    };
    let needed: Vec<&'static str> = PRIVILEGES.into_iter().chain(pve.agent).collect();
    pve.lacking = needed.iter().copied().filter(|one| !has.contains(*one)).collect();
    if pve.lacking.is_empty() {
        let count = needed.len();
        return answer.say(Line::good(what, format!("{count} of {count} privileges")), SUCCESS);
    }
    let missing: Vec<&str> = pve.lacking.iter().copied().collect();
    let help = "give the roles to both the user and the token: a token has no more rights than its user";
    answer.say(Line::wrong(what, format!("lacks {}", missing.join(", "))).help(help), UNREACHABLE);
}

async fn cluster(client: &Client, answer: &mut Answer) {
    let what = "  quorum";
    match client.cluster_status().await {
        Ok(status) if !status.quorate => {
            let line = Line::wrong(what, "the cluster is not quorate: no machine can be created or removed");
            answer.say(line.help("`pvecm status` on a host shows which hosts are missing"), UNREACHABLE);
        }
        Ok(status) => {
            let name = status.name.map_or("a single host".to_owned(), |name| format!("cluster {name}"));
            answer.say(Line::good(what, name), SUCCESS);
        }
        Err(error) if error.kind == Kind::Forbidden => {
            let line = Line::wrong(
                what,
                "the token cannot see whether the cluster is quorate, so the \
                daemon never removes a machine",
            );
            answer.say(line.help("give the token Sys.Audit on / (propagation is not needed)"), UNREACHABLE);
        }
        Err(error) => answer.say(Line::wrong(what, chain(&error)), UNREACHABLE),
    }
}

/// Checks that the resource pool exists, if one is set, and that the token has the rights it needs on
/// machines.
async fn resource_pool(config: &Config, pve: &Pve, answer: &mut Answer) {
    let first = config.pools.iter().find_map(|pool| pool.vmids.first()).map(|range| *range.start());
    let (what, path) = match &pve.resource_pool {
        Some(name) => {
            let what = format!("  resource pool {name}");
            if let Err(error) = pve.client.pool_members(name).await {
                let line = match error.kind {
                    Kind::NotFound => Line::wrong(what, "there is no such pool").help(format!(
                        "create the pool with `pvesh create /pools --poolid {name}`, or fix \
                            `proxmox.resource_pool`"
                    )),
                    Kind::Forbidden => Line::wrong(what, "the token cannot see this pool")
                        .help(format!("give the token VM.Audit on /pool/{name}; also check the name")),
                    _ => Line::wrong(what, chain(&error)),
                };
                return answer.say(line.key("proxmox.resource_pool"), FINDINGS);
            }
            (what, format!("/pool/{name}"))
        }
        None => match first {
            Some(vmid) => ("  machines".to_owned(), format!("/vms/{vmid}")),
            None => return,
        },
    };
    let wanted: Vec<&'static str> = ON_MACHINES.into_iter().chain(pve.agent).collect();
    if pve.resource_pool.is_some()
        && let Ok(Some((lacks, help))) = pve.lacks(&path, &["Pool.Audit"]).await
    {
        let message = format!("{lacks}: `adopt` cannot find any VMs in the resource pool");
        answer.say(Line::doubtful(what.clone(), message).help(help).key("proxmox.resource_pool"), SUCCESS);
    }
    match pve.lacks(&path, &wanted).await {
        Ok(None) => {
            answer.say(Line::good(what, format!("{0} of {0} privileges on {path}", wanted.len())), SUCCESS);
        }
        Ok(Some((lacks, help))) => {
            let help = match &pve.resource_pool {
                Some(_) => help,
                None => {
                    format!(
                        "set `proxmox.resource_pool` to a resource pool on which the token has these \
                            privileges, or {help}"
                    )
                }
            };
            answer.say(Line::wrong(what, lacks).help(help).key("proxmox.resource_pool"), UNREACHABLE);
        }
        Err(error) => answer.say(Line::wrong(what, chain(&error)), UNREACHABLE),
    }
}

fn kubernetes_version(what: String, version: &str) -> Line {
    match version.parse::<KubernetesVersion>() {
        Ok(parsed) => match parsed.newer_than_known() {
            Some(warning) => Line::doubtful(what, format!("{version}: {warning}"))
                .help("look for a newer pve-autoscaler, and watch for pods that stay pending although they should fit on a node"),
            None => Line::good(what, version),
        },
        Err(error) => Line::doubtful(what, chain(&error)),
    }
}

/// Checks the Kubernetes cluster; returns its objects, if they could be listed.
pub(super) async fn kubernetes(config: &Config, answer: &mut Answer) -> Option<Snapshot> {
    config.kubernetes.as_ref()?;
    let cluster = match live::kubernetes(config).await {
        Ok(cluster) => cluster,
        Err(failure) => {
            failed("kubernetes", &failure, answer);
            return None;
        }
    };
    let what = format!("kubernetes {}", cluster.server());
    match cluster.version().await {
        Ok(version) => {
            answer.say(kubernetes_version(what, &version), SUCCESS);
            if let Some(difference) = cluster.clock_difference() {
                let line = Line::doubtful("  clock", difference.to_string());
                answer.say(
                    line.help("`timedatectl` and `chronyc tracking` on both sides show which clock is wrong"),
                    SUCCESS,
                );
            }
            kubelet::arguments(config, &version, answer);
        }
        Err(error) => {
            let why = chain(&error);
            let help = reach::kubernetes(&why);
            answer.say(Line::wrong(what, why).key("kubernetes").help(help), UNREACHABLE);
            return None;
        }
    }
    let complete = rights(config, &cluster, answer).await;
    serving::rights(config, &cluster, answer).await;
    joining(config, &cluster, answer).await;
    if !complete {
        return None;
    }
    match live::kubernetes_objects(&cluster).await {
        Ok(snapshot) => {
            let nodes = count(snapshot.nodes.len(), "node");
            let pods = count(snapshot.pods.len(), "pod");
            answer.say(Line::good("  objects", format!("{nodes}, {pods}")), SUCCESS);
            declared_devices::check(config, &snapshot, answer);
            Some(snapshot)
        }
        Err(failure) => {
            failed("  objects", &failure, answer);
            None
        }
    }
}

/// Adds a line for each missing right. Returns true if all rights are granted.
async fn rights(config: &Config, cluster: &Cluster, answer: &mut Answer) -> bool {
    let what = "  rights";
    match cluster.rights().await {
        Err(error) => {
            answer.say(Line::wrong(what, chain(&error)), UNREACHABLE);
            false
        }
        Ok(mut rights) => {
            // If tokens are created over SSH or not needed, the daemon needs no access to Secrets.
            rights.retain(|right| right.resource != "secrets" || makes_tokens(config));
            // Only joining with kubeadm needs rights in `kube-public`.
            rights.retain(|right| {
                right.namespace.as_deref() != Some("kube-public") || joins_with_kubeadm(config)
            });
            let missing: Vec<&Right> = rights.iter().filter(|right| !right.granted).collect();
            let complete = missing.is_empty();
            let line = |right: &Right| {
                Line::wrong(what, format!("may not {}, which is needed to {}", right.words(), right.purpose))
            };
            let mut wrong: Vec<Line> = missing.into_iter().map(line).collect();
            if let Some(last) = wrong.pop() {
                wrong.push(last.help(
                    "`kubectl apply -f rbac.yaml` (packaging/rbac.yaml) grants all \
                        required rights",
                ));
            }
            answer.say_all(wrong, Line::good(what, format!("{0} of {0}", rights.len())), UNREACHABLE);
            complete
        }
    }
}

/// Checks whether machines would find and trust the API server. For methods other than kubeadm, it only
/// reports how machines join.
async fn joining(config: &Config, cluster: &Cluster, answer: &mut Answer) {
    for (pool, bootstrap) in config.bootstraps() {
        let what =
            pool.map_or_else(|| "  joining".to_owned(), |pool| format!("  joining, pool {}", pool.name));
        joins(&what, bootstrap, cluster, answer).await;
    }
}

async fn joins(what: &str, bootstrap: &Bootstrap, cluster: &Cluster, answer: &mut Answer) {
    let kubeadm = match &bootstrap.method {
        BootstrapMethod::Kubeadm(kubeadm) => kubeadm,
        BootstrapMethod::K3s(k3s) => {
            return answer.say(Line::good(what, format!("K3s agents, at {}", k3s.server)), SUCCESS);
        }
        BootstrapMethod::Command(_) => {
            return answer.say(Line::good(what, "the guest runs the configured command"), SUCCESS);
        }
        BootstrapMethod::None => {
            return answer.say(Line::good(what, "machines join by themselves"), SUCCESS);
        }
    };
    match cluster.cluster_info().await {
        Ok(info) => {
            let server = kubeadm.api_server.as_ref().unwrap_or(&info.server);
            answer.say(Line::good(what, format!("at {server}, with its CA pinned")), SUCCESS);
        }
        Err(error) => {
            let line = Line::wrong(what, chain(&error));
            let help = "to create the ConfigMap `cluster-info`, run `kubeadm init phase \
                bootstrap-token` on a control plane node";
            answer.say(line.help(help), UNREACHABLE);
        }
    }
}

/// Checks the control plane nodes on which tokens are created over SSH.
pub(super) async fn token_host(config: &Config, answer: &mut Answer) {
    for ssh in token_ssh(config) {
        one_token_host(ssh, answer).await;
    }
}

async fn one_token_host(ssh: &Ssh, answer: &mut Answer) {
    let host = TokenHost::new(ssh.clone(), TOKEN_HOST);
    let what = format!("ssh {}@{}", ssh.user, host.address());
    match host.rehearse().await {
        Ok(()) => answer.say(Line::good(what, "`kubeadm token create` works (dry run)"), SUCCESS),
        Err(error) => answer.say(Line::wrong(what, chain(&error)).key("bootstrap.ssh_host"), UNREACHABLE),
    }
}

/// The control plane nodes on which tokens are created over SSH, each once.
fn token_ssh(config: &Config) -> Vec<&Ssh> {
    let mut all: Vec<&Ssh> = Vec::new();
    for ssh in config.bootstraps().filter_map(|(_, bootstrap)| bootstrap.ssh()) {
        if !all.contains(&ssh) {
            all.push(ssh);
        }
    }
    all
}

/// Whether bootstrap tokens are created through the Kubernetes API for any pool. This is the default.
fn makes_tokens(config: &Config) -> bool {
    any(config, |bootstrap| bootstrap.kubeadm().is_some() && bootstrap.ssh().is_none())
}

fn joins_with_kubeadm(config: &Config) -> bool {
    any(config, |bootstrap| bootstrap.kubeadm().is_some())
}

/// Whether `is_so` holds for any of the configured bootstrap tables. Returns true if no table is configured,
/// because the default is kubeadm.
fn any(config: &Config, is_so: impl Fn(&Bootstrap) -> bool) -> bool {
    let mut all = config.bootstraps().map(|(_, bootstrap)| bootstrap).peekable();
    all.peek().is_none() || all.any(is_so)
}

fn failed(what: &str, failure: &Failure, answer: &mut Answer) {
    answer.say(Line::wrong(what, failure.words()), failure.status());
}
