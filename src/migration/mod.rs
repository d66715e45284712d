//! Migration: converts the settings of another autoscaler for Proxmox VE into a configuration for this
//! daemon. A comment before each line says where the setting comes from and what differs.
//!
//! This module converts text to text, and reads and writes no files. The following applies to every result:
//!
//! * it passes the daemon's own parser (`Needs::Plan`): what the parser refuses is left out and reported;
//! * no setting is dropped silently: unknown ones are listed by name;
//! * no secret is copied, and no unknown value is repeated.

mod draft;
mod helm;
mod join_command;
mod karpenter;
mod kproximate;
mod kubenodesmith;
mod parts;
mod proxmox_autoscaler;
mod python;
mod source;
#[cfg(test)]
mod tests;

pub use source::SourceError;

/// The autoscaler whose settings are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// kproximate: values of its Helm chart.
    Kproximate,
    /// The Python proxmox-autoscaler: its `settings.py`, or the ConfigMap that holds it.
    ProxmoxAutoscaler,
    /// KubeNodeSmith: manifests of its custom resources.
    KubeNodeSmith,
    /// Karpenter with the Proxmox provider: manifests of its custom resources, and its cloud configuration.
    Karpenter,
}

impl Origin {
    /// The autoscaler's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kproximate => "kproximate",
            Self::ProxmoxAutoscaler => "proxmox-autoscaler",
            Self::KubeNodeSmith => "KubeNodeSmith",
            Self::Karpenter => "Karpenter with the Proxmox provider",
        }
    }
}

/// A file of the other autoscaler.
#[derive(Clone, Copy, Debug)]
pub struct SourceFile<'a> {
    /// The file's name, as messages show it.
    pub name: &'a str,
    /// The file's text.
    pub text: &'a str,
}

/// The result of a migration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migrated {
    /// The configuration.
    pub text: String,
    /// Settings that only the operator knows, as `TABLE: key`.
    pub to_fill: Vec<String>,
    /// Unknown settings of the other autoscaler, by name.
    pub unknown: Vec<String>,
}

/// Writes a configuration from another autoscaler's settings.
///
/// # Errors A file is not valid YAML, or no file has the expected content. The message shows no text from the
/// files.
pub fn migrate(origin: Origin, files: &[SourceFile<'_>]) -> Result<Migrated, SourceError> {
    let draft = match origin {
        Origin::Kproximate => kproximate::draft(files)?,
        Origin::ProxmoxAutoscaler => proxmox_autoscaler::draft(files)?,
        Origin::KubeNodeSmith => kubenodesmith::draft(files)?,
        Origin::Karpenter => karpenter::draft(files)?,
    };
    Ok(draft.finish(origin))
}
