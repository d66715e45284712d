//! The drawn properties of a pool, and how the settings write them.

use std::fmt::Write;
use std::ops::RangeInclusive;
use std::time::Duration;

use world::proxmox::spec::GIB;

use super::hours::Hours;

/// The bridge of the templates, to which everyone who clones one needs a right.
pub const OF_TEMPLATES: &str = "vmbr0";

/// A pool as it was configured.
#[derive(Clone, Debug)]
pub struct PoolShape {
    /// Its name.
    pub name: &'static str,
    /// Its minimum at any time.
    pub min: usize,
    /// Its minimum at certain times.
    pub schedule: Option<(usize, Hours)>,
    /// Its maximum.
    pub max: usize,
    /// vCPUs of its machines.
    pub cores: u32,
    /// Memory of its machines.
    pub gib: u32,
    /// Its VMIDs.
    pub vmids: RangeInclusive<u32>,
    /// `max_node_age`.
    pub oldest: Option<Duration>,
    /// What it keeps ahead of demand.
    pub warm: Option<Warm>,
    /// How far its machines may grow.
    pub grows: Option<Growth>,
    /// Where its machines may be put.
    pub places: Places,
    /// The storage of its machines' seeds, if it has any.
    pub seed: Option<&'static str>,
    /// Whether each of its machines has a PCI device of its host.
    pub device: bool,
    /// Where they are connected.
    pub network: Network,
}

impl PoolShape {
    /// vCPUs and bytes of memory that its machines begin with.
    pub fn size(&self) -> (u32, u64) {
        (self.cores, u64::from(self.gib) * GIB)
    }
}

/// How far a pool's machines may grow.
#[derive(Clone, Copy, Debug)]
pub struct Growth {
    /// `max_cores`.
    pub cores: u32,
    /// `max_memory` in GiB.
    pub gib: u32,
}

impl Growth {
    /// As the settings have it.
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
    /// The network if nothing is drawn.
    pub const PLAIN: Self = Self { bridge: OF_TEMPLATES, vlan: None };

    /// As a pool's settings have it.
    pub fn written(self) -> String {
        let mut text = format!("bridge = \"{}\"\n", self.bridge);
        if let Some(vlan) = self.vlan {
            let _ = writeln!(text, "vlan = {vlan}");
        }
        text
    }

    /// Where the right to it is granted.
    pub fn path(self) -> String {
        let vlan = self.vlan.map(|vlan| format!("/{vlan}")).unwrap_or_default();
        format!("/sdn/zones/localnetwork/{}{vlan}", self.bridge)
    }
}

/// How warm machines wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Never started.
    Stopped,
    /// Up, without having joined.
    Booted,
    /// Its memory on disk.
    Suspended,
}

impl State {
    /// As the settings and the records have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Booted => "booted",
            Self::Suspended => "suspended",
        }
    }
}

/// What a pool keeps.
#[derive(Clone, Copy, Debug)]
pub struct Warm {
    /// How many machines.
    pub count: usize,
    /// How they wait.
    pub state: State,
}

impl Warm {
    /// As the settings have it.
    pub fn written(self) -> String {
        format!("warm = {{ count = {}, state = \"{}\" }}", self.count, self.state.name())
    }
}

/// What a host keeps for others.
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
    /// As the host's table has it.
    pub fn written(self) -> String {
        let Self { cores, gib, .. } = self;
        format!("cpu_reserve = {cores}\nmemory_reserve = \"{gib}GiB\"\nzone = \"b\"\n")
    }
}

/// What a pool's settings say of the places of its machines.
#[derive(Clone, Debug)]
pub struct Places {
    /// `hosts`; none: all.
    pub hosts: Vec<&'static str>,
    /// `max_per_host`.
    pub most: Option<usize>,
    /// `cpu_overcommit` and `memory_overcommit`, in halves.
    pub cpu_halves: u32,
    /// The same of memory.
    pub memory_halves: u64,
    /// `memory_reserve` in GiB.
    pub reserve: u64,
    /// `storage`; none: the template's.
    pub storages: Vec<&'static str>,
}

impl Default for Places {
    /// The places if the settings set nothing.
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
    /// `storage_reserve` in bytes, if storages are named.
    pub const STORAGE_RESERVE: u64 = 20 * GIB;

    /// As the settings have it.
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

    /// Whether a machine may be on a host.
    pub fn allows(&self, host: &str) -> bool {
        self.hosts.is_empty() || self.hosts.contains(&host)
    }
}
