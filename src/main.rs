//! The command line of pve-autoscaler.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    pve_autoscaler::cli::Arguments::parse().execute()
}
