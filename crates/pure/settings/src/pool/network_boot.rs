//! `boot = "network"` of a pool: machines that boot from the network, without a template.

use serde::Deserialize;
use toml::Spanned;

use super::machine::DiskSize;
use super::{CloudInit, Pool, Written};
use crate::values::Checker;

/// What a pool's machines boot from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Boot {
    /// A clone of the pool's template.
    #[default]
    Template,
    /// The network, through the first network device. The VM is created without a template, with an empty
    /// disk if the pool sets a size.
    Network,
}

impl Boot {
    /// Returns the name used in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Template => "template",
            Self::Network => "network",
        }
    }
}

/// The default disk of a machine without a template. Unlike a fast SCSI disk, it needs no `scsihw`, which
/// requires the privilege `VM.Config.HWType`.
pub(super) const DISK: &str = "virtio0";

/// Checks the settings of a pool whose machines boot from the network. Reports missing settings that are
/// needed without a template, and settings that cannot be passed to these machines.
pub(super) fn check(written: &Written, pool: &Pool, checker: &mut Checker) {
    let Some(boot) = written.boot.as_ref().filter(|boot| *boot.get_ref() == Boot::Network) else { return };
    let name = &pool.name;
    if let Some(template) = &written.template {
        let title = format!("pool `{name}`: machines that boot from the network use no template");
        checker.clash(title, template.span(), "not used", boot.span(), "remove one of the two");
    }
    if written.bridge.is_none() {
        let title = format!("pool `{name}`: `bridge` is missing");
        let help = "set `bridge`: without a template, the first network device has no default bridge";
        checker.wrong(title, boot.span(), "the network to boot from is unknown", help);
    }
    if let Some(disk) = &written.disk {
        whole(name, disk, pool.disk.as_ref(), checker);
        if written.storage.is_none() {
            let title = format!("pool `{name}`: `storage` is missing");
            let help = "set one or more storages: the daemon uses the one with the most free space";
            checker.wrong(title, disk.span(), "on which storage?", help);
        }
    } else if let Some(storage) = &written.storage {
        let title = format!("pool `{name}`: `storage` without `disk`");
        let help = "set the disk's size with `disk`, or remove `storage` if the machines need no disk";
        checker.wrong(title, storage.span(), "has no effect", help);
    }
    if pool.cloud_init == CloudInit::Drive && pool.tells_guests() {
        let title = format!(
            "pool `{name}`: the daemon cannot pass addresses, users or keys to the \
            machines"
        );
        let help = "set `addresses = \"dhcp\"`, or `method = \"seed\"` in `[pool.cloud_init]`";
        checker.wrong(
            title,
            boot.span(),
            "machines that boot from the network have no cloud-init drive",
            help,
        );
    }
}

fn whole(name: &str, written: &Spanned<String>, disk: Option<&DiskSize>, checker: &mut Checker) {
    if disk.is_some_and(|disk| disk.bytes % (1 << 30) != 0) {
        let title = format!("pool `{name}`: the disk size is not a whole number of GiB");
        let help = "Proxmox VE allocates whole GiB";
        checker.wrong(title, written.span(), "expected e.g. \"20GiB\"", help);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Needs, parse};

    const POOL: &str = "[[pool]]\nname = \"w\"\nmax = 1\ncores = 2\nmemory = \"4GiB\"\nvmids = \"9100\"\nboot = \"network\"\n";

    #[test]
    fn a_pool_without_template_says_what_its_machines_are_made_of() {
        let text = format!(
            "{POOL}addresses = \"dhcp\"\nbridge = \"vmbr0\"\ndisk = \"16GiB\"\nstorage = [\"a1\", \"b1\"]\n"
        );
        let pool = parse("c.toml", &text, Needs::Plan).unwrap().pools.remove(0);
        assert_eq!(pool.boot, Boot::Network);
        assert_eq!(pool.disk, Some(DiskSize { device: "virtio0".to_owned(), bytes: 16 << 30 }));
        assert_eq!(pool.storages, ["a1", "b1"]);
        assert_eq!(pool.made_of()["boot"], "network");
        let diskless = format!("{POOL}addresses = \"dhcp\"\nbridge = \"vmbr0\"\n");
        assert_eq!(parse("c.toml", &diskless, Needs::Plan).unwrap().pools[0].disk, None);
    }

    #[test]
    fn what_such_machines_lack_is_told() {
        let static_address = "addresses = \"10.0.0.1\"\nprefix = 24\nbridge = \"vmbr0\"\n";
        for (lines, expected) in [
            ("addresses = \"dhcp\"\n", "`bridge` is missing"),
            (&format!("{static_address}template = 9000\n"), "use no template"),
            (static_address, "the daemon cannot pass addresses"),
            ("addresses = \"dhcp\"\nbridge = \"vmbr0\"\ndisk = \"16GiB\"\n", "`storage` is missing"),
            ("addresses = \"dhcp\"\nbridge = \"vmbr0\"\nstorage = \"a1\"\n", "`storage` without `disk`"),
            (
                "addresses = \"dhcp\"\nbridge = \"vmbr0\"\ndisk = \"4500MiB\"\nstorage = \"a1\"\n",
                "not a whole number of GiB",
            ),
        ] {
            let report = parse("c.toml", &format!("{POOL}{lines}"), Needs::Plan).unwrap_err().plain();
            assert!(report.contains(expected), "no {expected:?} in\n{report}");
        }
        for (memory, expected) in
            [("256MiB", "`memory` is too small"), ("1073741825", "not a whole number of MiB")]
        {
            for size in [
                POOL.replace("4GiB", memory),
                format!("{POOL}sizes = [{{ cores = 1, memory = \"{memory}\" }}]\n"),
            ] {
                let text = format!("{size}addresses = \"dhcp\"\nbridge = \"vmbr0\"\n");
                let report = parse("c.toml", &text, Needs::Plan).unwrap_err().plain();
                assert!(report.contains(expected), "no {expected:?} in\n{report}");
            }
        }
        let seed =
            "[pool.cloud_init]\nmethod = \"seed\"\nstorage = \"local\"\nuser_data = \"#cloud-config\\n\"\n";
        assert!(parse("c.toml", &format!("{POOL}{static_address}{seed}"), Needs::Plan).is_ok());
    }
}
