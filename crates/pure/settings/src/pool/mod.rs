//! `[[pool]]`: machines of one kind.

mod bare_metal;
mod checked;
mod cloud_init;
mod conflicts;
mod declared_devices;
mod devices;
mod extra_options;
mod fingerprint;
mod firewall;
mod grow;
mod headroom;
mod kubelet;
mod kubelet_config;
mod labels;
mod machine;
mod network_boot;
mod pci;
mod pinning;
mod placement;
mod ranges;
mod schedule;
mod sizes;
mod slots;
mod taints;
#[cfg(test)]
mod tests;
mod warm;
mod zone_labels;

use std::collections::BTreeMap;
use std::time::Duration;

use model::HostKey;
use serde::Deserialize;
use toml::Spanned;

pub use bare_metal::PhysicalMachine;
pub use checked::Pool;
pub use cloud_init::{CloudInit, Seed};
pub use devices::{Device, DeviceModel, Family};
pub(super) use extra_options::free as free_options;
pub use extra_options::{ExtraDisk, privilege};
pub use firewall::{Policy, Security};
pub use grow::Grow;
pub use headroom::Room;
pub use kubelet_config::KubeletSettings;
pub use machine::{CloneKind, DiskSize, TemplateRef};
pub use network_boot::Boot;
pub use pci::Pci;
pub use pinning::{HugePages, Pinning};
pub use placement::Placement;
pub use schedule::Schedule;
pub use sizes::Size;
pub use slots::Addressing;
pub use warm::Warm;
pub use zone_labels::ZoneLabels;

use super::bootstrap;
use super::hosts::HostSettings;
use super::name_rules;
use super::one_or_many::{Listed, Scalar};
use super::region::{Place, Regions};
use super::values::Checker;

/// A `[[pool]]` as written in the configuration file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    name: Spanned<String>,
    region: Option<Spanned<String>>,
    min: Option<Spanned<u32>>,
    max: Spanned<u32>,
    max_cores: Option<Spanned<u32>>,
    max_memory: Option<Spanned<String>>,
    headroom: Option<headroom::Written>,
    cores: Spanned<u32>,
    memory: Spanned<String>,
    sizes: Option<Spanned<Vec<Spanned<sizes::Written>>>>,
    boot: Option<Spanned<Boot>>,
    template: Option<Spanned<Scalar>>,
    #[serde(default)]
    clone: CloneKind,
    storage: Option<Spanned<Listed>>,
    storage_reserve: Option<Spanned<String>>,
    #[serde(default)]
    extra_disks: Vec<extra_options::Written>,
    #[serde(default)]
    vm_options: BTreeMap<Spanned<String>, Spanned<Scalar>>,
    vmids: Option<Spanned<Listed>>,
    addresses: Option<Spanned<Listed>>,
    prefix: Option<Spanned<u8>>,
    gateway: Option<Spanned<String>>,
    #[serde(default)]
    dns: Vec<Spanned<String>>,
    search: Option<Spanned<String>>,
    disk: Option<Spanned<String>>,
    disk_device: Option<Spanned<String>>,
    bridge: Option<Spanned<String>>,
    vlan: Option<Spanned<u16>>,
    mtu: Option<Spanned<u16>>,
    model: Option<DeviceModel>,
    firewall: Option<bool>,
    addresses6: Option<Spanned<Listed>>,
    prefix6: Option<Spanned<u8>>,
    gateway6: Option<Spanned<String>>,
    #[serde(default)]
    network: Vec<devices::Written>,
    #[serde(default)]
    pci: Vec<pci::Written>,
    #[serde(default)]
    device: Vec<declared_devices::Written>,
    user: Option<Spanned<String>>,
    #[serde(default)]
    ssh_keys: Vec<Spanned<String>>,
    #[serde(default)]
    tags: Vec<Spanned<String>>,
    #[serde(default)]
    labels: BTreeMap<Spanned<String>, Spanned<String>>,
    #[serde(default)]
    taints: Vec<Spanned<String>>,
    #[serde(default)]
    startup_taints: Vec<Spanned<String>>,
    max_pods: Option<Spanned<u32>>,
    #[serde(default)]
    kubelet_args: BTreeMap<Spanned<String>, Spanned<Scalar>>,
    kubelet: Option<Spanned<kubelet_config::Fields>>,
    #[serde(default)]
    annotations: BTreeMap<Spanned<String>, Spanned<String>>,
    provider_id: Option<Spanned<String>>,
    allocatable: Option<BTreeMap<Spanned<String>, Spanned<Scalar>>>,
    #[serde(default)]
    csi_volumes: BTreeMap<Spanned<String>, Spanned<i64>>,
    #[serde(default)]
    priority: i32,
    #[serde(default)]
    hosts: Vec<Spanned<String>>,
    cpu_overcommit: Option<Spanned<f64>>,
    memory_overcommit: Option<Spanned<f64>>,
    memory_reserve: Option<Spanned<String>>,
    #[serde(default)]
    placement: Placement,
    #[serde(default)]
    zone_labels: ZoneLabels,
    max_per_host: Option<Spanned<u32>>,
    drain: Option<Spanned<String>>,
    max_node_age: Option<Spanned<String>>,
    #[serde(default)]
    schedule: Vec<schedule::Written>,
    warm: Option<warm::Written>,
    pinning: Option<Spanned<pinning::Written>>,
    grow: Option<Spanned<grow::Written>>,
    security: Option<Spanned<firewall::Written>>,
    cloud_init: Option<Spanned<cloud_init::Written>>,
    bootstrap: Option<Spanned<bootstrap::Written>>,
    #[serde(default)]
    machine: Vec<bare_metal::Written>,
}

impl Written {
    /// `[pool.bootstrap]`.
    pub(super) fn own_bootstrap(&self) -> Option<&Spanned<bootstrap::Written>> {
        self.bootstrap.as_ref()
    }

    /// Reports settings that cannot be passed to machines that join by themselves.
    pub(super) fn untold(&self, checker: &mut Checker) {
        self.without_kubeadm("none", checker);
        kubelet::untold(self, checker);
        grow::out_of_reach(self, checker);
        if let Some(warm) = &self.warm {
            warm.waits_before_the_join(self.name.get_ref(), checker);
        }
    }

    /// Reports that `[pool.kubelet]` has no effect with this bootstrap method.
    pub(super) fn without_kubeadm(&self, method: &str, checker: &mut Checker) {
        kubelet_config::unused(self, method, checker);
    }

    /// Whether the pool's machines are bare metal.
    pub(super) fn is_physical(&self) -> bool {
        !self.machine.is_empty()
    }

    /// Returns the texts of the pool's cloud-init seed, each with its key and its place in the file.
    pub(super) fn seed_texts(&self) -> impl Iterator<Item = (&'static str, &Spanned<String>)> {
        self.cloud_init.iter().flat_map(|table| table.get_ref().texts())
    }
}

/// Checks all pools, each by itself and against the others.
pub(super) fn check_all(
    pools: &[Spanned<Written>],
    regions: &Regions,
    hosts: &BTreeMap<HostKey, HostSettings>,
    checker: &mut Checker,
) -> Vec<Pool> {
    conflicts::names(pools, checker);
    let (mut checked, mut claimed) = (Vec::new(), Vec::new());
    for written in pools {
        let this = written.get_ref();
        let what = format!("pool `{}`", this.name.get_ref());
        // Bare-metal machines belong to no Proxmox VE cluster.
        let at = if this.is_physical() {
            Place::default()
        } else {
            regions.place(&what, this.region.as_ref(), this.name.span(), checker)
        };
        labels::region(this, &at, checker);
        let (mut pool, reserved) = check(this, at, regions, checker);
        pool.zones = zones(&pool, hosts);
        labels::values_fit(this, &pool, checker);
        claimed.push((written, reserved, pool.template.clone(), pool.prefix.clone()));
        checked.push(pool);
    }
    conflicts::slots(&claimed, checker);
    bare_metal::claims(pools, &checked, hosts, checker);
    bare_metal::addresses(&claimed, checker);
    checked
}

/// The zones of the hosts in the pool's region, by the hosts' names in Proxmox VE.
fn zones(pool: &Pool, hosts: &BTreeMap<HostKey, HostSettings>) -> BTreeMap<String, String> {
    let zone = |(key, host): (&HostKey, &HostSettings)| {
        let zone = host.zone.clone().filter(|_| key.region() == pool.prefix)?;
        Some((key.host().to_owned(), zone))
    };
    hosts.iter().filter_map(zone).collect()
}

fn check(pool: &Written, at: Place, regions: &Regions, checker: &mut Checker) -> (Pool, slots::Reserved) {
    let name = pool.name.get_ref();
    let headroom = regions.headroom(&at);
    pool.shape(checker);
    let template = machine::template(pool, checker);
    let memory = machine::memory(pool, checker);
    let (reserved, addressing) = slots::check(pool, checker);
    let mut devices = reserved.devices.clone();
    let security = firewall::check(pool, &addressing, &mut devices, checker);
    let machines = bare_metal::check(pool, checker);
    let sizes = sizes::check(pool, Size { cores: *pool.cores.get_ref(), memory }, checker);
    let pinning = pinning::check(pool, &sizes, checker);
    let taints::Taints { lasting: taints, startup: startup_taints, domains } = taints::check(pool, checker);
    let cpu_overcommit = checker.between(
        "cpu_overcommit",
        pool.cpu_overcommit.as_ref(),
        (0.1, 100.0),
        // Dedicated CPUs cannot be overcommitted.
        if pinning.is_some() { headroom.cpu_overcommit.min(1.0) } else { headroom.cpu_overcommit },
    );
    let memory_reserve = pool.memory_reserve.as_ref().map_or(headroom.memory_reserve, |size| {
        checker.size(&format!("pool `{name}`: `memory_reserve`"), size)
    });
    let memory_overcommit = checker.between(
        "memory_overcommit",
        pool.memory_overcommit.as_ref(),
        (0.1, 10.0),
        headroom.memory_overcommit,
    );
    let vmid = |number: u128| u32::try_from(number).unwrap_or(u32::MAX);
    let checked = Pool {
        name: name.clone().into(),
        min: pool.min.as_ref().map_or(0, |min| *min.get_ref()),
        max: *pool.max.get_ref(),
        max_cores: pool.max_cores.as_ref().map(|most| *most.get_ref()),
        max_memory: pool.most_memory(memory, checker),
        headroom: pool.headroom.as_ref().map(|room| room.check(name, checker)).unwrap_or_default(),
        cores: *pool.cores.get_ref(),
        memory,
        sizes,
        boot: pool.boots_from(),
        template,
        clone: pool.clone,
        storages: machine::storages(pool, checker),
        storage_reserve: pool
            .storage_reserve
            .as_ref()
            .map_or(0, |size| checker.size(&format!("pool `{name}`: `storage_reserve`"), size)),
        extra_disks: extra_options::disks(pool, checker),
        vm_options: extra_options::options(pool, checker),
        vmids: reserved.vmids.iter().map(|piece| vmid(piece.first)..=vmid(piece.last)).collect(),
        addressing,
        disk: machine::disk(pool, checker),
        devices,
        pci: pci::check(pool, checker),
        resource_slices: declared_devices::check(pool, checker),
        user: machine::user(pool, checker),
        ssh_keys: machine::ssh_keys(pool, checker),
        tags: machine::tags(pool, checker),
        labels: labels::labels(pool, checker),
        taints,
        startup_taints,
        startup_taint_domains: domains,
        max_pods: kubelet::max_pods(pool, checker),
        kubelet_args: kubelet::arguments(pool, checker),
        kubelet: kubelet_config::check(pool, memory, checker),
        annotations: labels::annotations(pool, checker),
        cloud_init: cloud_init::check(pool, checker),
        bootstrap: pool
            .bootstrap
            .as_ref()
            .and_then(|table| bootstrap::Written::check_of_pool(table, checker))
            .or_else(|| (!machines.is_empty()).then(bare_metal::bootstrap)),
        provider_id: labels::provider_id(pool, checker),
        allocatable: kubelet::allocatable(pool, checker),
        csi_volumes: kubelet::csi_volumes(pool, checker),
        priority: pool.priority,
        hosts: machine::hosts(pool, &at, checker),
        cpu_overcommit,
        memory_overcommit,
        memory_reserve,
        placement: pool.placement,
        zone_labels: pool.zone_labels,
        zones: BTreeMap::new(),
        max_per_host: pool.max_per_host.as_ref().map(|most| *most.get_ref()),
        drain: pool
            .drain
            .as_ref()
            .map(|drain| checker.positive(&format!("pool `{name}`: `drain`"), Some(drain), Duration::ZERO)),
        max_node_age: pool.oldest(checker),
        schedule: schedule::check(pool, checker),
        warm: pool.warm.as_ref().map(|warm| warm.check(pool, checker)).unwrap_or_default(),
        pinning,
        grow: grow::check(pool, memory, checker),
        security,
        machines,
        region: at.region,
        prefix: at.prefix,
    };
    network_boot::check(pool, &checked, checker);
    (checked, reserved)
}

impl Written {
    fn boots_from(&self) -> Boot {
        self.boot.as_ref().map(|boot| *boot.get_ref()).unwrap_or_default()
    }

    /// Reports a missing setting that the daemon needs for a pool of VMs. A plan does not need it.
    fn lacks(&self, key: &str, help: &str, checker: &mut Checker) {
        if checker.runs() && self.machine.is_empty() {
            let title = format!("pool `{}`: `{key}` is missing", self.name.get_ref());
            checker.wrong(title, self.name.span(), "this pool", help);
        }
    }

    /// The minimum number of machines, but at least one.
    fn least(&self) -> u32 {
        self.min.as_ref().map_or(1, |min| (*min.get_ref()).max(1))
    }

    fn of_machines(&self) -> String {
        match self.least() {
            1 => "must be enough for one machine".to_owned(),
            least => format!("must be enough for {least} machines"),
        }
    }

    /// Returns `max_node_age`. Reports an age of less than an hour, because nodes would constantly be
    /// replaced.
    fn oldest(&self, checker: &mut Checker) -> Option<Duration> {
        let written = self.max_node_age.as_ref()?;
        let name = self.name.get_ref();
        let before = checker.findings.len();
        let oldest = checker.duration("max_node_age", Some(written), Duration::MAX);
        if checker.findings.len() == before && oldest < Duration::from_hours(1) {
            let title = format!("pool `{name}`: `max_node_age` is less than an hour");
            let help = "nodes would be replaced constantly; for a maximum age of 30 days, set \"720h\"";
            checker.wrong(title, written.span(), "must be at least \"1h\"", help);
        }
        Some(oldest)
    }

    /// Returns `max_memory`. Reports a value that is too small for the minimum number of machines.
    fn most_memory(&self, memory: i64, checker: &mut Checker) -> Option<i64> {
        let written = self.max_memory.as_ref()?;
        let name = self.name.get_ref();
        let before = checker.findings.len();
        let most = checker.size(&format!("pool `{name}`: `max_memory`"), written);
        if checker.findings.len() == before && most < memory.saturating_mul(i64::from(self.least())) {
            let title =
                format!("pool `{name}`: `max_memory` is too small for the minimum number of machines");
            let help = "raise `max_memory`, or lower `min` or `memory`";
            checker.wrong(title, written.span(), &self.of_machines(), help);
        }
        Some(most)
    }

    /// Checks the pool's name and numbers.
    fn shape(&self, checker: &mut Checker) {
        let name = self.name.get_ref();
        if !name_rules::is_label(name) || name.len() > 40 {
            let title = format!("`{name}` is not a valid pool name");
            let label = "expected at most 40 characters: lower-case letters, digits and `-`";
            let help = "the name must be valid in a host name, because machines are named after their \
                pool";
            checker.wrong(title, self.name.span(), label, help);
        }
        let max = *self.max.get_ref();
        if let Some(min) = self.min.as_ref().filter(|min| *min.get_ref() > max) {
            checker.clash(
                format!("pool `{name}`: `min` is greater than `max`"),
                min.span(),
                &format!("must be at most {max}"),
                self.max.span(),
                "raise `max`, or lower `min`",
            );
        }
        if let Some(most) = self.max_cores.as_ref().filter(|most| {
            u64::from(*most.get_ref()) < u64::from(*self.cores.get_ref()) * u64::from(self.least())
        }) {
            let help = "raise `max_cores`, or lower `min` or `cores`";
            let title = format!(
                "pool `{name}`: `max_cores` is too small for the minimum number of \
                machines"
            );
            checker.wrong(title, most.span(), &self.of_machines(), help);
        }
        if *self.cores.get_ref() == 0 {
            let title = format!("pool `{name}`: `cores` is zero");
            checker.wrong(title, self.cores.span(), "must be at least 1", "");
        }
        if let Some(most) = self.max_per_host.as_ref().filter(|most| *most.get_ref() == 0) {
            let title = format!("pool `{name}`: `max_per_host` is zero");
            checker.wrong(title, most.span(), "must be at least 1", "");
        }
    }
}
