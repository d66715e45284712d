//! `migrate`: converts another autoscaler's settings into a configuration. No cluster is contacted.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use super::exit::{Failure, SUCCESS};
use super::input;
use super::table::plain;
use crate::migration::{self, Migrated, Origin, SourceFile};

const HELP: &str = "\
Sources
  kproximate          values of its Helm chart (`helm get values kproximate`); later files override earlier ones
  proxmox-autoscaler  settings.py, or the manifest with its ConfigMaps
  kubenodesmith       manifests of NodeSmithPool, NodeSmithProvider and NodeSmithClaim
  karpenter           manifests of NodePool, ProxmoxNodeClass, ProxmoxTemplate and ProxmoxUnmanagedTemplate, and the provider's
                      cloud configuration (`kubectl get -o yaml …` is fine)

In the result, the comment before each line says where the setting comes from and what differs. Values that only you know are
marked FILL IN, and unknown settings are listed by name. Secrets are neither copied nor shown: the configuration names files for
them. The configuration begins with `mode = \"observe\"`: run the daemon beside the other autoscaler until you agree with the
daemon's decisions. docs/guides/migration.md describes every step.";

/// Arguments of `migrate`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(super) struct Arguments {
    /// The autoscaler whose settings are converted
    #[arg(value_enum, value_name = "FROM")]
    from: From,
    /// Files with that autoscaler's settings, or `-` for standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Write the configuration to this file, which must not exist yet (default: standard output)
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum From {
    /// kproximate
    Kproximate,
    /// The Python proxmox-autoscaler
    ProxmoxAutoscaler,
    /// KubeNodeSmith
    Kubenodesmith,
    /// Karpenter with the Proxmox provider
    Karpenter,
}

pub(super) fn run(arguments: &Arguments) -> Result<u8, Failure> {
    let origin = match arguments.from {
        From::Kproximate => Origin::Kproximate,
        From::ProxmoxAutoscaler => Origin::ProxmoxAutoscaler,
        From::Kubenodesmith => Origin::KubeNodeSmith,
        From::Karpenter => Origin::Karpenter,
    };
    let texts = arguments.files.iter().map(|path| read(path)).collect::<Result<Vec<_>, _>>()?;
    let names: Vec<_> = arguments.files.iter().map(|path| path.display().to_string()).collect();
    let files: Vec<_> = names.iter().zip(&texts).map(|(name, text)| SourceFile { name, text }).collect();
    let migrated = migration::migrate(origin, &files)
        .map_err(|error| Failure::Named(format!("settings of {}", origin.name()), error.into()))?;
    match &arguments.output {
        Some(path) => write_new(path, &migrated.text)?,
        None => input::text(&migrated.text)?,
    }
    tell(&migrated, arguments.output.as_deref());
    Ok(SUCCESS)
}

fn read(path: &Path) -> Result<String, Failure> {
    let text = if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        fs::read_to_string(path)
    };
    text.map_err(|error| Failure::Named(format!("cannot read `{}`", path.display()), error.into()))
}

/// Creates a file. Returns an error if the file already exists.
fn write_new(path: &Path, text: &str) -> Result<(), Failure> {
    let opened = fs::OpenOptions::new().write(true).create_new(true).mode(0o644).open(path);
    let written = opened.and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()));
    written.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => {
            Failure::NotFound(format!("`{}` already exists and is not overwritten", path.display()))
        }
        _ => Failure::Named(format!("cannot write `{}`", path.display()), error.into()),
    })
}

/// Prints the remaining tasks on standard error.
fn tell(migrated: &Migrated, output: Option<&Path>) {
    for name in &migrated.unknown {
        anstream::eprintln!("warning: unknown setting, not converted: {}", plain(name));
    }
    for name in &migrated.to_fill {
        anstream::eprintln!("to fill in: {}", plain(name));
    }
    let file = output.map_or("FILE".to_owned(), |path| path.display().to_string());
    anstream::eprintln!("next: pve-autoscaler check --config {}", plain(&file));
}
