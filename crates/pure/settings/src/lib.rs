//! Parses the configuration file (TOML, with the place of each value), and checks the settings. Each table
//! has its own module.
//!
//! A file is read in two stages. The first checks its shape: unknown keys and wrong types are reported
//! immediately, with the line and a suggestion. The second checks its meaning: all errors are reported
//! together, each with its own line and key.

mod bootstrap;
mod disruption;
mod health;
mod host_power;
mod hosts;
mod kubernetes;
mod leader;
mod limits;
mod machine_facts;
mod metrics;
mod name_rules;
mod one_or_many;
mod orphans;
pub mod own_labels;
mod pool;
mod proxmox;
mod record;
mod region;
mod replace;
mod report;
mod scale_down;
mod scale_up;
mod secret;
mod template;
#[cfg(test)]
mod tests;
mod values;
mod window;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;

pub use bootstrap::{Bootstrap, BootstrapMethod, Command, K3s, Kubeadm, Ssh, TokenSource};
pub use disruption::Disruption;
pub use health::Health;
pub use host_power::{Power, PowerSettings, Redfish};
pub use hosts::HostSettings;
pub use kubernetes::Kubernetes;
pub use leader::Leader;
pub use limits::Limits;
pub use machine_facts::{FillError, MachineFacts};
pub use metrics::Metrics;
pub use orphans::Orphans;
pub use pool::privilege as option_privilege;
pub use pool::{
    Addressing, Boot, CloneKind, CloudInit, Device, DeviceModel, DiskSize, ExtraDisk, Family, Grow,
    HugePages, KubeletSettings, Pci, PhysicalMachine, Pinning, Placement, Policy, Pool, Room, Schedule,
    Security, Seed, Size, TemplateRef, Warm, ZoneLabels,
};
pub use proxmox::{Proxmox, ProxmoxTrust};
pub use record::Record;
pub use replace::Replace;
pub use report::{Finding, Report};
pub use scale_down::ScaleDown;
pub use scale_up::{Expander, ScaleUp};
pub use secret::{CREDENTIALS, Credential, SecretSource};
pub use template::{Checksum, Image, Template};
pub use window::Window;

use values::Checker;

/// What the settings are used for. This decides which settings are required.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// The daemon runs with the settings. They must describe a Proxmox VE cluster and a Kubernetes cluster.
    /// Each pool of VMs needs VMIDs, addresses and, unless its VMs boot from the network, a template.
    Run,
    /// Any other use, such as a plan. Settings that only the daemon needs may be missing, but are checked if
    /// they are present.
    Plan,
}

/// Whether the daemon carries out its plans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// The daemon carries out its plans.
    #[default]
    Active,
    /// The daemon reports what it would do, and changes nothing.
    Observe,
}

/// Checked settings.
#[derive(Clone, Debug)]
pub struct Config {
    /// Whether the daemon carries out its plans.
    pub mode: Mode,
    /// The id of the Kubernetes cluster. It is part of the mark in each VM, and distinguishes the machines of
    /// different clusters.
    pub cluster: String,
    /// How often a round runs if nothing changes.
    pub scan_interval: Duration,
    /// How long a round waits for more changes after the first change.
    pub batch_window: Duration,
    /// The maximum time that a round waits while changes keep coming.
    pub batch_max: Duration,
    /// What happens to VMs with this cluster's mark that have no record.
    pub orphans: Orphans,
    /// How long a VM must have been an orphan, unchanged, before it is destroyed.
    pub orphans_after: Duration,
    /// How the Proxmox VE cluster is reached. Not needed to plan from a snapshot file.
    pub proxmox: Option<Proxmox>,
    /// Additional Proxmox VE clusters. Each of them is a region.
    pub also: Vec<Proxmox>,
    /// How the Kubernetes cluster is reached. Not needed to plan from a snapshot file.
    pub kubernetes: Option<Kubernetes>,
    /// How a booted VM becomes a node; not needed for plans.
    pub bootstrap: Option<Bootstrap>,
    /// When and how nodes are added.
    pub scale_up: ScaleUp,
    /// When and how nodes are removed.
    pub scale_down: ScaleDown,
    /// Which nodes are replaced by new ones.
    pub replace: Replace,
    /// How many nodes may be removed at a time, and when.
    pub disruptions: Vec<Disruption>,
    /// When hosts are switched off and on.
    pub power: PowerSettings,
    /// How many unready nodes are too many.
    pub health: Health,
    /// Which of several instances leads.
    pub leader: Leader,
    /// How long each step of a machine's life may take.
    pub limits: Limits,
    /// Where metrics are served.
    pub metrics: Metrics,
    /// Which rounds are recorded in files.
    pub record: Record,
    /// Settings of individual hosts, by host key.
    pub hosts: BTreeMap<model::HostKey, HostSettings>,
    /// The pools, in the order of the file.
    pub pools: Vec<Pool>,
    /// Templates that `pve-autoscaler template` creates.
    pub templates: Vec<Template>,
}

/// The configuration file as it was parsed, before it is checked.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default)]
    mode: Mode,
    cluster: Option<Spanned<String>>,
    scan_interval: Option<Spanned<String>>,
    batch_window: Option<Spanned<String>>,
    batch_max: Option<Spanned<String>>,
    #[serde(default)]
    orphans: Orphans,
    orphans_after: Option<Spanned<String>>,
    proxmox: Option<Spanned<proxmox::Written>>,
    kubernetes: Option<Spanned<kubernetes::Written>>,
    bootstrap: Option<Spanned<bootstrap::Written>>,
    #[serde(default)]
    scale_up: scale_up::Written,
    #[serde(default)]
    scale_down: scale_down::Written,
    #[serde(default)]
    replace: replace::Written,
    #[serde(default)]
    disruption: Vec<Spanned<disruption::Written>>,
    #[serde(default)]
    power: host_power::Written,
    #[serde(default)]
    health: health::Written,
    #[serde(default)]
    leader: leader::Written,
    #[serde(default)]
    limits: limits::Written,
    #[serde(default)]
    metrics: metrics::Written,
    #[serde(default)]
    record: record::Written,
    #[serde(default)]
    host: Vec<hosts::Written>,
    #[serde(default)]
    pool: Vec<Spanned<pool::Written>>,
    #[serde(default)]
    template: Vec<Spanned<template::Written>>,
}

/// Parses and checks the text of a configuration file. `name` is the file's name in messages.
///
/// # Errors
/// Returns a report of all errors, ready to be printed, if the configuration is invalid.
pub fn parse(name: &str, text: &str, needs: Needs) -> Result<Config, Report> {
    let written: Written = toml::from_str(text).map_err(|error| Report::syntax(name, text, &error))?;
    let mut checker = Checker::new(needs, secret::folder_of(Path::new(name)));
    let config = written.check(&mut checker);
    if checker.findings.is_empty() { Ok(config) } else { Err(Report::new(name, text, checker.findings)) }
}

impl Config {
    /// Returns the pool's own `[pool.bootstrap]`, or else the `[bootstrap]` for all pools.
    pub fn bootstrap_of<'c>(&'c self, pool: &'c Pool) -> Option<&'c Bootstrap> {
        pool.bootstrap.as_ref().or(self.bootstrap.as_ref())
    }

    /// Returns all bootstraps that are in use. The `[bootstrap]` for all pools comes first, if a pool uses it
    /// or there are no pools. Each `[pool.bootstrap]` comes with its pool.
    pub fn bootstraps(&self) -> impl Iterator<Item = (Option<&Pool>, &Bootstrap)> {
        let made = || self.pools.iter().filter(|pool| !pool.is_physical());
        let own = made().filter_map(|pool| Some((Some(pool), pool.bootstrap.as_ref()?)));
        let shared = self.pools.is_empty() || made().any(|pool| pool.bootstrap.is_none());
        self.bootstrap.iter().filter(move |_| shared).map(|all| (None, all)).chain(own)
    }
}

impl Written {
    fn check(&self, checker: &mut Checker) -> Config {
        self.tables(checker);
        let cluster = checker.named(
            self.cluster.as_ref(),
            is_cluster,
            |text| format!("`{text}` is not a valid cluster id"),
            "at most 63 lower-case letters, digits, `-` and `.`",
        );
        let (batch_window, batch_max) = self.batch(checker);
        let regions = region::Regions::read(self.proxmox.as_ref(), checker);
        let hosts = hosts::check(&self.host, &regions, checker);
        let pools = pool::check_all(&self.pool, &regions, &hosts, checker);
        let templates = template::check_all(&self.template, &pools, &regions, checker);
        let also = self.proxmox.iter().flat_map(|table| &table.get_ref().also);
        let also = also.filter_map(|table| proxmox::Written::check(table, &regions, checker)).collect();
        let disruption = |one| disruption::Written::check(one, &pools, checker);
        let disruptions = self.disruption.iter().map(disruption).collect();
        let config = Config {
            mode: self.mode,
            cluster: cluster.unwrap_or_else(|| "kubernetes".to_owned()),
            scan_interval: checker.positive(
                "scan_interval",
                self.scan_interval.as_ref(),
                Duration::from_secs(10),
            ),
            batch_window,
            batch_max,
            orphans: self.orphans,
            orphans_after: orphans::after(self.orphans_after.as_ref(), checker),
            proxmox: self
                .proxmox
                .as_ref()
                .and_then(|table| proxmox::Written::check(table, &regions, checker)),
            also,
            kubernetes: self.kubernetes.as_ref().and_then(|table| kubernetes::Written::check(table, checker)),
            bootstrap: match &self.bootstrap {
                Some(table) => bootstrap::Written::check(table, checker),
                // `[bootstrap]` may be omitted, because all of its settings have defaults.
                None if checker.runs() => {
                    bootstrap::Written::check(&Spanned::new(0..0, bootstrap::Written::default()), checker)
                }
                None => None,
            },
            scale_up: self.scale_up.check(checker),
            scale_down: self.scale_down.check(checker),
            replace: self.replace.check(checker),
            disruptions,
            power: self.power.check(checker),
            health: self.health.check(checker),
            leader: self.leader.check(checker),
            limits: self.limits.check(checker),
            metrics: self.metrics.check(checker),
            record: self.record.check(checker),
            pools,
            hosts,
            templates,
        };
        self.tokens_live_long_enough(&config, checker);
        self.method_and_pools(&config, checker);
        self.seeds(&config, checker);
        config
    }

    /// Reports missing tables that the daemon needs.
    fn tables(&self, checker: &mut Checker) {
        if !checker.runs() {
            return;
        }
        let tables = [
            ("[proxmox]", self.proxmox.is_some(), "how the Proxmox VE cluster is reached"),
            ("[kubernetes]", self.kubernetes.is_some(), "how the Kubernetes cluster is reached"),
            ("[[pool]]", !self.pool.is_empty(), "which machines the daemon may create"),
        ];
        for (table, _, what) in tables.into_iter().filter(|(_, given, _)| !given) {
            checker.findings.push(Finding {
                title: format!("the `{table}` table is missing"),
                at: None,
                because: None,
                help: Some(format!(
                    "it defines {what}; see pve-autoscaler.toml(5), or create a configuration file with \
                        `pve-autoscaler setup`"
                )),
            });
        }
    }

    fn batch(&self, checker: &mut Checker) -> (Duration, Duration) {
        let (written, most) = (self.batch_window.as_ref(), self.batch_max.as_ref());
        let window = checker.duration("batch_window", written, Duration::from_millis(100));
        let max = checker.positive("batch_max", most, Duration::from_secs(1));
        checker.ordered(("batch_window", written, window), ("batch_max", most, max));
        (window, max)
    }

    /// Checks that each bootstrap command can be filled in for the pools that use it. Also reports pool
    /// settings that the bootstrap method cannot pass to machines.
    fn method_and_pools(&self, config: &Config, checker: &mut Checker) {
        let mut told = false;
        for (written, pool) in self.pool.iter().zip(&config.pools) {
            let own = written.get_ref().own_bootstrap();
            let script = own.or(self.bootstrap.as_ref()).and_then(|table| table.get_ref().script());
            match (config.bootstrap_of(pool).map(|bootstrap| &bootstrap.method), script) {
                (Some(BootstrapMethod::None), _) => written.get_ref().untold(checker),
                (Some(BootstrapMethod::K3s(_)), _) => written.get_ref().without_kubeadm("k3s", checker),
                // An error in the `[bootstrap]` for all pools is reported only once.
                (Some(BootstrapMethod::Command(command)), Some(script)) if own.is_some() || !told => {
                    let facts = MachineFacts::sample(&config.cluster, pool).without_mac();
                    let Err(error) = facts.fill(&command.script) else { continue };
                    told |= own.is_none();
                    let title = "the variables in `command` cannot be filled in".to_owned();
                    let help = "docs/guides/bootstrap.md lists the variables";
                    checker.wrong(title, script.span(), &error.to_string(), help);
                }
                _ => {}
            }
        }
    }

    /// Checks that the variables in cloud-init seeds can be filled in.
    fn seeds(&self, config: &Config, checker: &mut Checker) {
        for (written, pool) in self.pool.iter().zip(&config.pools) {
            for (key, text) in written.get_ref().seed_texts() {
                let facts = MachineFacts::sample(&config.cluster, pool);
                if let Err(error) = facts.fill(text.get_ref()) {
                    let title = format!("pool `{}`: the variables in `{key}` cannot be filled in", pool.name);
                    let help = "docs/guides/cloud-init.md lists the variables";
                    checker.wrong(title, text.span(), &error.to_string(), help);
                }
            }
        }
    }

    /// Checks that bootstrap tokens are valid for long enough. A token is created when the VM starts, and
    /// must remain valid until the join has ended.
    fn tokens_live_long_enough(&self, config: &Config, checker: &mut Checker) {
        let limits = &config.limits;
        let least = limits.start + limits.agent + limits.system_running + limits.join;
        let pools = self.pool.iter().zip(&config.pools);
        let own = pools.filter_map(|(written, pool)| {
            Some((written.get_ref().own_bootstrap()?, pool.bootstrap.as_ref()?))
        });
        for (table, bootstrap) in
            self.bootstrap.as_ref().zip(config.bootstrap.as_ref()).into_iter().chain(own)
        {
            if bootstrap.kubeadm().is_none_or(|kubeadm| kubeadm.token_ttl >= least) {
                continue;
            }
            let at = table.get_ref().token_ttl().map_or(table.span(), Spanned::span);
            let minutes = least.as_secs().div_ceil(60);
            checker.wrong(
                "`token_ttl` is too short: a token could expire before its machine has joined".to_owned(),
                at,
                &format!("must be at least \"{minutes}m\""),
                "the minimum is the sum of `start`, `agent`, `system_running` and `join` in `[limits]`",
            );
        }
    }
}

/// Whether the text is a valid cluster id. The id is part of each VM's mark.
fn is_cluster(text: &str) -> bool {
    let fine = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '.' || c == '-';
    !text.is_empty() && text.len() <= 63 && text.chars().all(fine)
}
