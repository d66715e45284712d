//! Several Proxmox VE clusters: the one in `[proxmox]`, and one for each `[[proxmox.also]]`.
//!
//! Each cluster is a region with a name. Pools, hosts and templates refer to their region by this name. Two
//! clusters may have hosts with the same name and VMs with the same VMID. [`model::HostKey`] tells hosts
//! apart, and VMIDs are always used together with their cluster.

use std::net::IpAddr;
use std::ops::Range;

use model::HostKey;
use toml::Spanned;

use super::pool::Pool;
use super::proxmox::{Headroom, Proxmox, Written};
use super::values::Checker;
use super::{Config, name_rules};

/// The regions, as written in the configuration file.
pub(super) struct Regions {
    /// Whether the file contains `[proxmox]`.
    known: bool,
    first: (Option<String>, Headroom),
    further: Vec<(String, Headroom)>,
}

/// The region that a pool, host or template belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// The region's name, if it has one.
    pub region: Option<String>,
    /// The prefix that the region's hosts have in a [`HostKey`].
    pub prefix: String,
}

impl Regions {
    /// Reads each region's name and its default limits on how far machines may fill a host.
    pub fn read(proxmox: Option<&Spanned<Written>>, checker: &mut Checker) -> Self {
        let Some(first) = proxmox else {
            return Self { known: false, first: (None, Headroom::default()), further: Vec::new() };
        };
        let mut seen: Vec<(&Spanned<String>, Vec<&Spanned<String>>)> = Vec::new();
        let also = &first.get_ref().also;
        for table in std::iter::once(first).chain(also) {
            let this = table.get_ref();
            match &this.region {
                Some(name) => {
                    one(name, &this.endpoints, &seen, checker);
                    seen.push((name, this.endpoints.iter().collect()));
                }
                None if also.is_empty() => {}
                None => {
                    let help = "set `region = \"…\"`: pools refer to their cluster by this name";
                    let title = "`region` is required if there are several clusters".to_owned();
                    checker.wrong(title, table.span(), "has no `region`", help);
                }
            }
            if let Some(inner) = this.also.first().filter(|_| table.span() != first.span()) {
                let title = "`[[proxmox.also]]` is inside another `[[proxmox.also]]`".to_owned();
                checker.wrong(title, inner.span(), "must be directly in `[proxmox]`", "");
            }
        }
        let name = |table: &Written| table.region.as_ref().map(|name| name.get_ref().clone());
        let further = also
            .iter()
            .map(|table| (name(table.get_ref()).unwrap_or_default(), table.get_ref().headroom(checker)));
        let further = further.collect();
        Self { known: true, first: (name(first.get_ref()), first.get_ref().headroom(checker)), further }
    }

    /// Returns the region that a pool, host or template names in its `region`. `what` names the pool, host or
    /// template in messages, and `at` is its place in the file.
    pub fn place(
        &self,
        what: &str,
        written: Option<&Spanned<String>>,
        at: Range<usize>,
        checker: &mut Checker,
    ) -> Place {
        let first = Place { region: self.first.0.clone(), prefix: String::new() };
        let Some(written) = written else {
            if !self.further.is_empty() {
                let help = format!("the regions are {}", self.names());
                let title = format!("{what}: `region` is missing");
                checker.wrong(title, at, "on which cluster?", &help);
            }
            return first;
        };
        let name = written.get_ref();
        if self.first.0.as_ref() == Some(name) {
            return first;
        }
        if self.known && self.further.iter().all(|(further, _)| further != name) {
            let title = format!("{what}: there is no region `{name}`");
            let help = match self.names() {
                none if none.is_empty() => "name the region with `region` in `[proxmox]`".to_owned(),
                names => format!("the regions are {names}"),
            };
            checker.wrong(title, written.span(), "not one of the regions", &help);
        } else if !name_rules::is_word(name) {
            wrong_name(written, checker);
        }
        Place { region: Some(name.clone()), prefix: name.clone() }
    }

    /// Returns the default limits on how far machines may fill the hosts of this region.
    pub fn headroom(&self, place: &Place) -> Headroom {
        let further = self.further.iter().find(|(name, _)| *name == place.prefix);
        further.map_or(self.first.1, |(_, headroom)| *headroom)
    }

    /// Returns the default limits on how far machines may fill the hosts of the cluster in this table.
    pub fn headroom_of(&self, table: &Written) -> Headroom {
        let prefix = table.region.as_ref().map(|name| name.get_ref().clone()).unwrap_or_default();
        self.headroom(&Place { region: None, prefix })
    }

    fn names(&self) -> String {
        let all = self.first.0.iter().chain(self.further.iter().map(|(name, _)| name));
        all.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
    }
}

/// Checks that the region's name and endpoints belong to no other cluster.
fn one(
    name: &Spanned<String>,
    endpoints: &[Spanned<String>],
    seen: &[(&Spanned<String>, Vec<&Spanned<String>>)],
    checker: &mut Checker,
) {
    if !name_rules::is_word(name.get_ref()) {
        wrong_name(name, checker);
    }
    for (other, theirs) in seen {
        if other.get_ref() == name.get_ref() {
            let title = format!("two regions are called `{}`", name.get_ref());
            checker.clash(title, name.span(), "must be unique", other.span(), "rename one of them");
        }
        let same = |mine: &&Spanned<String>| theirs.iter().find(|one| one.get_ref() == mine.get_ref());
        if let Some((mine, first)) = endpoints.iter().find_map(|mine| Some((mine, same(&mine)?))) {
            let title = format!("regions `{}` and `{}` share an endpoint", other.get_ref(), name.get_ref());
            let help = "each table describes a separate cluster: list all hosts of a cluster in one \
                table";
            checker.clash(title, mine.span(), "the same cluster", first.span(), help);
        }
    }
}

fn wrong_name(name: &Spanned<String>, checker: &mut Checker) {
    let title = format!("`{}` is not a valid region name", name.get_ref());
    let label = "expected at most 63 letters, digits, `-`, `_` and `.`: the name is used as a label \
        value";
    checker.wrong(title, name.span(), label, "");
}

impl Config {
    /// Returns all clusters. The cluster in `[proxmox]` comes first.
    pub fn clusters(&self) -> impl Iterator<Item = &Proxmox> {
        self.proxmox.iter().chain(&self.also)
    }

    /// Returns the cluster whose host keys have this prefix.
    pub fn cluster(&self, prefix: &str) -> Option<&Proxmox> {
        self.clusters().find(|one| self.prefix(one.region.as_deref()) == prefix)
    }

    /// Returns the prefix that the region's hosts have in a [`HostKey`]. A region of `None` is the cluster in
    /// `[proxmox]`, because a record contains no region if that cluster had no name when the record was
    /// written.
    pub fn prefix<'r>(&self, region: Option<&'r str>) -> &'r str {
        let first = self.proxmox.as_ref().and_then(|first| first.region.as_deref());
        region.filter(|region| first != Some(region)).unwrap_or_default()
    }

    /// Returns the key of a host, which is unique across all clusters.
    pub fn host_key(&self, region: Option<&str>, host: &str) -> HostKey {
        HostKey::new(self.prefix(region), host)
    }

    /// Whether a daemon that runs on a Proxmox VE host belongs to the cluster with this prefix. If there are
    /// several clusters, the daemon's own cluster is the only one with a loopback endpoint. Returns `None` if
    /// no cluster or more than one has such an endpoint. The host's name does not identify the cluster,
    /// because several clusters may have a host `pve1`.
    pub fn is_at_home(&self, prefix: &str) -> Option<bool> {
        if self.also.is_empty() {
            return Some(true);
        }
        let home = |one: &Proxmox| one.endpoints.iter().any(|endpoint| is_here(endpoint));
        let mut homes = self.clusters().filter(|one| home(one));
        match (homes.next(), homes.next()) {
            (Some(one), None) => Some(self.prefix(one.region.as_deref()) == prefix),
            _ => None,
        }
    }

    /// Returns the settings for only the cluster with this prefix. In the result, `proxmox` contains this
    /// cluster, or `None` if the cluster does not exist. Only the cluster's own pools, hosts and templates
    /// are kept, and host keys have no prefix.
    pub fn alone(&self, prefix: &str) -> Self {
        let here = |region: Option<&String>| self.prefix(region.map(String::as_str)) == prefix;
        let pool = |pool: &Pool| Pool {
            hosts: pool.hosts.iter().map(|host| HostKey::from(host.host())).collect(),
            prefix: String::new(),
            ..pool.clone()
        };
        let host = |(key, own): (&HostKey, &super::HostSettings)| {
            (key.region() == prefix).then(|| (HostKey::from(key.host()), own.clone()))
        };
        Self {
            proxmox: self.cluster(prefix).cloned(),
            also: Vec::new(),
            pools: self.pools.iter().filter(|one| one.prefix == prefix).map(pool).collect(),
            hosts: self.hosts.iter().filter_map(host).collect(),
            templates: self.templates.iter().filter(|one| here(one.region.as_ref())).cloned().collect(),
            ..self.clone()
        }
    }
}

/// Whether an endpoint is on this host.
pub(super) fn is_here(endpoint: &str) -> bool {
    let Ok(url) = endpoint.parse::<http::Uri>() else { return false };
    let name = url.host().unwrap_or_default().trim_matches(['[', ']']);
    match name.parse::<IpAddr>() {
        Ok(address) => address.is_loopback(),
        Err(_) => name == "localhost",
    }
}

impl Pool {
    /// Returns the key of a host in the pool's region.
    pub fn host_key(&self, host: &str) -> HostKey {
        HostKey::new(&self.prefix, host)
    }

    /// Whether the pool's machines may run on this host.
    pub fn may_be_on(&self, key: &HostKey) -> bool {
        if self.hosts.is_empty() {
            key.region() == self.prefix
        } else {
            self.hosts.iter().any(|host| host == key)
        }
    }
}

#[cfg(test)]
mod tests {
    use model::{HostKey, Vmid};

    use crate::{Needs, parse};

    const REST: &str = "token_id = \"a@pve!b\"\ntoken_file = \"/t\"\nca_file = \"/c\"\n";

    fn pool(name: &str, more: &str) -> String {
        format!(
            "[[pool]]\nname = \"{name}\"\nmax = 1\ncores = 2\nmemory = \"4GiB\"\nvmids = \"9100\"\n{more}\n"
        )
    }

    fn two() -> String {
        format!(
            "[proxmox]\nregion = \"west\"\nendpoints = [\"https://a:8006\"]\n{REST}\
             [[proxmox.also]]\nregion = \"east\"\nendpoints = [\"https://b:8006\"]\nmemory_reserve = \"1GiB\"\n{REST}"
        )
    }

    #[test]
    fn a_daemon_is_at_home_in_the_region_that_it_reaches_there() {
        let read = |first: &str, second: &str| {
            let text = two().replace("https://a:8006", first).replace("https://b:8006", second);
            parse("c", &format!("cluster = \"c\"\n{text}"), Needs::Plan).unwrap()
        };
        for (first, second, expected) in [
            ("https://127.0.0.1:8006", "https://10.1.0.1:8006", [Some(true), Some(false)]),
            ("https://10.1.0.1:8006", "https://[::1]:8006", [Some(false), Some(true)]),
            ("https://localhost:8006", "https://pve1:8006", [Some(true), Some(false)]),
            ("https://10.1.0.1:8006", "https://pve1.east.example", [None, None]),
            ("https://10.1.0.1:8006", "https://10.2.0.1:8006", [None, None]),
            ("https://127.0.0.1:8006", "https://[::1]:8006", [None, None]),
        ] {
            let config = read(first, second);
            let home = ["", "east"].map(|prefix| config.is_at_home(prefix));
            assert_eq!(home, expected, "{first} and {second}");
        }
        let alone = format!("cluster = \"c\"\n[proxmox]\nendpoints = [\"https://10.1.0.1:8006\"]\n{REST}");
        assert_eq!(parse("c", &alone, Needs::Plan).unwrap().is_at_home(""), Some(true));
    }

    #[test]
    fn what_is_wrong_with_regions_is_said() {
        let two = two();
        let first = |from: &str, to: &str| two.replacen(from, to, 1);
        for (text, expected) in [
            (first("region = \"west\"\n", ""), "`region` is required if there are several clusters"),
            (first("west", "east"), "two regions are called `east`"),
            (first("west", "we/st"), "`we/st` is not a valid region name"),
            (first("https://a", "https://b"), "regions `east` and `west` share an endpoint"),
            (format!("{two}{}", pool("w", "")), "pool `w`: `region` is missing"),
            (format!("{two}{}", pool("w", "region = \"north\"")), "pool `w`: there is no region `north`"),
            (format!("{two}[[host]]\nname = \"pve1\"\n"), "host `pve1`: `region` is missing"),
            (
                format!("{two}{}{}", pool("a", "region = \"east\""), pool("b", "region = \"east\"")),
                "pools `a` and `b` both reserve VMID 9100",
            ),
            (pool("w", "labels = { r = \"{{ region }}\" }"), "pool `w`: `{{ region }}` has no value"),
        ] {
            let report = parse("c.toml", &text, Needs::Plan).unwrap_err().plain();
            let either = expected.replace("`east` and `west`", "`west` and `east`");
            assert!(report.contains(expected) || report.contains(&either), "no {expected:?} in\n{report}");
        }
    }

    #[test]
    fn a_region_by_itself_is_a_configuration_of_one_cluster() {
        let pools = [("a", "west"), ("b", "east")].map(|(name, region)| {
            pool(name, &format!("region = \"{region}\"\nhosts = [\"pve1\"]\nlabels = {{ r = \"{{{{ region }}}}-{{{{ zone }}}}\" }}"))
        });
        let host = "[[host]]\nname = \"pve1\"\nregion = \"east\"\nzone = \"rack\"\n";
        let text = format!("{}{}{host}", two(), pools.concat());
        let config = parse("c.toml", &text, Needs::Plan).unwrap();
        let of = |prefix: &str| config.alone(prefix);
        let (west, east, none) = (of(""), of("east"), of("north"));
        assert_eq!(west.proxmox.unwrap().endpoints, ["https://a:8006"]);
        assert_eq!(east.proxmox.unwrap().endpoints, ["https://b:8006"]);
        assert!(none.proxmox.is_none() && none.pools.is_empty());
        assert_eq!((west.pools.len(), west.pools[0].name.as_str(), west.hosts.len()), (1, "a", 0));
        assert_eq!(
            (east.pools[0].hosts[0].as_str(), east.hosts["pve1"].zone.as_deref()),
            ("pve1", Some("rack"))
        );
        assert_eq!((west.pools[0].memory_reserve, east.pools[0].memory_reserve), (2 << 30, 1 << 30));
        let (a, b) = (&config.pools[0], &config.pools[1]);
        assert_eq!((a.hosts[0].as_str(), b.hosts[0].as_str()), ("pve1", "east/pve1"));
        assert_eq!(
            (a.may_be_on(&HostKey::from("pve1")), a.may_be_on(&HostKey::from("east/pve1"))),
            (true, false)
        );
        assert_eq!(
            (a.labels_on("pve1")["r"].as_str(), b.labels_on("east/pve1")["r"].as_str()),
            ("west-pve1", "east-rack")
        );
        assert_eq!(b.labels_for("pve1", "b-1", Vmid(9100))["r"], "east-rack");
        assert_eq!(config.host_key(None, "pve1"), "pve1");
        assert_eq!(config.host_key(Some("west"), "pve1"), "pve1");
        assert_eq!(config.host_key(Some("east"), "pve1"), "east/pve1");
    }
}
