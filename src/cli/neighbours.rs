//! The other clusters that this host serves, and the values that two clusters must not share. Each daemon
//! assumes that everything in its configuration belongs to it alone.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use model::Vmid;
use tokio::time::Instant;

use super::cluster::{self, ClusterName};
use super::exit::Failure;
use model::machine::Slot;
use settings::{Config, Needs, PhysicalMachine, Pool, Proxmox, Report};

/// How long to wait for another cluster's daemon to end, if both daemons were started at the same time and
/// their configurations conflict.
const GIVES_WAY: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(100);

/// Another cluster of this host.
#[derive(Debug)]
pub(super) struct Neighbour {
    pub name: Option<ClusterName>,
    pub file: PathBuf,
    pub config: Config,
}

/// Something that two clusters' configurations both contain but must not share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Clash {
    /// A sentence that names the shared value, and the file and key of both clusters.
    pub words: String,
    /// The key in this cluster's file.
    pub key: &'static str,
    /// How to resolve the conflict.
    pub help: &'static str,
}

/// Returns the other clusters on this host that have a usable configuration, which a daemon needs to start. A
/// configuration without pools, such as the package's example, is ignored.
pub(super) fn read_beside(config: &Path) -> Vec<Neighbour> {
    let usable = |(name, file, config): (_, _, Result<Config, Report>)| {
        let config = config.ok().filter(|config| !config.pools.is_empty())?;
        Some(Neighbour { name, file, config })
    };
    beside(config).into_iter().filter_map(usable).collect()
}

/// Returns the clusters whose configurations cannot be used, each with the first error.
pub(super) fn unusable(config: &Path) -> Vec<(String, String)> {
    let words = |(name, file, config): (Option<ClusterName>, PathBuf, Result<Config, Report>)| {
        let report = config.err()?;
        let first = report.findings().first().map_or("the file cannot be read", |finding| &finding.title);
        Some((cluster_text(name.as_ref()), format!("{} cannot be used: {first}", file.display())))
    };
    beside(config).into_iter().filter_map(words).collect()
}

fn beside(config: &Path) -> Vec<(Option<ClusterName>, PathBuf, Result<Config, Report>)> {
    let Some((base, own)) = cluster::base_of(config) else { return Vec::new() };
    let names = std::iter::once(None).chain(cluster::named(&base).into_iter().map(Some));
    let others = names.filter(|name| *name != own).map(|name| {
        let file = cluster::file(&base, name.as_ref());
        let config = files::load(&file, Needs::Plan);
        (name, file, config)
    });
    // The cluster without a name need not exist.
    others.filter(|(_, file, _)| file.try_exists().unwrap_or(true)).collect()
}

/// A cluster in words.
fn cluster_text(name: Option<&ClusterName>) -> String {
    name.map_or_else(|| "the cluster without a name".to_owned(), |name| format!("cluster `{name}`"))
}

impl Neighbour {
    /// The cluster in words.
    pub(super) fn words(&self) -> String {
        cluster_text(self.name.as_ref())
    }

    /// Returns the values that both configurations contain but must not share. `mine` is this cluster's
    /// configuration file.
    pub(super) fn clashes(&self, mine: &Path, config: &Config) -> Vec<Clash> {
        let both = Both { mine, theirs: &self.file };
        let mut found = Vec::new();
        if config.cluster == self.config.cluster {
            found.push(both.clash(
                ("cluster", None),
                "cluster",
                &format!("the id `{}`", config.cluster),
                "give each cluster its own id (`cluster = \"…\"`): the daemon recognizes its machines \
                    by this id. Do not change the id of a cluster that has machines",
            ));
        }
        for table in config.clusters() {
            let prefix = config.prefix(table.region.as_deref());
            for other in self.config.clusters().filter(|other| may_be_one(table, other)) {
                let there = self.config.prefix(other.region.as_deref());
                both.vmids(&numbers(config, prefix), &numbers(&self.config, there), &mut found);
            }
        }
        both.addresses(&config.pools, &self.config.pools, &mut found);
        both.machines(&config.pools, &self.config.pools, &mut found);
        if let (Some(listen), Some(other)) = (config.metrics.listen, self.config.metrics.listen)
            && meet(listen, other)
        {
            let help = "give one of the clusters a different port (`listen` in `[metrics]`)";
            found.push(both.clash(("metrics.listen", None), "metrics.listen", &format!("{listen}"), help));
        }
        let (record, other) = (&config.record, &self.config.record);
        let writes = |one: &settings::Record| one.rounds > 0 || one.days > 0;
        if writes(record) && writes(other) && record.directory == other.directory {
            let what = format!("the directory {}", record.directory.display());
            let help = "give each cluster its own directory, e.g. in /var/lib/pve-autoscaler@NAME";
            found.push(both.clash(("record.directory", None), "record.directory", &what, help));
        }
        found
    }
}

/// Whether two `[proxmox]` tables may describe the same Proxmox VE cluster. Different region names rule this
/// out, unless the tables share an endpoint.
fn may_be_one(one: &Proxmox, other: &Proxmox) -> bool {
    let named_apart = one.region.is_some() && other.region.is_some() && one.region != other.region;
    !named_apart || one.endpoints.iter().any(|endpoint| other.endpoints.contains(endpoint))
}

/// Whether two listen addresses collide. Port 0 stands for any free port, so it never collides.
fn meet(one: SocketAddr, other: SocketAddr) -> bool {
    one.port() != 0
        && one.port() == other.port()
        && (one.ip() == other.ip() || one.ip().is_unspecified() || other.ip().is_unspecified())
}

/// The VMID ranges that a configuration reserves, each with its place.
type Numbers<'a> = Vec<(Place<'a>, &'a RangeInclusive<u32>)>;
/// A key, and the pool that contains it, if any.
type Place<'a> = (&'static str, Option<&'a str>);

fn numbers<'a>(config: &'a Config, prefix: &str) -> Numbers<'a> {
    let pools = config.pools.iter().filter(|pool| !pool.is_physical() && pool.prefix == prefix);
    let of_pools =
        pools.flat_map(|pool| pool.vmids.iter().map(|vmids| (("vmids", Some(pool.name.as_str())), vmids)));
    let templates = config.templates.iter();
    let templates = templates.filter(|one| config.prefix(one.region.as_deref()) == prefix);
    of_pools.chain(templates.map(|one| (("template.vmids", None), &one.vmids))).collect()
}

/// The configuration files of both clusters.
struct Both<'a> {
    mine: &'a Path,
    theirs: &'a Path,
}

impl Both<'_> {
    fn clash(&self, (key, pool): Place, their_key: &str, what: &str, help: &'static str) -> Clash {
        let at = |file: &Path, key: &str, pool: Option<&str>| {
            let pool = pool.map(|pool| format!(" of pool `{pool}`")).unwrap_or_default();
            format!("`{key}`{pool} in {}", file.display())
        };
        let words =
            format!("{} and {} both have {what}", at(self.mine, key, pool), at(self.theirs, their_key, None));
        Clash { words, key, help }
    }

    fn between(&self, mine: Place, theirs: Place, what: &str, help: &'static str) -> Clash {
        let their_key = match theirs {
            (key, Some(pool)) => format!("{key}` of pool `{pool}"),
            (key, None) => key.to_owned(),
        };
        self.clash(mine, &their_key, what, help)
    }

    fn vmids(&self, mine: &Numbers, theirs: &Numbers, found: &mut Vec<Clash>) {
        for (own, vmids) in mine {
            for (other, their_vmids) in theirs {
                let first = *vmids.start().max(their_vmids.start());
                let last = *vmids.end().min(their_vmids.end());
                let what = match first.cmp(&last) {
                    Ordering::Greater => continue,
                    Ordering::Equal => format!("VMID {first}"),
                    Ordering::Less => format!("VMIDs {first}-{last}"),
                };
                let help = "give each Kubernetes cluster its own VMIDs. If the VMIDs belong to different \
                    Proxmox VE clusters, name both Proxmox VE clusters (`region` in `[proxmox]`)";
                found.push(self.between(*own, *other, &what, help));
            }
        }
    }

    fn addresses(&self, mine: &[Pool], theirs: &[Pool], found: &mut Vec<Clash>) {
        // A bare-metal machine has its address in its own table.
        let place = |pool| -> Place {
            (if Pool::is_physical(pool) { "machine" } else { "addresses" }, Some(&pool.name))
        };
        let mut taken: BTreeMap<IpAddr, Place> = BTreeMap::new();
        for pool in theirs {
            let slots = pool.slots();
            taken.extend(slots.iter().flat_map(|slot| slot.addresses().map(|one| (one, place(pool)))));
        }
        for pool in mine {
            let slots = pool.slots();
            let own: BTreeSet<IpAddr> = slots.iter().flat_map(Slot::addresses).collect();
            let mut shared: BTreeMap<Place, Vec<IpAddr>> = BTreeMap::new();
            for address in own {
                if let Some(other) = taken.get(&address) {
                    shared.entry(*other).or_default().push(address);
                }
            }
            for (other, all) in shared {
                let what = match all.as_slice() {
                    [only] => only.to_string(),
                    [first, rest @ ..] => format!("{first} and {} more addresses", rest.len()),
                    [] => continue,
                };
                let help = if pool.is_physical() {
                    "give each pool its own addresses"
                } else {
                    "give each pool its own addresses: narrow one of the ranges"
                };
                found.push(self.between(place(pool), other, &what, help));
            }
        }
    }

    /// Finds bare-metal machines that are in both configurations. If one daemon has switched such a machine
    /// on, the other daemon regards it as unmanaged.
    fn machines(&self, mine: &[Pool], theirs: &[Pool], found: &mut Vec<Clash>) {
        for (pool, machine) in machines(mine) {
            if let Some((other, _)) =
                machines(theirs).find(|(_, other)| other.redfish.may_be(&machine.redfish))
            {
                let what = format!("the controller of `{}`", machine.name);
                let help = "leave the machine to one of the clusters: its kubelet can join only one \
                    cluster";
                let (own, other) = (Some(pool.name.as_str()), Some(other.name.as_str()));
                found.push(self.between(("machine", own), ("machine", other), &what, help));
            }
        }
    }
}

/// The bare-metal machines of all pools, each with its pool.
fn machines(pools: &[Pool]) -> impl Iterator<Item = (&Pool, &PhysicalMachine)> {
    pools.iter().flat_map(|pool| pool.machines.iter().map(move |machine| (pool, machine)))
}

/// Returns the conflicts with the configurations of clusters whose daemons are running.
pub(super) fn with_running(file: &Path, config: &Config, socket: &Path) -> Vec<Clash> {
    let all = read_beside(file).into_iter();
    let all = all.map(|other| (other.clashes(file, config), other));
    let running = all.filter(|(clashes, other)| !clashes.is_empty() && other.runs(socket));
    running.flat_map(|(clashes, _)| clashes).collect()
}

/// Refuses to start if the daemon of another cluster is running and the two configurations overlap, because
/// the other cluster may already have machines. If two such daemons start at the same time, each of them
/// finds the conflict once it listens. The daemon whose cluster's name sorts first then waits a few seconds
/// for the other one, and starts if the other one ends.
///
/// # Errors
/// Returns an error if the daemon of another cluster is running and the two configurations overlap.
pub(super) async fn refuse_shared(file: &Path, config: &Config, socket: &Path) -> Result<(), Failure> {
    let own = cluster::base_of(file).and_then(|(_, name)| name);
    for other in read_beside(file) {
        let clashes = other.clashes(file, config);
        if clashes.is_empty() {
            continue;
        }
        let until = Instant::now() + if own < other.name { GIVES_WAY } else { Duration::ZERO };
        let mut runs = other.runs(socket);
        while runs && Instant::now() < until {
            tokio::time::sleep(LOOK).await;
            runs = other.runs(socket);
        }
        if runs {
            return Err(Failure::Shared { with: other.words(), clashes });
        }
        for clash in clashes {
            tracing::warn!(
                "{}: the daemon of {} is not running and will not start while this daemon runs",
                clash.words,
                other.words()
            );
        }
    }
    Ok(())
}

impl Neighbour {
    /// Whether the other cluster's daemon is running, judged by its socket. Returns `true` if this cannot be
    /// determined.
    fn runs(&self, own: &Path) -> bool {
        let Some((run, _)) = cluster::of_socket(own) else { return true };
        match UnixStream::connect(cluster::socket(&run, self.name.as_ref())) {
            // The socket of a dead daemon does not exist or refuses connections. Any other error, such as a
            // denied permission, does not prove that the daemon is dead.
            Err(error) => !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused),
            Ok(_) => true,
        }
    }
}

/// Values that other clusters' configurations on this host reserve, and that `setup` must not use.
#[derive(Debug, Default)]
pub(super) struct Reserved {
    pub vmids: BTreeSet<Vmid>,
    pub addresses: BTreeSet<IpAddr>,
    pub listen: BTreeSet<u16>,
}

impl Reserved {
    pub(super) fn by(neighbours: &[Neighbour]) -> Self {
        let mut all = Self::default();
        for Neighbour { config, .. } in neighbours {
            all.listen.extend(config.metrics.listen.map(|address| address.port()));
            for pool in config.pools.iter().filter(|pool| !pool.is_physical()) {
                all.vmids.extend(pool.vmids.iter().flat_map(Clone::clone).map(Vmid));
                all.addresses
                    .extend(pool.slots().iter().flat_map(|slot| slot.addresses().collect::<Vec<_>>()));
            }
            all.vmids.extend(config.templates.iter().flat_map(|template| template.vmids.clone()).map(Vmid));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    const PROXMOX: &str = "[proxmox]\nendpoints = [\"https://10.0.0.1:8006\"]\ntoken_id = \"a@pve!b\"\n\
                           token_file = \"/t\"\nca_file = \"/c\"\n";

    fn pool(name: &str, vmids: &str, addresses: &str) -> String {
        format!(
            "[[pool]]\nname = \"{name}\"\nmin = 0\nmax = 2\ncores = 2\nmemory = \"4GiB\"\nvmids = \"{vmids}\"\n\
             addresses = \"{addresses}\"\nprefix = 24\n"
        )
    }

    /// A host with two configurations: that of the cluster without a name, and that of `shop`.
    struct Host(tempfile::TempDir);

    impl Host {
        fn new(first: &str, shop: &str) -> Self {
            let host = Self(tempfile::TempDir::new().unwrap());
            std::fs::create_dir_all(host.0.path().join("clusters/shop")).unwrap();
            std::fs::write(host.file(None), first).unwrap();
            std::fs::write(host.file(Some("shop")), shop).unwrap();
            host
        }

        fn file(&self, name: Option<&str>) -> PathBuf {
            cluster::file(self.0.path(), name.map(|name| name.parse().unwrap()).as_ref())
        }

        fn socket(&self, name: Option<&str>) -> PathBuf {
            let path = cluster::socket(self.0.path(), name.map(|name| name.parse().unwrap()).as_ref());
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            path
        }

        fn config(&self, name: Option<&str>) -> Config {
            files::load(&self.file(name), Needs::Plan).unwrap()
        }

        /// The conflicts of `shop` with the cluster without a name.
        fn shared(&self) -> Vec<Clash> {
            let file = self.file(Some("shop"));
            let others = read_beside(&file);
            others.iter().flat_map(|other| other.clashes(&file, &self.config(Some("shop")))).collect()
        }
    }

    fn first() -> String {
        format!("{PROXMOX}{}", pool("a", "400-409", "10.0.0.10-10.0.0.19"))
    }

    #[test]
    fn clusters_with_ids_vmids_addresses_and_ports_of_their_own_share_nothing() {
        let own = "cluster = \"shop\"\nmetrics.listen = \"127.0.0.1:9737\"\n";
        let shop = format!("{own}{PROXMOX}{}", pool("a", "410-419", "10.0.0.20-10.0.0.29"));
        assert_eq!(Host::new(&first(), &shop).shared(), []);
        // The package's example, in which every setting is commented out.
        let alike = format!("{PROXMOX}{}", pool("a", "400-409", "10.0.0.10-10.0.0.19"));
        assert_eq!(Host::new("", &alike).shared(), []);
    }

    #[test]
    fn each_thing_that_is_shared_is_named_with_both_files_and_keys() {
        let shop = format!("{PROXMOX}{}", pool("b", "405-414", "10.0.0.19-10.0.0.28"));
        let host = Host::new(&first(), &shop);
        let shared = host.shared();
        let keys: Vec<&str> = shared.iter().map(|clash| clash.key).collect();
        assert_eq!(keys, ["cluster", "vmids", "addresses", "metrics.listen"]);
        let (mine, theirs) = (host.file(Some("shop")), host.file(None));
        assert_eq!(
            shared[1].words,
            format!(
                "`vmids` of pool `b` in {} and `vmids` of pool `a` in {} both have VMIDs 405-409",
                mine.display(),
                theirs.display()
            )
        );
        assert!(shared[2].words.ends_with("both have 10.0.0.19"), "{}", shared[2].words);
    }

    #[test]
    fn days_that_are_recorded_want_a_folder_for_each_as_rounds_do() {
        let own = "cluster = \"shop\"\nmetrics.enabled = false\n";
        let vms = pool("b", "500-509", "10.0.0.50-10.0.0.59");
        for (settings, clashes) in [("days = 1", 1), ("rounds = 1", 1), ("days = 0", 0)] {
            let record = format!("[record]\n{settings}\n");
            let host = Host::new(&format!("{}{record}", first()), &format!("{own}{PROXMOX}{vms}{record}"));
            let keys: Vec<&str> = host.shared().iter().map(|clash| clash.key).collect();
            assert_eq!(keys, vec!["record.directory"; clashes], "{settings}");
        }
    }

    #[test]
    fn a_bare_metal_machine_belongs_to_one_cluster() {
        let metal = |pool: &str, machine: &str, controller: &str| {
            format!(
                "[[pool]]\nname = \"{pool}\"\nmax = 1\ncores = 8\nmemory = \"32GiB\"\n[[pool.machine]]\nname = \"{machine}\"\n\
                 [pool.machine.redfish]\nendpoint = \"https://{controller}\"\nuser = \"power\"\npassword_file = \"/x\"\n\
                 ca = \"system\"\n"
            )
        };
        let own = "cluster = \"shop\"\nmetrics.enabled = false\n";
        for (controller, clashes) in [("BMC-1/", 1), ("bmc-1:443", 1), ("bmc-2", 0)] {
            let shop = format!("{own}{}", metal("b", "n1", controller));
            let shared = Host::new(&metal("a", "metal-1", "bmc-1"), &shop).shared();
            let keys: Vec<&str> = shared.iter().map(|clash| clash.key).collect();
            assert_eq!(keys, vec!["machine"; clashes], "{controller}");
            assert!(
                shared.iter().all(|clash| clash.words.ends_with("have the controller of `n1`")),
                "{shared:?}"
            );
        }
    }

    #[test]
    fn an_address_of_a_bare_metal_machine_is_named_as_the_machines() {
        let metal = "[[pool]]\nname = \"metal\"\nmax = 1\ncores = 8\nmemory = \"32GiB\"\n[[pool.machine]]\n\
                     name = \"n1\"\naddress = \"10.0.0.15\"\n[pool.machine.redfish]\nendpoint = \"https://bmc\"\n\
                     user = \"power\"\npassword_file = \"/x\"\nca = \"system\"\n";
        let own = "cluster = \"shop\"\nmetrics.enabled = false\n";
        let shared = Host::new(&first(), &format!("{own}{metal}")).shared();
        let [clash] = shared.as_slice() else { panic!("{shared:?}") };
        assert!(clash.key == "machine" && clash.words.starts_with("`machine` of pool `metal`"), "{clash:?}");
        assert!(clash.words.contains("`addresses` of pool `a`"), "{clash:?}");
        assert!(clash.words.ends_with("both have 10.0.0.15") && !clash.help.contains("ranges"), "{clash:?}");
    }

    #[test]
    fn proxmox_clusters_with_names_of_their_own_have_vmids_of_their_own() {
        let named = |region: &str, endpoint: &str| {
            let table = PROXMOX.replace("[proxmox]\n", &format!("[proxmox]\nregion = \"{region}\"\n"));
            table.replace("10.0.0.1", endpoint)
        };
        let vmids = |one: &str, other: &str| {
            let first = format!("{one}{}", pool("a", "400-409", "10.0.0.10-10.0.0.19"));
            let own = "cluster = \"shop\"\nmetrics.enabled = false\n";
            let shop = format!("{own}{other}{}", pool("a", "400-409", "10.0.0.20-10.0.0.29"));
            Host::new(&first, &shop).shared().len()
        };
        assert_eq!(vmids(&named("east", "10.0.0.1"), &named("west", "10.0.0.2")), 0);
        assert_eq!(vmids(&named("east", "10.0.0.1"), &named("west", "10.0.0.1")), 1, "a shared endpoint");
        assert_eq!(vmids(&named("east", "10.0.0.1"), &named("east", "10.0.0.2")), 1);
        assert_eq!(vmids(PROXMOX, &named("west", "10.0.0.2")), 1, "an unnamed region may be any region");
    }

    #[tokio::test(start_paused = true)]
    async fn a_daemon_that_runs_already_stays_and_of_two_that_start_together_the_first() {
        let host = Host::new(&first(), &first());
        let start = async |name: Option<&str>| {
            let (file, socket) = (host.file(name), host.socket(name));
            refuse_shared(&file, &host.config(name), &socket).await
        };
        // The other daemon is not running.
        assert!(start(Some("shop")).await.is_ok() && start(None).await.is_ok());
        let listening = UnixListener::bind(host.socket(None)).unwrap();
        let refusal = start(Some("shop")).await.unwrap_err();
        assert_eq!(refusal.status(), crate::cli::exit::USAGE);
        assert!(refusal.words().contains("the cluster without a name"), "{}", refusal.words());
        assert_eq!(
            with_running(&host.file(Some("shop")), &host.config(None), &host.socket(Some("shop"))).len(),
            4
        );
        drop(listening);
        assert!(start(Some("shop")).await.is_ok(), "the socket of a dead daemon remains");
        // The daemon whose cluster's name sorts first waits for the other daemon to end. If the other daemon
        // keeps running, the waiting one ends instead.
        let listening = UnixListener::bind(host.socket(Some("shop"))).unwrap();
        let ends = tokio::spawn(async move {
            tokio::time::sleep(LOOK * 3).await;
            drop(listening);
        });
        assert!(start(None).await.is_ok());
        ends.await.unwrap();
        std::fs::remove_file(host.socket(Some("shop"))).unwrap();
        let _stays = UnixListener::bind(host.socket(Some("shop"))).unwrap();
        assert!(start(None).await.is_err());
    }
}
