//! Settings of the Python proxmox-autoscaler: its `settings.py`, or the ConfigMaps that hold it.

use serde_json::{Map, Value};

use super::draft::{Draft, Table};
use super::parts::{self, ProxmoxSide, Said};
use super::source::{Tree, documents, text_at};
use super::{SourceError, SourceFile, python};

/// Settings in seconds that have a counterpart in `[scale_down]`.
const PAUSES: [(&str, &str, &str); 4] = [
    ("scale_down_unneeded_time", "unneeded_time", "here, it applies to each node separately"),
    ("scale_down_delay", "delay_after_delete", "here, it applies to each pool separately"),
    ("scale_down_delay_after_add", "delay_after_add", "here, it applies to each pool separately"),
    (
        "scale_down_delay_after_error",
        "delay_after_failure",
        "here, it applies to each pool separately, so other pools do not wait",
    ),
];

pub(super) fn draft(files: &[SourceFile<'_>]) -> Result<Draft, SourceError> {
    let mut found = Map::new();
    for file in files {
        found.extend(settings(*file)?);
    }
    let known = |key: &String| key.starts_with("pxe_") || key.starts_with("scale_") || key.ends_with("_size");
    if !found.keys().any(known) {
        return Err(SourceError::Nothing {
            wanted: "a setting of proxmox-autoscaler, in Python or in a ConfigMap",
        });
    }
    let mut tree = Tree::new("", Value::Object(found));
    let mut draft = Draft::default();
    let secret = tree.was(&["pxe_password"]).then(|| "pxe_password".to_owned());
    let side = ProxmoxSide {
        endpoint: Said::new(given(&mut tree, "pxe_host"), "pxe_host".to_owned()),
        user: Said::new(given(&mut tree, "pxe_user"), "pxe_user".to_owned()),
        secret,
        insecure: Some("what proxmox-autoscaler does".to_owned()),
        ..ProxmoxSide::default()
    };
    parts::begin(&mut draft, side);
    let mut bootstrap = Table::new("[bootstrap]");
    bootstrap.set("method", "kubeadm", "as in proxmox-autoscaler: through the guest agent");
    bootstrap.set(
        "token",
        "api",
        "a token for each machine, valid for half an hour; proxmox-autoscaler's token is valid for a day, and appears in its log",
    );
    draft.push(bootstrap);
    top(&mut draft, &mut tree);
    pool(&mut draft, &mut tree);
    if tree.was(&["scale_up_delay_after_add"]) {
        draft.unneeded("scale_up_delay_after_add", "several machines are created at a time");
    }
    draft.unknown(tree.rest());
    Ok(draft)
}

/// The value of a setting; `None` if it is missing or is `false`, which the parser returns for values from
/// the environment.
fn given(tree: &mut Tree, key: &str) -> Option<String> {
    tree.text(&[key]).filter(|text| text != "false")
}

/// The settings in a Python file, or in the ConfigMaps of a manifest.
fn settings(file: SourceFile<'_>) -> Result<Map<String, Value>, SourceError> {
    if !file.text.lines().any(|line| line.starts_with("kind:")) {
        return Ok(python::assignments(file.text));
    }
    let mut found = Map::new();
    let mut environment = Map::new();
    for document in documents(file)? {
        let Some(Value::Object(data)) = document.get("data") else { continue };
        if text_at(&document, &["kind"]) != Some("ConfigMap") {
            continue;
        }
        for (key, value) in data {
            let Some(text) = value.as_str() else { continue };
            if key.starts_with("PXE_") {
                environment.insert(key.to_ascii_lowercase(), value.clone());
            } else {
                found.extend(python::assignments(text));
            }
        }
    }
    found.extend(environment);
    Ok(found)
}

fn top(draft: &mut Draft, tree: &mut Tree) {
    if tree.was(&["scan_interval"]) {
        draft.unneeded(
            "scan_interval",
            "the daemon uses watches: a round starts 0.1 s after a change, and every 10 s in any case",
        );
    }
    let mut up = Table::new("[scale_up]");
    if let Some(wait) = tree.number(&["max_node_provision_time"]) {
        up.set(
            "max_node_provision_time",
            parts::seconds(wait),
            "max_node_provision_time; proxmox-autoscaler reads but does not use it",
        );
    }
    draft.push(up);
    let mut down = Table::new("[scale_down]");
    if let Some(percent) = tree.number(&["scale_down_utilization_threshold"]) {
        let why = "scale_down_utilization_threshold, which is a percentage in proxmox-autoscaler; here it applies to \
            what pods request, not to what they use";
        down.set("utilization_threshold", percent / 100.0, why);
    }
    for (theirs, ours, why) in PAUSES {
        if let Some(wait) = tree.number(&[theirs]) {
            down.set(ours, parts::seconds(wait), format!("{theirs}; {why}"));
        }
    }
    if let Some(wait) = tree.number(&["pxe_vm_lost_cleanup_delay"]) {
        let why = "pxe_vm_lost_cleanup_delay is not converted (";
        let wait = parts::seconds(wait);
        down.set(
            "unready_time",
            "20m",
            format!(
                "{why}{wait}): a VM is not lost just because its node is not ready for a while. The \
                    value here is the default of `unready_time`"
            ),
        );
    }
    draft.push(down);
    let mut health = Table::new("[health]");
    for key in ["max_total_unready_percentage", "ok_total_unready_count"] {
        if let Some(number) = tree.whole(&[key]) {
            health.set(
                key,
                parts::count(number),
                format!("{key}; proxmox-autoscaler reads but does not use it"),
            );
        }
    }
    draft.push(health);
}

fn pool(draft: &mut Draft, tree: &mut Tree) {
    let written = tree.text(&["pxe_autoscaled_node_name"]).unwrap_or_else(|| "autoscaler.node".to_owned());
    let name = parts::pool_name(&written);
    let mut table = Table::of_pool("[[pool]]", &name);
    table.set(
        "name",
        name.as_str(),
        "pxe_autoscaled_node_name; here, ownership of VMs does not depend on the name",
    );
    let least = tree.whole(&["min_size"]).unwrap_or(2);
    let most = tree.whole(&["max_size"]).unwrap_or(5);
    table.set("min", parts::count(least), "min_size");
    table.must("max", parts::count(most), 5, "max_size");
    table.fill("cores", 2, "proxmox-autoscaler uses the template's size, which is not in the settings");
    table.fill("memory", "4GiB", "proxmox-autoscaler uses the template's size, which is not in the settings");
    match tree.text(&["pxe_autoscaled_node_template_vm"]) {
        Some(template) => {
            let why = "pxe_autoscaled_node_template_vm; the full name is needed here, but \
                proxmox-autoscaler accepts a part of it";
            table.set("template", template, why);
        }
        None => table.missing("template", "\"k8s-worker\"", "the template, by name or VMID"),
    }
    table.set("clone", "linked", "as in proxmox-autoscaler");
    let why = "at least `max` VMIDs, for this pool only; proxmox-autoscaler uses the lowest free VMID, \
            starting at 100";
    table.missing("vmids", "\"9100-9149\"", why);
    addresses(&mut table, tree, most);
    draft.push(table);
    let mut labels = Table::of_pool("[pool.labels]", &name);
    if let Some(label) = tree.text(&["node_group_label"]) {
        let (key, value) = label.split_once('=').unwrap_or((label.as_str(), ""));
        labels.set(key, value, "node_group_label; nodes also get `pve-autoscaler/pool`");
    }
    draft.push(labels);
}

fn addresses(table: &mut Table, tree: &mut Tree, most: i64) {
    let mut say = |key: &str| tree.text(&[&format!("pxe_autoscaled_node_{key}")]);
    let (mode, range) = (say("network_mode"), say("ip_pool"));
    let (mask, gateway, dns) = (say("ip_mask"), say("ip_gateway"), say("dns_server"));
    if mode.as_deref() == Some("dhcp") {
        table.set("addresses", "dhcp", "pxe_autoscaled_node_network_mode");
        if range.is_some() {
            table.note("pxe_autoscaled_node_ip_pool and related settings are not used with dhcp");
        }
        return;
    }
    let Some(range) = range else {
        return table.missing(
            "addresses",
            "\"10.10.10.11-10.10.10.60\"",
            "addresses that are not used by anything else",
        );
    };
    let why = format!(
        "pxe_autoscaled_node_ip_pool; `max` ({most}) addresses are needed: the n-th address belongs to the n-th VMID"
    );
    table.set("addresses", range, why);
    if let Some(bits) = mask.and_then(|mask| mask.parse::<i64>().ok()) {
        table.set("prefix", bits, "pxe_autoscaled_node_ip_mask");
    }
    if let Some(gateway) = gateway {
        table.set("gateway", gateway, "pxe_autoscaled_node_ip_gateway");
    }
    if let Some(dns) = dns {
        table.set(
            "dns",
            parts::list(dns.split([',', ' ']).filter(|one| !one.is_empty())),
            "pxe_autoscaled_node_dns_server",
        );
    }
}
