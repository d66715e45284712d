//! `names`: names for shell completion. Clusters are read from their folders, all other names from the
//! running daemon. Because a user is waiting, the command must be quick: it prints nothing if the daemon does
//! not answer in time.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::cluster::{self, ClusterName};
use super::exit::SUCCESS;
use super::{input, live};
use observability::{DEFAULT_SOCKET, Status, ask};

/// How long to wait for the daemon.
const LIMIT: Duration = Duration::from_millis(300);

/// The kind of names to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Nodes of pools.
    Nodes,
    /// Pools.
    Pools,
    /// Hosts and pools.
    Places,
    /// Nodes, machines and hosts.
    All,
    /// Clusters of this host.
    Clusters,
}

/// Arguments of `names`.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Which names
    #[arg(value_enum)]
    kind: Kind,
    /// The command line so far
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

pub(super) fn run(arguments: &Arguments) -> u8 {
    let names = match arguments.kind {
        Kind::Clusters => cluster::configured().iter().map(ToString::to_string).collect(),
        kind => {
            let socket = socket(&arguments.words);
            let asked = async { Ok(tokio::time::timeout(LIMIT, ask(&socket)).await) };
            match live::block_on(asked) {
                Ok(Ok(Ok(status))) => known_names(kind, &status),
                _ => BTreeSet::new(),
            }
        }
    };
    let lines = names.iter().fold(String::new(), |lines, name| lines + name + "\n");
    // If the shell no longer reads the names, the error does not matter.
    let _ = input::text(&lines);
    SUCCESS
}

fn known_names(kind: Kind, status: &Status) -> BTreeSet<String> {
    let nodes = status.nodes.iter().map(|node| &*node.name);
    let machines = status.machines.iter().map(|machine| &*machine.name);
    let pools = status.pools.iter().map(|pool| &*pool.name);
    let hosts = status.hosts.iter().map(|host| &*host.name);
    let all: Vec<&str> = match kind {
        Kind::Nodes => nodes.collect(),
        Kind::Pools => pools.collect(),
        Kind::Places => hosts.chain(pools).collect(),
        Kind::All => nodes.chain(machines).chain(hosts).collect(),
        Kind::Clusters => Vec::new(),
    };
    // Names with characters that are special in shells are left out.
    let plain = |name: &&&str| name.chars().all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c));
    all.iter().filter(plain).map(|name| (*name).to_owned()).collect()
}

/// The socket of the daemon that an unfinished command line refers to.
fn socket(words: &[OsString]) -> PathBuf {
    let value = |option: &str| {
        let mut words = words.iter().filter_map(|word| word.to_str());
        let found = words.find_map(|word| match word.strip_prefix(option) {
            Some("") => Some(None),
            Some(rest) => rest.strip_prefix('=').map(Some),
            None => None,
        })?;
        // Some shells pass `=` as a word of its own.
        found.or_else(|| words.find(|word| *word != "=")).map(ToOwned::to_owned)
    };
    if let Some(socket) = value("--socket") {
        return socket.into();
    }
    let name = value("--cluster").and_then(|name| name.parse::<ClusterName>().ok());
    name.map_or_else(|| Path::new(DEFAULT_SOCKET).to_owned(), |name| cluster::default_socket(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_daemon_is_that_of_the_command_line() {
        for (line, expected) in [
            ("pve-autoscaler retire", DEFAULT_SOCKET),
            ("pve-autoscaler --cluster shop retire", "/run/pve-autoscaler@shop/control.sock"),
            ("pve-autoscaler retire --cluster=shop", "/run/pve-autoscaler@shop/control.sock"),
            ("pve-autoscaler retire --cluster = shop", "/run/pve-autoscaler@shop/control.sock"),
            ("pve-autoscaler retire --cluster ../x", DEFAULT_SOCKET),
            ("pve-autoscaler --cluster", DEFAULT_SOCKET),
            ("pve-autoscaler --cluster shop retire --socket /tmp/x --reason", "/tmp/x"),
        ] {
            let words: Vec<OsString> = line.split(' ').map(Into::into).collect();
            assert_eq!(socket(&words), Path::new(expected), "{line}");
        }
    }

    #[test]
    fn a_name_that_a_shell_would_run_is_left_out() {
        let mut status = Status::default();
        for name in ["workers-1", "$(reboot)", "a b", "east/pve1"] {
            let machine = observability::MachineStatus { name: name.to_owned(), ..Default::default() };
            status.machines.push(machine);
        }
        assert_eq!(
            known_names(Kind::All, &status).into_iter().collect::<Vec<_>>(),
            ["east/pve1", "workers-1"]
        );
        assert!(known_names(Kind::Nodes, &status).is_empty());
    }

    #[test]
    fn a_daemon_that_does_not_answer_is_not_waited_for() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("control.sock");
        let _silent = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let words = vec!["--socket".into(), path.into_os_string()];
        assert_eq!(run(&Arguments { kind: Kind::Nodes, words }), SUCCESS);
    }
}
