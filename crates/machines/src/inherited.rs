//! What a clone inherits from its template: every VM option, and what happens to it in a machine. The table
//! is pure data. It determines how machines are configured, how templates are judged, what `check` reports,
//! and how changed templates are detected.
//!
//! A clone inherits nearly all options (`clone_vm` of qemu-server). An option without a rule in this table
//! would reach all machines unnoticed.

use proxmox::VmConfig;
use proxmox::property::{stem, truth};

/// What happens in a machine to an option from its template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// Each machine gets its own value, if there is one to set.
    Set,
    /// The option is removed from the machine.
    Removed,
    /// Certain values of the option make the template unusable.
    Refused,
    /// The option is kept, and `check` examines the consequences: rights, storages, networks, sizes.
    Checked,
    /// The option is kept.
    Left,
}

impl Rule {
    /// The word for this rule in the docs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Set => "set",
            Self::Removed => "removed",
            Self::Refused => "refused",
            Self::Checked => "checked",
            Self::Left => "untouched",
        }
    }
}

/// The rule for one option.
#[derive(Clone, Copy, Debug)]
pub struct Inherited {
    /// The name of the option; `net[n]` stands for `net0`, `net1` and so on.
    pub option: &'static str,
    /// What happens to the option.
    pub rule: Rule,
    /// Whether a template with a different value for this option is a different template. If so, the machines
    /// of the previous template have drifted.
    pub tells: bool,
    /// A value that has the same effect as an unset option.
    neutral: Option<&'static str>,
    /// The reason for the rule.
    pub why: &'static str,
}

/// A rule for an option that distinguishes templates: a different value makes a different template.
const fn told(option: &'static str, rule: Rule, why: &'static str) -> Inherited {
    Inherited { option, rule, tells: true, neutral: None, why }
}

/// A rule for an option that does not distinguish templates.
const fn own(option: &'static str, rule: Rule, why: &'static str) -> Inherited {
    Inherited { option, rule, tells: false, neutral: None, why }
}

/// A rule for an option that is removed from machines, unless it has the `neutral` value.
const fn removed(option: &'static str, neutral: Option<&'static str>, why: &'static str) -> Inherited {
    Inherited { option, rule: Rule::Removed, tells: false, neutral, why }
}

const NOT_CLONED: &str = "not copied to clones";
const AS_HARDWARE: &str = "hardware is unchanged from the template";
const FOR_ROOT: &str = "only root may change it, so a clone keeps it";

/// Every option, sorted by name.
pub const ALL: &[Inherited] = &[
    told("acpi", Rule::Left, AS_HARDWARE),
    told(
        "affinity",
        Rule::Checked,
        "only root may set it; every machine would run on the same CPUs of its host, which `check` reports",
    ),
    told("agent", Rule::Refused, "some pools need the guest agent to run programs in machines"),
    told("allow-ksm", Rule::Left, "the template decides whether machines share memory with other VMs (KSM)"),
    told("amd-sev", Rule::Left, FOR_ROOT),
    told("arch", Rule::Left, FOR_ROOT),
    told("args", Rule::Left, FOR_ROOT),
    told("audio0", Rule::Left, AS_HARDWARE),
    own("autostart", Rule::Left, "Proxmox VE ignores it"),
    own(
        "balloon",
        Rule::Set,
        "0, because a kubelet reports the memory only once, and a balloon would later take some of it \
            back",
    ),
    told("bios", Rule::Left, "`vm_options` overrides it"),
    told("boot", Rule::Left, "`vm_options` overrides it"),
    told("bootdisk", Rule::Left, "an older form of `boot`"),
    told(
        "cicustom",
        Rule::Checked,
        "its entry `network` is removed if the pool assigns addresses, because otherwise all machines \
            would have the same network configuration; `check` reports which settings have no effect \
            because of its entry `user`, and which hosts lack the storage of the files",
    ),
    told("cipassword", Rule::Left, "the template's password works on every machine"),
    told("citype", Rule::Left, "the format of the data that the guest reads"),
    own(
        "ciupgrade",
        Rule::Set,
        "0, because upgrading all packages at the first boot takes minutes and sometimes fails",
    ),
    told("ciuser", Rule::Set, "the pool's `user`, if set"),
    own("cores", Rule::Set, "the machine's size"),
    told("cpu", Rule::Checked, "a custom model needs `Mapping.Use` on `/mapping/cpu/NAME`"),
    told(
        "cpulimit",
        Rule::Checked,
        "a limit below the machine's cores lets the Node offer more CPU than the machine has, which `check` reports",
    ),
    told("cpuunits", Rule::Left, "`vm_options` overrides it"),
    own("description", Rule::Set, "the machine's mark"),
    own("digest", Rule::Left, "identifies this state of the configuration"),
    told("efidisk0", Rule::Checked, "copied or linked, like disks"),
    removed("freeze", Some("0"), "the machine would start with its CPUs stopped"),
    told(
        "hookscript",
        Rule::Checked,
        "only root may set it; every host must have the script's storage, which `check` verifies",
    ),
    told(
        "hostpci[n]",
        Rule::Refused,
        "a token may not clone a device that is not a mapping; a mapping needs `Mapping.Use` on \
         `/mapping/pci/NAME`",
    ),
    told("hotplug", Rule::Left, "`[pool.grow]` and `vm_options` override it"),
    told(
        "hugepages",
        Rule::Checked,
        "only root may set it; a machine's memory has to be a multiple of the page size, which `check` \
         verifies",
    ),
    told(
        "ide[n]",
        Rule::Checked,
        "copied or linked; `check` verifies the rights on the disk's storage; backups omit the disk",
    ),
    told("intel-tdx", Rule::Left, FOR_ROOT),
    told(
        "ipconfig[n]",
        Rule::Set,
        "the slot's addresses; a static address that the pool does not set is removed, because otherwise all machines would have it",
    ),
    told("ivshmem", Rule::Left, FOR_ROOT),
    told("keephugepages", Rule::Left, FOR_ROOT),
    told("keyboard", Rule::Left, AS_HARDWARE),
    told("kvm", Rule::Checked, "if it is 0, machines are emulated and slow, which `check` reports"),
    told("localtime", Rule::Left, AS_HARDWARE),
    own("lock", Rule::Checked, "a locked template cannot be cloned, which `check` reports"),
    told("machine", Rule::Left, "`vm_options` overrides it"),
    own("memory", Rule::Set, "the machine's size"),
    told("meta", Rule::Left, "records when and with which versions the template was created"),
    told("migrate_downtime", Rule::Left, "the template decides how machines are migrated"),
    told("migrate_speed", Rule::Left, "the template decides how machines are migrated"),
    own("name", Rule::Set, "the Node's name"),
    told("nameserver", Rule::Set, "the pool's `dns`, if set"),
    told(
        "net[n]",
        Rule::Checked,
        "a machine gets a new MAC address, and its link is up; the pool sets the bridge, VLAN and \
            similar options; the token needs `SDN.Use` on every bridge of the template",
    ),
    told("numa", Rule::Left, "`[pool.grow]`, `[pool.pinning]` and `vm_options` override it"),
    removed(
        "numa[n]",
        None,
        "it divides the template's memory; a machine of a different size would not start",
    ),
    own("onboot", Rule::Set, "a machine starts with its host, unless it is kept stopped"),
    told("ostype", Rule::Left, "`vm_options` overrides it"),
    told(
        "parallel[n]",
        Rule::Checked,
        "a device of the host that only one machine could use, which `check` reports",
    ),
    own("parent", Rule::Left, NOT_CLONED),
    removed("protection", Some("0"), "the machine could never be destroyed"),
    removed("reboot", Some("1"), "a guest that reboots would stay off"),
    told(
        "rng0",
        Rule::Checked,
        "the host's hardware random number generator needs `Mapping.Use` on \
        `/mapping/hwrng`",
    ),
    own("running-nets-host-mtu", Rule::Left, NOT_CLONED),
    own("runningcpu", Rule::Left, NOT_CLONED),
    own("runningmachine", Rule::Left, NOT_CLONED),
    told(
        "sata[n]",
        Rule::Checked,
        "copied or linked; `check` verifies the rights on the disk's storage; backups omit the disk",
    ),
    told(
        "scsi[n]",
        Rule::Checked,
        "copied or linked; `check` verifies the rights on the disk's storage; backups omit the disk",
    ),
    told("scsihw", Rule::Left, "`vm_options` overrides it"),
    told("searchdomain", Rule::Set, "the pool's `search`, if set"),
    told(
        "serial[n]",
        Rule::Checked,
        "several machines would want the same device of the host, which `check` reports",
    ),
    own("shares", Rule::Left, "has no effect without a balloon"),
    told(
        "smbios1",
        Rule::Left,
        "a clone gets its own uuid; the other values are unchanged from the \
        template",
    ),
    removed("smp", Some("1"), "an older form of `sockets`, which would multiply the cores"),
    own("snaptime", Rule::Left, NOT_CLONED),
    own("sockets", Rule::Set, "1, because `cores` alone sets the number of CPUs"),
    told("spice_enhancements", Rule::Left, FOR_ROOT),
    told("sshkeys", Rule::Set, "the pool's `ssh_keys`, if set"),
    removed(
        "startdate",
        Some("now"),
        "the clock would start on that date, and certificates would not be valid",
    ),
    own("startup", Rule::Left, "the template decides the order in which a host starts its VMs"),
    told("tablet", Rule::Left, AS_HARDWARE),
    own(
        "tags",
        Rule::Set,
        "the pool's `tags` and the daemon's own tags; the template's tags are removed if the token is \
            permitted to change them",
    ),
    told("tdf", Rule::Left, AS_HARDWARE),
    own("template", Rule::Left, NOT_CLONED),
    told("tpmstate0", Rule::Checked, "always copied in full"),
    own("unused[n]", Rule::Left, NOT_CLONED),
    told(
        "usb[n]",
        Rule::Refused,
        "a token may not clone a device that is neither a mapping nor SPICE; a mapping needs `Mapping.Use` on `/mapping/usb/NAME`",
    ),
    removed(
        "vcpus",
        Some("0"),
        "the machine would start with fewer CPUs than its size, or not at all; `[pool.grow]` sets this \
            option",
    ),
    told("vga", Rule::Left, "`vm_options` overrides it"),
    told(
        "virtio[n]",
        Rule::Checked,
        "copied or linked; `check` verifies the rights on the disk's storage; backups omit the disk",
    ),
    told("virtiofs[n]", Rule::Checked, "needs `Mapping.Use` on `/mapping/dir/NAME`"),
    told("vmgenid", Rule::Left, "a clone gets its own generation id"),
    own("vmstate", Rule::Left, NOT_CLONED),
    told("vmstatestorage", Rule::Checked, "needs `Datastore.AllocateSpace` on that storage"),
    told("watchdog", Rule::Left, "`vm_options` overrides it"),
];

/// The rule for an option, by its key in a configuration.
pub fn rule(key: &str) -> Option<&'static Inherited> {
    let numbered = stem(key);
    let pattern = |one: &&Inherited| one.option.strip_suffix("[n]") == Some(numbered);
    let exact = ALL.iter().find(|one| one.option == key);
    exact.or_else(|| ALL.iter().filter(|_| numbered != key).find(pattern))
}

/// Whether a template with a different value for this option is a different template. An unknown option has
/// no rule and distinguishes templates, too.
pub(super) fn tells(key: &str) -> bool {
    rule(key).is_none_or(|one| one.tells)
}

/// The options that have to be removed from a machine, because their value has an effect.
pub(super) fn removable(config: &VmConfig) -> impl Iterator<Item = &str> {
    let there = config.all().filter(|(key, value)| {
        rule(key).is_some_and(|one| {
            one.rule == Rule::Removed && one.neutral.is_none_or(|neutral| !same(value, neutral))
        })
    });
    there.map(|(key, _)| key)
}

/// Whether two values have the same meaning: flags can be written in several ways.
fn same(value: &str, other: &str) -> bool {
    value == other || (truth(value).is_some() && truth(value) == truth(other))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use serde_json::Value;

    use super::*;

    /// Parameters of API calls that are not options of a VM.
    const ORDERS: [&str; 10] = [
        "background_delay",
        "cdrom",
        "delete",
        "force",
        "import-working-storage",
        "node",
        "revert",
        "skip_cloud_init",
        "skiplock",
        "vmid",
    ];

    /// The options in the API schema of a release: those that can be set, and those that are returned.
    fn options(schema: &Value) -> BTreeSet<String> {
        fn find<'v>(nodes: &'v [Value], path: &str) -> Option<&'v Value> {
            nodes.iter().find_map(|node| {
                if node["path"] == path {
                    return Some(node);
                }
                find(node["children"].as_array()?, path)
            })
        }
        let tree = schema.as_array().or_else(|| schema["tree"].as_array()).unwrap();
        let config = &find(tree, "/nodes/{node}/qemu/{vmid}/config").unwrap()["info"];
        let properties = [
            &config["PUT"]["parameters"]["properties"],
            &config["POST"]["parameters"]["properties"],
            &config["GET"]["returns"]["properties"],
        ];
        properties.into_iter().filter_map(Value::as_object).flat_map(|all| all.keys().cloned()).collect()
    }

    #[test]
    fn every_option_of_both_releases_has_a_rule() {
        for release in ["8.4", "9.2"] {
            let file = Path::new(env!("CARGO_MANIFEST_DIR"))
                .join(format!("../../../shared/pve/apidoc-{release}.json"));
            let Ok(text) = std::fs::read_to_string(&file) else {
                eprintln!("skipped: {} does not exist", file.display());
                return;
            };
            let all = options(&serde_json::from_str(&text).unwrap());
            assert!(all.len() > 80, "{release}: {}", all.len());
            let without: Vec<&String> = all
                .iter()
                .filter(|option| !ORDERS.contains(&option.as_str()))
                .filter(|option| !ALL.iter().any(|one| one.option == option.as_str()))
                .collect();
            assert!(without.is_empty(), "{release}: no rule for {without:?}");
        }
    }

    #[test]
    fn options_are_there_once_and_in_order_each_with_a_reason() {
        assert!(ALL.is_sorted_by(|one, next| one.option < next.option));
        assert!(ALL.iter().all(|one| !one.why.is_empty()));
    }

    #[test]
    fn numbered_options_have_the_rule_of_their_pattern() {
        for (key, expected) in [
            ("net0", Some("net[n]")),
            ("net31", Some("net[n]")),
            ("numa", Some("numa")),
            ("numa0", Some("numa[n]")),
            ("virtiofs3", Some("virtiofs[n]")),
            ("tpmstate0", Some("tpmstate0")),
            ("net", None),
            ("something", None),
        ] {
            assert_eq!(rule(key).map(|one| one.option), expected, "{key}");
        }
    }

    #[test]
    fn what_means_nothing_need_not_be_removed() {
        let config: VmConfig = [
            ("protection", "1"),
            ("freeze", "0"),
            ("vcpus", "2"),
            ("reboot", "yes"),
            ("numa0", "cpus=0-1,memory=1024"),
            ("startdate", "now"),
            ("smp", "4"),
            ("cores", "2"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into_iter()
        .collect();
        assert_eq!(removable(&config).collect::<Vec<_>>(), ["numa0", "protection", "smp", "vcpus"]);
    }
}
