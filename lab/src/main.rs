//! The embedded Proxmox VE and Kubernetes as a program: served over TLS for real clients, and the demo that
//! plays the real daemon between them.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use lab::{daemon, events, fuzz, record, simulate, story};

/// An embedded Proxmox VE and Kubernetes, and a demo of pve-autoscaler between them.
#[derive(Debug, Parser)]
#[command(name = "lab", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Watch the real daemon give a Deployment its nodes and take them back; takes under a minute
    Demo {
        /// Leave both clusters and the daemon running at the end, until Ctrl-C, to point kubectl, curl and
        /// the CLI at them
        #[arg(long)]
        keep: bool,
        /// Where configuration, credentials and the daemon's log go; without it a directory that is removed
        /// at the end
        #[arg(long)]
        directory: Option<PathBuf>,
    },
    /// Serve both clusters until Ctrl-C, without a daemon
    Serve {
        /// Where configuration and credentials go
        #[arg(long)]
        directory: PathBuf,
        /// How many hosts Proxmox VE has
        #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(2..=50))]
        hosts: u8,
        /// How many nodes the configuration's pools have at least, whatever pods want
        #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=100))]
        nodes: u32,
    },
    /// Hours of cluster life with faults in seconds, from a seed; the same seed gives the same log
    Simulate(simulate::Wanted),
    /// A day of a cluster's ordinary life in a minute, recorded for `pve-autoscaler simulate`
    Record(record::Wanted),
    /// A storm of pod events, in real time: the daemon's memory and how long its rounds take
    Events(events::Wanted),
    /// Hostile input for something that the daemon reads
    Fuzz(fuzz::Wanted),
    /// The daemon's own command line, so that the demo can run it as a process of its own
    #[command(hide = true)]
    Daemon {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
}

fn main() -> ExitCode {
    let command = Arguments::parse().command;
    let story = match command {
        Command::Daemon { arguments } => return daemon::become_it(arguments),
        Command::Simulate(wanted) => simulate::simulate(&wanted),
        Command::Record(wanted) => record::record(&wanted),
        Command::Events(wanted) => runtime(events::blow(wanted)),
        Command::Fuzz(wanted) => fuzz::fuzz(&wanted),
        Command::Demo { keep, directory } => runtime(story::demo(keep, directory)),
        Command::Serve { directory, hosts, nodes } => runtime(story::serve(directory, hosts, nodes)),
    };
    match story {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nothing is written to a terminal that is gone.
            let _ = writeln!(anstream::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn runtime(story: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    // A second installation changes nothing.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(story)
}
