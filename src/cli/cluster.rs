//! One host can serve several Kubernetes clusters, each with its own daemon. The first cluster has no name.
//! Each additional cluster has a name, and its own configuration, credentials, socket and unit.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::{ArgMatches, Command};

use super::exit::Failure;

/// The folder with the configurations of all clusters.
const FOLDER: &str = "/etc/pve-autoscaler";
/// The subfolder of [`FOLDER`] that contains a folder for each named cluster.
const CLUSTERS: &str = "clusters";
/// The name of the configuration file in a cluster's folder.
const FILE: &str = "config.toml";
/// The folder with the daemons' sockets, each in a subfolder named after the daemon's unit.
const RUN: &str = "/run";
const SOCKET: &str = "control.sock";
const PROGRAM: &str = "pve-autoscaler";
/// The maximum length of a name. The name becomes part of a Proxmox VE user name, which can have at most 64
/// characters.
const LONGEST: usize = 40;
/// At most this many names are listed in an error.
const LISTED: usize = 20;

/// The name of an additional cluster on this host. It becomes part of file paths and of a unit's name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ClusterName(String);

impl FromStr for ClusterName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        let fine = text.len() <= LONGEST
            && text.starts_with(plain)
            && text.chars().all(|c| plain(c) || matches!(c, '-' | '.'));
        let wrong =
            "expected at most 40 lower-case letters, digits, `-` and `.`, starting with a letter or digit";
        if fine { Ok(Self(text.to_owned())) } else { Err(wrong.to_owned()) }
    }
}

impl fmt::Display for ClusterName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl ClusterName {
    /// The cluster whose configuration and credentials are in this folder; `None` for the unnamed cluster.
    pub(super) fn of_folder(folder: &Path) -> Option<Self> {
        let is_named = folder.parent()?.file_name()? == CLUSTERS;
        folder.file_name()?.to_str()?.parse().ok().filter(|_| is_named)
    }
}

/// The folder of a cluster's configuration and credentials.
pub(super) fn folder(base: &Path, name: Option<&ClusterName>) -> PathBuf {
    name.map_or_else(|| base.to_owned(), |name| base.join(CLUSTERS).join(&name.0))
}

/// The configuration in a cluster's folder.
pub(super) fn file(base: &Path, name: Option<&ClusterName>) -> PathBuf {
    folder(base, name).join(FILE)
}

/// The unit of a cluster's daemon, without `.service`.
pub(super) fn unit(name: Option<&ClusterName>) -> String {
    name.map_or_else(|| PROGRAM.to_owned(), |name| format!("{PROGRAM}@{name}"))
}

/// The beginning of every command line for a cluster.
pub(super) fn command(name: Option<&ClusterName>) -> String {
    name.map_or_else(|| PROGRAM.to_owned(), |name| format!("{PROGRAM} --cluster {name}"))
}

/// Whether the packaged unit of this folder's cluster reads its configuration from this folder.
pub(super) fn is_the_units(of: &Path) -> bool {
    of == folder(Path::new(FOLDER), ClusterName::of_folder(of).as_ref())
}

/// The socket of a cluster's daemon, below `run` (usually `/run`).
pub(super) fn socket(run: &Path, name: Option<&ClusterName>) -> PathBuf {
    run.join(unit(name)).join(SOCKET)
}

/// Returns the folder that contains all clusters' socket folders (usually `/run`), and the cluster whose
/// daemon listens at this socket. Returns `None` if the path does not follow the usual pattern.
pub(super) fn of_socket(path: &Path) -> Option<(PathBuf, Option<ClusterName>)> {
    let folder = path.parent().filter(|_| path.file_name().is_some_and(|name| name == SOCKET))?;
    let rest = folder.file_name()?.to_str()?.strip_prefix(PROGRAM)?;
    let name = match rest.strip_prefix('@') {
        Some(name) => Some(name.parse().ok()?),
        None if rest.is_empty() => None,
        None => return None,
    };
    Some((folder.parent()?.to_owned(), name))
}

/// Derives two things from a configuration's path: the folder that contains all clusters' configurations, and
/// the cluster that the configuration belongs to. Returns `None` if the file is not named `config.toml`.
pub(super) fn base_of(config: &Path) -> Option<(PathBuf, Option<ClusterName>)> {
    let folder = config.parent().filter(|_| config.file_name().is_some_and(|name| name == FILE))?;
    Some(match ClusterName::of_folder(folder) {
        Some(name) => (folder.parent()?.parent()?.to_owned(), Some(name)),
        None => (folder.to_owned(), None),
    })
}

/// The named clusters that have a configuration, sorted.
pub(super) fn named(base: &Path) -> Vec<ClusterName> {
    let Ok(entries) = fs::read_dir(base.join(CLUSTERS)) else { return Vec::new() };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let mut names: Vec<ClusterName> = names.filter(|name| file(base, Some(name)).is_file()).collect();
    names.sort();
    names
}

/// The named clusters of this host.
pub(super) fn configured() -> Vec<ClusterName> {
    named(Path::new(FOLDER))
}

/// The socket of a cluster's daemon on this host.
pub(super) fn default_socket(name: &ClusterName) -> PathBuf {
    socket(Path::new(RUN), Some(name))
}

/// Returns the command with a cluster's defaults for the configuration, the socket, and the objects that
/// `setup` creates.
pub(super) fn with_defaults(mut command: Command, name: &ClusterName) -> Command {
    let (base, run) = (Path::new(FOLDER), Path::new(RUN));
    let defaults = [
        ("config", file(base, Some(name)).display().to_string()),
        ("socket", socket(run, Some(name)).display().to_string()),
        ("folder", folder(base, Some(name)).display().to_string()),
        ("user", format!("autoscaler-{name}@pve")),
        ("resource_pool", format!("kubernetes-{name}")),
    ];
    // clap needs defaults that live as long as the process. They are leaked only once.
    let defaults = defaults.map(|(id, text)| (id, &*Box::leak(text.into_boxed_str())));
    let names: Vec<String> = command.get_subcommands().map(|one| one.get_name().to_owned()).collect();
    for one in names {
        command = command.mut_subcommand(one, |mut one| {
            for (id, text) in defaults {
                if one.get_arguments().any(|argument| argument.get_id() == id) {
                    one = one.mut_arg(id, |argument| argument.default_value(text));
                }
            }
            one
        });
    }
    command
}

/// Whether a command needs the named cluster's configuration to exist. `setup` does not: it creates the
/// configuration.
pub(super) fn is_needed(matches: &ArgMatches) -> bool {
    let Some((name, of_command)) = matches.subcommand() else { return false };
    let given = |id: &str| {
        of_command.ids().any(|one| one == id)
            && of_command.value_source(id) == Some(clap::parser::ValueSource::CommandLine)
    };
    !matches!(name, "setup" | "migrate" | "names") && !given("config") && !given("socket")
}

/// Returns an error if the cluster of this name has no configuration.
pub(super) fn must_be_there(name: &ClusterName) -> Result<(), Failure> {
    there(Path::new(FOLDER), name)
}

fn there(base: &Path, name: &ClusterName) -> Result<(), Failure> {
    let file = file(base, Some(name));
    // If this user cannot access the file, the error is reported when the file is read.
    if file.try_exists().unwrap_or(true) {
        return Ok(());
    }
    let there: Vec<String> = named(base).iter().map(|name| format!("`{name}`")).collect();
    let more = if there.len() > LISTED { ", …" } else { "" };
    let there = match there.len() {
        0 => "there is no named cluster yet".to_owned(),
        1 => format!("there is only {}", there[0]),
        _ => format!("there are {}{more}", there[..there.len().min(LISTED)].join(", ")),
    };
    Err(Failure::NoCluster { name: name.to_string(), file: file.display().to_string(), there })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Arguments;

    fn name(text: &str) -> ClusterName {
        text.parse().unwrap()
    }

    #[test]
    fn a_name_is_a_part_of_paths_and_units_and_nothing_else() {
        for fine in ["home", "a", "0", "shop-2", "a.b"] {
            assert_eq!(fine.parse::<ClusterName>().unwrap().to_string(), fine);
        }
        let long = "a".repeat(LONGEST + 1);
        for wrong in ["", ".", "..", "-a", "../x", "a/b", "A", "a b", "a@b", "a_b", "ä", &long] {
            assert!(wrong.parse::<ClusterName>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn each_path_tells_the_cluster_that_it_is_of() {
        let (base, run) = (Path::new("/etc/a"), Path::new("/run"));
        for one in [None, Some(name("shop"))] {
            assert_eq!(base_of(&file(base, one.as_ref())), Some((base.to_owned(), one.clone())));
            assert_eq!(of_socket(&socket(run, one.as_ref())), Some((run.to_owned(), one.clone())));
            assert_eq!(ClusterName::of_folder(&folder(base, one.as_ref())), one);
        }
        assert_eq!(base_of(Path::new("/tmp/other.toml")), None);
        for other in ["/run/pve-autoscaler-pinning/control.sock", "/run/pve-autoscaler/x.sock", "/tmp/x"] {
            assert_eq!(of_socket(Path::new(other)), None, "{other}");
        }
        assert!(is_the_units(Path::new("/etc/pve-autoscaler/clusters/shop")));
        assert!(is_the_units(Path::new(FOLDER)) && !is_the_units(Path::new("/tmp/clusters/shop")));
        assert_eq!(Path::new(observability::DEFAULT_SOCKET), socket(Path::new(RUN), None));
    }

    #[test]
    fn the_name_stands_before_the_command_or_after_it_and_only_it_changes_defaults() {
        for words in [["--cluster", "shop", "status"], ["status", "--cluster", "shop"]] {
            let (_, matches) = Arguments::matched(std::iter::once("pve-autoscaler").chain(words)).unwrap();
            assert!(is_needed(&matches));
            let (_, of_command) = matches.subcommand().unwrap();
            let socket: &PathBuf = of_command.get_one("socket").unwrap();
            assert_eq!(socket, Path::new("/run/pve-autoscaler@shop/control.sock"));
        }
        let words = ["pve-autoscaler", "--cluster", "shop", "plan", "--config", "/tmp/x.toml"];
        let (_, matches) = Arguments::matched(words).unwrap();
        assert!(!is_needed(&matches));
        let (_, of_command) = matches.subcommand().unwrap();
        assert_eq!(of_command.get_one::<PathBuf>("config").unwrap(), Path::new("/tmp/x.toml"));
        let words = ["pve-autoscaler", "setup", "--cluster", "shop"];
        let (_, matches) = Arguments::matched(words).unwrap();
        let (_, of_command) = matches.subcommand().unwrap();
        let folder: &PathBuf = of_command.get_one("folder").unwrap();
        assert_eq!(
            (folder.to_str(), is_needed(&matches)),
            (Some("/etc/pve-autoscaler/clusters/shop"), false)
        );
        assert!(Arguments::matched(["pve-autoscaler", "--cluster", "../x", "status"]).is_err());
    }

    #[test]
    fn a_name_without_a_configuration_lists_those_that_there_are() {
        let base = tempfile::TempDir::new().unwrap();
        let refusal = |wanted: &str| there(base.path(), &name(wanted)).unwrap_err().words();
        assert!(refusal("shop").ends_with("there is no named cluster yet"), "{}", refusal("shop"));
        for one in ["web", "home"] {
            let file = file(base.path(), Some(&name(one)));
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "").unwrap();
        }
        // A folder without a configuration is not a cluster.
        fs::create_dir(folder(base.path(), Some(&name("empty")))).unwrap();
        let words = refusal("shop");
        assert!(
            words.contains("clusters/shop/config.toml") && words.ends_with("there are `home`, `web`"),
            "{words}"
        );
        assert!(there(base.path(), &name("web")).is_ok());
    }
}
