//! A `ProxmoxNodeClass`, with the template that it names.

use serde_json::Value as Json;
use toml::Value;

use super::super::draft::Table;
use super::super::parts;
use super::super::source::{Tree, text_at};
use super::{Objects, image};

/// Settings of `kubeletConfiguration` that are fields of the kubelet's own configuration; `maxPods` has a
/// setting of its own here.
const KUBELET: [&str; 19] = [
    "cpuManagerPolicy",
    "cpuCFSQuota",
    "cpuCFSQuotaPeriod",
    "topologyManagerPolicy",
    "topologyManagerScope",
    "imageGCHighThresholdPercent",
    "imageGCLowThresholdPercent",
    "allowedUnsafeSysctls",
    "clusterDNS",
    "failSwapOn",
    "podPidsLimit",
    "shutdownGracePeriod",
    "shutdownGracePeriodCriticalPods",
    "systemReserved",
    "kubeReserved",
    "evictionHard",
    "evictionSoft",
    "evictionSoftGracePeriod",
    "evictionMaxPodGracePeriod",
];

/// Adds the class's settings to the pool's table, and returns the tables below it. A class that several pools
/// use is read for each of them.
pub(super) fn read(ours: &str, name: &str, table: &mut Table, objects: &mut Objects) -> Vec<Table> {
    let Some(mut tree) = objects.classes.get(name).cloned() else { return Vec::new() };
    placement(table, &mut tree);
    let region = region(table, &mut tree, &objects.regions);
    let mut further = Vec::new();
    let method = ["bootMethod"];
    if tree.text(&method).as_deref() == Some("pxe") {
        let place = tree.place(&method);
        table.note(format!(
            "{place}: pxe; set `boot = \"network\"` to create machines that boot from \
            the network. They need no template, and join by themselves (docs/guides/network-boot.md)"
        ));
    }
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
        security.set("groups", parts::list(names), format!("{place}; they apply to all network devices"));
        security.set("policy_in", "drop", "as in Karpenter");
        further.push(security);
    }
    objects.left.insert(tree.what().to_owned(), tree);
    template(ours, table, (reference.as_ref(), region.as_deref()), older, objects, &mut further);
    further
}

fn placement(table: &mut Table, tree: &mut Tree) {
    let path = ["placementStrategy", "zoneBalance"];
    match tree.text(&path).as_deref() {
        Some("AvailabilityFirst") => {
            table.set("placement", "balance", format!("{}, by free memory", tree.place(&path)));
        }
        Some(_) => {
            table.set(
                "placement",
                "spread",
                format!("{}; hosts are chosen by their number of machines, not by load", tree.place(&path)),
            );
        }
        None => table.set(
            "placement",
            "spread",
            format!("{}: Balanced is Karpenter's default", tree.place(&path)),
        ),
    }
}

/// Writes the region of the class's machines to the table, and returns the region.
fn region(table: &mut Table, tree: &mut Tree, known: &[String]) -> Option<String> {
    let place = tree.place(&["region"]);
    let named = tree.text(&["region"]);
    if named.as_ref().is_some_and(|name| known.contains(name)) {
        table.set("region", named.clone().unwrap_or_default(), place);
        return named;
    }
    match (named, known) {
        (Some(name), []) => {
            table.note(format!("{place}: {name}, but the files contain no cluster with this name"));
        }
        (Some(name), [first, ..]) => {
            table.fill("region", first.as_str(), format!("{place}: no cluster in the files is named {name}"));
        }
        (None, [first, _, ..]) => {
            table.fill(
                "region",
                first.as_str(),
                "the pool's cluster: a pool uses only one cluster here, but can use several in Karpenter",
            );
        }
        (None, _) => return None,
    }
    known.first().cloned()
}

fn boot_device(table: &mut Table, tree: &mut Tree) {
    let size = ["bootDevice", "size"];
    let given = tree.text(&size);
    let text = given.clone().unwrap_or_else(|| "30G".to_owned());
    // Proxmox VE reads both 50G and 50Gi as GiB.
    let binary = format!("{}i", text.trim_end_matches('i'));
    match parts::size_of(&binary) {
        Some(disk) if given.is_some() => table.set("disk", disk, tree.place(&size)),
        Some(disk) => table.set("disk", disk, format!("{}: Karpenter's default", tree.place(&size))),
        None => table.note(format!("{}: not a valid size", tree.place(&size))),
    }
    let storage = ["bootDevice", "storage"];
    match tree.text(&storage) {
        Some(storage_id) => {
            table.set(
                "clone",
                "full",
                "as in Karpenter; a linked clone would be created within about a second, and would \
                    share the template's storage",
            );
            table.set("storage", storage_id, tree.place(&storage));
        }
        None => table.set(
            "clone",
            "full",
            "as in Karpenter; \"linked\" takes a second instead of minutes, if the template's storage supports it",
        ),
    }
}

fn metadata(table: &mut Table, tree: &mut Tree) {
    let path = ["metadataOptions", "type"];
    let kind = tree.text(&path);
    for key in ["templatesRef", "valuesRef", "secretRef"] {
        if tree.was(&["metadataOptions", key]) {
            let place = tree.place(&["metadataOptions", key]);
            table.note(format!(
                "{place}: guests are configured through Proxmox VE's own cloud-init drive; to use your \
                    own cloud-init texts, put them into `[pool.cloud_init]` with `method = \"seed\"`. \
                    They may contain pve-autoscaler's variables, but no secrets \
                    (docs/guides/cloud-init.md)"
            ));
        }
    }
    if kind.as_deref() == Some("cdrom") {
        table.note(format!(
            "{}: machines join through the guest agent, so no disk contains a token",
            tree.place(&path)
        ));
    }
}

fn kubelet(ours: &str, table: &mut Table, tree: &mut Tree) -> Option<Table> {
    let mut fields = Table::of_pool("[pool.kubelet]", ours);
    let path = ["kubeletConfiguration", "maxPods"];
    if let Some(most) = tree.whole(&path) {
        table.set("max_pods", parts::count(most), tree.place(&path));
    }
    for key in KUBELET {
        let path = ["kubeletConfiguration", key];
        let place = tree.place(&path);
        if let Some(value) = tree.take(&path).and_then(|value| Value::try_from(value).ok()) {
            fields.set(key, value, place);
        }
    }
    (!fields.is_empty()).then_some(fields)
}

fn template(
    ours: &str,
    table: &mut Table,
    (reference, region): (Option<&Json>, Option<&str>),
    older: Option<String>,
    objects: &mut Objects,
    further: &mut Vec<Table>,
) {
    let name = reference.and_then(|one| text_at(one, &["name"])).unwrap_or_default();
    let unmanaged = reference.and_then(|one| text_at(one, &["kind"])) == Some("ProxmoxUnmanagedTemplate");
    let addresses = "as usual in Karpenter; a separate address range for the pool is safer";
    if let Some(mut read) = objects.unmanaged.get(name).filter(|_| unmanaged).cloned() {
        match read.text(&["templateName"]) {
            Some(template) => table.set("template", template, read.place(&["templateName"])),
            None => table.missing(
                "template",
                "\"k8s-worker\"",
                "the template, by name or VMID; Karpenter finds it by tags",
            ),
        }
        if !read.texts(&["tags"]).is_empty() {
            table.note(format!("{}: here templates are found by name", read.place(&["tags"])));
        }
        read.was(&["region"]);
        objects.left.insert(read.what().to_owned(), read);
        table.set("addresses", "dhcp", addresses);
        return;
    }
    if let Some(mut read) = objects.templates.get(name).filter(|_| !unmanaged).cloned() {
        match image::made(name, region, &mut read, objects.made.len()) {
            Some(made) => {
                table.set("template", name, "`pve-autoscaler template` creates it from the table above");
                let key = (name.to_owned(), region.unwrap_or_default().to_owned());
                objects.made.entry(key).or_insert(made);
            }
            None => table.missing(
                "template",
                "\"k8s-worker\"",
                format!(
                    "in Karpenter, the provider \
                creates ProxmoxTemplate {name}; here, `pve-autoscaler template` creates it from a \
                `[[template]]` table with the image and its checksum (docs/guides/template.md)"
                ),
            ),
        }
        further.extend(image::of_clones(ours, table, &mut read));
        objects.left.insert(read.what().to_owned(), read);
        return;
    }
    match older {
        Some(template) => table.set("template", template, "ProxmoxNodeClass: template"),
        None => table.missing(
            "template",
            "\"k8s-worker\"",
            "the template, by name or VMID; the template that the class names is not in the files",
        ),
    }
    table.set("addresses", "dhcp", addresses);
}
