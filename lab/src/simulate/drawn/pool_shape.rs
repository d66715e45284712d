//! The randomly drawn properties of a pool, and their text in the settings.

use std::fmt::Write;
use std::ops::RangeInclusive;
use std::time::Duration;

use world::proxmox::spec::GIB;

use super::hours::Hours;

/// The templates' bridge. Every user who clones a template needs the right to use this bridge.
pub const OF_TEMPLATES: &str = "vmbr0";

/// A pool as described in the settings.
#[derive(Clone, Debug)]
pub struct PoolShape {
    /// Its name.
    pub name: &'static str,
    /// The pool's minimum outside of scheduled times.
    pub min: usize,
    /// A scheduled minimum, and the times at which it applies.
    pub schedule: Option<(usize, Hours)>,
    /// Its maximum.
    pub max: usize,
    /// The number of vCPUs of each of the pool's machines.
    pub cores: u32,
    /// The memory of each of the pool's machines, in GiB.
    pub gib: u32,
    /// Its VMIDs.
    pub vmids: RangeInclusive<u32>,
    /// `max_node_age`.
    pub oldest: Option<Duration>,
    /// The machines that the pool keeps warm.
    pub warm: Option<Warm>,
    /// The limits to which the pool's machines may grow.
    pub grows: Option<Growth>,
    /// Where the pool's machines may be placed.
    pub places: Places,
    /// The storage for the machines' seed images, if the machines have any.
    pub seed: Option<&'static str>,
    /// Whether each of the pool's machines has one of its host's PCI devices.
    pub device: bool,
    /// The network of the pool's machines.
    pub network: Network,
}

impl PoolShape {
    /// The initial number of vCPUs and bytes of memory of each of the pool's machines.
    pub fn size(&self) -> (u32, u64) {
        (self.cores, u64::from(self.gib) * GIB)
    }
}

/// The limits to which a pool's machines may grow.
#[derive(Clone, Copy, Debug)]
pub struct Growth {
    /// `max_cores`.
    pub cores: u32,
    /// `max_memory` in GiB.
    pub gib: u32,
}

impl Growth {
    /// The limits as written in the settings.
    pub fn written(self) -> String {
        format!("[pool.grow]\nmax_cores = {}\nmax_memory = \"{}GiB\"\n", self.cores, self.gib)
    }
}

/// The network of a pool's machines.
#[derive(Clone, Copy, Debug)]
pub struct Network {
    /// Its bridge.
    pub bridge: &'static str,
    /// Its VLAN.
    pub vlan: Option<u16>,
}

impl Network {
    /// The network that a pool uses if no network is drawn for it.
    pub const PLAIN: Self = Self { bridge: OF_TEMPLATES, vlan: None };

    /// The network as written in a pool's settings.
    pub fn written(self) -> String {
        let mut text = format!("bridge = \"{}\"\n", self.bridge);
        if let Some(vlan) = self.vlan {
            let _ = writeln!(text, "vlan = {vlan}");
        }
        text
    }

    /// The path at which the right to the network is granted.
    pub fn path(self) -> String {
        let vlan = self.vlan.map(|vlan| format!("/{vlan}")).unwrap_or_default();
        format!("/sdn/zones/localnetwork/{}{vlan}", self.bridge)
    }
}

/// The state of warm machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Never started.
    Stopped,
    /// Running, but not joined.
    Booted,
    /// Suspended to disk.
    Suspended,
}

impl State {
    /// The state's name in the settings and the records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Booted => "booted",
            Self::Suspended => "suspended",
        }
    }
}

/// The warm machines of a pool.
#[derive(Clone, Copy, Debug)]
pub struct Warm {
    /// The number of machines.
    pub count: usize,
    /// The state of the machines.
    pub state: State,
}

impl Warm {
    /// The number and state of the warm machines as written in the settings.
    pub fn written(self) -> String {
        format!("warm = {{ count = {}, state = \"{}\" }}", self.count, self.state.name())
    }
}

/// The resources of a host that machines must not use.
#[derive(Clone, Copy, Debug)]
pub struct Reserved {
    /// Its name.
    pub host: &'static str,
    /// `cpu_reserve`.
    pub cores: u32,
    /// `memory_reserve` in GiB.
    pub gib: u64,
}

impl Reserved {
    /// The reserved resources as written in the host's settings table.
    pub fn written(self) -> String {
        let Self { cores, gib, .. } = self;
        format!("cpu_reserve = {cores}\nmemory_reserve = \"{gib}GiB\"\nzone = \"b\"\n")
    }
}

/// A pool's settings for machine placement.
#[derive(Clone, Debug)]
pub struct Places {
    /// `hosts`; none: all.
    pub hosts: Vec<&'static str>,
    /// `max_per_host`.
    pub most: Option<usize>,
    /// `cpu_overcommit`, multiplied by two.
    pub cpu_halves: u32,
    /// `memory_overcommit`, multiplied by two.
    pub memory_halves: u64,
    /// `memory_reserve` in GiB.
    pub reserve: u64,
    /// `storage`. If empty, the template's storage is used.
    pub storages: Vec<&'static str>,
}

impl Default for Places {
    /// The placement settings that apply unless others are drawn.
    fn default() -> Self {
        Self {
            hosts: Vec::new(),
            most: None,
            cpu_halves: 8,
            memory_halves: 2,
            reserve: 2,
            storages: Vec::new(),
        }
    }
}

impl Places {
    /// `storage_reserve` in bytes. It applies if the pool names storages.
    pub const STORAGE_RESERVE: u64 = 20 * GIB;

    /// The placement as written in a pool's settings.
    pub fn written(&self) -> String {
        let list = |of: &[&str]| of.iter().map(|one| format!("\"{one}\"")).collect::<Vec<_>>().join(", ");
        let halves = |halves: u64| format!("{}.{}", halves / 2, if halves.is_multiple_of(2) { 0 } else { 5 });
        let mut text = format!(
            "cpu_overcommit = {}\nmemory_overcommit = {}\nmemory_reserve = \"{}GiB\"\n",
            halves(self.cpu_halves.into()),
            halves(self.memory_halves),
            self.reserve
        );
        if !self.hosts.is_empty() {
            let _ = writeln!(text, "hosts = [{}]", list(&self.hosts));
        }
        if let Some(most) = self.most {
            let _ = writeln!(text, "max_per_host = {most}");
        }
        if !self.storages.is_empty() {
            let reserve = Self::STORAGE_RESERVE / GIB;
            let _ =
                writeln!(text, "storage = [{}]\nstorage_reserve = \"{reserve}GiB\"", list(&self.storages));
        }
        text
    }

    /// Whether a machine may be placed on the host.
    pub fn allows(&self, host: &str) -> bool {
        self.hosts.is_empty() || self.hosts.contains(&host)
    }
}
