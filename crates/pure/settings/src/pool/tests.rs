//! Valid pools, and every kind of invalid one.

use std::net::IpAddr;

use super::*;
use crate::{Config, Needs, parse};
use model::Vmid;
use model::machine::Slot;

const BARE: &str = "[[pool]]\nname = \"a\"\nmax = 3\ncores = 2\nmemory = \"2GiB\"\n";

fn config(text: &str) -> Config {
    parse("c.toml", text, Needs::Plan).unwrap_or_else(|report| panic!("{}", report.plain()))
}

fn pool(lines: &str) -> Pool {
    config(&format!("{BARE}{lines}\n")).pools.remove(0)
}

/// Checks that the lines of each case cause exactly one finding, and that the report contains the expected
/// parts.
fn refuses(cases: &[(&str, &[&str])]) {
    for (lines, expected) in cases {
        refuses_text(&format!("{BARE}{lines}\n"), expected);
    }
}

fn refuses_text(text: &str, expected: &[&str]) {
    let Err(report) = parse("c.toml", text, Needs::Plan) else { panic!("no error reported for\n{text}") };
    let said = report.plain();
    assert_eq!(report.findings().len(), 1, "{said}");
    for part in expected {
        assert!(said.contains(part), "no {part:?} in\n{said}");
    }
}

fn slots(lines: &str) -> Vec<String> {
    let text = |slot: Slot| match slot.address {
        Some(address) => format!("{} {address}", slot.vmid),
        None => slot.vmid.to_string(),
    };
    pool(lines).slots().into_iter().map(text).collect()
}

#[test]
fn the_nth_vmid_goes_with_the_nth_address() {
    let cases: [(&str, &[&str]); 8] = [
        ("", &[]),
        ("vmids = \"100-102\"", &["100", "101", "102"]),
        ("vmids = \"100-102\"\naddresses = \"dhcp\"", &["100", "101", "102"]),
        (
            "vmids = \"100-102\"\naddresses = \"10.0.0.9-10.0.0.20\"",
            &["100 10.0.0.9", "101 10.0.0.10", "102 10.0.0.11"],
        ),
        (
            "vmids = [\"200-201\", 100]\naddresses = [\"10.0.0.9\", \"10.0.0.3-10.0.0.4\"]",
            &["200 10.0.0.9", "201 10.0.0.3", "100 10.0.0.4"],
        ),
        (
            "vmids = [\"100-104\", \"!101-102\"]\naddresses = [\"10.0.0.3-10.0.0.9\", \"!10.0.0.4\"]",
            &["100 10.0.0.3", "103 10.0.0.5", "104 10.0.0.6"],
        ),
        (
            "vmids = \"100-102\"\naddresses = \"10.0.0.254-10.0.1.9\"\nprefix = 16",
            &["100 10.0.0.254", "101 10.0.0.255", "102 10.0.1.0"],
        ),
        (
            "vmids = \"100-102\"\naddresses = \"fd00::ffff-fd00::ffff:ffff\"\ngateway = \"fe80::1\"",
            &["100 fd00::ffff", "101 fd00::1:0", "102 fd00::1:1"],
        ),
    ];
    for (lines, expected) in cases {
        assert_eq!(slots(lines), expected, "{lines}");
    }
}

#[test]
fn a_huge_range_of_addresses_costs_nothing() {
    assert_eq!(slots("vmids = \"100-102\"\naddresses = \"fd00::1-fd00::ffff:ffff:ffff:ffff\"").len(), 3);
}

#[test]
fn vmids_are_checked() {
    refuses(&[
        ("vmids = \"100-\"", &["`vmids`: `100-` is not a range", "expected e.g. \"9100-9149\""]),
        ("vmids = [\"100-105\", \"x\"]", &["`x` is not a range", "c.toml:6:21"]),
        ("vmids = \"105-100\"", &["`105-100` runs backwards", "swap the two ends"]),
        ("vmids = \"99-105\"", &["is outside the range that Proxmox VE allows", "from 100 to 999999999"]),
        ("vmids = \"999999990-1000000000\"", &["is outside the range that Proxmox VE allows"]),
        ("vmids = [\"100-105\", 103]", &["`103` overlaps another entry", "because of this"]),
        ("vmids = [\"100-105\", \"!200\"]", &["this exclusion has no effect"]),
        (
            "vmids = \"100-101\"",
            &["pool `a`: 2 VMIDs for 3 machines", "because of this", "widen `vmids`, or set `max = 2`"],
        ),
        ("vmids = 100", &["1 VMID for 3 machines"]),
        ("vmids = \"100-200000\"", &["199901 VMIDs are too many", "at most 10000"]),
        ("template = 101\nvmids = \"100-105\"", &["the template's VMID 101 is reserved", "\"!101\""]),
    ]);
}

#[test]
fn addresses_are_checked() {
    let with = |addresses: &str, lines: &str| {
        format!("{BARE}vmids = \"100-104\"\naddresses = {addresses}\n{lines}\n")
    };
    let range = "\"10.0.0.11-10.0.0.15\"";
    for (addresses, lines, expected) in [
        ("\"10.0.0.11-fd00::1\"", "", ["is not a range", "or \"dhcp\""]),
        ("\"10.0.0.300\"", "", ["`10.0.0.300` is not a range", "expected e.g."]),
        ("\"10.0.0.11-10.0.0.15/24\"", "", ["is not a range", "prefix length with `prefix`"]),
        ("\"DHCP\"", "", ["`DHCP` is not a range", "or \"dhcp\""]),
        ("\"10.0.0.15-10.0.0.11\"", "", ["runs backwards", "c.toml:7:13"]),
        ("\"10.0.0.11-10.0.0.14\"", "", ["4 addresses for 5 VMIDs", "1 too few"]),
        ("\"10.0.0.250-10.0.1.5\"", "", ["10.0.1.5 is not in the same network", "must be in 10.0.0.0/24"]),
        (
            "[\"10.0.0.1\", \"10.9.0.1-10.9.0.9\"]",
            "",
            ["10.9.0.1 is not in the same network", "correct the value that is wrong"],
        ),
        ("[\"10.0.0.1\", \"fd00::1-fd00::9\"]", "", ["fd00::1 is not in the same network", "10.0.0.0/24"]),
        ("\"10.0.0.0-10.0.0.9\"", "", ["10.0.0.0 is the network address of 10.0.0.0/24", "\"!10.0.0.0\""]),
        ("\"10.0.0.240-10.0.0.255\"", "", ["10.0.0.255 is the broadcast address", "no machine can use it"]),
        ("\"fd00::-fd00::9\"", "", ["routers' anycast address", "fd00::/64"]),
        (range, "prefix = 33", ["`prefix` is not a prefix length", "from 1 to 32"]),
        (range, "prefix = 0", ["`prefix` is not a prefix length", "from 1 to 32"]),
        (range, "prefix = 30", ["10.0.0.15 is not in the same network", "10.0.0.8/30"]),
        (range, "gateway = \"10.0.1.1\"", ["the gateway 10.0.1.1 is not in", "must be in 10.0.0.0/24"]),
        (range, "gateway = \"10.0.0.1/24\"", ["is not an address", "prefix length with `prefix`"]),
        (range, "gateway = \"10.0.0.12\"", ["the gateway 10.0.0.12 is among", "\"!10.0.0.12\""]),
        (range, "gateway = \"fe80::1\"", ["the gateway fe80::1 is not in", "10.0.0.0/24"]),
        (range, "dns = [\"10.0.0.13\"]", ["the name server 10.0.0.13 is among", "because of this"]),
        (range, "dns = [\"one.one\"]", ["`dns`: `one.one` is not an address", "expected e.g."]),
        (range, "search = \"a b\"", ["`a b` is not a search domain", "expected e.g."]),
        ("\"dhcp\"", "prefix = 24", ["`prefix` has no effect with DHCP", "the DHCP server provides it"]),
        ("\"dhcp\"", "gateway = \"10.0.0.1\"", ["`gateway` has no effect with DHCP", "remove it"]),
        ("\"dhcp\"", "dns = [\"10.0.0.1\"]", ["`dns` has no effect with DHCP", "remove it"]),
    ] {
        let text = with(addresses, lines);
        let Err(report) = parse("c.toml", &text, Needs::Plan) else {
            panic!("no error reported for\n{text}")
        };
        let report = report.plain();
        for part in expected {
            assert!(report.contains(part), "no {part:?} in\n{report}");
        }
    }
    let pair =
        pool("vmids = \"100-102\"\naddresses = \"10.0.0.2-10.0.0.5\"\nprefix = 29\ngateway = \"10.0.0.6\"");
    let Addressing::Static { ranges, prefix, gateway, .. } = pair.addressing else { panic!("not static") };
    let address = |text: &str| text.parse::<IpAddr>().unwrap();
    assert_eq!(ranges, [(address("10.0.0.2"), address("10.0.0.5"))]);
    assert_eq!((prefix, gateway), (29, Some(address("10.0.0.6"))));
}

#[test]
fn pools_share_nothing() {
    let second = BARE.replace("\"a\"", "\"b\"");
    let two = |first: &str, other: &str| format!("{BARE}{first}\n{second}{other}\n");
    refuses_text(&format!("{BARE}{BARE}"), &["two pools are called `a`", "c.toml:7:8", "because of this"]);
    refuses_text(
        &two("vmids = \"100-120\"", "vmids = \"118-130\""),
        &["pools `a` and `b` both reserve VMID 118", "c.toml:12:9", "because of this", "narrow one"],
    );
    let slots = |vmids: &str, addresses: &str| format!("vmids = \"{vmids}\"\naddresses = \"{addresses}\"");
    refuses_text(
        &two(&slots("100-104", "10.0.0.1-10.0.0.9"), &slots("200-204", "10.0.0.9-10.0.0.20")),
        &["pools `a` and `b` both reserve 10.0.0.9", "because of this"],
    );
    refuses_text(
        &two("template = 203", "vmids = \"200-204\""),
        &["the template's VMID 203 is reserved for machines"],
    );
    config(&two(&slots("100-104", "10.0.0.1-10.0.0.9"), &slots("200-204", "10.0.0.10-10.0.0.20")));
}

#[test]
fn what_a_machine_is_made_of_is_checked() {
    refuses(&[
        ("template = 9", &["9 is not a valid VMID for a template", "from 100 to 999999999"]),
        ("template = -1", &["-1 is not a valid VMID for a template"]),
        ("template = \"9000\"", &["`9000` is not a valid template name", "remove the quotes"]),
        ("template = \"\"", &["`` is not a valid template name"]),
        ("template = \"my template\"", &["`my template` is not a valid template name"]),
        ("template = true", &["`true` is not a valid template name"]),
        ("clone = \"ful\"", &["unknown variant `ful`", "did you mean `full`?"]),
        ("storage = \"local-lvm\"", &["is always on its template's storage", "set `clone = \"full\"`"]),
        ("clone = \"full\"\nstorage = \"a b\"", &["`a b` is not a valid storage name"]),
        ("disk = \"1GiB\"", &["`disk` is too small", "at least \"4GiB\"", "not the increase"]),
        ("disk = \"large\"", &["`disk` is not a size"]),
        ("disk = \"40GiB\"\ndisk_device = \"sda\"", &["`sda` is not a disk", "\"scsi0\""]),
        ("disk = \"40GiB\"\ndisk_device = \"scsi31\"", &["`scsi31` is not a disk"]),
        ("disk = \"40GiB\"\ndisk_device = \"scsi00\"", &["`scsi00` is not a disk"]),
        ("disk_device = \"scsi0\"", &["`disk_device` without `disk`", "set the disk's size"]),
        ("bridge = \"a-bridge-too-far\"", &["is not a valid bridge name", "at most 15"]),
        ("bridge = \"vmbr0,tag=5\"", &["is not a valid bridge name"]),
        ("vlan = 0", &["`vlan` is not a VLAN tag", "from 1 to 4094"]),
        ("vlan = 4095", &["`vlan` is not a VLAN tag"]),
        ("user = \"Admin\"", &["`Admin` is not a valid user name"]),
        ("ssh_keys = [\"AAAA\"]", &["not a public SSH key", "ends in `.pub`"]),
        ("ssh_keys = [\"ssh-dss AAAAB3\"]", &["not a public SSH key"]),
        ("tags = [\"a;b\"]", &["`a;b` is not a valid tag"]),
        ("tags = [\"a\", \"a\"]", &["the tag `a` is listed twice", "because of this"]),
        ("hosts = [\"pve1\", \"pve2\", \"pve1\"]", &["the host `pve1` is listed twice", "because of this"]),
        ("hosts = [\"10.0.0.1\"]", &["`10.0.0.1` is not a valid host name", "not its address"]),
        ("max_per_host = 0", &["`max_per_host` is zero"]),
        ("cpu_overcommit = 0.0", &["`cpu_overcommit` must be between 0.1 and 100"]),
    ]);
    let template = format!("{BARE}template = \"t\"\n");
    for (memory, expected) in [("256MiB", "too small for a node"), ("1000000000", "whole number of MiB")] {
        refuses_text(&template.replace("2GiB", memory), &[expected, "c.toml:5:10"]);
        config(&BARE.replace("2GiB", memory));
    }
    refuses_text(&BARE.replace("cores = 2", "cores = 0"), &["`cores` is zero", "at least 1"]);
    for name in ["", "A", "a_b", "-a", &"a".repeat(41)] {
        refuses_text(
            &BARE.replace("\"a\"", &format!("\"{name}\"")),
            &["is not a valid pool name", "host name"],
        );
    }
}

#[test]
fn limits_of_a_pool_are_enough_for_the_machines_that_it_has_at_least() {
    let limited = pool("max_cores = 2\nmax_memory = \"2GiB\"");
    assert_eq!((limited.max_cores, limited.max_memory), (Some(2), Some(2 << 30)));
    refuses(&[
        ("max_cores = 1", &["`max_cores` is too small for the minimum", "must be enough for one machine"]),
        ("min = 2\nmax_cores = 3", &["c.toml:7:13", "must be enough for 2 machines", "lower `min`"]),
        ("max_memory = \"1GiB\"", &["`max_memory` is too small for the minimum", "enough for one machine"]),
        ("min = 2\nmax_memory = \"3GiB\"", &["must be enough for 2 machines"]),
        ("max_memory = \"much\"", &["pool `a`: `max_memory` is not a size"]),
    ]);
}

#[test]
fn headroom_is_checked() {
    let kept = |lines: &str| pool(lines).headroom;
    assert_eq!(kept(""), Room::default());
    assert_eq!(kept("headroom = { cpu = \"500m\" }"), Room { cpu_milli: 500, memory: 0 });
    assert_eq!(kept("headroom = { cpu = 2, memory = \"1GiB\" }"), Room { cpu_milli: 2000, memory: 1 << 30 });
    refuses(&[
        ("headroom = { cpu = \"two\" }", &["`headroom.cpu` is not an amount of CPU", "c.toml:6:20"]),
        ("headroom = { cpu = -1 }", &["`headroom.cpu` is not an amount of CPU"]),
        ("headroom = { memory = \"much\" }", &["`headroom.memory` is not a size"]),
        ("headroom = { pods = 5 }", &["unknown field `pods`"]),
    ]);
}

#[test]
fn sizes_are_checked() {
    let small = Size { cores: 1, memory: 1 << 30 };
    let own = Size { cores: 2, memory: 2 << 30 };
    assert_eq!(pool("").sizes, [own]);
    assert_eq!(pool("sizes = [{ cores = 1, memory = \"1GiB\" }]").sizes, [small, own]);
    refuses(&[
        ("sizes = [{ cores = 0, memory = \"1GiB\" }]", &["`cores` is zero", "c.toml:6:20"]),
        ("sizes = [{ cores = 1, memory = \"big\" }]", &["`memory` is not a size", "c.toml:6:32"]),
        ("sizes = [{ cores = 2, memory = \"2GiB\" }]", &["the same size is listed twice"]),
        ("sizes = [{ cores = 1 }]", &["missing field `memory`"]),
        (
            "sizes = [{ cores = 1, memory = \"1GiB\" }]\nallocatable = { cpu = 1, memory = \"1Gi\", pods = 9 }",
            &["`allocatable` and `sizes` are both given"],
        ),
    ]);
}

#[test]
fn a_private_key_is_never_shown() {
    let key = "-----BEGIN OPENSSH PRIVATE KEY-----\nS3CR3T\n-----END OPENSSH PRIVATE KEY-----";
    let text = format!("{BARE}ssh_keys = [\"\"\"{key}\"\"\"]\n");
    let report = parse("c.toml", &text, Needs::Plan).unwrap_err();
    for said in [report.plain(), report.styled(), format!("{report:?}")] {
        assert!(said.contains("not a public SSH key") && !said.contains("S3CR3T"), "{said}");
    }
}

#[test]
fn labels_and_taints_are_checked() {
    refuses(&[
        ("labels = { \"a b\" = \"c\" }", &["`a b` is not a valid label key"]),
        ("labels = { a = \"b c\" }", &["`b c` is not a valid label value"]),
        ("labels = { a = \"{{ hots }}\" }", &["unknown variable `{{ hots }}`", "did you mean `{{ host }}`?"]),
        ("labels = { a = \"{{ zzz }}\" }", &["known variables: host, zone, region, pool, name and vmid"]),
        ("labels = { a = \"x-{{ host\" }", &["unmatched `{{` or `}}`"]),
        ("labels = { a = \"-{{ host }}\" }", &["is not a valid label value"]),
        ("labels = { \"pve-autoscaler/pool\" = \"b\" }", &["is reserved for the daemon", "on each node"]),
        ("labels = { \"node-role.kubernetes.io/control-plane\" = \"\" }", &["cannot be set on workers"]),
        ("labels = { \"x.k8s.io/y\" = \"\" }", &["cannot be set on workers", "your own domain"]),
        ("labels = { \"kubernetes.io/hostname\" = \"x\" }", &["each kubelet sets", "remove it"]),
        ("taints = [\"a=b\"]", &["`a=b` is not a taint", "NoSchedule, PreferNoSchedule or NoExecute"]),
        ("startup_taints = [\"a:Never\"]", &["`a:Never` is not a taint"]),
        (
            "startup_taints = [\"a*\"]",
            &["`a*` is not a valid pattern for the taints of a domain", "example.com/*"],
        ),
        ("startup_taints = [\"a.b/c-*\"]", &["`a.b/c-*` is not a valid pattern for the taints of a domain"]),
        (
            "startup_taints = [\"a.b/*:Never\"]",
            &["`a.b/*:Never` is not a valid pattern for the taints of a domain"],
        ),
        ("taints = [\"a.b/*:NoSchedule\"]", &["`a.b/*:NoSchedule` is not a taint"]),
        ("taints = [\"a:NoExecute\", \"a=b:NoExecute\"]", &["two taints `a` with the same effect"]),
        (
            "taints = [\"a:NoExecute\"]\nstartup_taints = [\"a:NoExecute\"]",
            &["two taints `a` with the same effect", "c.toml:7:19", "because of this"],
        ),
        ("taints = [\"pve-autoscaler/x:NoExecute\"]", &["is reserved for the daemon"]),
    ]);
    pool("taints = [\"a:NoExecute\", \"a:NoSchedule\"]\nlabels = { \"node.kubernetes.io/x\" = \"\" }");
    pool(
        "labels = { \"node-role.kubernetes.io/worker\" = \"\", \"node-restriction.kubernetes.io/x\" = \"y\" }",
    );
}

#[test]
fn a_label_has_to_be_valid_on_every_host() {
    let long = "z".repeat(60);
    let hosts = format!("[[host]]\nname = \"pve1\"\n[[host]]\nname = \"pve2\"\nzone = \"{long}\"\n");
    let with = |labels: &str, more: &str| {
        let pool = "[[pool]]\nname = \"w\"\nmax = 1\ncores = 1\nmemory = \"1GiB\"";
        parse("c.toml", &format!("{hosts}{pool}\nlabels = {{ {labels} }}\n{more}"), Needs::Plan)
            .map_err(|report| report.to_string())
    };
    let rack = "a = \"rack-{{ zone }}\"";
    let report = with(rack, "").unwrap_err();
    assert!(report.contains("`rack-{{ zone }}` is not a valid label value"), "{report}");
    assert!(report.contains(&format!("on host `pve2`, the value is `rack-{long}`")), "{report}");
    assert!(with("a = \"{{ zone }}\"", "").is_ok());
    assert!(with(rack, "hosts = [\"pve1\"]\n").is_ok(), "none of its machines can be on pve2");
    let metal = format!(
        "[[pool.machine]]\nname = \"{}\"\n[pool.machine.redfish]\nendpoint = \"https://10.0.0.1\"\n\
         user = \"power\"\npassword_file = \"/x\"\nca = \"system\"\n",
        ["m"; 40].join(".")
    );
    let report = with("a = \"{{ name }}\"", &metal).unwrap_err();
    assert!(report.contains("it becomes `m.m.m"), "{report}");
    let west = format!(
        "[proxmox]\nregion = \"{}\"\nendpoints = [\"https://a:8006\"]\ntoken_id = \"a@pve!b\"\n\
         token_file = \"/t\"\nca_file = \"/c\"\n",
        "w".repeat(62)
    );
    let report = with("a = \"r-{{ region }}\"", &west).unwrap_err();
    assert!(report.contains("`r-{{ region }}` is not a valid label value"), "{report}");
}

#[test]
fn variables_of_labels_are_filled_in() {
    let pool = pool(
        "labels = { host = \"{{ host }}\", both = \"{{pool}}-{{  vmid }}\", name = \"{{ name }}\", none = \"x\" }",
    );
    let labels = pool.labels_for("pve1", "a-x7k2p", Vmid(9101));
    let expected = [("both", "a-9101"), ("host", "pve1"), ("name", "a-x7k2p"), ("none", "x")];
    assert!(labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).eq(expected), "{labels:?}");
}

#[test]
fn what_kubelets_are_told_is_checked() {
    refuses(&[
        (
            "kubelet_args = { node-labels = \"a=b\" }",
            &["`node-labels` is already set", "use the pool's `labels`"],
        ),
        ("kubelet_args = { provider-id = \"x\" }", &["`provider-id` is already set"]),
        ("kubelet_args = { register-with-taints = \"x\" }", &["`taints` and `startup_taints`"]),
        ("kubelet_args = { max-pods = 50 }", &["use the pool's `max_pods`"]),
        (
            "kubelet_args = { \"--v\" = 2 }",
            &["`--v` is not a valid kubelet argument", "without the dashes: `v`"],
        ),
        ("kubelet_args = { v = \"a\\nb\" }", &["must be a single line of text"]),
        ("max_pods = 0", &["pool `a`: `max_pods` is zero", "at least 1"]),
        ("provider_id = \"{{ vmid }}\"", &["is not a valid provider ID"]),
        ("provider_id = \"proxmox://home\"", &["all nodes would have the same `provider_id`"]),
        (
            "provider_id = \"proxmox://{{ vm }}\"",
            &["unknown variable `{{ vm }}`", "did you mean `{{ vmid }}`?"],
        ),
        ("annotations = { \"pve-autoscaler/retire\" = \"x\" }", &["is reserved for the daemon"]),
        ("annotations = { \"a b\" = \"x\" }", &["is not a valid annotation key"]),
        (
            "allocatable = { pods = -1, cpu = 1, memory = 1 }",
            &["`allocatable.pods` is negative", "c.toml:6:24"],
        ),
        ("allocatable = { cpu = \"-100m\", memory = 1, pods = 1 }", &["`allocatable.cpu` is negative"]),
        ("allocatable = { cpu = 1, memory = \"x\", pods = 1 }", &["`allocatable.memory` is not a quantity"]),
        (
            "allocatable = { cpu = 1, memory = 1, pods = 1, \"a b\" = 1 }",
            &["`a b` is not a valid resource name"],
        ),
        ("allocatable = { \"nvidia.com/gpu\" = 1 }", &["lacks cpu, memory, pods", "or remove `allocatable`"]),
        (
            "allocatable = { cpu = \"2001m\", memory = \"1Gi\", pods = 1 }",
            &["`allocatable.cpu` is more than the machine has", "because of this"],
        ),
        (
            "allocatable = { cpu = 2, memory = \"3Gi\", pods = 1 }",
            &["`allocatable.memory` is more than the machine has"],
        ),
    ]);
    let pool = pool(
        "kubelet_args = { v = 2, serialize-image-pulls = false }\nallocatable = { cpu = 2, memory = \"2Gi\", pods = 50 }",
    );
    let arguments = pool.kubelet_args.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    assert!(arguments.eq([("serialize-image-pulls", "false"), ("v", "2")]));
    assert_eq!(pool.allocatable.map(|it| (it.cpu_milli, it.pods)), Some((2000, 50)));
}

#[test]
fn a_pool_takes_what_it_leaves_of_a_host_from_proxmox() {
    let proxmox = "[proxmox]\nendpoints = [\"https://a\"]\ntoken_id = \"a@pve!b\"\ntoken_file = \"/t\"\nca_file = \"/c\"\n";
    let headroom = |text: &str| {
        let pool = config(text).pools.remove(0);
        (pool.cpu_overcommit.to_string(), pool.memory_reserve >> 30)
    };
    assert_eq!(headroom(BARE), ("4".to_owned(), 2));
    let set = format!("{proxmox}cpu_overcommit = 1.5\nmemory_reserve = \"8GiB\"\n{BARE}");
    assert_eq!(headroom(&set), ("1.5".to_owned(), 8));
    assert_eq!(
        headroom(&format!("{set}cpu_overcommit = 2.0\nmemory_reserve = \"1GiB\"\n")),
        ("2".to_owned(), 1)
    );
}

#[test]
fn a_firewall_is_on_for_all_devices_and_has_what_proxmox_understands() {
    let slots = "vmids = \"100-102\"\naddresses = \"10.0.0.9-10.0.0.20\"\nprefix = 24\n[[pool.network]]\nbridge = \"vmbr1\"\n";
    let made = pool(&format!("{slots}[pool.security]\ngroups = [\"k8s-workers\"]\nip_filter = true"));
    assert!(made.devices.iter().all(|device| device.firewall == Some(true)));
    let security = made.security.unwrap();
    assert_eq!((security.policy_in, security.policy_out), (Policy::Drop, Policy::Accept));
    assert!(security.mac_filter && security.ip_filter);
    let plain = pool(slots);
    assert!(plain.security.is_none() && plain.devices.iter().all(|device| device.firewall.is_none()));
    refuses(&[
        ("[pool.security]\ngroups = [\"x\"]", &["`x` is not a valid security group name", "2 to 18"]),
        ("[pool.security]\ngroups = [\"9workers\"]", &["is not a valid security group name"]),
        ("[pool.security]\npolicy_in = \"deny\"", &["unknown variant `deny`"]),
        (
            "firewall = false\n[pool.security]",
            &["is off for the first network device", "would have no effect"],
        ),
        (
            "vmids = \"100-102\"\naddresses = \"dhcp\"\n[pool.security]\nip_filter = true",
            &["needs known addresses"],
        ),
        ("[pool.security]\nipfilter = true", &["unknown field `ipfilter`", "did you mean `ip_filter`?"]),
    ]);
}
