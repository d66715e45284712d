//! SIGHUP: reloads the configuration, and applies what can change while machines exist.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use secrecy::{ExposeSecret, SecretString};
use tokio::sync::watch;

use crate::cli::exit::Failure;
use crate::cli::{live, neighbours};
use files::ReadSecret;
use observability::MachineStatus;
use settings::{Config, Needs, PhysicalMachine, Pool, SecretSource};

/// The secrets in use. They are compared with the files to detect new secrets.
pub(super) struct Secrets {
    /// The tokens of all Proxmox VE clusters, starting with the token of `[proxmox]`.
    tokens: Vec<SecretString>,
    kubeconfig: Option<SecretString>,
}

impl Secrets {
    pub(super) fn read(config: &Config) -> Result<Self, Failure> {
        // All missing secrets are reported together, not one at each start.
        let mut wrong = Vec::new();
        let mut read = |what: &str, secret: &SecretSource| match secret.read() {
            Ok(read) => Some(read),
            Err(error) => {
                wrong.push((what.to_owned(), error));
                None
            }
        };
        let tokens: Vec<SecretString> =
            config.clusters().filter_map(|table| table.token.read().ok()).collect();
        let kubeconfig =
            config.kubernetes.as_ref().and_then(|table| read("the kubeconfig", &table.kubeconfig));
        for (_, bootstrap) in config.bootstraps() {
            // These secrets are read again for each machine. Here it matters only that they can be read.
            for (what, secret) in bootstrap.secrets() {
                read(what, secret);
            }
        }
        // Errors about Proxmox VE come first, just as `[proxmox]` does in the configuration.
        let of_proxmox = config.clusters().flat_map(live::unreadable);
        wrong.splice(0..0, of_proxmox);
        if wrong.is_empty() { Ok(Self { tokens, kubeconfig }) } else { Err(Failure::Secrets(wrong)) }
    }

    fn differs(mine: Option<&SecretString>, other: Option<&SecretString>) -> bool {
        mine.map(ExposeSecret::expose_secret) != other.map(ExposeSecret::expose_secret)
    }
}

/// Reads the configuration again. If it is invalid, the full report is logged, and the old settings stay in
/// force.
///
/// Returns one line about what the administrator has to do, if anything.
pub(super) fn reload(
    (path, socket): (&Path, &Path),
    settings: &watch::Sender<Arc<Config>>,
    secrets: &Secrets,
    machines: &[MachineStatus],
) -> Option<String> {
    let new = match files::load(path, Needs::Run) {
        Ok(new) => new,
        Err(report) => {
            let all: Vec<String> = report.findings().iter().map(|one| one.title.clone()).collect();
            return Some(refused(&all, &report.plain()));
        }
    };
    let mut conflicts = conflicts(&new, machines);
    conflicts.extend(renamed(&settings.borrow(), &new));
    conflicts.extend(neighbours::with_running(path, &new, socket).into_iter().map(|clash| clash.words));
    if !conflicts.is_empty() {
        return Some(refused(&conflicts, &conflicts.join("\n")));
    }
    let old = settings.borrow().clone();
    let (new, fixed) = merged(&old, new);
    let mut restart: Vec<String> = fixed.into_iter().map(|key| format!("`{key}`")).collect();
    match Secrets::read(&new) {
        Ok(read) => {
            let mut tokens = secrets.tokens.iter().zip(&read.tokens);
            if tokens.any(|(mine, other)| Secrets::differs(Some(mine), Some(other))) {
                restart.push("the API token".to_owned());
            }
            if Secrets::differs(secrets.kubeconfig.as_ref(), read.kubeconfig.as_ref()) {
                restart.push("the kubeconfig".to_owned());
            }
        }
        Err(failure) => tracing::warn!("a restart would fail now: {}", failure.words()),
    }
    for what in &restart {
        tracing::warn!("{what} has changed; the old value stays in force until a restart");
    }
    for pool in old.pools.iter().filter(|old| new.pools.iter().all(|new| new.name != old.name)) {
        let left = machines.iter().filter(|machine| machine.pool == pool.name).count();
        if left > 0 {
            tracing::warn!(
                pool = pool.name.as_str(),
                machines = left,
                "pool was removed from the configuration but still has machines; they are no longer managed"
            );
        }
    }
    let pools = new.pools.len();
    settings.send_replace(Arc::new(new));
    tracing::info!(pools, "configuration applied");
    (!restart.is_empty()).then(|| format!("a restart is needed to apply {}", restart.join(", ")))
}

fn refused(findings: &[String], report: &str) -> String {
    tracing::error!("configuration not applied; the old one stays in force:\n{report}");
    let first = findings.first().map_or("the file cannot be read", String::as_str);
    let more = match findings.len() {
        0 | 1 => String::new(),
        many => format!(", and {} more", many - 1),
    };
    format!(
        "the configuration file was not applied, and the old settings stay in force: {first}{more} \
        (see the log)"
    )
}

/// Returns the new settings, but with the old values of keys that need a restart. Also returns which of these
/// keys have changed.
fn merged(old: &Config, mut new: Config) -> (Config, Vec<&'static str>) {
    let mut differs = Vec::new();
    let mut keep = |key: &'static str, same: bool| {
        if !same {
            differs.push(key);
        }
    };
    keep("cluster", old.cluster == new.cluster);
    new.cluster.clone_from(&old.cluster);
    keep("[kubernetes]", old.kubernetes == new.kubernetes);
    new.kubernetes.clone_from(&old.kubernetes);
    keep("[[proxmox.also]]", old.also.len() == new.also.len());
    new.also.truncate(old.also.len());
    new.also.extend(old.also.iter().skip(new.also.len()).cloned());
    let further = old.also.iter().zip(&mut new.also);
    for (old, new) in old.proxmox.iter().zip(&mut new.proxmox).chain(further) {
        keep("proxmox.endpoints", old.endpoints == new.endpoints);
        keep("proxmox.token_id", old.token_id == new.token_id);
        keep("proxmox.token_file", old.token == new.token);
        keep("proxmox.ca_file", old.trust == new.trust);
        keep("proxmox.connect_timeout", old.connect_timeout == new.connect_timeout);
        keep("proxmox.request_timeout", old.request_timeout == new.request_timeout);
        keep("proxmox.agent_calls_per_host", old.agent_calls_per_host == new.agent_calls_per_host);
        keep("proxmox.calls_per_host", old.calls_per_host == new.calls_per_host);
        keep(
            "proxmox.linked_clones_per_storage",
            old.linked_clones_per_storage == new.linked_clones_per_storage,
        );
        keep("proxmox.full_clones_per_storage", old.full_clones_per_storage == new.full_clones_per_storage);
        *new = settings::Proxmox {
            web_interface: new.web_interface.clone(),
            resource_pool: new.resource_pool.clone(),
            cpu_overcommit: new.cpu_overcommit,
            memory_overcommit: new.memory_overcommit,
            memory_reserve: new.memory_reserve,
            count_stopped: new.count_stopped,
            ..old.clone()
        };
    }
    // The daemon creates its port probe once, at startup, even if all pools have a bootstrap of their own. So
    // a change of the port needs a restart.
    let probed = |config: &Config| config.bootstrap.as_ref().and_then(|bootstrap| bootstrap.probe_port);
    keep("bootstrap.probe_port", probed(old) == probed(&new));
    if let Some(bootstrap) = &mut new.bootstrap {
        bootstrap.probe_port = probed(old);
    }
    keep("limits.max_parallel_creates", old.limits.max_parallel_creates == new.limits.max_parallel_creates);
    new.limits.max_parallel_creates = old.limits.max_parallel_creates;
    (new, differs)
}

/// Describes how the new settings conflict with a bare-metal machine that is on. `None` if they do not.
fn changed(pool: &Pool, new: &PhysicalMachine, machine: &MachineStatus) -> Option<String> {
    if pool.name != machine.pool {
        return Some(format!(
            "pool `{}`: machine `{}` is on and belongs to pool `{}`; move the machine only while it is off",
            pool.name, machine.name, machine.pool
        ));
    }
    let address = new.address.map(|address| address.to_string()).unwrap_or_default();
    (address != machine.address).then(|| {
        format!(
            "pool `{}`: machine `{}` is on; change its `address` only while it is off",
            pool.name, machine.name
        )
    })
}

/// If a region's name has changed, returns a sentence that says so. Records and clients refer to regions by
/// name, so a change of names or order needs a restart.
fn renamed(old: &Config, new: &Config) -> Option<String> {
    let mut both = old.clusters().zip(new.clusters());
    let (old, new) = both.find(|(old, new)| old.region != new.region)?;
    let name = |region: &Option<String>| region.clone().unwrap_or_else(|| "nothing".to_owned());
    Some(format!(
        "a region is now named {} instead of {}: renaming or reordering regions requires a restart",
        name(&new.region),
        name(&old.region)
    ))
}

/// Describes conflicts between the new settings and existing machines. It is not a conflict if a range no
/// longer contains a machine's VMID or address, because the machine keeps both.
fn conflicts(new: &Config, machines: &[MachineStatus]) -> Vec<String> {
    let mut found = Vec::new();
    for pool in &new.pools {
        let slots = pool.slots();
        for machine in machines {
            if let Some(own) = pool.physical(&machine.name).filter(|_| machine.vmid.is_bare_metal()) {
                found.extend(changed(pool, own, machine));
                continue;
            }
            let own: Option<IpAddr> = machine.address.parse().ok();
            let by_vmid = slots.iter().find(|slot| slot.vmid == machine.vmid);
            let all: Vec<IpAddr> =
                own.into_iter().chain(machine.further_addresses.values().copied()).collect();
            let by_address = slots.iter().find_map(|slot| slot.addresses().find(|own| all.contains(own)));
            let (name, vmid) = (&machine.name, machine.vmid);
            let here = machine.host.region() == pool.prefix;
            if pool.name == machine.pool && !here {
                found.push(format!(
                    "pool `{}` is now in a different region from its machine `{name}` on {}: create a \
                        separate pool for the new region",
                    pool.name, machine.host
                ));
                continue;
            }
            if pool.name != machine.pool {
                if by_vmid.is_some() && here {
                    found.push(format!(
                        "pool `{}`: `vmids` contains {vmid}, which machine `{name}` of pool `{}` uses",
                        pool.name, machine.pool
                    ));
                }
                if let Some(address) = by_address {
                    found.push(format!(
                        "pool `{}`: `addresses` contains {address}, which machine `{name}` of pool `{}` uses",
                        pool.name, machine.pool
                    ));
                }
                continue;
            }
            let differs = |(key, own): (&String, &IpAddr)| {
                let other = *by_vmid?.further.get(key)?;
                (other != *own).then_some((other, *own))
            };
            found.extend(machine.further_addresses.iter().find_map(differs).map(|(other, own)| {
                format!(
                    "pool `{}`: VMID {vmid} would be assigned {other}, but machine `{name}` uses this \
                        VMID with {own}",
                    pool.name
                )
            }));
            if let (Some(slot), Some(own)) = (by_vmid, own)
                && let Some(other) = slot.address.filter(|other| *other != own)
            {
                found.push(format!(
                    "pool `{}`: VMID {vmid} would be assigned {other}, but machine `{name}` uses this \
                        VMID with {own}",
                    pool.name
                ));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use model::Vmid;

    use super::*;

    fn parsed(text: &str) -> Config {
        settings::parse("config.toml", text, Needs::Plan).unwrap()
    }

    fn with_ranges(workers: &str, others: &str) -> Config {
        let pool = |name: &str, ranges: &str| {
            format!(
                "[[pool]]\nname = \"{name}\"\nmax = 2\ncores = 2\nmemory = \"4GiB\"\nprefix = 24\n{ranges}\n"
            )
        };
        parsed(&(pool("workers", workers) + &pool("others", others)))
    }

    fn machine() -> MachineStatus {
        MachineStatus {
            name: "workers-a".to_owned(),
            pool: "workers".into(),
            vmid: Vmid(9101),
            address: "10.0.0.12".to_owned(),
            ..MachineStatus::default()
        }
    }

    #[test]
    fn ranges_that_give_a_living_machines_slot_away_are_refused() {
        let others = "vmids = \"9200-9201\"\naddresses = \"10.0.1.1-10.0.1.2\"";
        for (workers, others, expected) in [
            ("vmids = \"9100-9149\"\naddresses = \"10.0.0.11-10.0.0.60\"", others, None),
            ("vmids = \"9300-9301\"\naddresses = \"10.0.0.70-10.0.0.71\"", others, None),
            (
                "vmids = \"9100-9101\"\naddresses = \"10.0.0.21-10.0.0.22\"",
                others,
                Some(
                    "VMID 9101 would be assigned 10.0.0.22, but machine `workers-a` uses this VMID with \
                     10.0.0.12",
                ),
            ),
            (
                "vmids = \"9300-9301\"\naddresses = \"10.0.0.70-10.0.0.71\"",
                "vmids = \"9101-9102\"\naddresses = \"10.0.1.1-10.0.1.2\"",
                Some("`vmids` contains 9101, which machine `workers-a` of pool `workers` uses"),
            ),
            (
                "vmids = \"9300-9301\"\naddresses = \"10.0.0.70-10.0.0.71\"",
                "vmids = \"9200-9201\"\naddresses = \"10.0.0.12-10.0.0.13\"",
                Some("`addresses` contains 10.0.0.12"),
            ),
        ] {
            let found = conflicts(&with_ranges(workers, others), &[machine()]).join("\n");
            match expected {
                Some(expected) => assert!(found.contains(expected), "{found}"),
                None => assert_eq!(found, "", "{workers}"),
            }
        }
    }

    #[test]
    fn what_hosts_have_left_for_machines_is_taken_up() {
        let text = |more: &str| {
            parsed(&format!(
                "[proxmox]\nendpoints = [\"https://a:8006\"]\ntoken_id = \"a@pve!b\"\ntoken_file = \"/t\"\nca_file = \"/c\"\n{more}"
            ))
        };
        let all = "cpu_overcommit = 2.0\nmemory_overcommit = 1.5\nmemory_reserve = \"4GiB\"\ncount_stopped = true\n";
        let (new, differs) = merged(&text(""), text(all));
        assert!(differs.is_empty(), "{differs:?}");
        let new = new.proxmox.unwrap();
        let headroom = (new.cpu_overcommit, new.memory_overcommit, new.memory_reserve);
        assert_eq!((headroom, new.count_stopped), ((2.0, 1.5, 4 << 30), true));
    }

    #[test]
    fn a_probe_that_comes_or_goes_with_its_table_needs_a_restart() {
        let text = |port: &str| {
            parsed(&format!("[bootstrap]\nmethod = \"kubeadm\"\napi_server = \"10.0.0.1:6443\"\n{port}\n"))
        };
        let (none, ssh) = (parsed(""), text("probe_port = 22"));
        for (old, new, expected) in [
            (&none, &ssh, true),
            (&ssh, &none, true),
            (&ssh, &text("probe_port = 23"), true),
            (&ssh, &ssh, false),
            (&none, &text(""), false),
            (&text(""), &none, false),
        ] {
            let (merged, differs) = merged(old, new.clone());
            assert_eq!(differs.contains(&"bootstrap.probe_port"), expected, "{differs:?}");
            let of = |config: &Config| config.bootstrap.as_ref().and_then(|one| one.probe_port);
            assert!(merged.bootstrap.is_none() || of(&merged) == of(old));
        }
    }

    #[test]
    fn what_needs_a_restart_keeps_its_value_and_is_named() {
        let text = |cluster: &str, endpoint: &str, pool: &str, interval: &str| {
            parsed(&format!(
                "cluster = \"{cluster}\"\nscan_interval = \"{interval}\"\n[proxmox]\nendpoints = [\"{endpoint}\"]\n\
                 token_id = \"a@pve!b\"\ntoken_file = \"/t\"\nca_file = \"/c\"\nresource_pool = \"{pool}\"\n"
            ))
        };
        let old = text("home", "https://a:8006", "one", "10s");
        let (same, differs) = merged(&old, text("home", "https://a:8006", "two", "20s"));
        assert!(differs.is_empty(), "{differs:?}");
        assert_eq!(same.proxmox.unwrap().resource_pool.as_deref(), Some("two"));
        let (new, differs) = merged(&old, text("other", "https://b:8006", "two", "20s"));
        assert_eq!(differs, ["cluster", "proxmox.endpoints"]);
        assert_eq!((new.cluster.as_str(), new.scan_interval.as_secs()), ("home", 20));
        assert_eq!(new.proxmox.unwrap().endpoints, ["https://a:8006"]);
    }
}
