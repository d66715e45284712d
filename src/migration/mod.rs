//! Moving over: the settings of another autoscaler for Proxmox VE → a configuration for this daemon, with a
//! remark at each line on where it comes from and what differs.
//!
//! Text in, text out: nothing is read or written here. What holds of every result:
//!
//! * it passes our own parser (`Needs::Plan`): what that refuses is left out, and said;
//! * no setting is dropped without a word: unknown ones are listed by name;
//! * no secret is copied, and no value that is not understood is repeated.

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
    /// What it is called.
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
    /// What messages call it.
    pub name: &'a str,
    /// Its text.
    pub text: &'a str,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migrated {
    /// The configuration.
    pub text: String,
    /// What only the operator knows, as `TABLE: key`.
    pub to_fill: Vec<String>,
    /// Settings of the other one that are not known here, by name.
    pub unknown: Vec<String>,
}

/// Writes a configuration from another autoscaler's settings.
///
/// # Errors
/// One of the files cannot be read, or none holds what it should; the message shows nothing of their text.
pub fn migrate(origin: Origin, files: &[SourceFile<'_>]) -> Result<Migrated, SourceError> {
    let draft = match origin {
        Origin::Kproximate => kproximate::draft(files)?,
        Origin::ProxmoxAutoscaler => proxmox_autoscaler::draft(files)?,
        Origin::KubeNodeSmith => kubenodesmith::draft(files)?,
        Origin::Karpenter => karpenter::draft(files)?,
    };
    Ok(draft.finish(origin))
}
