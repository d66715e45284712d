use super::*;
use crate::{Needs, parse};

const POOL: &str = "[[pool]]\nname = \"a\"\nmax = 2\ncores = 1\nmemory = \"1GiB\"\n";
const GPU: &str = "[[pool.device]]\ndriver = \"gpu.example.com\"\n";

fn slices(lines: &str) -> Vec<ResourceSlice> {
    let config = parse("c.toml", &format!("{POOL}{lines}"), Needs::Plan);
    config.unwrap_or_else(|report| panic!("{}", report.plain())).pools[0].slices_for("a-1")
}

fn names(lines: &str) -> Vec<String> {
    let slices = slices(lines);
    let of = |slice: &ResourceSlice| {
        let devices: Vec<&str> = slice.devices.iter().map(|device| device.name.as_str()).collect();
        format!("{} {}: {}", slice.driver, slice.pool, devices.join(" "))
    };
    slices.iter().map(of).collect()
}

#[test]
fn a_node_has_a_slice_of_each_driver_and_resource_pool() {
    for (lines, expected) in [
        (GPU.to_owned(), vec!["gpu.example.com a-1: device-0"]),
        (
            format!("{GPU}count = 3\nname = \"gpu-{{{{ number }}}}\"\n"),
            vec!["gpu.example.com a-1: gpu-0 gpu-1 gpu-2"],
        ),
        // The numbering continues in another table with the same pattern.
        (format!("{GPU}count = 2\n{GPU}"), vec!["gpu.example.com a-1: device-0 device-1 device-2"]),
        (
            format!("{GPU}name = \"whole\"\n{GPU}name = \"part-{{{{number}}}}\"\ncount = 2\n"),
            vec!["gpu.example.com a-1: whole part-0 part-1"],
        ),
        (
            format!(
                "{GPU}resource_pool = \"{{{{ name }}}}/gpus\"\n[[pool.device]]\ndriver = \"nic.example.com\"\n"
            ),
            vec!["gpu.example.com a-1/gpus: device-0", "nic.example.com a-1: device-0"],
        ),
        // By default, `count` is the number of devices that the mapping gives a machine. It may also be a
        // multiple of this number.
        (
            format!("{GPU}pci = \"gpu\"\n[[pool.pci]]\nmapping = \"gpu\"\ncount = 2\n"),
            vec!["gpu.example.com a-1: device-0 device-1"],
        ),
        (
            format!("{GPU}pci = \"gpu\"\ncount = 4\n[[pool.pci]]\nmapping = \"gpu\"\ncount = 2\n"),
            vec!["gpu.example.com a-1: device-0 device-1 device-2 device-3"],
        ),
        (
            format!(
                "{GPU}pci = \"gpu\"\ncount = 1\n{GPU}pci = \"gpu\"\ncount = 1\n[[pool.pci]]\nmapping = \"gpu\"\ncount = 2\n"
            ),
            vec!["gpu.example.com a-1: device-0 device-1"],
        ),
    ] {
        assert_eq!(names(&lines), expected, "{lines}");
    }
}

#[test]
fn attributes_and_capacities_are_as_a_driver_publishes_them() {
    let lines = format!(
        "{GPU}allow_multiple_allocations = true\n\
         attributes = {{ model = \"A100\", index = 3, ok = true, version = {{ version = \"1.2.3-rc.1\" }}, \"example.com/numa\" = 0 }}\n\
         capacity = {{ memory = \"80Gi\", \"example.com/slots\" = 4 }}\n"
    );
    let slice = slices(&lines).remove(0);
    assert_eq!((slice.generation, slice.slices, slice.reach.node.as_deref()), (1, 1, Some("a-1")));
    let device = &slice.devices[0];
    let text = |text: &str| Attribute::String(text.to_owned());
    let attributes: Vec<(&str, Attribute)> =
        device.attributes.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
    assert_eq!(
        attributes,
        [
            ("example.com/numa", Attribute::Int(0)),
            ("index", Attribute::Int(3)),
            ("model", text("A100")),
            ("ok", Attribute::Bool(true)),
            ("version", Attribute::Version("1.2.3-rc.1".to_owned())),
        ]
    );
    let capacity: Vec<String> =
        device.capacity.iter().map(|(name, one)| format!("{name} {}", one.value)).collect();
    assert_eq!(capacity, ["example.com/slots 4", "memory 80Gi"]);
    assert!(device.shared);
}

#[test]
fn other_devices_are_told_from_those_before() {
    let declares = |lines: &str| {
        parse("c.toml", &format!("{POOL}{lines}"), Needs::Plan).unwrap().pools.remove(0).declares()
    };
    assert_eq!(declares(""), "");
    let one = declares(GPU);
    assert_eq!(one, declares(&format!("{GPU}count = 1\n")));
    for other in
        ["count = 2\n", "attributes = { a = 1 }\n", "pci = \"gpu\"\n[[pool.pci]]\nmapping = \"gpu\"\n"]
    {
        assert_ne!(declares(&format!("{GPU}{other}")), one, "{other}");
    }
    // Declared devices are not part of a machine's fingerprint, so a change to them is not drift.
    let made_of = |lines: &str| {
        parse("c.toml", &format!("{POOL}{lines}"), Needs::Plan).unwrap().pools.remove(0).made_of()
    };
    assert_eq!(made_of(""), made_of(GPU));
}

#[test]
fn what_no_driver_could_publish_is_refused() {
    let many = |kind: &str, count: usize| {
        let all: Vec<String> = (0..count).map(|number| format!("a{number} = 1")).collect();
        format!("{GPU}{kind} = {{ {} }}\n", all.join(", "))
    };
    let pci = |lines: &str, pci: &str| format!("{GPU}{lines}\n[[pool.pci]]\nmapping = \"gpu\"\n{pci}\n");
    let cases: Vec<(String, &[&str])> = vec![
        ("[[pool.device]]\ncount = 1\n".to_owned(), &["missing field `driver`"]),
        (
            "[[pool.device]]\ndriver = \"gpu/x\"\n".to_owned(),
            &["`gpu/x` is not a valid DRA driver name", "c.toml:7:10"],
        ),
        (
            format!("[[pool.device]]\ndriver = \"{}\"\n", "a.".repeat(32) + "a"),
            &["is not a valid DRA driver name"],
        ),
        (format!("{GPU}counts = 1\n"), &["unknown field `counts`", "did you mean `count`?"]),
        (
            format!("{GPU}count = 0\n"),
            &["`count` is zero for the devices of `gpu.example.com`", "c.toml:8:9"],
        ),
        (
            format!("{GPU}count = 129\n"),
            &[
                "more than 128 devices of `gpu.example.com` in one resource pool",
                "c.toml:8:9",
                "another `resource_pool`",
            ],
        ),
        (format!("{GPU}count = 128\n{GPU}"), &["more than 128 devices"]),
        (format!("{GPU}name = \"GPU\"\n"), &["devices cannot be called `GPU`", "{{ number }}"]),
        (format!("{GPU}name = \"gpu-{{{{ index }}}}\"\n"), &["devices cannot be called `gpu-{{ index }}`"]),
        (format!("{GPU}name = \"gpu\"\ncount = 2\n"), &["two devices are called `gpu`", "number them"]),
        (
            format!("{GPU}name = \"gpu-0\"\n{GPU}name = \"gpu-{{{{ number }}}}\"\n"),
            &["two devices are called `gpu-0`"],
        ),
        (
            format!("{GPU}resource_pool = \"{{{{ name }}}}/GPUs\"\n"),
            &["is not a valid resource pool name", "c.toml:8:17"],
        ),
        (
            format!("{GPU}resource_pool = \"gpus\"\n"),
            &["all nodes would have the same resource pool", "{{ name }}-gpus"],
        ),
        (
            format!("{GPU}attributes = {{ \"a-b\" = 1 }}\n"),
            &["`a-b` is not a valid attribute or capacity name", "c.toml:8:16"],
        ),
        (format!("{GPU}attributes = {{ \"a/b/c\" = 1 }}\n"), &["`a/b/c` is not a valid attribute"]),
        (format!("{GPU}attributes = {{ \"/b\" = 1 }}\n"), &["`/b` is not a valid attribute"]),
        (format!("{GPU}attributes = {{ {} = 1 }}\n", "a".repeat(33)), &["is not a valid attribute"]),
        (format!("{GPU}capacity = {{ \"9a\" = 1 }}\n"), &["`9a` is not a valid attribute"]),
        (
            format!("{GPU}attributes = {{ a = 1.5 }}\n"),
            &[
                "invalid type: floating point",
                "expected a string, a whole number, `true`, `false` or { version",
            ],
        ),
        (format!("{GPU}attributes = {{ a = {{ semver = \"1.2.3\" }} }}\n"), &["unknown field `semver`"]),
        (
            format!("{GPU}attributes = {{ a = {{ version = \"1.2\" }} }}\n"),
            &["`a` is not a semantic version", "{ version = \"1.2.3\" }"],
        ),
        (
            format!("{GPU}attributes = {{ a = \"{}\" }}\n", "x".repeat(65)),
            &["the attribute `a` is too long", "at most 64 bytes"],
        ),
        (
            many("attributes", 33),
            &["a device has 33 attributes and capacities", "Kubernetes allows 32 in total"],
        ),
        (
            format!("{}capacity = {{ b = 1 }}\n", many("attributes", 32)),
            &["a device has 33 attributes and capacities"],
        ),
        (
            format!("{GPU}capacity = {{ memory = \"80GiB\" }}\n"),
            &["the capacity `memory` is not a quantity", "did you mean \"80Gi\"?"],
        ),
        (format!("{GPU}capacity = {{ memory = -1 }}\n"), &["is not a quantity"]),
        (
            format!("{GPU}pci = \"gpu\"\n"),
            &["no `[[pool.pci]]` has the mapping `gpu`", "add a `[[pool.pci]]` table", "c.toml:8:7"],
        ),
        (pci("pci = \"gpus\"", ""), &["no `[[pool.pci]]` has the mapping `gpus`", "known: `gpu`"]),
        (
            pci("pci = \"gpu\"\ncount = 3", "count = 2"),
            &[
                "3 devices of `gpu.example.com` are declared, but each machine receives 2 from \
                    the mapping `gpu`",
                "a multiple of 2",
                "c.toml:9:9",
            ],
        ),
        (
            pci(&format!("pci = \"gpu\"\n{GPU}pci = \"gpu\""), "count = 2"),
            &["several tables for the devices of `gpu`", "set `count` in each"],
        ),
        (
            pci("pci = \"gpu\"", "resource = \"example.com/gpu\""),
            &[
                "both offered as `example.com/gpu` by a device plugin",
                "because of this",
                "extendedResourceName",
            ],
        ),
    ];
    for (lines, expected) in cases {
        let Err(report) = parse("c.toml", &format!("{POOL}{lines}"), Needs::Plan) else {
            panic!("no error was reported for\n{lines}")
        };
        let said = report.plain();
        assert_eq!(report.findings().len(), 1, "{said}");
        for part in expected {
            assert!(said.contains(part), "no {part:?} in\n{said}");
        }
    }
    assert_eq!(slices(&many("attributes", 32)).len(), 1);
    assert_eq!(slices(&format!("{GPU}count = 128\n"))[0].devices.len(), 128);
}
