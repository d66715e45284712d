//! `vm_options` and `extra_disks`: parts of a VM's configuration that no other setting covers.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use toml::Spanned;

use super::{Written as Pool, machine};
use crate::name_rules;
use crate::one_or_many::Scalar;
use crate::values::Checker;

/// Options that a pool may set, each with the privilege that Proxmox VE requires
/// (`check_vm_modify_config_perm`).
const FREE: &[(&str, &str)] = &[
    ("cpu", "VM.Config.CPU"),
    ("cpulimit", "VM.Config.CPU"),
    ("cpuunits", "VM.Config.CPU"),
    ("numa", "VM.Config.CPU"),
    ("acpi", "VM.Config.HWType"),
    ("bios", "VM.Config.Options"),
    ("boot", "VM.Config.Disk"),
    ("vmstatestorage", "VM.Config.Disk"),
    ("keyboard", "VM.Config.Options"),
    ("localtime", "VM.Config.Options"),
    ("ostype", "VM.Config.Options"),
    ("tablet", "VM.Config.HWType"),
    ("hotplug", "VM.Config.HWType"),
    ("machine", "VM.Config.HWType"),
    ("rng0", "VM.Config.HWType"),
    ("scsihw", "VM.Config.HWType"),
    ("serial0", "VM.Config.HWType"),
    ("vga", "VM.Config.HWType"),
    ("watchdog", "VM.Config.HWType"),
    ("hostpci", "VM.Config.HWType"),
];

/// Options that only root may set. Proxmox VE refuses them for API tokens.
const ROOTS: &[&str] = &[
    "affinity",
    "amd-sev",
    "arch",
    "args",
    "hookscript",
    "hugepages",
    "ivshmem",
    "keephugepages",
    "lock",
    "spice_enhancements",
    "vmgenid",
];

/// A disk that a machine has in addition to those of its template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtraDisk {
    /// The disk, e.g. `scsi1`.
    pub device: String,
    /// The disk's size in GiB, the unit in which Proxmox VE allocates disks.
    pub gib: i64,
    /// Its storage.
    pub storage: String,
}

/// One of the `extra_disks` as written in the configuration file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    device: Spanned<String>,
    size: Spanned<String>,
    storage: Spanned<String>,
}

/// The privilege on the VM that is needed to set an option; `None` for an option that a pool may not set.
pub fn privilege(option: &str) -> Option<&'static str> {
    let stem = if option.starts_with("hostpci") { "hostpci" } else { option };
    FREE.iter().find(|(name, _)| *name == stem).map(|(_, privilege)| *privilege)
}

/// Checks the `vm_options` of a pool, and returns them in the format of a VM's configuration.
pub(super) fn options(pool: &Pool, checker: &mut Checker) -> BTreeMap<String, String> {
    free(&format!("pool `{}`", pool.name.get_ref()), &pool.vm_options, checker)
}

/// Checks `vm_options`, and returns them in the format of a VM's configuration. Options that other settings
/// control are not allowed. Each finding begins with `whose`.
pub(crate) fn free(
    whose: &str,
    options: &BTreeMap<Spanned<String>, Spanned<Scalar>>,
    checker: &mut Checker,
) -> BTreeMap<String, String> {
    let mut checked = BTreeMap::new();
    for (key, value) in options {
        let (option, at) = (key.get_ref().as_str(), key.span());
        if ROOTS.contains(&option) {
            let title = format!("{whose}: `{option}` can only be set by root, not with a token");
            let help = match option {
                "affinity" | "hugepages" => "use `[pool.pinning]`",
                _ => "set it in the template: clones inherit it",
            };
            checker.wrong(title, at, "Proxmox VE refuses it", help);
        } else if let Some(ours) = setting(option) {
            let title = format!("{whose}: `{option}` cannot be set in `vm_options`");
            checker.wrong(title, at, "set by other settings", ours);
        } else if privilege(option).is_none() {
            let title = format!("{whose}: a pool cannot set the option `{option}`");
            let known = FREE.iter().map(|(known, _)| *known).collect::<Vec<_>>().join(", ");
            checker.wrong(title, at, "set it in the template", &format!("known options: {known}"));
        }
        let text = match value.get_ref() {
            Scalar::Truth(on) => u8::from(*on).to_string(),
            other => other.to_string(),
        };
        if text.trim().is_empty() || text.contains(['\n', '\r']) {
            let title = format!("{whose}: `{option}` needs a single-line value");
            checker.wrong(title, value.span(), "expected a value", "");
        }
        if option.starts_with("hostpci") && !text.split(',').any(|part| part.starts_with("mapping=")) {
            let title = format!("{whose}: `{option}` names no mapping");
            let help = "create a datacenter resource mapping for the device, and set `mapping=NAME`";
            checker.wrong(title, value.span(), "only root can pass through a device without a mapping", help);
        }
        if option.starts_with("serial") && text != "socket" {
            let title = format!("{whose}: `{option}` uses a device of the host");
            checker.wrong(title, value.span(), "must be \"socket\"", "");
        }
        checked.insert(option.to_owned(), text);
    }
    checked
}

/// Returns what to use instead of an option that `vm_options` does not accept, or why it is not accepted.
fn setting(option: &str) -> Option<&'static str> {
    let stem = option.trim_end_matches(|c: char| c.is_ascii_digit());
    Some(match stem {
        "cores" | "sockets" | "vcpus" | "memory" | "balloon" | "shares" => {
            "use `cores`, `memory` and `sizes`"
        }
        "net" | "ipconfig" | "nameserver" | "searchdomain" => {
            "use `bridge`, `addresses`, `dns`, `search` and `[[pool.network]]`"
        }
        "scsi" | "virtio" | "sata" | "ide" | "efidisk" | "tpmstate" | "unused" => {
            "use `disk` and `extra_disks`"
        }
        "ciuser" | "sshkeys" | "cipassword" | "ciupgrade" | "citype" | "cicustom" => {
            "use `user` and `ssh_keys`"
        }
        "tags" => "use `tags`",
        "name" | "description" | "smbios" | "template" => "remove it: it identifies the machine",
        "agent" | "onboot" | "protection" | "startup" => {
            "remove it: with a different value, machines could no longer be started or removed"
        }
        _ => return None,
    })
}

/// Checks the `extra_disks` of a pool, and returns them.
pub(super) fn disks(pool: &Pool, checker: &mut Checker) -> Vec<ExtraDisk> {
    let name = pool.name.get_ref();
    let mut seen = BTreeSet::from([machine::main_disk(pool)]);
    let mut checked = Vec::new();
    for disk in &pool.extra_disks {
        let device = disk.device.get_ref();
        if !machine::is_disk(device) {
            let title = format!("pool `{name}`: `{device}` is not a disk");
            checker.wrong(title, disk.device.span(), "expected e.g. \"scsi1\" or \"virtio1\"", "");
        }
        if !seen.insert(device) {
            let title = format!("pool `{name}`: the disk `{device}` is listed twice");
            checker.wrong(title, disk.device.span(), "second", "give it a different number");
        }
        let before = checker.findings.len();
        let bytes = checker.size(&format!("pool `{name}`: `size`"), &disk.size);
        if checker.findings.len() == before && (bytes < 1 << 30 || bytes % (1 << 30) != 0) {
            let title = format!("pool `{name}`: the size of `{device}` is not a whole number of GiB");
            checker.wrong(
                title,
                disk.size.span(),
                "expected e.g. \"20GiB\"",
                "Proxmox VE allocates whole GiB",
            );
        }
        let storage = checker.named(
            Some(&disk.storage),
            name_rules::is_storage,
            |text| format!("pool `{name}`: `{text}` is not a valid storage name"),
            "letters, digits, `-`, `_` and `.`",
        );
        let storage = storage.unwrap_or_default();
        checked.push(ExtraDisk { device: device.clone(), gib: bytes >> 30, storage });
    }
    checked
}

#[cfg(test)]
mod tests {
    use crate::{Needs, parse};

    const POOL: &str = "[[pool]]\nname = \"a\"\nmax = 2\ncores = 1\nmemory = \"1GiB\"\n";

    #[test]
    fn options_are_written_as_proxmox_has_them() {
        let text = format!(
            "{POOL}vm_options = {{ cpu = \"host\", numa = true, cpuunits = 200, hostpci0 = \"mapping=gpu,pcie=1\" }}\n"
        );
        let options = parse("c.toml", &text, Needs::Plan).unwrap().pools.remove(0).vm_options;
        let options: Vec<String> = options.iter().map(|(key, value)| format!("{key}={value}")).collect();
        assert_eq!(options, ["cpu=host", "cpuunits=200", "hostpci0=mapping=gpu,pcie=1", "numa=1"]);
    }

    #[test]
    fn dangerous_options_and_wrong_disks_are_refused() {
        for (lines, expected) in [
            ("vm_options = { args = \"-S\" }", "`args` can only be set by root"),
            ("vm_options = { affinity = \"0-3\" }", "use `[pool.pinning]`"),
            ("vm_options = { hookscript = \"x\" }", "set it in the template: clones inherit it"),
            ("vm_options = { hugepages = 2 }", "`hugepages` can only be set by root"),
            ("vm_options = { net1 = \"virtio\" }", "use `bridge`"),
            ("vm_options = { scsi1 = \"a:1\" }", "use `disk` and `extra_disks`"),
            ("vm_options = { memory = 1 }", "use `cores`, `memory` and `sizes`"),
            ("vm_options = { description = \"x\" }", "it identifies the machine"),
            ("vm_options = { smbios1 = \"uuid=1\" }", "it identifies the machine"),
            ("vm_options = { protection = 1 }", "could no longer be started or removed"),
            ("vm_options = { zzz = 1 }", "a pool cannot set the option"),
            ("vm_options = { hostpci0 = \"0000:01:00.0\" }", "names no mapping"),
            ("vm_options = { serial0 = \"/dev/ttyS0\" }", "must be \"socket\""),
            ("vm_options = { cpu = \"\" }", "needs a single-line value"),
            ("extra_disks = [{ device = \"sda\", size = \"1GiB\", storage = \"s\" }]", "`sda` is not a disk"),
            ("extra_disks = [{ device = \"scsi0\", size = \"1GiB\", storage = \"s\" }]", "is listed twice"),
            (
                "extra_disks = [{ device = \"scsi1\", size = \"100MiB\", storage = \"s\" }]",
                "whole number of GiB",
            ),
            (
                "extra_disks = [{ device = \"scsi1\", size = \"1GiB\", storage = \"-\" }]",
                "is not a valid storage name",
            ),
            ("clone = \"full\"\nstorage = [\"aa\", \"aa\"]", "the storage `aa` is listed twice"),
            ("clone = \"full\"\nstorage = \"/x\"", "`/x` is not a valid storage name"),
            ("storage = [\"aa\", \"bb\"]", "`storage` applies only to full clones"),
            ("storage_reserve = \"1GiB\"", "`storage_reserve` without"),
        ] {
            let report = parse("c.toml", &format!("{POOL}{lines}\n"), Needs::Plan).unwrap_err().plain();
            assert!(report.contains(expected), "no {expected:?} in\n{report}");
        }
    }
}
