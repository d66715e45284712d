//! `migrate`: writes a configuration of another autoscaler's settings. Nothing is asked of any cluster.

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
  kproximate          values of its Helm chart (`helm get values kproximate`); later files say more
  proxmox-autoscaler  settings.py, or the manifest with its ConfigMaps
  kubenodesmith       manifests of NodeSmithPool, NodeSmithProvider and NodeSmithClaim
  karpenter           manifests of NodePool, ProxmoxNodeClass, ProxmoxTemplate and ProxmoxUnmanagedTemplate, and the provider's
                      cloud configuration (`kubectl get -o yaml …` is fine)

The comment before each line says where it comes from and what differs. What only you know is marked FILL IN, settings that are not
known here are listed by name. Secrets are neither copied nor shown: the configuration names files for them. It begins with
`mode = \"observe\"`: run it beside the other one until you agree with what it would do. docs/guides/migration.md has the whole way.";

/// Arguments of `migrate`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(super) struct Arguments {
    /// The autoscaler whose settings they are
    #[arg(value_enum, value_name = "FROM")]
    from: From,
    /// Files with its settings; `-` is standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Write the configuration to this file, which must not be there yet, instead of standard output
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

/// Nothing that is there is overwritten.
fn write_new(path: &Path, text: &str) -> Result<(), Failure> {
    let opened = fs::OpenOptions::new().write(true).create_new(true).mode(0o644).open(path);
    let written = opened.and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()));
    written.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => {
            Failure::NotFound(format!("`{}` is there already, and stays as it is", path.display()))
        }
        _ => Failure::Named(format!("cannot write `{}`", path.display()), error.into()),
    })
}

/// What is left to do, on standard error.
fn tell(migrated: &Migrated, output: Option<&Path>) {
    for name in &migrated.unknown {
        anstream::eprintln!("warning: unknown, so not converted: {}", plain(name));
    }
    for name in &migrated.to_fill {
        anstream::eprintln!("to fill in: {}", plain(name));
    }
    let file = output.map_or("FILE".to_owned(), |path| path.display().to_string());
    anstream::eprintln!("next: pve-autoscaler check --config {}", plain(&file));
}
