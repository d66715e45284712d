//! What an operator types: one file a command.
//!
//! Standard output is for data, everything else goes to standard error.

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

/// Gives a Kubernetes cluster on Proxmox VE the worker nodes it needs, and takes them back.
#[derive(Debug, Parser)]
#[command(name = "pve-autoscaler", version, after_help = exit::HELP)]
pub struct Arguments {
    /// The Kubernetes cluster, if this host serves several: selects its configuration in
    /// /etc/pve-autoscaler/clusters/NAME, and its daemon's socket
    #[arg(long, global = true, value_name = "NAME")]
    cluster: Option<ClusterName>,
    /// The command works with what that name stands for.
    #[arg(skip)]
    needs_cluster: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make what the daemon needs on both sides, and a first configuration
    Setup(Box<setup::Arguments>),
    /// Write a configuration of another autoscaler's settings
    Migrate(migrate::Arguments),
    /// Run the daemon
    Run(run::Arguments),
    /// Show what the running daemon sees, does and has decided
    Status(status::Arguments),
    /// Stop everything: nothing new is begun until `resume`
    Pause(pause::Pause),
    /// Go on after `pause`
    Resume(pause::Resume),
    /// Try hosts and pools that are left alone after failures again now
    Retry(retry::Arguments),
    /// Show what was decided lately, and what became of it
    History(history::Arguments),
    /// Drain a node and destroy its machine
    Retire(nodes::Retire),
    /// Keep a node, however little it is used
    Pin(nodes::Pin),
    /// Treat a node that was pinned as any other again
    Unpin(nodes::Node),
    /// Make a worker that others made a machine of a pool
    Adopt(adopt::Arguments),
    /// Show VMs of this cluster that have no record, and what proves that they are left over
    Orphans(orphans::Arguments),
    /// Check the configuration and both clusters, and say what is wrong
    Check(check::Arguments),
    /// Make the templates that the configuration describes, or replace them if their description has changed
    Template(template::Arguments),
    /// Show what would be decided, and why; touches nothing
    Plan(plan::Arguments),
    /// Write what `plan` reads from the live cluster to standard output
    Snapshot(snapshot::Arguments),
    /// Show what configurations would have done with recorded rounds
    Simulate(simulate::Arguments),
    /// Show which nodes could take a pod, or why a node stays
    Explain(explain::Arguments),
    /// Give a machine its CPUs, as root, for the daemon that is connected to standard input
    #[command(hide = true)]
    PinningHelper(pinning_helper::Arguments),
    /// Print names for a shell that completes a command line
    #[command(hide = true)]
    Names(names::Arguments),
}

/// How to print.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For a person.
    #[default]
    Text,
    /// For a program; the format is stable.
    Json,
}

impl Arguments {
    /// Reads a command line, its program's name first. Ends the process where it is wrong, or asks for help.
    pub fn read(words: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> Self {
        match Self::matched(words) {
            Ok((arguments, _)) => arguments,
            Err(error) => error.exit(),
        }
    }

    /// What a command line says. The name of a cluster changes the defaults of others: then it is read again,
    /// with these.
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
