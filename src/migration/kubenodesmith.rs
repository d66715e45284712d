//! KubeNodeSmith's manifests: `NodeSmithPool`, `NodeSmithProvider`, `NodeSmithClaim` and related objects.

use std::collections::BTreeMap;

use serde_json::Value;

use super::draft::{Draft, Table};
use super::parts::{self, ProxmoxSide, Said};
use super::source::{Tree, all_documents, text_at};
use super::{SourceError, SourceFile};
use settings::option_privilege;

/// A provider, and how many of the pools use it.
struct Provider {
    tree: Tree,
    pools: i64,
    /// How many pools have received their part of the VMIDs.
    served: i64,
    /// The settings that the provider's pools did not read.
    left: Option<Tree>,
}

impl Provider {
    /// Whether the provider's machines boot from a network device first.
    fn boots_from_network(&self) -> bool {
        let options = self.tree.clone().list(&["proxmox", "vmOptions"]);
        options.iter().any(|option| {
            let text = |key: &str| option.get(key).and_then(Value::as_str).unwrap_or_default();
            text("name") == "boot" && text("value").trim_start_matches("order=").starts_with("net")
        })
    }
}

pub(super) fn draft(files: &[SourceFile<'_>]) -> Result<Draft, SourceError> {
    let mut draft = Draft::default();
    let (mut pools, mut providers, mut claims) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
    for document in all_documents(files)? {
        let name = text_at(&document, &["metadata", "name"]).unwrap_or("?").to_owned();
        let kind = text_at(&document, &["kind"]).unwrap_or("?").to_owned();
        let spec = |document: &Value| document.get("spec").cloned().unwrap_or_default();
        match kind.as_str() {
            "NodeSmithPool" => {
                pools.push((name.clone(), Tree::new(format!("NodeSmithPool {name}"), spec(&document))));
            }
            "NodeSmithProvider" => {
                let tree = Tree::new(format!("NodeSmithProvider {name}"), spec(&document));
                let provider = Provider { tree, pools: 0, served: 0, left: None };
                providers.insert(name, provider);
            }
            "NodeSmithClaim" => {
                let mut claim = Tree::new(format!("NodeSmithClaim {name}"), spec(&document));
                let pool = claim.text(&["poolRef"]).or_else(|| claim.text(&["poolRef", "name"]));
                let cores = claim.whole(&["requirements", "cpuCores"]);
                let memory = claim.whole(&["requirements", "memoryMiB"]);
                if let (Some(pool), Some(cores), Some(memory)) = (pool, cores, memory) {
                    claims.entry(pool).or_insert((cores, memory));
                }
            }
            "NodeSmithControlPlane" | "NodeSmithController" => {
                draft.unneeded(format!("{kind} {name}"), "the configuration lists the pools");
            }
            "Secret" => {
                draft.unneeded(format!("Secret {name}"), "secrets are in separate files, and are not copied");
            }
            _ => draft.unneeded(format!("{kind} {name}"), "the daemon is a service on a host, not a pod"),
        }
    }
    if pools.is_empty() {
        return Err(SourceError::Nothing { wanted: "a NodeSmithPool" });
    }
    for (_, pool) in &mut pools {
        let provider = pool.clone().text(&["providerRef"]).and_then(|name| providers.get_mut(&name));
        if let Some(provider) = provider {
            provider.pools += 1;
        }
    }
    parts::begin(&mut draft, side(&mut providers));
    let mut bootstrap = Table::new("[bootstrap]");
    bootstrap.set(
        "method",
        "none",
        "as in KubeNodeSmith: the installed system joins by itself; \"kubeadm\" creates a token for each machine",
    );
    draft.push(bootstrap);
    for (name, mut pool) in pools {
        let provider = pool.text(&["providerRef"]).unwrap_or_default();
        let size = claims.get(&name).copied();
        one_pool(&mut draft, &name, &mut pool, providers.get_mut(&provider), size);
        draft.unknown(pool.rest());
    }
    for provider in providers.into_values() {
        match provider.left {
            Some(left) => draft.unknown(left.rest()),
            None => draft.unneeded(provider.tree.what(), "no pool in the files uses it"),
        }
    }
    Ok(draft)
}

/// Returns the Proxmox VE settings of the first provider that a pool uses. Only one Proxmox VE cluster is
/// converted. Each additional cluster needs a `[[proxmox.also]]` table, and the draft lists the settings that
/// were not converted.
fn side(providers: &mut BTreeMap<String, Provider>) -> ProxmoxSide {
    const ENDPOINT: [&str; 2] = ["proxmox", "endpoint"];
    let mut used = providers.values_mut().filter(|provider| provider.pools > 0);
    let Some(Provider { tree, .. }) = used.next() else { return ProxmoxSide::default() };
    let endpoint = tree.text(&ENDPOINT);
    for other in used.filter(|other| other.tree.clone().text(&ENDPOINT) == endpoint) {
        other.tree.text(&ENDPOINT);
    }
    let path = ["proxmox", "vmMemOverheadMiB"];
    let reserve = tree.whole(&path).map(|mib| mib.to_string());
    let secret = ["credentialsSecretRef"];
    ProxmoxSide {
        endpoint: Said::new(endpoint, tree.place(&ENDPOINT)),
        memory_reserve: Said::new(reserve, tree.place(&path)),
        secret: tree.was(&secret).then(|| tree.place(&secret)),
        ..ProxmoxSide::default()
    }
}

fn one_pool(
    draft: &mut Draft,
    name: &str,
    tree: &mut Tree,
    provider: Option<&mut Provider>,
    size: Option<(i64, i64)>,
) {
    let prefix = tree.text(&["machineTemplate", "kubeNodeNamePrefix"]);
    let ours = parts::pool_name(prefix.as_deref().unwrap_or(name));
    let mut table = Table::of_pool("[[pool]]", &ours);
    table.set("name", ours.as_str(), tree.place(&["metadata", "name"]));
    let limit = |tree: &mut Tree, key| tree.whole(&["limits", key]).filter(|number| *number > 0);
    if let Some(least) = limit(tree, "minNodes") {
        table.set(
            "min",
            parts::count(least),
            format!("{}; enforced here, too", tree.place(&["limits", "minNodes"])),
        );
    }
    match limit(tree, "maxNodes") {
        Some(most) => table.must("max", parts::count(most), 10, tree.place(&["limits", "maxNodes"])),
        None => table.fill(
            "max",
            10,
            format!("{} is unlimited; pve-autoscaler needs a limit", tree.place(&["limits", "maxNodes"])),
        ),
    }
    if let Some((cores, memory)) = size {
        let why = "the requirements of the pool's first NodeSmithClaim";
        table.must("cores", parts::count(cores), 2, why);
        table.must("memory", parts::size(memory.saturating_mul(1 << 20)), "4GiB", why);
    } else {
        let why = "KubeNodeSmith uses the size of the first existing node, which is not in the files";
        table.fill("cores", 2, why);
        table.fill("memory", "4GiB", why);
    }
    if let Some(most) = limit(tree, "cpuCores") {
        table.set("max_cores", parts::count(most), tree.place(&["limits", "cpuCores"]));
    }
    if let Some(most) = limit(tree, "memoryMiB") {
        table.set(
            "max_memory",
            parts::size(most.saturating_mul(1 << 20)),
            tree.place(&["limits", "memoryMiB"]),
        );
    }
    if !provider.as_deref().is_some_and(Provider::boots_from_network) {
        table.missing(
            "template",
            "\"k8s-worker\"",
            "machines are clones unless they boot from the network (`boot = \"network\"`, docs/guides/network-boot.md)",
        );
    }
    if let Some(limit) = tree.text(&["scaleDown", "drainTimeout"]) {
        table.set("drain", limit, tree.place(&["scaleDown", "drainTimeout"]));
    }
    for (group, key, why) in [
        (
            "scaleUp",
            "stabilizationWindow",
            "corresponds to `stabilization_window` of `[scale_up]`; KubeNodeSmith does not use the \
                setting",
        ),
        (
            "scaleDown",
            "stabilizationWindow",
            "corresponds to `unneeded_time` and `delay_after_add` of `[scale_down]`, which are left at \
                their defaults of 10m",
        ),
        ("scaleUp", "batchSize", "as many machines at a time as pods need, up to `max_parallel_creates`"),
        ("scaleDown", "maxConcurrent", "corresponds to `max_parallel_drains` of `[scale_down]`"),
    ] {
        if tree.was(&[group, key]) {
            table.note(format!("{}: {why}", tree.place(&[group, key])));
        }
    }
    if tree.was(&["poolLabelKey"]) {
        table.note(format!(
            "{}: pods need not select a pool; nodes get `pve-autoscaler/pool`",
            tree.place(&["poolLabelKey"])
        ));
    }
    if tree.was(&["machineTemplate", "architecture"]) {
        table.note(format!(
            "{}: machines take this from the template",
            tree.place(&["machineTemplate", "architecture"])
        ));
    }
    let mut options = Table::of_pool("[pool.vm_options]", &ours);
    if let Some(provider) = provider {
        of_provider(&mut table, &mut options, provider);
    } else {
        table.note("the pool's NodeSmithProvider is not in the files");
        table.missing("vmids", "\"9100-9149\"", "VMIDs for this pool only");
    }
    draft.push(table);
    draft.push(options);
    let mut labels = Table::of_pool("[pool.labels]", &ours);
    let pairs = tree.pairs(&["machineTemplate", "labels"]);
    parts::labels(&mut labels, &pairs, &tree.place(&["machineTemplate", "labels"]));
    draft.push(labels);
}

fn of_provider(table: &mut Table, options: &mut Table, provider: &mut Provider) {
    let shared = provider.pools;
    let number = provider.served;
    provider.served += 1;
    let mut tree = provider.tree.clone();
    let (lower, upper) =
        (tree.whole(&["proxmox", "vmIDRange", "lower"]), tree.whole(&["proxmox", "vmIDRange", "upper"]));
    let place = tree.place(&["proxmox", "vmIDRange"]);
    match lower.zip(upper).and_then(|range| part(range, shared, number)) {
        Some((first, last)) if shared > 1 => {
            table.set(
                "vmids",
                format!("{first}-{last}"),
                format!("{place}, divided among the provider's {shared} pools"),
            );
        }
        Some((first, last)) => table.set("vmids", format!("{first}-{last}"), place),
        None => table.missing("vmids", "\"9100-9149\"", "VMIDs for this pool only"),
    }
    let kind = tree.text(&["type"]).unwrap_or_else(|| "proxmox".to_owned());
    if kind != "proxmox" {
        table.note(format!(
            "{}: only `proxmox` is supported, here and in KubeNodeSmith",
            tree.place(&["type"])
        ));
    }
    let hosts = tree.texts(&["proxmox", "nodeWhitelist"]);
    if !hosts.is_empty() {
        table.set("hosts", parts::list(hosts), tree.place(&["proxmox", "nodeWhitelist"]));
    }
    if let Some(tag) = tree.text(&["proxmox", "managedNodeTag"]) {
        let why = format!(
            "{}; for information only: ownership is proven by the VM's notes and its record",
            tree.place(&["proxmox", "managedNodeTag"])
        );
        table.set("tags", parts::list([tag]), why);
    }
    devices(table, &mut tree);
    let network = provider.boots_from_network();
    vm_options(table, options, &mut tree, network);
    provider.left = Some(tree);
}

/// Part `number`, counted from 0, of a range that is divided into `parts`.
fn part((first, last): (i64, i64), parts: i64, number: i64) -> Option<(i64, i64)> {
    let all = last.checked_sub(first)?.checked_add(1)?;
    let each = all.checked_div(parts.max(1))?;
    let from = first.checked_add(each.checked_mul(number)?)?;
    (each > 0).then(|| (from, from + each - 1))
}

fn devices(table: &mut Table, tree: &mut Tree) {
    let place = tree.place(&["proxmox", "networkInterfaces"]);
    for (number, device) in tree.list(&["proxmox", "networkInterfaces"]).iter().enumerate() {
        let text = |key| device.get(key).and_then(Value::as_str);
        if number > 0 {
            table.note(format!(
                "{place}: each additional device needs a `[[pool.network]]` table, with its bridge, VLAN and addresses"
            ));
            continue;
        }
        for (theirs, ours) in [("bridge", "bridge"), ("model", "model")] {
            if let Some(value) = text(theirs) {
                table.set(ours, value, format!("{place}.{theirs}"));
            }
        }
        if let Some(vlan) = device.get("vlanTag").and_then(Value::as_i64).filter(|vlan| *vlan > 0) {
            table.set("vlan", vlan, format!("{place}.vlanTag"));
        }
        if device.get("macPrefix").is_some() {
            table.note(format!(
                "{place}.macPrefix: not converted; Proxmox VE uses the MAC prefix from its datacenter \
                    options"
            ));
        }
    }
}

/// Converts raw options. An option that has a corresponding setting becomes that setting. Any other option
/// goes into `vm_options` if pools may set it there. The rest are listed by name.
fn vm_options(table: &mut Table, options: &mut Table, tree: &mut Tree, network: bool) {
    let place = tree.place(&["proxmox", "vmOptions"]);
    let mut dhcp = false;
    for option in tree.list(&["proxmox", "vmOptions"]) {
        let Some(name) = option.get("name").and_then(Value::as_str) else { continue };
        let value = match option.get("value") {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Number(number)) => number.to_string(),
            Some(Value::Bool(truth)) => u8::from(*truth).to_string(),
            _ => String::new(),
        };
        let why = format!("{place}.{name}");
        match name {
            "boot" if network => {
                table.set(
                    "boot",
                    "network",
                    format!("{why}; the VM's disk is second in the boot order: docs/guides/network-boot.md"),
                );
            }
            "ipconfig0" if value.contains("ip=dhcp") => dhcp = true,
            "ipconfig0" => {
                table.note(format!("{why}: not converted; set `addresses`, `prefix` and `gateway`"));
            }
            "scsi0" | "virtio0" | "sata0" if network => match disk(&value) {
                Some(size) => {
                    table.set("disk", size, why.clone());
                    table.set("disk_device", name, why.clone());
                    let storage = value.split(':').next().unwrap_or_default();
                    table.set("storage", storage, format!("{why}; several storages may be listed"));
                }
                None => table.note(format!("{why}: not converted; set `disk`, `disk_device` and `storage`")),
            },
            "scsi0" | "virtio0" | "sata0" => match disk(&value) {
                Some(size) => {
                    table.set("disk", size, format!("{why}; machines' disks are enlarged to this size"));
                }
                None => table
                    .note(format!("{why}: machines use the template's disk; set `disk` to make it larger")),
            },
            "sockets" | "cores" | "memory" | "balloon" => {
                table.note(format!("{why}: set `cores` and `memory` instead"));
            }
            _ if option_privilege(name).is_some() => options.set(name, value, why),
            _ => table.note(format!("{why}: not an option that a pool may set; set it in the template")),
        }
    }
    if dhcp {
        table.set(
            "addresses",
            "dhcp",
            format!("{place}.ipconfig0; a separate address range for the pool is safer"),
        );
    } else {
        table.missing("addresses", "\"dhcp\"", "how machines get addresses: \"dhcp\", or a range");
    }
}

/// The size in a disk option such as `STORAGE:16,…`.
fn disk(value: &str) -> Option<String> {
    let (_, rest) = value.split(',').next()?.split_once(':')?;
    rest.parse::<u32>().ok().map(|gib| format!("{gib}GiB"))
}
