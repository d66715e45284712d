//! What a clone inherits of its template: every option that a VM can have, and what becomes of it in a
//! machine. Pure data; what a machine is configured with, how templates are judged, what `check` says and
//! what counts as a changed template are made from it.
//!
//! A clone gets every option but a few (`clone_vm` of qemu-server): what no rule covers here would be in all
//! machines without a decision.

use proxmox::VmConfig;
use proxmox::property::{stem, truth};

/// What becomes of an option of the template in a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// Each machine gets a value of its own, if there is one to set.
    Set,
    /// The machine does not keep it.
    Removed,
    /// No machine can be made of a template with certain values of it.
    Refused,
    /// It stays as it is in the template, and `check` looks at what follows from it: rights, storages,
    /// networks, sizes.
    Asked,
    /// It stays as it is in the template.
    Left,
}

impl Rule {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Set => "set",
            Self::Removed => "removed",
            Self::Refused => "refused",
            Self::Asked => "asked",
            Self::Left => "left",
        }
    }
}

/// The rule for one option.
#[derive(Clone, Copy, Debug)]
pub struct Inherited {
    /// Its name; `net[n]` stands for `net0`, `net1` and so on.
    pub option: &'static str,
    /// What becomes of it.
    pub rule: Rule,
    /// Whether a template with another value of it is another template, so that machines of the one before
    /// have drifted.
    pub tells: bool,
    /// A value that means as much as its absence.
    neutral: Option<&'static str>,
    /// Why.
    pub why: &'static str,
}

/// A rule for an option of which another value makes another template.
const fn told(option: &'static str, rule: Rule, why: &'static str) -> Inherited {
    Inherited { option, rule, tells: true, neutral: None, why }
}

/// A rule for an option that says nothing of what its clones are like.
const fn own(option: &'static str, rule: Rule, why: &'static str) -> Inherited {
    Inherited { option, rule, tells: false, neutral: None, why }
}

/// A rule for an option that machines do not keep, unless it has this value.
const fn removed(option: &'static str, neutral: Option<&'static str>, why: &'static str) -> Inherited {
    Inherited { option, rule: Rule::Removed, tells: false, neutral, why }
}

const NOT_CLONED: &str = "a clone does not get it";
const AS_HARDWARE: &str = "the hardware is the template's";
const FOR_ROOT: &str = "only root may set it, so a clone keeps it";

/// Every option, in the order of their names.
pub const ALL: &[Inherited] = &[
    told("acpi", Rule::Left, AS_HARDWARE),
    told(
        "affinity",
        Rule::Asked,
        "only root may set it; every machine would run on the same CPUs of its host, which `check` says",
    ),
    told(
        "agent",
        Rule::Refused,
        "without the guest agent no program can be run in the machine, which some pools need",
    ),
    told("allow-ksm", Rule::Left, "whether its memory is shared with others is the template's"),
    told("amd-sev", Rule::Left, FOR_ROOT),
    told("arch", Rule::Left, FOR_ROOT),
    told("args", Rule::Left, FOR_ROOT),
    told("audio0", Rule::Left, AS_HARDWARE),
    own("autostart", Rule::Left, "Proxmox VE ignores it"),
    own("balloon", Rule::Set, "0: a kubelet reports its memory once, and a balloon would take some back"),
    told("bios", Rule::Left, "`vm_options` sets another"),
    told("boot", Rule::Left, "`vm_options` sets another"),
    told("bootdisk", Rule::Left, "an older form of `boot`"),
    told(
        "cicustom",
        Rule::Asked,
        "`network` is removed if the pool gives addresses: all machines would have one; `check` says what `user` replaces, and where its storage is missing",
    ),
    told("cipassword", Rule::Left, "the template's password, for anyone who has it"),
    told("citype", Rule::Left, "what kind of data the guest reads"),
    own(
        "ciupgrade",
        Rule::Set,
        "0: an upgrade of all packages at the first boot takes minutes, and fails now and then",
    ),
    told("ciuser", Rule::Set, "`user` of the pool, if it has one"),
    own("cores", Rule::Set, "the machine's size"),
    told("cpu", Rule::Asked, "a custom model needs `Mapping.Use` on `/mapping/cpu/NAME`"),
    told(
        "cpulimit",
        Rule::Asked,
        "a limit below the machine's cores makes its Node promise more than it has, which `check` says",
    ),
    told("cpuunits", Rule::Left, "`vm_options` sets another"),
    own("description", Rule::Set, "whose machine it is"),
    own("digest", Rule::Left, "says which state of the configuration this is"),
    told("efidisk0", Rule::Asked, "copied or linked as disks are"),
    removed("freeze", Some("0"), "the machine would be started and stand still"),
    told(
        "hookscript",
        Rule::Asked,
        "only root may set it; its storage has to be on every host, which `check` looks at",
    ),
    told(
        "hostpci[n]",
        Rule::Refused,
        "a token may not clone a device that is no mapping; a mapping needs `Mapping.Use` on `/mapping/pci/NAME`",
    ),
    told("hotplug", Rule::Left, "`[pool.grow]` and `vm_options` set another"),
    told(
        "hugepages",
        Rule::Asked,
        "only root may set it; a machine's memory has to be whole pages, which `check` looks at",
    ),
    told(
        "ide[n]",
        Rule::Asked,
        "copied or linked; rights on its storage are looked at; backups leave it out",
    ),
    told("intel-tdx", Rule::Left, FOR_ROOT),
    told(
        "ipconfig[n]",
        Rule::Set,
        "the slot's addresses; a static one that the pool does not set is removed: all machines would have it",
    ),
    told("ivshmem", Rule::Left, FOR_ROOT),
    told("keephugepages", Rule::Left, FOR_ROOT),
    told("keyboard", Rule::Left, AS_HARDWARE),
    told("kvm", Rule::Asked, "without it machines are emulated and slow, which `check` says"),
    told("localtime", Rule::Left, AS_HARDWARE),
    own("lock", Rule::Asked, "a locked template cannot be cloned, which `check` says"),
    told("machine", Rule::Left, "`vm_options` sets another"),
    own("memory", Rule::Set, "the machine's size"),
    told("meta", Rule::Left, "when and with what the template was made"),
    told("migrate_downtime", Rule::Left, "how it is migrated is the template's"),
    told("migrate_speed", Rule::Left, "how it is migrated is the template's"),
    own("name", Rule::Set, "the Node's name"),
    told("nameserver", Rule::Set, "`dns` of the pool, if it has some"),
    told(
        "net[n]",
        Rule::Asked,
        "a new MAC; bridge, VLAN and the like as the pool sets them, and its link is up; every bridge of the template needs `SDN.Use`",
    ),
    told("numa", Rule::Left, "`[pool.grow]`, `[pool.pinning]` and `vm_options` set another"),
    removed(
        "numa[n]",
        None,
        "it divides the template's memory, and a machine of another size does not start",
    ),
    own("onboot", Rule::Set, "a machine starts with its host, unless it is kept stopped"),
    told("ostype", Rule::Left, "`vm_options` sets another"),
    told("parallel[n]", Rule::Asked, "a device of the host, of which there is one: `check` says so"),
    own("parent", Rule::Left, NOT_CLONED),
    removed("protection", Some("0"), "the machine could never be destroyed"),
    removed("reboot", Some("1"), "a guest that restarts itself would be off"),
    told("rng0", Rule::Asked, "the host's own generator needs `Mapping.Use` on `/mapping/hwrng`"),
    own("running-nets-host-mtu", Rule::Left, NOT_CLONED),
    own("runningcpu", Rule::Left, NOT_CLONED),
    own("runningmachine", Rule::Left, NOT_CLONED),
    told(
        "sata[n]",
        Rule::Asked,
        "copied or linked; rights on its storage are looked at; backups leave it out",
    ),
    told(
        "scsi[n]",
        Rule::Asked,
        "copied or linked; rights on its storage are looked at; backups leave it out",
    ),
    told("scsihw", Rule::Left, "`vm_options` sets another"),
    told("searchdomain", Rule::Set, "`search` of the pool, if it has one"),
    told(
        "serial[n]",
        Rule::Asked,
        "a device of the host is one that several machines would want: `check` says so",
    ),
    own("shares", Rule::Left, "means nothing without a balloon"),
    told("smbios1", Rule::Left, "a clone gets a uuid of its own; the rest is the template's"),
    removed("smp", Some("1"), "an older form of `sockets`, which would multiply the cores"),
    own("snaptime", Rule::Left, NOT_CLONED),
    own("sockets", Rule::Set, "1: the size is in `cores`"),
    told("spice_enhancements", Rule::Left, FOR_ROOT),
    told("sshkeys", Rule::Set, "`ssh_keys` of the pool, if it has some"),
    removed("startdate", Some("now"), "its clock would begin at that date, at which no certificate is valid"),
    own("startup", Rule::Left, "in which order a host starts its VMs is the template's"),
    told("tablet", Rule::Left, AS_HARDWARE),
    own("tags", Rule::Set, "`tags` of the pool and ours; the template's go, if the token may change them"),
    told("tdf", Rule::Left, AS_HARDWARE),
    own("template", Rule::Left, NOT_CLONED),
    told("tpmstate0", Rule::Asked, "always copied in full"),
    own("unused[n]", Rule::Left, NOT_CLONED),
    told(
        "usb[n]",
        Rule::Refused,
        "a token may not clone a device that is neither a mapping nor SPICE; a mapping needs `Mapping.Use` on `/mapping/usb/NAME`",
    ),
    removed(
        "vcpus",
        Some("0"),
        "the machine would start with fewer CPUs than its size, or not at all; `[pool.grow]` sets it",
    ),
    told("vga", Rule::Left, "`vm_options` sets another"),
    told(
        "virtio[n]",
        Rule::Asked,
        "copied or linked; rights on its storage are looked at; backups leave it out",
    ),
    told("virtiofs[n]", Rule::Asked, "needs `Mapping.Use` on `/mapping/dir/NAME`"),
    told("vmgenid", Rule::Left, "a clone gets one of its own"),
    own("vmstate", Rule::Left, NOT_CLONED),
    told("vmstatestorage", Rule::Asked, "needs `Datastore.AllocateSpace` on that storage"),
    told("watchdog", Rule::Left, "`vm_options` sets another"),
];

/// The rule for an option as a configuration has it.
pub fn rule(key: &str) -> Option<&'static Inherited> {
    let numbered = stem(key);
    let pattern = |one: &&Inherited| one.option.strip_suffix("[n]") == Some(numbered);
    let exact = ALL.iter().find(|one| one.option == key);
    exact.or_else(|| ALL.iter().filter(|_| numbered != key).find(pattern))
}

/// Whether a template with another value of this option is another template. An option that is not known is
/// one that nothing was decided about: it is.
pub(super) fn tells(key: &str) -> bool {
    rule(key).is_none_or(|one| one.tells)
}

/// The options that a machine does not keep, and has with a value that means something.
pub(super) fn removable(config: &VmConfig) -> impl Iterator<Item = &str> {
    let there = config.all().filter(|(key, value)| {
        rule(key).is_some_and(|one| {
            one.rule == Rule::Removed && one.neutral.is_none_or(|neutral| !same(value, neutral))
        })
    });
    there.map(|(key, _)| key)
}

/// Whether two values are one: flags have several spellings.
fn same(value: &str, other: &str) -> bool {
    value == other || (truth(value).is_some() && truth(value) == truth(other))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use serde_json::Value;

    use super::*;

    /// Parameters of the calls that are no options of a VM.
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

    /// The options that a release's schema has: those that can be set, and those that are shown.
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
                eprintln!("skipped: {} is not there", file.display());
                return;
            };
            let all = options(&serde_json::from_str(&text).unwrap());
            assert!(all.len() > 80, "{release}: {}", all.len());
            let without: Vec<&String> = all
                .iter()
                .filter(|option| !ORDERS.contains(&option.as_str()))
                .filter(|option| !ALL.iter().any(|one| one.option == option.as_str()))
                .collect();
            assert!(without.is_empty(), "{release}: nothing is decided about {without:?}");
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
