//! What an operator types: one file a command.
//!
//! Standard output is for data, everything else goes to standard error.

mod adopt;
mod check;
pub mod exit;
mod explain;
mod history;
mod input;
mod live;
mod migrate;
mod nodes;
mod pause;
mod pinning_helper;
mod plan;
mod plan_text;
mod retry;
mod run;
mod setup;
pub mod signals;
mod snapshot;
mod status;
mod table;
mod template;
pub mod terminal;
mod watch;

use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};

/// Gives a Kubernetes cluster on Proxmox VE the worker nodes it needs, and takes them back.
#[derive(Debug, Parser)]
#[command(name = "pve-autoscaler", version, after_help = exit::HELP)]
pub struct Arguments {
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
    /// Keep a node, whatever it is used for
    Pin(nodes::Pin),
    /// Treat a node that was pinned as any other again
    Unpin(nodes::Node),
    /// Make a worker that others made a machine of a pool
    Adopt(adopt::Arguments),
    /// Check the configuration and both clusters, and say what is wrong
    Check(check::Arguments),
    /// Make the templates that the configuration describes, or replace them if their description has changed
    Template(template::Arguments),
    /// Show what would be decided, and why; touches nothing
    Plan(plan::Arguments),
    /// Write what `plan` reads from the live cluster to standard output
    Snapshot(snapshot::Arguments),
    /// Show which nodes could take a pod, or why a node stays
    Explain(explain::Arguments),
    /// Give a machine its CPUs, as root, for the daemon that is connected to standard input
    #[command(hide = true)]
    PinningHelper(pinning_helper::Arguments),
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
    /// Runs the command; the exit status is one of [`exit`].
    pub fn execute(self) -> ExitCode {
        let result = match self.command {
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
            Command::Check(arguments) => check::run(&arguments),
            Command::Template(arguments) => template::run(&arguments),
            Command::Plan(arguments) => plan::run(&arguments),
            Command::Snapshot(arguments) => snapshot::run(&arguments),
            Command::Explain(arguments) => explain::run(&arguments),
            Command::PinningHelper(arguments) => pinning_helper::run(&arguments),
        };
        match result {
            Ok(status) => ExitCode::from(status),
            Err(failure) => {
                failure.print();
                ExitCode::from(failure.status())
            }
        }
    }
}
