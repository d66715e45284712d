//! A `ProxmoxNodeClass`, with the template that it names.

use serde_json::Value as Json;

use super::super::draft::Table;
use super::super::parts;
use super::super::source::{Tree, text_at};
use super::Objects;

/// Settings of `kubeletConfiguration` that are arguments of the kubelet.
const KUBELET: [(&str, &str); 11] = [
    ("cpuManagerPolicy", "cpu-manager-policy"),
    ("cpuCFSQuota", "cpu-cfs-quota"),
    ("cpuCFSQuotaPeriod", "cpu-cfs-quota-period"),
    ("topologyManagerPolicy", "topology-manager-policy"),
    ("topologyManagerScope", "topology-manager-scope"),
    ("imageGCHighThresholdPercent", "image-gc-high-threshold"),
    ("imageGCLowThresholdPercent", "image-gc-low-threshold"),
    ("allowedUnsafeSysctls", "allowed-unsafe-sysctls"),
    ("clusterDNS", "cluster-dns"),
    ("failSwapOn", "fail-swap-on"),
    ("podPidsLimit", "pod-max-pids"),
];

/// Adds to the pool's table, and returns those below it. Classes that several pools use are read for each of them.
pub(super) fn read(ours: &str, name: &str, table: &mut Table, objects: &mut Objects) -> Vec<Table> {
    let Some(mut tree) = objects.classes.get(name).cloned() else { return Vec::new() };
    placement(table, &mut tree);
    region(table, &mut tree, &objects.regions);
    let mut further = Vec::new();
    let reference = tree.take(&["instanceTemplateRef"]);
    let older = tree.text(&["template"]);
    boot_device(table, &mut tree);
    let tags = tree.texts(&["tags"]);
    if !tags.is_empty() {
        table.set("tags", parts::list(tags), tree.place(&["tags"]));
    }
    metadata(table, &mut tree);
    let groups = tree.list(&["securityGroups"]);
    further.extend(kubelet(ours, table, &mut tree));
    tree.was(&["resourcePool"]);
    let place = tree.place(&["securityGroups"]);
    let mut names = Vec::new();
    for group in &groups {
        let group = text_at(group, &["name"]).unwrap_or("?");
        names.push(group.to_owned());
    }
    if !names.is_empty() {
        let mut security = Table::of_pool("[pool.security]", ours);
        security.set("groups", parts::list(names), format!("{place}; on all devices"));
        security.set("policy_in", "drop", "as there");
        further.push(security);
    }
    objects.left.insert(tree.what().to_owned(), tree);
    template(ours, table, reference.as_ref(), older, objects, &mut further);
    further
}

fn placement(table: &mut Table, tree: &mut Tree) {
    let path = ["placementStrategy", "zoneBalance"];
    match tree.text(&path).as_deref() {
        Some("AvailabilityFirst") => {
            table.set("placement", "balance", format!("{}; by free memory", tree.place(&path)));
        }
        Some(_) => {
            table.set("placement", "spread", format!("{}; by their number, not by load", tree.place(&path)));
        }
        None => table.set("placement", "spread", format!("{}: Balanced is its default", tree.place(&path))),
    }
}

/// The cluster that its machines are on.
fn region(table: &mut Table, tree: &mut Tree, known: &[String]) {
    let place = tree.place(&["region"]);
    match (tree.text(&["region"]), known) {
        (Some(name), known) if known.contains(&name) => table.set("region", name, place),
        (Some(name), []) => table.note(format!("{place}: {name}, of which no cluster is in the files")),
        (Some(name), [first, ..]) => {
            table.fill(
                "region",
                first.as_str(),
                format!("{place}: no cluster in the files is called {name}"),
            );
        }
        (None, [first, _, ..]) => {
            table.fill("region", first.as_str(), "the cluster: a pool is on one, there on any of them");
        }
        (None, _) => {}
    }
}

fn boot_device(table: &mut Table, tree: &mut Tree) {
    let size = ["bootDevice", "size"];
    let given = tree.text(&size);
    let text = given.clone().unwrap_or_else(|| "30G".to_owned());
    // Both 50G and 50Gi are GiB for Proxmox VE.
    let binary = format!("{}i", text.trim_end_matches('i'));
    match parts::size_of(&binary) {
        Some(disk) if given.is_some() => table.set("disk", disk, tree.place(&size)),
        Some(disk) => table.set("disk", disk, format!("{}: its default there", tree.place(&size))),
        None => table.note(format!("{}: is not a size", tree.place(&size))),
    }
    let storage = ["bootDevice", "storage"];
    match tree.text(&storage) {
        Some(storage_id) => {
            table.set(
                "clone",
                "full",
                "as there; a linked one takes a second and shares the template's storage",
            );
            table.set("storage", storage_id, tree.place(&storage));
        }
        None => table.set(
            "clone",
            "full",
            "as there; \"linked\" takes a second instead of minutes, where the template's storage can",
        ),
    }
}

fn metadata(table: &mut Table, tree: &mut Tree) {
    let path = ["metadataOptions", "type"];
    let kind = tree.text(&path);
    for key in ["templatesRef", "valuesRef", "secretRef"] {
        if tree.was(&["metadataOptions", key]) {
            let place = tree.place(&["metadataOptions", key]);
            table.note(format!("{place}: Proxmox VE's own cloud-init drive tells guests what they are; texts of yours go into `[pool.cloud_init]` with `method = \"seed\"`, with other variables and without secrets (docs/cloud-init.md)"));
        }
    }
    if kind.as_deref() == Some("cdrom") {
        table.note(format!(
            "{}: the join runs over the guest agent, no token lies in a disk",
            tree.place(&path)
        ));
    }
}

fn kubelet(ours: &str, table: &mut Table, tree: &mut Tree) -> Option<Table> {
    let mut arguments = Table::of_pool("[pool.kubelet_args]", ours);
    let path = ["kubeletConfiguration", "maxPods"];
    if let Some(most) = tree.whole(&path) {
        table.set("max_pods", parts::count(most), tree.place(&path));
    }
    for (theirs, flag) in KUBELET {
        let path = ["kubeletConfiguration", theirs];
        let place = tree.place(&path);
        match tree.take(&path) {
            Some(Json::Array(list)) => {
                let list: Vec<_> = list.iter().filter_map(Json::as_str).collect();
                arguments.set(flag, list.join(","), place);
            }
            Some(Json::String(text)) => arguments.set(flag, text, place),
            Some(Json::Number(number)) => arguments.set(flag, number.to_string(), place),
            Some(Json::Bool(truth)) => arguments.set(flag, truth.to_string(), place),
            _ => {}
        }
    }
    for key in ["shutdownGracePeriod", "shutdownGracePeriodCriticalPods"] {
        let path = ["kubeletConfiguration", key];
        if tree.was(&path) {
            table.note(format!(
                "{}: the kubelet has no argument for it; it goes into the template's kubelet configuration",
                tree.place(&path)
            ));
        }
    }
    (!arguments.is_empty()).then_some(arguments)
}

fn template(
    ours: &str,
    table: &mut Table,
    reference: Option<&Json>,
    older: Option<String>,
    objects: &mut Objects,
    further: &mut Vec<Table>,
) {
    let name = reference.and_then(|one| text_at(one, &["name"])).unwrap_or_default();
    let unmanaged = reference.and_then(|one| text_at(one, &["kind"])) == Some("ProxmoxUnmanagedTemplate");
    let addresses = "as is usual there; a range of addresses of the pool's own is safer";
    if let Some(mut read) = objects.unmanaged.get(name).filter(|_| unmanaged).cloned() {
        match read.text(&["templateName"]) {
            Some(template) => table.set("template", template, read.place(&["templateName"])),
            None => table.missing(
                "template",
                "\"k8s-worker\"",
                "the template, by name or VMID; there it is found by tags",
            ),
        }
        if !read.texts(&["tags"]).is_empty() {
            table.note(format!("{}: templates are found by name", read.place(&["tags"])));
        }
        read.was(&["region"]);
        objects.left.insert(read.what().to_owned(), read);
        table.set("addresses", "dhcp", addresses);
        return;
    }
    if let Some(mut read) = objects.templates.get(name).filter(|_| !unmanaged).cloned() {
        table.missing("template", "\"k8s-worker\"", format!("ProxmoxTemplate {name} is made there by the provider; here by `pve-autoscaler template`, of a table `[[template]]` with the same image and its checksum (docs/template.md)"));
        of_image(ours, table, &mut read, further);
        objects.left.insert(read.what().to_owned(), read);
        return;
    }
    match older {
        Some(template) => table.set("template", template, "ProxmoxNodeClass: template"),
        None => table.missing(
            "template",
            "\"k8s-worker\"",
            "the template, by name or VMID; what the class names is in none of the files",
        ),
    }
    table.set("addresses", "dhcp", addresses);
}

/// What a template that the provider makes says of its clones.
fn of_image(ours: &str, table: &mut Table, tree: &mut Tree, further: &mut Vec<Table>) {
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
            table.note(format!("{}: the template's", tree.place(&[key])));
        }
    }
    let mut options = Table::of_pool("[pool.vm_options]", ours);
    if let Some(kind) = tree.text(&["cpu", "type"]) {
        let flags = tree.text(&["cpu", "flags"]).map_or_else(String::new, |flags| format!(",flags={flags}"));
        options.set("cpu", format!("{kind}{flags}"), tree.place(&["cpu"]));
    }
    let place = tree.place(&["pciDevices"]);
    for (number, device) in tree.list(&["pciDevices"]).iter().enumerate() {
        let Some(mapping) = text_at(device, &["mapping"]) else { continue };
        let mut value = format!("mapping={mapping}");
        if let Some(mdev) = text_at(device, &["mdev"]) {
            value.extend([",mdev=", mdev]);
        }
        if device.get("pcie").and_then(Json::as_bool) == Some(true) {
            value.push_str(",pcie=1");
        }
        options.set(
            &format!("hostpci{number}"),
            value,
            format!("{place}; needs `max_per_host` and `allocatable`"),
        );
    }
    network(table, tree);
    further.push(options);
}

fn network(table: &mut Table, tree: &mut Tree) {
    let place = tree.place(&["network"]);
    let devices = tree.list(&["network"]);
    for (number, device) in devices.iter().enumerate() {
        if number > 0 {
            table.note(format!(
                "{place}: a further device is a table `[[pool.network]]`, with its bridge, VLAN and addresses"
            ));
            continue;
        }
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
        let text = |key| text_at(device, &[key]);
        let Some((network, prefix)) = text("address4").and_then(|address| address.split_once('/')) else {
            continue;
        };
        let example = format!("\"{network}-…\"");
        table.missing(
            "addresses",
            &example,
            format!("{place}.address4 is the network; here a range in it that nothing else uses"),
        );
        table
            .note(format!("{place}: with such a range, prefix = {prefix}, and `gateway` and `dns` as there"));
    }
    if !devices.iter().any(|device| device.get("address4").is_some()) {
        table.set("addresses", "dhcp", format!("{place}: as there, without address4"));
    }
}
