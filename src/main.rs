//! The command line of pve-autoscaler.

use std::process::ExitCode;

fn main() -> ExitCode {
    pve_autoscaler::cli::Arguments::read(std::env::args_os()).execute()
}
