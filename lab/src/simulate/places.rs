//! Where machines may be put: what a seed's settings say of it, how large its hosts are, and what is looked
//! at when the daemon chooses a place. What is taken of a host is counted in `room`.

use std::fmt::Write as _;

use fastrand::Rng;
use serde_json::Value;
use stage::{Call, Side};
use world::proxmox::spec::{GIB, HostSpec};

use super::checker::Checker;
use super::room::AsOf;
use super::rules::Rules;
use super::settings::PoolShape;
use super::warm::is_kept;

/// The hosts.
pub const HOSTS: [&str; 3] = ["pve1", "pve2", "pve3"];
/// Threads, and GiB of memory, of hosts that have room for a few machines only.
const CORES: [u32; 4] = [8, 12, 16, 32];
const MEMORY: [u64; 4] = [24, 32, 48, 128];
/// A daemon waits no longer for an answer: what arrives later is of one that may have given up on it.
pub const GIVEN_UP: std::time::Duration = std::time::Duration::from_secs(14);

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
    /// What holds if the settings say nothing.
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

/// Draws where machines may be put.
pub fn draw(random: &mut Rng, rules: &mut Rules, pools: &mut [PoolShape]) {
    rules.count_stopped = random.u8(..4) == 0;
    for pool in pools {
        let places = &mut pool.places;
        if random.u8(..3) == 0 {
            // Two of three: one of them is not closed.
            let without = random.usize(..HOSTS.len());
            places.hosts =
                HOSTS.into_iter().enumerate().filter(|(at, _)| *at != without).map(|it| it.1).collect();
        }
        places.most = (random.u8(..3) == 0).then(|| random.usize(1..=2));
        if random.bool() {
            places.cpu_halves = random.u32(2..=4);
            places.memory_halves = random.u64(1..=4);
            places.reserve = random.u64(1..=12);
        }
    }
}

/// Makes hosts small, for half of the seeds.
pub fn make_small(random: &mut Rng, hosts: &mut [HostSpec]) {
    if random.bool() {
        for host in hosts {
            host.cores = CORES.get(random.usize(..CORES.len())).copied().unwrap_or(host.cores);
            host.memory = MEMORY.get(random.usize(..MEMORY.len())).map_or(host.memory, |gib| gib * GIB);
        }
    }
}

impl Checker {
    /// A record that is written: of a new machine its host must have room for it, and of one that waited its
    /// host must have room for it to run.
    pub(super) fn must_have_room(&self, who: &str, call: &Call<'_>) {
        let Some((before, written)) = self.change_of_record(call) else { return };
        let (Some(vmid), Some(host)) = (vmid(&written), written["host"].as_str()) else { return };
        let Some(pool) = self.world.pool_of(vmid) else { return };
        let is_new = call.method == "POST" && before.is_null() && written["intent"]["kind"] == "create";
        let is_asked = is_kept(&before) && !is_kept(&written) && written["intent"]["kind"] == "create";
        let as_of = self.as_of(who, call.sent);
        let in_time = call.sent.elapsed() < GIVEN_UP;
        let lacks = if is_new {
            let lacks = self.refuses(host, pool, Some(as_of), None);
            let starts = || {
                self.lacks(host, &self.leniently(host, pool, as_of), pool.size(), Some(as_of), None)
                    .filter(|_| written["warm"] != "stopped")
            };
            let stores = || self.stores_badly(host, &written, as_of);
            self.record_made(vmid, who, !in_time);
            lacks.or_else(starts).or_else(stores)
        } else if is_asked {
            self.woken(vmid, who);
            let starts = before["warm"] != "booted" && self.is_where_it_was(vmid, host, as_of);
            let lenient = || self.leniently(host, pool, as_of);
            starts.then(|| self.lacks(host, &lenient(), pool.size(), Some(as_of), Some(vmid))).flatten()
        } else {
            None
        };
        if let Some(lacks) = lacks.filter(|_| in_time) {
            let what = if is_new { "is put" } else { "is woken" };
            self.violated(&format!("{} {what} on {host}, which {lacks}", written["name"]));
        }
    }

    /// A pool with the most lenient limits of all whose machines were put on a host, or woken there, by the
    /// same decision: each came beside those before it alone, and their records are written in any order.
    fn leniently(&self, host: &str, pool: &PoolShape, as_of: AsOf<'_>) -> PoolShape {
        let mut lenient = pool.clone();
        let with = self.decided_with(as_of);
        let here = with.into_iter().filter(|vmid| self.record(*vmid).is_some_and(|it| it["host"] == host));
        for Places { cpu_halves, memory_halves, reserve, .. } in
            here.filter_map(|vmid| Some(&self.world.pool_of(vmid)?.places))
        {
            lenient.places.cpu_halves = lenient.places.cpu_halves.max(*cpu_halves);
            lenient.places.memory_halves = lenient.places.memory_halves.max(*memory_halves);
            lenient.places.reserve = lenient.places.reserve.min(*reserve);
        }
        lenient
    }

    /// A clone that is asked for goes where its record says, and nowhere else.
    pub(super) fn must_be_put_where_planned(&self, call: &Call<'_>) {
        let parts: Vec<&str> = call.path.trim_start_matches('/').split('/').collect();
        let (Side::Proxmox, "POST", ["nodes", here, "qemu", _, "clone"]) = (call.side, call.method, &*parts)
        else {
            return;
        };
        let body = String::from_utf8_lossy(call.body);
        let field = |name: &str| body.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
        let target = field("target").unwrap_or(here);
        if self.world.rules.closed_host == Some(target) {
            self.violated(&format!("a machine is put on {target}, which is closed: {body}"));
        }
        let Some(record) = super::doubt::newid(call.body).and_then(|vmid| self.record(vmid)) else { return };
        let stored = record["madeOf"]["stored_on"].as_str();
        if record["host"] != target || field("storage") != stored {
            let (name, host) = (&record["name"], &record["host"]);
            self.violated(&format!("{name} was to be on {host} and {stored:?}, and is cloned by {body}"));
        }
    }
}

/// The VMID of a record.
pub fn vmid(record: &Value) -> Option<u32> {
    record["slot"]["vmid"].as_u64()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::settings;

    #[test]
    fn places_are_drawn_and_written_as_the_settings_have_them() {
        let mut seen = [false; 5];
        for seed in 0..100 {
            let mut random = Rng::with_seed(seed);
            let mut pools = settings::pools(&mut random);
            let mut rules = settings::rules(&mut random, &mut pools);
            draw(&mut random, &mut rules, &mut pools);
            for places in pools.iter().map(|pool| &pool.places) {
                let (text, odd) = (places.written(), places.memory_halves % 2 == 1);
                assert_eq!(text.contains("max_per_host"), places.most.is_some(), "{text}");
                assert!(!odd || text.contains(".5\n"), "{text}");
                assert!(HOSTS.iter().filter(|host| places.allows(host)).count() >= 2, "{places:?}");
                let drawn = [
                    places.most.is_some(),
                    !places.hosts.is_empty(),
                    odd,
                    places.reserve > 2,
                    rules.count_stopped,
                ];
                seen.iter_mut().zip(drawn).for_each(|(seen, drawn)| *seen |= drawn);
            }
        }
        assert_eq!(seen, [true; 5]);
    }
}
