//! A `ProxmoxTemplate`: its image settings become a `[[template]]`, and its settings for clones go into the
//! pool's table.

use serde_json::Value as Json;
use toml::Value;

use super::super::draft::Table;
use super::super::source::{Tree, text_at};

/// How many placeholder VMIDs each template gets.
const VMIDS: usize = 20;

/// Returns the `[[template]]` table for the pools of a region, or `None` if the image has no URL. `number` is
/// the number of such tables before this one.
pub(super) fn made(name: &str, region: Option<&str>, tree: &mut Tree, number: usize) -> Option<Table> {
    let url = tree.text(&["sourceImage", "url"])?;
    let mut table = Table::new("[[template]]");
    table.set("name", name, format!("ProxmoxTemplate {name}: metadata.name"));
    if let Some(region) = region {
        table.set("region", region, "the region of its pools");
    }
    tree.was(&["region"]);
    table.set("image", url, tree.place(&["sourceImage", "url"]));
    let (sum, kind) = (tree.text(&["sourceImage", "checksum"]), tree.text(&["sourceImage", "checksumType"]));
    match sum {
        Some(sum) => {
            let kind = kind.map_or_else(|| "sha256".to_owned(), |kind| kind.to_lowercase());
            let stand_in = format!("sha256:{}", "0".repeat(64));
            table.must(
                "checksum",
                format!("{kind}:{sum}"),
                stand_in,
                tree.place(&["sourceImage", "checksum"]),
            );
        }
        None => table.fill(
            "checksum",
            format!("sha256:{}", "0".repeat(64)),
            "the checksum that the image's publisher lists: an image with a different one is refused",
        ),
    }
    // The image's file name is not needed.
    tree.was(&["sourceImage", "imageName"]);
    let storages = tree.texts(&["storageIDs"]);
    let place = tree.place(&["storageIDs"]);
    match storages.first() {
        Some(first) => table.set(
            "storage",
            first.as_str(),
            format!(
                "{place}: the storage for the template's disk; `image_storage` is the storage for the \
                    image, and must accept the content type `import`"
            ),
        ),
        None => table.fill("storage", "local-lvm", "the storage for the template's disk"),
    }
    let first = 9000 + number * VMIDS;
    table.fill(
        "vmids",
        format!("{first}-{}", first + VMIDS - 1),
        "VMIDs for the template's versions, two for each host",
    );
    let network = tree.peek(&["network", "0"]);
    match network.as_ref().and_then(|device| text_at(device, &["bridge"])) {
        Some(bridge) => table.set("bridge", bridge, tree.place(&["network", "bridge"])),
        None => table.fill("bridge", "vmbr0", "the bridge of the template's network device"),
    }
    if let Some(pool) = tree.text(&["resourcePool"]) {
        table.set("resource_pool", pool, tree.place(&["resourcePool"]));
    }
    let mut options = toml::Table::new();
    let machine = tree.text(&["machine"]).unwrap_or_else(|| "q35".to_owned());
    options.insert("machine".to_owned(), Value::String(machine));
    table.set(
        "vm_options",
        Value::Table(options),
        format!("{}: q35 is Karpenter's default", tree.place(&["machine"])),
    );
    if tree.text(&["bios"]).is_some_and(|bios| bios != "seabios") {
        table.note(format!("{}: create a UEFI template and its EFI disk by hand", tree.place(&["bios"])));
    }
    for (key, why) in [
        ("description", "pve-autoscaler writes the template's version into the description"),
        ("tags", "templates are found by name"),
        ("tpm", "create a template with a TPM by hand"),
        ("agent", "always on"),
        (
            "vga",
            "the display is a serial console; to change that, set `serial = false`, or `vga` in `vm_options`",
        ),
        ("onBoot", "a template does not start"),
    ] {
        if tree.was(&[key]) {
            table.note(format!("{}: {why}", tree.place(&[key])));
        }
    }
    Some(table)
}

/// Adds the settings for clones to the pool's table, and returns the tables below it.
pub(super) fn of_clones(ours: &str, table: &mut Table, tree: &mut Tree) -> Vec<Table> {
    for key in [
        "sourceImage",
        "storageIDs",
        "description",
        "region",
        "tags",
        "resourcePool",
        "machine",
        "bios",
        "tpm",
        "agent",
        "vga",
        "onBoot",
    ] {
        if tree.was(&[key]) {
            table.note(format!("{}: machines take this from the template", tree.place(&[key])));
        }
    }
    let mut options = Table::of_pool("[pool.vm_options]", ours);
    if let Some(kind) = tree.text(&["cpu", "type"]) {
        let flags = tree.text(&["cpu", "flags"]).map_or_else(String::new, |flags| format!(",flags={flags}"));
        options.set("cpu", format!("{kind}{flags}"), tree.place(&["cpu"]));
    }
    let place = tree.place(&["pciDevices"]);
    let devices = tree.list(&["pciDevices"]);
    let network = network(ours, table, tree);
    let devices = devices.iter().filter_map(|device| device_of_host(ours, device, &place));
    std::iter::once(options).chain(devices).chain(network).collect()
}

fn device_of_host(ours: &str, device: &Json, place: &str) -> Option<Table> {
    let mut pci = Table::of_pool("[[pool.pci]]", ours);
    pci.set("mapping", text_at(device, &["mapping"])?, place);
    if let Some(mdev) = text_at(device, &["mdev"]) {
        pci.set(
            "mdev",
            mdev,
            format!("{place}; `per_device` is the number of machines that can share one device"),
        );
    }
    for (theirs, key) in [("pcie", "pcie"), ("xvga", "x_vga")] {
        if let Some(on) = device.get(theirs).and_then(Json::as_bool) {
            pci.set(key, on, format!("{place}.{theirs}"));
        }
    }
    pci.missing(
        "resource",
        "\"nvidia.com/gpu\"",
        "the device plugin's resource, so that pods that request it can trigger the creation of a \
            machine; Karpenter does not count PCI devices",
    );
    Some(pci)
}

/// The first device goes into the pool's own table; each additional device gets its own table.
fn network(ours: &str, table: &mut Table, tree: &mut Tree) -> Vec<Table> {
    let place = tree.place(&["network"]);
    let mut devices = tree.list(&["network"]);
    let number_of = |device: &Json| text_at(device, &["name"])?.strip_prefix("net")?.parse::<u32>().ok();
    devices.sort_by_key(|device| number_of(device).unwrap_or(u32::MAX));
    let mut further = Vec::new();
    for (number, device) in devices.iter().enumerate() {
        if number == 0 {
            one_device(table, device, &place);
            if network_of(device).is_none() {
                table.set(
                    "addresses",
                    "dhcp",
                    format!("{place}: there is no address4, which means DHCP in Karpenter"),
                );
            }
            continue;
        }
        let mut own = Table::of_pool("[[pool.network]]", ours);
        one_device(&mut own, device, &place);
        if device.get("bridge").is_none() {
            own.fill("bridge", "vmbr0", format!("{place}: the bridge of this device"));
        }
        further.push(own);
    }
    if devices.is_empty() {
        table.set(
            "addresses",
            "dhcp",
            format!("{place}: there is no address4, which means DHCP in Karpenter"),
        );
    }
    further
}

fn one_device(table: &mut Table, device: &Json, place: &str) {
    for key in ["bridge", "model"] {
        if let Some(value) = text_at(device, &[key]) {
            table.set(key, value, format!("{place}.{key}"));
        }
    }
    for key in ["mtu", "vlan"] {
        if let Some(value) = device.get(key).and_then(Json::as_i64) {
            table.set(key, value, format!("{place}.{key}"));
        }
    }
    if let Some(on) = device.get("firewall").and_then(Json::as_bool) {
        table.set("firewall", on, format!("{place}.firewall"));
    }
    if let Some((network, prefix)) = network_of(device) {
        let example = format!("\"{network}-…\"");
        let why = format!(
            "{place}.address4 is the network; choose a range in it that is not used by anything else"
        );
        table.missing("addresses", &example, why);
        table.note(format!(
            "{place}: with an address range, also set prefix = {prefix}, and `gateway` and `dns` as in \
                Karpenter"
        ));
    }
}

/// Returns the network address and prefix length of a device with fixed addresses.
fn network_of(device: &Json) -> Option<(&str, &str)> {
    text_at(device, &["address4"])?.split_once('/')
}
