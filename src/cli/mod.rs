//! The command line, with one file for each command.
//!
//! Data goes to standard output, everything else to standard error.

mod adopt;
mod check;
mod cluster;
pub mod exit;
mod expiry;
mod explain;
mod history;
mod input;
mod live;
mod migrate;
mod names;
mod neighbours;
mod nodes;
mod orphans;
mod pause;
mod pinning_helper;
mod plan;
mod plan_text;
mod retry;
mod run;
mod setup;
pub mod signals;
mod simulate;
mod snapshot;
mod status;
mod table;
mod template;
pub mod terminal;
mod verdict_words;
mod watch;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

use cluster::ClusterName;

/// Adds the worker nodes that a Kubernetes cluster on Proxmox VE needs, and removes them again.
#[derive(Debug, Parser)]
#[command(name = "pve-autoscaler", version, after_help = exit::HELP)]
pub struct Arguments {
    /// The Kubernetes cluster, if this host serves several: selects its configuration in
    /// /etc/pve-autoscaler/clusters/NAME and its daemon's socket
    #[arg(long, global = true, value_name = "NAME")]
    cluster: Option<ClusterName>,
    /// Whether the configuration of `cluster` must exist for this command.
    #[arg(skip)]
    needs_cluster: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Set up Proxmox VE and Kubernetes for the daemon, and write a first configuration
    Setup(Box<setup::Arguments>),
    /// Convert another autoscaler's settings into a configuration
    Migrate(migrate::Arguments),
    /// Run the daemon
    Run(run::Arguments),
    /// Show what the running daemon sees, is doing and has decided
    Status(status::Arguments),
    /// Pause the daemon: it starts nothing new until `resume`
    Pause(pause::Pause),
    /// Resume after `pause`
    Resume(pause::Resume),
    /// End the back-off of hosts and pools after failures
    Retry(retry::Arguments),
    /// Show recent decisions and their outcomes
    History(history::Arguments),
    /// Drain a node and destroy its machine
    Retire(nodes::Retire),
    /// Keep a node, even if it is unneeded
    Pin(nodes::Pin),
    /// Undo `pin`: allow the node to be removed
    Unpin(nodes::Node),
    /// Turn an existing worker into a machine of a pool
    Adopt(adopt::Arguments),
    /// Show VMs of this cluster that have no record, and the evidence that they are left over
    Orphans(orphans::Arguments),
    /// Check the configuration and both clusters, and report what is wrong
    Check(check::Arguments),
    /// Create the templates that the configuration describes, or replace those whose settings have changed
    Template(template::Arguments),
    /// Show what the daemon would decide now, and why, without changing anything
    Plan(plan::Arguments),
    /// Write a snapshot for `plan` to standard output, from the live cluster or from a recording
    Snapshot(snapshot::Arguments),
    /// Show what one or more configurations would have done in recorded rounds
    Simulate(simulate::Arguments),
    /// Show which nodes could take a pod, or why a node is kept
    Explain(explain::Arguments),
    /// Pin a machine's CPUs, as root, for the daemon connected to standard input
    #[command(hide = true)]
    PinningHelper(pinning_helper::Arguments),
    /// Print names for shell completion
    #[command(hide = true)]
    Names(names::Arguments),
}

/// The output format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For people.
    #[default]
    Text,
    /// For programs; the format is stable.
    Json,
}

impl Arguments {
    /// Reads a command line, including the program's name. Ends the process if the command line is wrong or
    /// asks for help.
    pub fn read(words: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> Self {
        match Self::matched(words) {
            Ok((arguments, _)) => arguments,
            Err(error) => error.exit(),
        }
    }

    /// Parses a command line. If it names a cluster, other options get that cluster's defaults, and the
    /// command line is parsed again.
    fn matched(
        words: impl IntoIterator<Item = impl Into<OsString> + Clone>,
    ) -> Result<(Self, ArgMatches), clap::Error> {
        let words: Vec<OsString> = words.into_iter().map(Into::into).collect();
        let mut command = Self::command();
        let mut matches = command.try_get_matches_from_mut(&words)?;
        let name = matches.get_one::<ClusterName>("cluster").cloned();
        if let Some(name) = &name {
            command = cluster::with_defaults(Self::command(), name);
            matches = command.try_get_matches_from_mut(&words)?;
        }
        let mut arguments = Self::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
        arguments.needs_cluster = cluster::is_needed(&matches);
        Ok((arguments, matches))
    }

    /// Runs the command; the exit status is one of [`exit`].
    pub fn execute(self) -> ExitCode {
        match self.carry_out() {
            Ok(status) => ExitCode::from(status),
            Err(failure) => {
                failure.print();
                ExitCode::from(failure.status())
            }
        }
    }

    fn carry_out(self) -> Result<u8, exit::Failure> {
        if let Some(name) = self.cluster.filter(|_| self.needs_cluster) {
            cluster::must_be_there(&name)?;
        }
        match self.command {
            Command::Setup(arguments) => setup::run(&arguments),
            Command::Migrate(arguments) => migrate::run(&arguments),
            Command::Run(arguments) => run::run(&arguments),
            Command::Status(arguments) => status::run(&arguments),
            Command::Pause(arguments) => pause::pause(&arguments),
            Command::Resume(arguments) => pause::resume(&arguments),
            Command::Retry(arguments) => retry::run(&arguments),
            Command::History(arguments) => history::run(&arguments),
            Command::Retire(arguments) => nodes::retire(&arguments),
            Command::Pin(arguments) => nodes::pin(&arguments),
            Command::Unpin(arguments) => nodes::unpin(&arguments),
            Command::Adopt(arguments) => adopt::run(&arguments),
            Command::Orphans(arguments) => orphans::run(&arguments),
            Command::Check(arguments) => check::run(&arguments),
            Command::Template(arguments) => template::run(&arguments),
            Command::Plan(arguments) => plan::run(&arguments),
            Command::Snapshot(arguments) => snapshot::run(&arguments),
            Command::Simulate(arguments) => simulate::run(&arguments),
            Command::Explain(arguments) => explain::run(&arguments),
            Command::PinningHelper(arguments) => pinning_helper::run(&arguments),
            Command::Names(arguments) => Ok(names::run(&arguments)),
        }
    }
}
