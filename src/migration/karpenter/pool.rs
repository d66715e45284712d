//! A `NodePool`, with the class that it names.

use std::collections::BTreeSet;

use serde_json::Value as Json;
use toml::{Table as Inline, Value};

use super::super::draft::Table;
use super::super::parts;
use super::super::source::{Tree, text_at};
use super::{Objects, class};
use model::quantity;

const FAMILY: &str = "karpenter.proxmox.sinextra.dev/instance-family";
const TYPE: &str = "node.kubernetes.io/instance-type";
const REGION: &str = "topology.kubernetes.io/region";
const ZONE: &str = "topology.kubernetes.io/zone";

/// GiB of memory for each vCPU, by instance family of the provider.
const FAMILIES: [(&str, i64); 4] = [("c1", 2), ("t1", 3), ("s1", 4), ("m1", 8)];

/// At most this many sizes are converted, not counting the first.
const MOST_SIZES: usize = 14;

/// The requirements of a NodePool.
#[derive(Debug, Default)]
struct Requirements {
    sizes: Option<BTreeSet<(i64, i64)>>,
    hosts: Vec<String>,
    notes: Vec<String>,
}

/// The tables of a pool.
pub(super) fn read(ours: &str, tree: &mut Tree, objects: &mut Objects) -> Vec<Table> {
    let mut table = Table::of_pool("[[pool]]", ours);
    table.set("name", ours, tree.place(&["metadata", "name"]));
    let requirements = requirements(tree);
    let sizes = requirements.sizes.clone().unwrap_or_else(usual);
    let mut sizes = sizes.into_iter();
    let first = sizes.next().unwrap_or((2, 4));
    limits(&mut table, tree, first);
    let why = if requirements.sizes.is_some() {
        "the instance types that the pool's requirements name"
    } else {
        "the provider's default instance types, because the pool names none"
    };
    table.must("cores", first.0, 2, why);
    table.must("memory", format!("{}GiB", first.1), "4GiB", why);
    let others: Vec<_> = sizes.collect();
    let inline = |(cores, gib): &(i64, i64)| {
        let mut one = Inline::new();
        one.insert("cores".to_owned(), Value::Integer(*cores));
        one.insert("memory".to_owned(), Value::String(format!("{gib}GiB")));
        Value::Table(one)
    };
    if !others.is_empty() {
        let cut = if others.len() > MOST_SIZES {
            format!("; the first {MOST_SIZES} of {}", others.len())
        } else {
            String::new()
        };
        let list = others.iter().take(MOST_SIZES).map(inline).collect();
        table.set("sizes", Value::Array(list), format!("{why}{cut}"));
    }
    if !requirements.hosts.is_empty() {
        table.set(
            "hosts",
            parts::list(requirements.hosts),
            format!("requirements on {ZONE}: in Karpenter, zones are hosts"),
        );
    }
    requirements.notes.into_iter().for_each(|note| table.note(note));
    settings(&mut table, tree);
    let name = tree.text(&["template", "spec", "nodeClassRef", "name"]).unwrap_or_default();
    tree.was(&["template", "spec", "nodeClassRef"]);
    let mut further = Vec::new();
    if objects.classes.contains_key(&name) {
        further = class::read(ours, &name, &mut table, objects);
    } else {
        table.note(format!("the pool's ProxmoxNodeClass {name} is not in the files"));
        table.missing("template", "\"k8s-worker\"", "the template, by name or VMID");
        table.missing("addresses", "\"dhcp\"", "how machines get addresses: \"dhcp\", or a range");
    }
    table.missing(
        "vmids",
        "\"20000-20049\"",
        "at least `max` VMIDs, for this pool only; Karpenter uses the next free VMID, starting at \
            `--proxmox-vmid`",
    );
    let mut tables = vec![table];
    tables.extend(further);
    for (key, header) in [("labels", "[pool.labels]"), ("annotations", "[pool.annotations]")] {
        let path = ["template", "metadata", key];
        let mut map = Table::of_pool(header, ours);
        let pairs = tree.pairs(&path);
        parts::labels(&mut map, &pairs, &tree.place(&path));
        if key == "labels" && !pairs.iter().any(|(key, _)| key == ZONE) {
            map.set(
                ZONE,
                "{{ host }}",
                "as in Karpenter: a zone is a host; `{{ zone }}` would be the `zone` of the host's \
                    `[[host]]` table",
            );
        }
        if key == "labels" && !objects.regions.is_empty() && !pairs.iter().any(|(key, _)| key == REGION) {
            map.set(REGION, "{{ region }}", "as in Karpenter");
        }
        tables.push(map);
    }
    tables
}

fn limits(table: &mut Table, tree: &mut Tree, (cores, _): (i64, i64)) {
    let nodes = tree.text(&["limits", "nodes"]).and_then(|text| quantity::units(&text).ok());
    let cpu =
        tree.text(&["limits", "cpu"]).and_then(|text| quantity::units(&text).ok()).filter(|cpu| *cpu > 0);
    let memory = tree.text(&["limits", "memory"]).and_then(|text| parts::size_of(&text));
    let replicas = tree.whole(&["replicas"]);
    if let Some(replicas) = replicas {
        table.set("min", parts::count(replicas), tree.place(&["replicas"]));
    }
    match (nodes.or(replicas), cpu) {
        (Some(most), _) => table.must("max", parts::count(most), 10, tree.place(&["limits", "nodes"])),
        (None, Some(cpu)) => {
            let why = format!(
                "{} is in vCPUs; converted to a number of machines of the smallest size",
                tree.place(&["limits", "cpu"])
            );
            table.must("max", parts::count((cpu / cores.max(1)).max(1)), 10, why);
        }
        (None, None) => table.fill("max", 10, "Karpenter's pool has no limit; pve-autoscaler needs one"),
    }
    if let Some(cpu) = cpu {
        table.set("max_cores", parts::count(cpu), tree.place(&["limits", "cpu"]));
    }
    if let Some(memory) = memory {
        table.set("max_memory", memory, tree.place(&["limits", "memory"]));
    }
}

fn settings(table: &mut Table, tree: &mut Tree) {
    for (theirs, ours) in [("taints", "taints"), ("startupTaints", "startup_taints")] {
        let path = ["template", "spec", theirs];
        let place = tree.place(&path);
        let taints = tree.list(&path);
        let unregistered = |taint: &Json| text_at(taint, &["key"]) == Some("karpenter.sh/unregistered");
        if taints.iter().any(unregistered) {
            table.note(format!(
                "{place}: karpenter.sh/unregistered is not needed, because labels and taints are set from the start"
            ));
        }
        let ours_now: Vec<_> =
            taints.iter().filter(|taint| !unregistered(taint)).filter_map(parts::taint).collect();
        if !ours_now.is_empty() {
            table.set(ours, parts::list(ours_now), place);
        }
    }
    let path = ["template", "spec", "expireAfter"];
    match tree.text(&path) {
        Some(age) if age != "Never" => table.set("max_node_age", age, tree.place(&path)),
        Some(_) => {}
        None => table.set("max_node_age", "720h", format!("{}: Karpenter's default", tree.place(&path))),
    }
    let path = ["template", "spec", "terminationGracePeriod"];
    if let Some(limit) = tree.text(&path) {
        table.set(
            "drain",
            limit,
            format!(
                "{}; here, the daemon gives up the drain after this time and never forces it",
                tree.place(&path)
            ),
        );
    }
    if let Some(weight) = tree.whole(&["weight"]) {
        table.set(
            "priority",
            weight,
            format!("{}; used with `expander = \"priority\"` in [scale_up]", tree.place(&["weight"])),
        );
    }
}

fn requirements(tree: &mut Tree) -> Requirements {
    let path = ["template", "spec", "requirements"];
    let place = tree.place(&path);
    let mut read = Requirements::default();
    let mut families = None;
    for one in tree.list(&path) {
        let (key, operator) =
            (text_at(&one, &["key"]).unwrap_or("?"), text_at(&one, &["operator"]).unwrap_or("?"));
        let values: Vec<_> = one
            .get("values")
            .and_then(Json::as_array)
            .into_iter()
            .flatten()
            .filter_map(Json::as_str)
            .collect();
        match (key, operator) {
            (TYPE, "In") => read.sizes = Some(values.iter().filter_map(|value| instance_type(value)).collect()),
            (FAMILY, "In") => families = Some(values.iter().map(ToString::to_string).collect::<Vec<_>>()),
            (ZONE, "In") => read.hosts = values.iter().map(ToString::to_string).collect(),
            ("kubernetes.io/arch" | "kubernetes.io/os", _) => read.notes.push(format!("{place}: {key} depends on the template")),
            ("karpenter.sh/capacity-type", _) => read.notes.push(format!("{place}: {key}: machines have no capacity types")),
            _ => read.notes.push(format!("{place}: {key} {operator} has no counterpart; the pool's `labels`, `hosts` or `sizes` may serve instead")),
        }
    }
    if let Some(families) = families.filter(|_| read.sizes.is_none()) {
        let of_family = |(name, _): &&(&str, i64)| families.iter().any(|family| family == name);
        let rates: Vec<_> = FAMILIES.iter().filter(of_family).map(|(_, rate)| *rate).collect();
        read.sizes = Some(made(&rates));
    }
    read.sizes = read.sizes.filter(|sizes| !sizes.is_empty());
    read
}

/// The cores and GiB of an instance type such as `c1.4VCPU-8GB`.
fn instance_type(text: &str) -> Option<(i64, i64)> {
    let (_, size) = text.split_once('.')?;
    let (cores, memory) = size.split_once("VCPU-")?;
    Some((cores.parse().ok()?, memory.strip_suffix("GB")?.parse().ok()?))
}

/// The sizes that the provider offers by default.
fn usual() -> BTreeSet<(i64, i64)> {
    made(&FAMILIES.map(|(_, rate)| rate))
}

fn made(rates: &[i64]) -> BTreeSet<(i64, i64)> {
    let cores = [1, 2, 4, 8, 16];
    cores.iter().flat_map(|cores| rates.iter().map(move |rate| (*cores, cores * rate))).collect()
}
