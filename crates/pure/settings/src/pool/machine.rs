//! What a pool's machines consist of: template, clone, disk, network, users.

use model::{HostKey, Vmid};
use std::fmt;

use serde::Deserialize;
use toml::Spanned;

use super::Written;
use super::network_boot::{self, Boot};
use crate::name_rules;
use crate::one_or_many::{Listed, Scalar};
use crate::region::Place;
use crate::values::Checker;

/// The template that machines are cloned from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TemplateRef {
    /// By its name, which templates on several hosts may share.
    Name(String),
    /// By its VMID.
    Vmid(Vmid),
}

impl fmt::Display for TemplateRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Vmid(vmid) => vmid.fmt(f),
        }
    }
}

/// How a template is cloned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CloneKind {
    /// The disks share the template's blocks. The clone takes seconds, and stays on the template's storage.
    #[default]
    Linked,
    /// The disks are copies.
    Full,
}

/// The size that a machine's disk is grown to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskSize {
    /// The disk, e.g. `scsi0`.
    pub device: String,
    /// The disk's size in bytes.
    pub bytes: i64,
}

/// Minimum memory and minimum disk size of a guest with a kubelet, in bytes.
const LEAST_MEMORY: i64 = 512 << 20;
const LEAST_DISK: i64 = 4 << 30;

pub(super) fn template(pool: &Written, checker: &mut Checker) -> Option<TemplateRef> {
    let name = pool.name.get_ref();
    let Some(written) = &pool.template else {
        if pool.boots_from() == Boot::Network {
            return None;
        }
        let help = "set the template that the pool's machines are cloned from, e.g. `template = \
            \"k8s-worker\"`";
        pool.lacks("template", help, checker);
        return None;
    };
    match written.get_ref() {
        Scalar::Number(number) => {
            let vmid = u32::try_from(*number).ok().filter(|vmid| Vmid::RANGE.contains(vmid)).map(Vmid);
            if vmid.is_none() {
                let title = format!("pool `{name}`: {number} is not a valid VMID for a template");
                checker.wrong(title, written.span(), "must be from 100 to 999999999", "");
            }
            vmid.map(TemplateRef::Vmid)
        }
        Scalar::Text(text) if text.chars().all(|c| c.is_ascii_digit()) && !text.is_empty() => {
            let title = format!("pool `{name}`: `{text}` is not a valid template name");
            let help = format!("if this is a VMID, remove the quotes: `template = {text}`");
            checker.wrong(title, written.span(), "a name contains a letter", &help);
            None
        }
        Scalar::Text(text) if name_rules::is_domain(text) => Some(TemplateRef::Name(text.clone())),
        other => {
            let title = format!("pool `{name}`: `{other}` is not a valid template name");
            checker.wrong(title, written.span(), "expected a VM's name or VMID", "");
            None
        }
    }
}

/// Memory of a machine in bytes.
pub(super) fn memory(pool: &Written, checker: &mut Checker) -> i64 {
    memory_of(pool, &pool.memory, checker)
}

/// Memory of one of the pool's sizes, in bytes. If the pool has neither a template nor network boot
/// (bare-metal machines, or a plan), any amount above zero is valid.
pub(super) fn memory_of(pool: &Written, written: &Spanned<String>, checker: &mut Checker) -> i64 {
    let name = pool.name.get_ref();
    let before = checker.findings.len();
    let memory = checker.size(&format!("pool `{name}`: `memory`"), written);
    if checker.findings.len() > before {
        return memory;
    }
    let at = written.span();
    let of_vm = pool.template.is_some() || pool.boots_from() == Boot::Network;
    if memory == 0 {
        checker.wrong(format!("pool `{name}`: `memory` is zero"), at, "must be more than zero", "");
    } else if of_vm && memory < LEAST_MEMORY {
        let title = format!("pool `{name}`: `memory` is too small for a node");
        checker.wrong(title, at, "must be at least \"512MiB\"", "");
    } else if of_vm && memory % (1 << 20) != 0 {
        let title = format!("pool `{name}`: `memory` is not a whole number of MiB");
        checker.wrong(title, at, "Proxmox VE counts memory in MiB", "");
    }
    memory
}

pub(super) fn disk(pool: &Written, checker: &mut Checker) -> Option<DiskSize> {
    let name = pool.name.get_ref();
    if let Some(device) = pool.disk_device.as_ref() {
        if !is_disk(device.get_ref()) {
            let title = format!("pool `{name}`: `{}` is not a disk", device.get_ref());
            checker.wrong(title, device.span(), "expected e.g. \"scsi0\" or \"virtio0\"", "");
        }
        if pool.disk.is_none() {
            let title = format!("pool `{name}`: `disk_device` without `disk`");
            let help = "set the disk's size, e.g. `disk = \"40GiB\"`";
            checker.wrong(title, device.span(), "has no effect", help);
        }
    }
    let written = pool.disk.as_ref()?;
    let before = checker.findings.len();
    let bytes = checker.size(&format!("pool `{name}`: `disk`"), written);
    if checker.findings.len() == before && bytes < LEAST_DISK {
        let title = format!("pool `{name}`: `disk` is too small for a node");
        let help = "set the size of the entire disk, not the increase";
        checker.wrong(title, written.span(), "must be at least \"4GiB\"", help);
    }
    Some(DiskSize { device: main_disk(pool).to_owned(), bytes })
}

/// The disk that `disk` applies to.
pub(super) fn main_disk(pool: &Written) -> &str {
    let usual = match pool.boots_from() {
        Boot::Template => "scsi0",
        Boot::Network => network_boot::DISK,
    };
    pool.disk_device.as_ref().map_or(usual, |device| device.get_ref())
}

/// Whether the text is a disk's key in a VM's configuration, with a number that Proxmox VE allows.
pub(super) fn is_disk(text: &str) -> bool {
    [("scsi", 30), ("virtio", 15), ("sata", 5), ("ide", 3)].into_iter().any(|(bus, most)| {
        text.strip_prefix(bus).is_some_and(|number| {
            number.parse::<u8>().is_ok_and(|parsed| parsed <= most && parsed.to_string() == number)
        })
    })
}

/// Returns the storages for full clones, and for disks of machines without a template. A linked clone is
/// always on its template's storage: the API refuses any other.
pub(super) fn storages(pool: &Written, checker: &mut Checker) -> Vec<String> {
    let name = pool.name.get_ref();
    let reserve_alone =
        pool.storage_reserve.as_ref().filter(|_| pool.storage.is_none() && pool.extra_disks.is_empty());
    if let Some(reserve) = reserve_alone {
        let title = format!("pool `{name}`: `storage_reserve` without `storage` or `extra_disks`");
        checker.wrong(
            title,
            reserve.span(),
            "has no effect",
            "set `storage` or `extra_disks`, or remove `storage_reserve`",
        );
    }
    let Some(written) = &pool.storage else { return Vec::new() };
    let mut checked: Vec<String> = Vec::new();
    for (storage, at) in Listed::items(written) {
        if !name_rules::is_storage(&storage) {
            let title = format!("pool `{name}`: `{storage}` is not a valid storage name");
            checker.wrong(title, at, "letters, digits, `-`, `_` and `.`", "");
        } else if checked.contains(&storage) {
            checker.wrong(
                format!("pool `{name}`: the storage `{storage}` is listed twice"),
                at,
                "second",
                "remove one of the two",
            );
        }
        checked.push(storage);
    }
    if pool.clone == CloneKind::Linked && pool.boots_from() == Boot::Template {
        let title = format!("pool `{name}`: a linked clone is always on its template's storage");
        let help = "set `clone = \"full\"`, or remove `storage`";
        checker.wrong(title, written.span(), "`storage` applies only to full clones", help);
    }
    checked
}

pub(super) fn user(pool: &Written, checker: &mut Checker) -> Option<String> {
    checker.named(
        pool.user.as_ref(),
        name_rules::is_user,
        |text| format!("pool `{}`: `{text}` is not a valid user name", pool.name.get_ref()),
        "expected at most 32 lower-case letters, digits, `-` and `_`, starting with a letter or `_`",
    )
}

/// Returns the public SSH keys. No message quotes a key, because a user may have entered a private one.
pub(super) fn ssh_keys(pool: &Written, checker: &mut Checker) -> Vec<String> {
    for key in pool.ssh_keys.iter().filter(|key| !name_rules::is_ssh_key(key.get_ref())) {
        let title = format!("pool `{}`: not a public SSH key", pool.name.get_ref());
        let help = "copy the line from the file that ends in `.pub`";
        checker.wrong(title, key.span(), "expected e.g. \"ssh-ed25519 AAAA… me\"", help);
    }
    plain(&pool.ssh_keys)
}

pub(super) fn tags(pool: &Written, checker: &mut Checker) -> Vec<String> {
    for tag in pool.tags.iter().filter(|tag| !name_rules::is_tag(tag.get_ref())) {
        let title = format!("pool `{}`: `{}` is not a valid tag", pool.name.get_ref(), tag.get_ref());
        checker.wrong(title, tag.span(), "letters, digits, `_`, `-`, `+` and `.`", "");
    }
    twice("tag", pool, &pool.tags, checker);
    plain(&pool.tags)
}

pub(super) fn hosts(pool: &Written, at: &Place, checker: &mut Checker) -> Vec<HostKey> {
    for host in &pool.hosts {
        let text = host.get_ref();
        if text.contains('.') || !name_rules::is_domain(text) {
            let title = format!("pool `{}`: `{text}` is not a valid host name", pool.name.get_ref());
            let help = "use the host's name in Proxmox VE, not its address";
            checker.wrong(title, host.span(), "expected e.g. \"pve1\"", help);
        }
    }
    twice("host", pool, &pool.hosts, checker);
    pool.hosts.iter().map(|host| HostKey::new(&at.prefix, host.get_ref())).collect()
}

fn twice(what: &str, pool: &Written, list: &[Spanned<String>], checker: &mut Checker) {
    for (at, one) in list.iter().enumerate() {
        if let Some(first) = list[..at].iter().find(|other| other.get_ref() == one.get_ref()) {
            let title =
                format!("pool `{}`: the {what} `{}` is listed twice", pool.name.get_ref(), one.get_ref());
            checker.clash(title, one.span(), "second", first.span(), "remove one of the two");
        }
    }
}

fn plain(list: &[Spanned<String>]) -> Vec<String> {
    list.iter().map(|one| one.get_ref().clone()).collect()
}
