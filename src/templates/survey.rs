//! The steps that make a template match its description. This module makes no calls.

use std::fmt::Write as _;

use model::Vmid;
use sha2::{Digest, Sha256};

use super::mark::TemplateMark;
use proxmox::VmConfig;
use settings::Template;

/// A VM that bears a template's mark or has a template's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its VMID.
    pub vmid: Vmid,
    /// The host that the VM is on.
    pub host: String,
    /// Its configuration.
    pub config: VmConfig,
    /// The VM's mark; `None` for an unmanaged VM that only has the template's name.
    pub mark: Option<TemplateMark>,
}

/// A place for one VM of a template: one host, or any host if the storage is shared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The host on which the VM is created.
    pub host: String,
    /// All hosts of the place. An existing VM on any of them is sufficient.
    pub hosts: Vec<String>,
}

/// A step of creating or replacing a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The VM matches the description and is kept.
    Keep(Vmid, String),
    /// A new VM is created on this host.
    Make(String, TemplateMark),
    /// The VM's creation was interrupted, and has to be finished.
    Finish(Vmid, String, TemplateMark),
    /// The VM is complete, and gets the name that pools use.
    Serve(Vmid, String, TemplateMark),
    /// A replaced version gives up the name. The next run destroys the VM if no clone needs it.
    Aside(Vmid, String, TemplateMark),
    /// A version that was replaced earlier is destroyed, if no clone needs it.
    Destroy(Vmid, String, TemplateMark),
    /// An administrator has to fix something: the problem, and what to do.
    Blocked(String, String),
}

/// The version of a template: a digest of the settings that determine its VM.
pub fn version(template: &Template) -> String {
    let checksum = &template.image.checksum;
    let parts = [
        format!("{}:{} {}", checksum.algorithm, checksum.digest, template.image.format),
        format!("{} {:?} {} {}", template.storage, template.disk, template.cores, template.memory),
        format!("{} {:?} {}", template.bridge, template.vlan, template.serial),
        format!("{:?} {}", template.vm_options, template.version),
    ];
    let digest = Sha256::digest(parts.join("\n"));
    digest.iter().take(4).fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The steps for all places, in order. With `force` the template is replaced even if nothing has changed.
pub fn steps(
    template: &Template,
    cluster: &str,
    places: &[Place],
    found: &[Found],
    force: bool,
) -> Vec<Step> {
    let foreign: Vec<Step> = found.iter().filter(|one| one.mark.is_none()).map(namesake).collect();
    if !foreign.is_empty() {
        return foreign;
    }
    places.iter().flat_map(|place| steps_at(template, cluster, place, found, force)).collect()
}

/// Reports an unmanaged template that a pool could clone instead of this one.
fn namesake(found: &Found) -> Step {
    let (vmid, name) = (found.vmid, found.config.get("name").unwrap_or_default());
    let what = format!(
        "there is a template {name} ({vmid} on {}) that was not created by `pve-autoscaler template`",
        found.host
    );
    let help = format!(
        "that template is left alone: rename it (`qm set {vmid} --name OTHER`), or change the name in `[[template]]`"
    );
    Step::Blocked(what, help)
}

fn steps_at(template: &Template, cluster: &str, place: &Place, found: &[Found], force: bool) -> Vec<Step> {
    let wanted = version(template);
    let here: Vec<(&Found, &TemplateMark)> = found
        .iter()
        .filter(|one| place.hosts.contains(&one.host))
        .filter_map(|one| Some((one, one.mark.as_ref()?)))
        .collect();
    let doubtful: Vec<Step> =
        here.iter().filter(|one| is_doubtful(one, &here)).map(|one| doubt(one.0)).collect();
    if !doubtful.is_empty() {
        return doubtful;
    }
    let serves = |one: &Found| one.config.is_template() && one.config.get("name") == Some(&template.name);
    let of_version = || here.iter().filter(|(_, mark)| mark.version == wanted);
    let turn = if force {
        of_version().filter(|(one, _)| serves(one)).map(|(_, mark)| mark.turn).max().unwrap_or(0) + 1
    } else {
        of_version().map(|(_, mark)| mark.turn).max().unwrap_or(1)
    };
    let target = of_version().find(|(_, mark)| mark.turn == turn);
    let mut steps = Vec::new();
    match target {
        None => {
            let mark = TemplateMark {
                cluster: cluster.to_owned(),
                template: template.name.clone(),
                version: wanted.clone(),
                turn,
                vmid: None,
            };
            steps.push(Step::Make(place.host.clone(), mark));
        }
        Some((one, mark)) => {
            let (vmid, host) = (one.vmid, one.host.clone());
            steps.push(match one.config.lock() {
                Some(lock) => locked(one, lock),
                None if serves(one) => Step::Keep(vmid, host),
                None if one.config.is_template() => Step::Serve(vmid, host, (*mark).clone()),
                None => Step::Finish(vmid, host, (*mark).clone()),
            });
        }
    }
    if steps.iter().any(|step| matches!(step, Step::Blocked(..))) {
        return steps;
    }
    let others = here.iter().filter(|(one, _)| target.is_none_or(|(target, _)| target.vmid != one.vmid));
    for (one, mark) in others {
        let (vmid, host) = (one.vmid, one.host.clone());
        steps.push(match one.config.lock() {
            Some(lock) => locked(one, lock),
            None if serves(one) => Step::Aside(vmid, host, (*mark).clone()),
            None => Step::Destroy(vmid, host, (*mark).clone()),
        });
    }
    steps
}

/// Whether a VM may be a clone made by hand that inherited its mark. This is the case if the mark has no
/// VMID, and either another VM bears the same mark or the VM has none of the template's names.
fn is_doubtful((one, mark): &(&Found, &TemplateMark), all: &[(&Found, &TemplateMark)]) -> bool {
    let same = |other: &TemplateMark| (&other.version, other.turn) == (&mark.version, mark.turn);
    let twin = || all.iter().any(|(other, own)| other.vmid != one.vmid && same(own));
    mark.vmid.is_none() && (twin() || !mark.may_be_of(one.vmid, one.config.get("name")))
}

fn doubt(found: &Found) -> Step {
    let (vmid, host) = (found.vmid, &found.host);
    let name = found.config.get("name").unwrap_or("?");
    let what = format!(
        "VM {vmid} ({name}) on {host} may be the template or a clone of the template: the VM's \
            mark names no VMID"
    );
    let help = "the VM is not changed. If it is a clone of the template, remove the first line of its description, which is the template's mark".to_owned();
    Step::Blocked(what, help)
}

fn locked(found: &Found, lock: &str) -> Step {
    let what = format!("VM {} on {} is locked ({lock})", found.vmid, found.host);
    let help = format!("check which task holds the lock; `qm unlock {}` removes a stale lock", found.vmid);
    Step::Blocked(what, help)
}
