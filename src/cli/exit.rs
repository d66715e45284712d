//! Exit statuses, and failures that become one.

use std::borrow::Cow;
use std::error::Error;
use std::path::Path;

use super::cluster;
use super::neighbours::Clash;
use files::SecretError;
use observability::SocketError;
use recording::RecordingError;
use settings::Report;
use snapshot::SnapshotError;

/// All went well, whatever a plan says.
pub const SUCCESS: u8 = 0;
/// `check` found something; `explain` was asked for something that is not there; the daemon refused an order.
pub const FINDINGS: u8 = 1;
/// Wrong command line or configuration.
pub const USAGE: u8 = 2;
/// A snapshot that cannot be read.
pub const SNAPSHOT: u8 = 3;
/// One of the clusters cannot be reached, or refuses.
pub const UNREACHABLE: u8 = 4;
/// The output could not be written, or the operating system refused something else.
pub const OUTPUT: u8 = 5;
/// `status` was asked and no daemon answers.
pub const NOT_RUNNING: u8 = 6;
/// `run` was started where a daemon already runs.
pub const RUNNING: u8 = 7;

pub(super) const HELP: &str = "\
Exit status:
  0  success
  1  something was found wrong, or what was asked for is not there or was refused
  2  wrong command line or configuration, or a secret that cannot be read
  3  a snapshot that cannot be read
  4  a cluster that cannot be reached or refuses
  5  the output could not be written, or the operating system refused something
  6  no daemon answers
  7  a daemon already runs";

/// Why a command ended early.
#[derive(Debug)]
pub(super) enum Failure {
    /// The configuration is wrong.
    Configuration(Report),
    /// The snapshot cannot be read.
    Snapshot(SnapshotError),
    /// The snapshot's file cannot be read.
    File(String, std::io::Error),
    /// The recorded rounds cannot be read.
    Recording(RecordingError),
    /// The configuration lacks what the command needs.
    Lacking(&'static str),
    /// A secret or a certificate named by the configuration cannot be used.
    Named(String, Box<dyn Error + Send + Sync>),
    /// Several secrets cannot be used: each with what it is.
    Secrets(Vec<(String, SecretError)>),
    /// One of the clusters cannot be reached, or refuses.
    Unreachable(String, Box<dyn Error + Send + Sync>),
    /// The output could not be written.
    Output(std::io::Error),
    /// No cluster of this name is configured.
    NoCluster {
        /// The name.
        name: String,
        /// The configuration that it stands for.
        file: String,
        /// Which clusters there are, in words.
        there: String,
    },
    /// The daemon of another cluster of this host runs, and both have something in their configurations.
    Shared {
        /// The other cluster, in words.
        with: String,
        /// What both have.
        clashes: Vec<Clash>,
    },
    /// What was asked for is not there.
    NotFound(String),
    /// The daemon answers that it does not do what it was asked, and why.
    Refused(String),
    /// No daemon answers.
    NotRunning(SocketError),
    /// A daemon already runs.
    Running(SocketError),
    /// The daemon's socket cannot be made.
    Socket(SocketError),
    /// The operating system refused something: what, as `cannot …` goes on.
    System(&'static str, std::io::Error),
}

impl Failure {
    pub(super) fn status(&self) -> u8 {
        match self {
            Self::Configuration(_)
            | Self::Lacking(_)
            | Self::Named(..)
            | Self::Secrets(_)
            | Self::NoCluster { .. }
            | Self::Shared { .. }
            | Self::Socket(_) => USAGE,
            Self::Unreachable(..) => UNREACHABLE,
            Self::Snapshot(_) | Self::File(..) | Self::Recording(_) => SNAPSHOT,
            // A reader that has seen enough (`| head`) is no failure.
            Self::Output(error) if error.kind() == std::io::ErrorKind::BrokenPipe => SUCCESS,
            Self::Output(_) | Self::System(..) => OUTPUT,
            Self::NotFound(_) | Self::Refused(_) => FINDINGS,
            Self::NotRunning(_) => NOT_RUNNING,
            Self::Running(_) => RUNNING,
        }
    }

    /// What went wrong, in one line if it has no place in a file.
    pub(super) fn words(&self) -> String {
        match self {
            Self::Named(what, error) | Self::Unreachable(what, error) => {
                format!("{what}: {}", chain(error.as_ref()))
            }
            Self::Secrets(all) => {
                let all = all.iter().map(|(what, error)| format!("{what}: {}", chain(error)));
                all.collect::<Vec<_>>().join("\n")
            }
            Self::Lacking(table) => format!("the configuration has no table `[{table}]`"),
            Self::Configuration(report) => report.plain(),
            Self::Snapshot(error) => chain(error),
            Self::Recording(error) => chain(error),
            Self::File(name, error) => format!("cannot read the snapshot `{name}`: {error}"),
            Self::Output(error) => format!("cannot write the output: {error}"),
            Self::NoCluster { name, file, there } => {
                format!("no cluster `{name}` is configured (`{file}` is missing): {there}")
            }
            Self::Shared { with, clashes } => {
                let all: Vec<&str> = clashes.iter().map(|clash| clash.words.as_str()).collect();
                format!("the daemon of {with} runs on this host, and {}", all.join("; "))
            }
            Self::NotFound(what) => what.clone(),
            Self::Refused(why) => format!("the daemon did not do it: {why}"),
            Self::NotRunning(error) | Self::Running(error) | Self::Socket(error) => chain(error),
            Self::System(what, error) => format!("cannot {what}: {error}"),
        }
    }

    pub(super) fn print(&self) {
        match self {
            Self::Configuration(report) => anstream::eprint!("{}", report.styled()),
            Self::Output(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
            Self::Lacking(_) => anstream::eprintln!(
                "error: {}, which is needed to look at the live cluster\n\
                 help: add it (see config.example.toml), or give a file with `--snapshot`",
                self.words()
            ),
            Self::Shared { with, clashes } => {
                anstream::eprintln!(
                    "error: the daemon of {with} runs on this host, and both have something:"
                );
                for clash in clashes {
                    anstream::eprintln!("error: {}\nhelp: {}", clash.words, clash.help);
                }
            }
            Self::Secrets(_) => {
                for one in self.words().lines() {
                    anstream::eprintln!("error: {one}");
                }
            }
            _ => {
                anstream::eprintln!("error: {}", self.words());
                if let Some(help) = self.help() {
                    anstream::eprintln!("help: {help}");
                }
            }
        }
    }

    /// A way out, if there is one that is not in the words already.
    fn help(&self) -> Option<Cow<'static, str>> {
        Some(match self {
            Self::NotRunning(SocketError::Unreachable { source, .. })
                if source.kind() == std::io::ErrorKind::PermissionDenied =>
            {
                "only root and the daemon's group may ask: use `sudo`, or join the group".into()
            }
            Self::Unreachable(..) => "`pve-autoscaler check` says what hinders, and what helps".into(),
            Self::NotRunning(error) => {
                let (unit, command) = service(error);
                format!(
                    "start it with `systemctl start {unit}` (`journalctl -u {unit}` says why it ended or did not start; \
                     `{command} setup` makes what it needs first), or name its socket with `--socket`"
                )
                .into()
            }
            Self::Socket(SocketError::NoSocket { .. }) => {
                "remove that file if it is not needed, or name another path with `--socket`".into()
            }
            Self::Socket(_) => {
                "systemd makes the folder (`RuntimeDirectory=`); without it name a path in a folder of yours with `--socket`"
                    .into()
            }
            Self::Running(error) => {
                let (_, command) = service(error);
                format!("`{command} status` asks it; for a second one name another socket with `--socket`").into()
            }
            Self::NoCluster { name, .. } => format!("`pve-autoscaler --cluster {name} setup` makes one").into(),
            _ => return None,
        })
    }
}

/// The unit whose daemon has a socket, and how commands for it begin.
fn service(error: &SocketError) -> (String, String) {
    let found = error.path().and_then(|path| cluster::of_socket(Path::new(path)));
    let name = found.and_then(|(_, name)| name);
    (cluster::unit(name.as_ref()), cluster::command(name.as_ref()))
}

/// An error and what caused it, in one line.
pub(super) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}
