//! The embedded Proxmox VE and Kubernetes as a program. It serves both over TLS for real clients, and runs
//! the demo, in which the real daemon uses them.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use lab::{daemon, events, fuzz, record, simulate, story};

/// A demo of pve-autoscaler with an embedded Proxmox VE and an embedded Kubernetes.
#[derive(Debug, Parser)]
#[command(name = "lab", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Watch the real daemon create nodes for a Deployment and remove them again, in under a minute
    Demo {
        /// Keep both clusters and the daemon running after the demo, until Ctrl-C, so that kubectl, curl and
        /// the CLI can be tried
        #[arg(long)]
        keep: bool,
        /// Folder for the configuration, credentials and the daemon's log; by default, a temporary folder
        /// that is removed at the end
        #[arg(long)]
        directory: Option<PathBuf>,
    },
    /// Serve both clusters until Ctrl-C, without a daemon
    Serve {
        /// Folder for the configuration and credentials
        #[arg(long)]
        directory: PathBuf,
        /// Number of Proxmox VE hosts
        #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(2..=50))]
        hosts: u8,
        /// Minimum number of nodes in the configuration's pools, even if no pod needs them
        #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=100))]
        nodes: u32,
    },
    /// Simulate hours of cluster life with faults in a few seconds; the same seed gives the same log
    Simulate(simulate::Wanted),
    /// Record a day of ordinary cluster life in a minute, for `pve-autoscaler simulate`
    Record(record::Wanted),
    /// Measure the daemon's memory and the length of its rounds during a storm of pod events, in real time
    Events(events::Wanted),
    /// Try hostile input on one of the daemon's parsers
    Fuzz(fuzz::Wanted),
    /// The daemon's own command line, so that the demo can run it as a separate process
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
            // A failed write is ignored, because the terminal may be gone.
            let _ = writeln!(anstream::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn runtime(story: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    // If a provider is already installed, this call changes nothing.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(story)
}
