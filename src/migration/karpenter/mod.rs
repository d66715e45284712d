//! Manifests of Karpenter with the Proxmox provider, and the provider's cloud configuration.

mod budgets;
mod class;
mod image;
mod pool;

use std::collections::BTreeMap;

use serde_json::Value;

use super::draft::{Draft, Table};
use super::parts::{self, ProxmoxSide, Said};
use super::source::{Tree, all_documents, documents, text_at};
use super::{SourceError, SourceFile};

/// The objects in the files, by kind and name.
#[derive(Default)]
struct Objects {
    pools: Vec<(String, Tree)>,
    classes: BTreeMap<String, Tree>,
    templates: BTreeMap<String, Tree>,
    unmanaged: BTreeMap<String, Tree>,
    clusters: Vec<Tree>,
    /// Templates to create, by name and region.
    made: BTreeMap<(String, String), Table>,
    /// The regions' names, in the order of the clusters.
    regions: Vec<String>,
    /// For each class and template, the settings that were not read. They are kept only once, even if several
    /// pools read the same class or template.
    left: BTreeMap<String, Tree>,
}

pub(super) fn draft(files: &[SourceFile<'_>]) -> Result<Draft, SourceError> {
    let mut draft = Draft::default();
    let mut objects = Objects::default();
    for document in all_documents(files)? {
        objects.add(document, &mut draft);
    }
    if objects.pools.is_empty() {
        return Err(SourceError::Nothing { wanted: "a NodePool" });
    }
    parts::begin_with(&mut draft, sides(&mut objects));
    let mut bootstrap = Table::new("[bootstrap]");
    bootstrap.set(
        "method",
        "kubeadm",
        "through the guest agent, with a token for each machine; \"none\" is for templates that join by \
            themselves, \"k3s\" for K3s, \"command\" for your own script",
    );
    draft.push(bootstrap);
    let mut down = Table::new("[scale_down]");
    let mut rules = Vec::new();
    let pools = std::mem::take(&mut objects.pools);
    let several = pools.len() > 1;
    let mut tables = Vec::new();
    for (name, mut tree) in pools {
        let ours = parts::pool_name(&name);
        // `[scale_down]` applies to all pools: it is filled from the first NodePool, and the `disruption` of
        // every other NodePool is reported.
        let mut own = Table::new("[scale_down]");
        let settings = if down.is_empty() { &mut down } else { &mut own };
        rules.extend(budgets::read(&mut tree, &ours, settings, several));
        if !own.is_empty() {
            draft.unneeded(
                format!("NodePool {name}: disruption"),
                "`[scale_down]` applies to all pools, and is converted from the first NodePool",
            );
        }
        tables.extend(pool::read(&ours, &mut tree, &mut objects));
        draft.unknown(tree.rest());
    }
    let drift = "Karpenter always replaces drifted nodes";
    let mut replace = Table::new("[replace]");
    replace.set("drift", true, drift);
    draft.push(down);
    draft.push(replace);
    let made = std::mem::take(&mut objects.made).into_values();
    for table in rules.into_iter().chain(made).chain(tables) {
        draft.push(table);
    }
    let named = objects
        .classes
        .into_values()
        .chain(objects.templates.into_values())
        .chain(objects.unmanaged.into_values());
    for tree in named.filter(|tree| !objects.left.contains_key(tree.what())) {
        draft.unneeded(tree.what(), "no pool in the files uses it");
    }
    for tree in objects.left.into_values() {
        draft.unknown(tree.rest());
    }
    for tree in objects.clusters {
        draft.unknown(tree.rest());
    }
    Ok(draft)
}

impl Objects {
    fn add(&mut self, document: Value, draft: &mut Draft) {
        let name = text_at(&document, &["metadata", "name"]).unwrap_or("?").to_owned();
        let Some(kind) = text_at(&document, &["kind"]).map(ToOwned::to_owned) else {
            self.cloud_configuration(&document);
            return;
        };
        let tree = || Tree::new(format!("{kind} {name}"), document.get("spec").cloned().unwrap_or_default());
        match kind.as_str() {
            "NodePool" => self.pools.push((name.clone(), tree())),
            "ProxmoxNodeClass" => drop(self.classes.insert(name.clone(), tree())),
            "ProxmoxTemplate" => drop(self.templates.insert(name.clone(), tree())),
            "ProxmoxUnmanagedTemplate" => drop(self.unmanaged.insert(name.clone(), tree())),
            "Secret" => {
                let inside = document.get("stringData").and_then(Value::as_object);
                for text in inside.into_iter().flat_map(|data| data.values()).filter_map(Value::as_str) {
                    let inside = documents(SourceFile { name: "the Secret", text }).unwrap_or_default();
                    for document in &inside {
                        self.cloud_configuration(document);
                    }
                }
                draft.unneeded(format!("Secret {name}"), "secrets are in separate files, and are not copied");
            }
            "NodeClaim" => {
                draft.unneeded(format!("NodeClaim {name}"), "the daemon keeps a record for each machine");
            }
            "CapacityBuffer" => draft.unneeded(
                format!("CapacityBuffer {name}"),
                "it stays in the cluster and is read from there (docs/guides/buffers.md)",
            ),
            "NodeOverlay" => draft.unneeded(
                format!("NodeOverlay {name}"),
                "machines have no prices; a pool's `allocatable` setting is what its fresh nodes offer",
            ),
            _ => draft.unneeded(format!("{kind} {name}"), "the daemon is a service on a host, not a pod"),
        }
    }

    fn cloud_configuration(&mut self, document: &Value) {
        let clusters = document.get("clusters").and_then(Value::as_array);
        self.clusters.extend(clusters.into_iter().flatten().map(|one| {
            let region = text_at(one, &["region"]).unwrap_or("?");
            Tree::new(format!("cluster {region}"), one.clone())
        }));
    }
}

/// The Proxmox VE settings of each region.
fn sides(objects: &mut Objects) -> Vec<ProxmoxSide> {
    let mut pools: BTreeMap<String, Said> = BTreeMap::new();
    for tree in objects.classes.values_mut() {
        let place = tree.place(&["resourcePool"]);
        // A class without a region applies to all regions without a class of their own.
        let region = tree.clone().text(&["region"]).unwrap_or_default();
        if let Some(said) = Said::new(tree.text(&["resourcePool"]), place) {
            pools.entry(region).or_insert(said);
        }
    }
    let mut sides = Vec::new();
    for tree in &mut objects.clusters {
        let insecure = tree.truth(&["insecure"]) == Some(true);
        let mut secret = None;
        for key in ["token_secret", "password", "token_id_file", "token_secret_file"] {
            if tree.was(&[key]) {
                secret.get_or_insert(tree.place(&[key]));
            }
        }
        let id = Said::new(tree.text(&["token_id"]), tree.place(&["token_id"]));
        let user = Said::new(tree.text(&["username"]), tree.place(&["username"]));
        let region = tree.text(&["region"]);
        let pool = region.as_ref().and_then(|region| pools.get(region)).or_else(|| pools.get(""));
        objects.regions.extend(region.clone());
        sides.push(ProxmoxSide {
            region: Said::new(region, tree.place(&["region"])),
            endpoint: Said::new(tree.text(&["url"]), tree.place(&["url"])),
            user: id.or(user),
            secret,
            insecure: insecure.then(|| tree.place(&["insecure"])),
            resource_pool: pool.cloned(),
            ..ProxmoxSide::default()
        });
    }
    if sides.is_empty() {
        let resource_pool = pools.into_values().next();
        sides.push(ProxmoxSide { resource_pool, ..ProxmoxSide::default() });
    }
    sides
}
