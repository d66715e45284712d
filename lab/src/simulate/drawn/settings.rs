//! The settings of a run, drawn from the seed: the pools, and everything else that differs between runs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use fastrand::Rng;
use world::kubernetes::spec::KubeSpec;
use world::proxmox::rights::TagAccess;

use crate::simulate::drawn::devices::Devices;
use crate::simulate::drawn::hours::Hours;
use crate::simulate::drawn::inherited::Inherited;
use crate::simulate::drawn::pool_shape::{Network, Places, PoolShape, Reserved};
use crate::simulate::drawn::rules::{Bootstrap, Brakes, REASONS, Rule, Rules};
use crate::simulate::drawn::volumes::Volumes;
use crate::simulate::drawn::{devices, places};

/// How many VMIDs a pool has beyond its maximum. Unmanaged VMs may take some of them.
const SPARE: u32 = 5;
/// The kinds of pools: name, vCPUs, GiB of memory, template, clone.
const KINDS: [(&str, u32, u32, &str, &str); 4] = [
    ("small", 2, 4, "k8s-worker", "linked"),
    ("large", 8, 16, "k8s-worker", "linked"),
    ("local", 4, 8, "k8s-worker-local", "linked"),
    ("copied", 4, 8, "k8s-worker", "full"),
];
/// The disk sizes between which an administrator switches, in GiB.
pub const DISKS: [u32; 3] = [12, 14, 16];
/// Time zones.
const ZONES: [&str; 3] = ["UTC", "Europe/Berlin", "America/New_York"];

/// The text of the settings, with a placeholder for each pool's disk size, which changes during the run.
#[derive(Clone, Debug)]
pub struct Settings(String);

impl Settings {
    /// The text of the settings with these disk sizes.
    pub fn with(&self, disks: &BTreeMap<&'static str, u32>) -> String {
        disks.iter().fold(self.0.clone(), |text, (pool, gib)| text.replace(&place(pool), &gib.to_string()))
    }
}

fn place(pool: &str) -> String {
    format!("<disk of {pool}>")
}

/// Draws the pools of a run.
pub fn pools(random: &mut Rng) -> Vec<PoolShape> {
    let mut kinds: Vec<usize> = (0..KINDS.len()).collect();
    random.shuffle(&mut kinds);
    kinds.truncate(random.usize(2..=3));
    kinds.sort_unstable();
    let shapes = kinds.into_iter().filter_map(|kind| {
        let (name, cores, gib, ..) = *KINDS.get(kind)?;
        let max = random.u32(2..=5);
        let min = random.u32(0..=1);
        let first = 9100 + 100 * u32::try_from(kind).ok()?;
        let vmids = first..=first + max + SPARE - 1;
        let (min, max) = (min as usize, max as usize);
        let places = Places::default();
        Some(PoolShape {
            name,
            min,
            schedule: None,
            max,
            cores,
            gib,
            vmids,
            oldest: None,
            warm: None,
            grows: None,
            places,
            seed: None,
            device: false,
            network: Network::PLAIN,
        })
    });
    shapes.collect()
}

/// Returns true in one of `times` calls, on average.
fn seldom(random: &mut Rng, times: u8) -> bool {
    random.u8(..times) == 0
}

fn pick<T: Copy>(random: &mut Rng, of: &[T]) -> Option<T> {
    of.get(random.usize(..of.len().max(1))).copied()
}

/// Draws the rules of a run, and the pools' schedules and maximum node ages.
pub fn rules(random: &mut Rng, pools: &mut [PoolShape]) -> Rules {
    for pool in pools.iter_mut() {
        if seldom(random, 3) {
            let hours = hours(random, &[6, 8, 12], 60..240);
            pool.schedule = Some((random.usize(1..pool.max), hours));
        }
        pool.oldest = seldom(random, 3).then(|| Duration::from_hours(random.u64(3..12)));
    }
    let bootstrap = match random.u8(..8) {
        0 => Bootstrap::K3s,
        1 => Bootstrap::Command,
        2 => Bootstrap::Nothing,
        _ => Bootstrap::Kubeadm,
    };
    let disruptions = (0..random.u8(..3)).map(|_| disruption(random, pools)).collect();
    Rules {
        bootstrap,
        disruptions,
        brakes: Brakes {
            in_an_hour: pick(random, &[3, 6, 60]).unwrap_or(60),
            share: pick(random, &[30, 50, 100]).unwrap_or(50),
        },
        drift: random.bool(),
        unready_after: pick(random, &[None, None, Some(10), Some(40)]).flatten().map(Duration::from_mins),
        closed_host: seldom(random, 4).then(|| pick(random, &["pve1", "pve2", "pve3"])).flatten(),
        reserved: None,
        devices: Devices::default(),
        count_stopped: false,
        power: None,
        volumes: None,
        hindered: false,
        inherited: Inherited::default(),
        tags: TagAccess::default(),
    }
}

fn hours(random: &mut Rng, every: &[u32], minutes: std::ops::Range<u32>) -> Hours {
    let every = pick(random, every).unwrap_or(6);
    let zone = pick(random, &ZONES).unwrap_or("UTC");
    Hours { every, at: random.u32(..60), minutes: random.u32(minutes), zone }
}

fn disruption(random: &mut Rng, pools: &[PoolShape]) -> Rule {
    let names: Vec<&'static str> = REASONS.iter().map(|(name, _)| *name).collect();
    let mut reasons = names.clone();
    if random.bool() {
        random.shuffle(&mut reasons);
        reasons.truncate(random.usize(1..names.len()));
    }
    let pools = if random.bool() { pools.iter().map(|pool| pool.name).take(1).collect() } else { Vec::new() };
    let (open, closed) = match random.u8(..4) {
        0 => (Some(hours(random, &[4], 120..200)), None),
        1 => (None, Some(hours(random, &[4], 40..120))),
        _ => (None, None),
    };
    let limited = (open.is_none() && closed.is_none()) || random.bool();
    let most = limited.then(|| random.usize(1..3));
    Rule { reasons, pools, most, open, closed }
}

/// Draws the text of the settings. Secrets are read from files in this folder.
pub fn text(random: &mut Rng, pools: &mut [PoolShape], rules: &mut Rules, folder: &Path) -> Settings {
    let mut text =
        stage::without_pools().replace("method = \"kubeadm\"\n", &bootstrap(rules.bootstrap, folder));
    if rules.count_stopped {
        text = text.replace("resource_pool", "count_stopped = true\nresource_pool");
    }
    general(random, rules, &mut text);
    for rule in &rules.disruptions {
        text.push_str(&written(rule));
    }
    for (number, pool) in pools.iter_mut().enumerate() {
        one_pool(random, number, pool, &mut text);
    }
    Settings(text)
}

fn bootstrap(method: Bootstrap, folder: &Path) -> String {
    let secret = folder.join("secret");
    let secret = secret.display();
    match method {
        Bootstrap::Kubeadm => "method = \"kubeadm\"\n".to_owned(),
        Bootstrap::K3s => {
            let server = KubeSpec::demo().endpoint;
            format!("method = \"k3s\"\napi_server = \"{server}\"\nserver_token_file = \"{secret}\"\n")
        }
        Bootstrap::Command => format!(
            "method = \"command\"\ninput_file = \"{secret}\"\ncommand = '''\ncat >/etc/join.json\n\
             test -e /etc/kubernetes/kubelet.conf || kubeadm join --config /etc/join.json\n'''\n"
        ),
        Bootstrap::Nothing => "method = \"none\"\n".to_owned(),
    }
}

fn general(random: &mut Rng, rules: &mut Rules, text: &mut String) {
    let mut pick = |of: &[&'static str]| pick(random, of).unwrap_or("1m");
    let _ = write!(
        text,
        r#"
[scale_down]
unneeded_time = "{}"
unready_time = "{}"
delay_after_add = "{}"
skip_nodes_with_local_storage = false
max_removals_per_hour = {}
max_removal_percentage = {}
consolidation = {}
[scale_up]
backoff_initial = "1m"
backoff_max = "{}"
[limits]
drain = "{}"
[replace]
drift = {}
max_parallel = {}
"#,
        pick(&["1m", "3m", "10m"]),
        pick(&["5m", "20m"]),
        pick(&["0s", "1m", "10m"]),
        rules.brakes.in_an_hour,
        rules.brakes.share,
        pick(&["false", "false", "true"]),
        pick(&["2m", "10m", "30m"]),
        pick(&["2m", "15m"]),
        rules.drift,
        pick(&["1", "2"]),
    );
    if let Some(after) = rules.unready_after {
        let _ = writeln!(text, "unready_after = \"{}s\"", after.as_secs());
    }
    if rules.closed_host.is_none() && seldom(random, 3) {
        rules.reserved = Some(Reserved { host: "pve2", cores: 4, gib: 64 });
    }
    if let Some(power) = &rules.power {
        text.push_str(&power.written());
    }
    text.push_str(&rules.volumes.map(Volumes::written).unwrap_or_default());
    for host in places::HOSTS {
        text.push_str(&one_host(rules, host));
    }
}

/// Returns the host's settings table. Returns an empty text if nothing is set for the host.
fn one_host(rules: &Rules, host: &str) -> String {
    let closed = (rules.closed_host == Some(host)).then(|| "closed = true\n".to_owned());
    let reserved = rules.reserved.filter(|reserved| reserved.host == host).map(Reserved::written);
    let power = rules.power.as_ref().filter(|power| power.hosts.contains(&host));
    let power = power.map(|_| "power = \"wake-on-lan\"\n".to_owned());
    let said: String = [closed, reserved, power].into_iter().flatten().collect();
    if said.is_empty() { said } else { format!("[[host]]\nname = \"{host}\"\n{said}") }
}

fn written(rule: &Rule) -> String {
    let list = |of: &[&str]| {
        format!("[{}]", of.iter().map(|one| format!("\"{one}\"")).collect::<Vec<_>>().join(", "))
    };
    let mut text = format!("[[disruption]]\nreasons = {}\n", list(&rule.reasons));
    if !rule.pools.is_empty() {
        let _ = writeln!(text, "pools = {}", list(&rule.pools));
    }
    if let Some(most) = rule.most {
        let _ = writeln!(text, "max_nodes = {most}");
    }
    for (name, hours) in [("windows", &rule.open), ("closed", &rule.closed)] {
        if let Some(hours) = hours {
            let _ = writeln!(text, "{name} = [{{ {} }}]", hours.written());
        }
    }
    text
}

fn one_pool(random: &mut Rng, number: usize, pool: &mut PoolShape, text: &mut String) {
    let (_, _, _, template, clone) = KINDS.into_iter().find(|kind| kind.0 == pool.name).unwrap_or(KINDS[0]);
    let last = pool.vmids.end() - pool.vmids.start() + 11;
    let _ = write!(
        text,
        r#"
[[pool]]
name = "{}"
min = {}
max = {}
cores = {}
memory = "{}GiB"
template = "{template}"
clone = "{clone}"
vmids = "{}-{}"
addresses = "10.10.{number}.11-10.10.{number}.{last}"
prefix = 16
gateway = "10.10.0.1"
dns = ["10.10.0.1"]
{}disk = "{}GiB"
placement = "{}"
labels = {{ "topology.kubernetes.io/zone" = "{{{{ zone }}}}" }}
"#,
        pool.name,
        pool.min,
        pool.max,
        pool.cores,
        pool.gib,
        pool.vmids.start(),
        pool.vmids.end(),
        pool.network.written(),
        place(pool.name),
        pick(random, &["balance", "spread", "pack"]).unwrap_or("balance"),
    );
    if seldom(random, 3) {
        let _ = writeln!(
            text,
            "addresses6 = \"fd00:{number}::11-fd00:{number}::{last}\"\ngateway6 = \"fd00:{number}::1\""
        );
    }
    if clone == "full" && random.bool() {
        pool.places.storages = vec!["local-lvm", "shared"];
    }
    text.push_str(&pool.places.written());
    if let Some(oldest) = pool.oldest {
        let _ = writeln!(text, "max_node_age = \"{}s\"", oldest.as_secs());
    }
    if let Some(warm) = pool.warm {
        let _ = writeln!(text, "{}", warm.written());
    }
    if let Some((min, hours)) = &pool.schedule {
        let fields = hours.written().replace(", ", "\n");
        let _ = writeln!(text, "[[pool.schedule]]\nmin = {min}\n{fields}");
    }
    if let Some(grows) = pool.grows {
        text.push_str(&grows.written());
    }
    if pool.device {
        text.push_str(&devices::written());
    }
    if let Some(storage) = pool.seed {
        text.push_str(&super::seeds::written(storage));
    }
}
