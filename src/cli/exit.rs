//! Exit statuses, and the failures that lead to them.

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

/// Success. The status of `plan` does not depend on what the plan contains.
pub const SUCCESS: u8 = 0;
/// `check` found a problem, a requested object does not exist, or the daemon refused an order.
pub const FINDINGS: u8 = 1;
/// Wrong command line or configuration, or a secret, file or socket that cannot be used.
pub const USAGE: u8 = 2;
/// A snapshot or recording that cannot be read.
pub const SNAPSHOT: u8 = 3;
/// One of the clusters cannot be reached, or refuses a request.
pub const UNREACHABLE: u8 = 4;
/// The output could not be written, or the operating system refused something else.
pub const OUTPUT: u8 = 5;
/// No daemon answers.
pub const NOT_RUNNING: u8 = 6;
/// `run` was started although a daemon is already running.
pub const RUNNING: u8 = 7;

pub(super) const HELP: &str = "\
Exit status:
  0  success
  1  a problem was found, or the request was refused or named something that does not exist
  2  wrong command line or configuration, or a secret that cannot be read
  3  a snapshot cannot be read
  4  a cluster cannot be reached or refused a request
  5  the output could not be written, or the operating system refused something
  6  no daemon answers
  7  a daemon is already running";

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
    /// The configuration lacks this table, which the command needs.
    Lacking(&'static str),
    /// A file, a secret or a certificate cannot be used: what it is, and why.
    Named(String, Box<dyn Error + Send + Sync>),
    /// Several secrets cannot be used: what each one is, and why.
    Secrets(Vec<(String, SecretError)>),
    /// One of the clusters cannot be reached, or refuses a request.
    Unreachable(String, Box<dyn Error + Send + Sync>),
    /// The output could not be written.
    Output(std::io::Error),
    /// No cluster of this name is configured.
    NoCluster {
        /// The name.
        name: String,
        /// The missing configuration.
        file: String,
        /// The existing clusters, in words.
        there: String,
    },
    /// The daemon of another cluster on this host is running, and the two configurations overlap.
    Shared {
        /// The other cluster, in words.
        with: String,
        /// What both configurations contain but must not share.
        clashes: Vec<Clash>,
    },
    /// The requested object does not exist, or the request cannot be carried out.
    NotFound(String),
    /// The daemon refused the order; the text is the daemon's reason.
    Refused(String),
    /// No daemon answers.
    NotRunning(SocketError),
    /// A daemon is already running.
    Running(SocketError),
    /// The daemon's socket cannot be created.
    Socket(SocketError),
    /// The operating system refused something. The text completes the message `cannot …`.
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
            // It is not a failure if the reader of the output stops early (`| head`).
            Self::Output(error) if error.kind() == std::io::ErrorKind::BrokenPipe => SUCCESS,
            Self::Output(_) | Self::System(..) => OUTPUT,
            Self::NotFound(_) | Self::Refused(_) => FINDINGS,
            Self::NotRunning(_) => NOT_RUNNING,
            Self::Running(_) => RUNNING,
        }
    }

    /// The error in words: one line, unless it consists of several findings.
    pub(super) fn words(&self) -> String {
        match self {
            Self::Named(what, error) | Self::Unreachable(what, error) => {
                format!("{what}: {}", chain(error.as_ref()))
            }
            Self::Secrets(all) => {
                let all = all.iter().map(|(what, error)| format!("{what}: {}", chain(error)));
                all.collect::<Vec<_>>().join("\n")
            }
            Self::Lacking(table) => format!("the configuration has no `[{table}]` table"),
            Self::Configuration(report) => report.plain(),
            Self::Snapshot(error) => chain(error),
            Self::Recording(error) => chain(error),
            Self::File(name, error) => format!("cannot read the snapshot `{name}`: {error}"),
            Self::Output(error) => format!("cannot write the output: {error}"),
            Self::NoCluster { name, file, there } => {
                format!("no cluster `{name}` is configured (`{file}` does not exist): {there}")
            }
            Self::Shared { with, clashes } => {
                let all: Vec<&str> = clashes.iter().map(|clash| clash.words.as_str()).collect();
                format!("the daemon of {with} is running on this host, and {}", all.join("; "))
            }
            Self::NotFound(what) => what.clone(),
            Self::Refused(why) => format!("the daemon refused: {why}"),
            Self::NotRunning(error) | Self::Running(error) | Self::Socket(error) => chain(error),
            Self::System(what, error) => format!("cannot {what}: {error}"),
        }
    }

    pub(super) fn print(&self) {
        match self {
            Self::Configuration(report) => anstream::eprint!("{}", report.styled()),
            Self::Output(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
            Self::Lacking(_) => anstream::eprintln!(
                "error: {}, which is needed to read the live cluster\nhelp: add the table (see \
                    config.example.toml), or name a snapshot file with `--snapshot`",
                self.words()
            ),
            Self::Shared { with, clashes } => {
                anstream::eprintln!(
                    "error: the daemon of {with} is running on this host, and the two configurations overlap:"
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

    /// What to do about the failure; `None` if the message already says it.
    fn help(&self) -> Option<Cow<'static, str>> {
        Some(match self {
            Self::NotRunning(SocketError::Unreachable { source, .. })
                if source.kind() == std::io::ErrorKind::PermissionDenied =>
            {
                "only root and the daemon's group may connect: use `sudo`, or join the group".into()
            }
            Self::Unreachable(..) => "`pve-autoscaler check` shows the cause and a fix".into(),
            Self::NotRunning(error) => {
                let (unit, command) = service(error);
                format!(
                    "start the daemon with `systemctl start {unit}`, or name its socket with \
                        `--socket`. Before the first start, run `{command} setup`. If the daemon has \
                        ended or did not start, `journalctl -u {unit}` shows why"
                )
                .into()
            }
            Self::Socket(SocketError::NoSocket { .. }) => {
                "remove that file if it is not needed, or name another path with `--socket`".into()
            }
            Self::Socket(_) => {
                "systemd creates the socket's folder (`RuntimeDirectory=`); without systemd, name a \
                    path in your own folder with `--socket`"
                    .into()
            }
            Self::Running(error) => {
                let (_, command) = service(error);
                format!(
                    "`{command} status` shows the running daemon's state; to run a second daemon, \
                    name a different socket with `--socket`"
                )
                .into()
            }
            Self::NoCluster { name, .. } => format!(
                "`pve-autoscaler --cluster {name} setup` creates \
                the cluster's configuration"
            )
            .into(),
            _ => return None,
        })
    }
}

/// The unit whose daemon listens at the socket, and the beginning of command lines for that daemon.
fn service(error: &SocketError) -> (String, String) {
    let found = error.path().and_then(|path| cluster::of_socket(Path::new(path)));
    let name = found.and_then(|(_, name)| name);
    (cluster::unit(name.as_ref()), cluster::command(name.as_ref()))
}

/// An error with its causes, in one line.
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
