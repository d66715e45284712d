//! Values of kproximate's Helm chart (versions 0.2 and 0.3), including the output of `helm get values`.

use serde_json::{Map, Value};

use super::draft::{Draft, Table};
use super::join_command::{self, JoinCommand};
use super::parts::{self, ProxmoxSide, Said};
use super::source::{Tree, all_documents};
use super::{SourceError, SourceFile, helm};

/// Settings that have no counterpart, and why none is needed.
const UNNEEDED: &[(&str, &str)] = &[
    ("debug", "use `run --log-level debug`"),
    ("pmDebug", "headers and tokens are never logged"),
    ("enableAffinityScaling", "affinity and selectors are always considered"),
    ("kpLocalTemplateStorage", "templates with the same name on several hosts are found automatically"),
    ("rabbitMQHost", "there is no queue: records are ConfigMaps"),
    ("rabbitMQPort", "there is no queue: records are ConfigMaps"),
    ("pollInterval", "the daemon uses watches: a round starts 0.1 s after a change"),
];

/// Chart values that concern only kproximate's own pods.
const CHART: &[&str] = &[
    "rabbitmq",
    "image",
    "imagePullSecrets",
    "nameOverride",
    "fullnameOverride",
    "controllerPodAnnotations",
    "workerPodAnnotations",
    "podSecurityContext",
    "securityContext",
    "resources",
    "nodeSelector",
    "tolerations",
    "affinity",
];

pub(super) fn draft(files: &[SourceFile<'_>]) -> Result<Draft, SourceError> {
    let mut merged = Map::new();
    for document in all_documents(files)? {
        for values in helm::values(document)? {
            if let Value::Object(map) = values {
                merge(&mut merged, map);
            }
        }
    }
    merged.remove("USER-SUPPLIED VALUES");
    if !merged.get("kproximate").is_some_and(Value::is_object) {
        return Err(SourceError::Nothing {
            wanted: "a map `kproximate`, as in the values of its chart (`helm get values`) or in the object that installs it (HelmChart, HelmRelease, Application)",
        });
    }
    let mut values = Tree::new("", Value::Object(merged));
    let mut draft = Draft::default();
    let mut tree = Tree::new("", values.take(&["kproximate", "config"]).unwrap_or_default());
    let mut secrets = Tree::new("", values.take(&["kproximate", "secrets"]).unwrap_or_default());
    let token = secrets.was(&["pmToken"]);
    let password = secrets.was(&["pmPassword"]);
    let side = ProxmoxSide {
        endpoint: Said::new(tree.text(&["pmUrl"]), "pmUrl".to_owned()),
        user: Said::new(tree.text(&["pmUserID"]), "pmUserID".to_owned()),
        secret: [(token, "pmToken"), (password, "pmPassword")]
            .into_iter()
            .find_map(|(there, name)| there.then(|| name.to_owned())),
        insecure: (tree.truth(&["pmAllowInsecure"]) == Some(true)).then(|| "pmAllowInsecure".to_owned()),
        ..ProxmoxSide::default()
    };
    parts::begin(&mut draft, side);
    for host in tree.text(&["pmExcludeHosts"]).into_iter().chain(tree.text(&["excludedNodes"])) {
        for name in host.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            let mut table = Table::new("[[host]]");
            table.set("name", name, "pmExcludeHosts");
            table.set("closed", true, "no new machine is placed on this host");
            draft.push(table);
        }
    }
    let (table, join) = bootstrap(&mut tree, &mut secrets);
    draft.push(table);
    if let Some(workers) = values.whole(&["workerReplicaCount"]) {
        let mut limits = Table::new("[limits]");
        limits.set(
            "max_parallel_creates",
            parts::count(workers.max(1)),
            "workerReplicaCount; pve-autoscaler's default is 20",
        );
        draft.push(limits);
    }
    times(&mut draft, &mut tree);
    pool(&mut draft, &mut tree, &mut secrets, &join);
    for (key, why) in UNNEEDED {
        if tree.was(&[key]) {
            draft.unneeded(*key, why);
        }
    }
    for key in CHART {
        if values.was(&[key]) {
            draft.unneeded(*key, "the daemon is a service on a host, not a pod");
        }
    }
    draft.unknown(tree.rest());
    draft.unknown(secrets.rest().into_iter().map(|name| format!("secrets: {name}")));
    draft.unknown(values.rest());
    Ok(draft)
}

/// Later files override earlier ones, as with Helm.
fn merge(into: &mut Map<String, Value>, more: Map<String, Value>) {
    for (key, value) in more {
        match (into.get_mut(&key), value) {
            (Some(Value::Object(there)), Value::Object(map)) => merge(there, map),
            (_, value) => {
                into.insert(key, value);
            }
        }
    }
}

/// Returns the `[bootstrap]` table, which defines how machines join, and the settings in the join command.
fn bootstrap(tree: &mut Tree, secrets: &mut Tree) -> (Table, JoinCommand) {
    let mut table = Table::new("[bootstrap]");
    let by_agent = tree.truth(&["kpQemuExecJoin"]).unwrap_or(false);
    let command = secrets.text(&["kpJoinCommand"]).unwrap_or_default();
    if !by_agent {
        table.set("method", "none", "kpQemuExecJoin is false: the template joins by itself");
        if !command.is_empty() {
            table.note("kpJoinCommand is not used with this method, and not copied");
        }
        return (table, JoinCommand::default());
    }
    let mut join = JoinCommand::default();
    if command.contains("K3S_") || command.contains("k3s") {
        table.set("method", "k3s", "kpQemuExecJoin with a K3s command");
        join = join_command::of_k3s(&command);
        match join.server.take() {
            Some(server) => table.set("api_server", server, "kpJoinCommand"),
            None => {
                table.fill(
                    "api_server",
                    "10.10.10.2:6443",
                    "the address at which nodes reach the K3s server",
                );
            }
        }
        table.set(
            "server_token_credential",
            "bootstrap",
            "put the agent token from kpJoinCommand into /etc/pve-autoscaler/credentials/bootstrap, \
                mode 0600; it is not copied",
        );
    } else if command.is_empty() || command.contains("kubeadm join") {
        table.set(
            "method",
            "kubeadm",
            "kpQemuExecJoin; a token for each machine, instead of the permanent one in kpJoinCommand",
        );
        join = join_command::of_kubeadm(&command);
        if let Some(server) = join.server.take() {
            table.set("api_server", server, "kpJoinCommand");
        }
        if !join.ignored_checks.is_empty() {
            let checks = parts::list(std::mem::take(&mut join.ignored_checks));
            table.set("ignore_preflight_errors", checks, "kpJoinCommand");
        }
    } else {
        table.set("method", "command", "kpQemuExecJoin with a custom command");
        table.fill(
            "command",
            "echo 'not filled in' >&2; exit 1",
            "the script of kpJoinCommand, which is not copied because it contains secrets; pass them on standard input (`input_credential`)",
        );
    }
    for what in &join.told {
        table.note(format!("kpJoinCommand: {what}"));
    }
    (table, join)
}

fn times(draft: &mut Draft, tree: &mut Tree) {
    let provision = tree.number(&["waitSecondsForProvision"]);
    let join = tree.number(&["waitSecondsForJoin"]);
    if provision.is_some() || join.is_some() {
        let mut up = Table::new("[scale_up]");
        let sum = provision.unwrap_or(120.0).max(60.0) + join.unwrap_or(120.0).max(60.0);
        up.set(
            "max_node_provision_time",
            parts::seconds(sum),
            "the sum of waitSecondsForProvision and waitSecondsForJoin; pve-autoscaler enforces it; the default is 15m",
        );
        draft.push(up);
    }
    let mut down = Table::new("[scale_down]");
    if let Some(wait) = tree.number(&["scaleDownCooldownSeconds"]) {
        down.set(
            "delay_after_add",
            parts::seconds(wait),
            "scaleDownCooldownSeconds; here, it applies to each pool separately",
        );
    }
    if tree.was(&["loadHeadroom"]) {
        down.note(
            "loadHeadroom: a share of the entire cluster in kproximate. Here, each node's pods must fit \
                elsewhere. A pool's `headroom` keeps room free, and `utilization_threshold` decides \
                which nodes are candidates for removal",
        );
    }
    draft.push(down);
}

fn pool(draft: &mut Draft, tree: &mut Tree, secrets: &mut Tree, join: &JoinCommand) {
    let name = parts::pool_name(&tree.text(&["kpNodeNamePrefix"]).unwrap_or_else(|| "kp-node".to_owned()));
    let mut table = Table::of_pool("[[pool]]", &name);
    table.set("name", name.as_str(), "kpNodeNamePrefix");
    table.set("min", 0, "kproximate has no minimum");
    let most = tree.whole(&["maxKpNodes"]).unwrap_or(3);
    table.must("max", parts::count(most), 3, "maxKpNodes; VMs that are not ready are included in the limit");
    let cores = tree.whole(&["kpNodeCores"]).unwrap_or(2);
    table.must("cores", parts::count(cores), 2, "kpNodeCores (`sizes` allows several)");
    let memory = tree.whole(&["kpNodeMemory"]).unwrap_or(2048);
    table.must(
        "memory",
        parts::size(memory.saturating_mul(1 << 20)),
        "2GiB",
        "kpNodeMemory, which is in MiB",
    );
    match tree.text(&["kpNodeTemplateName"]) {
        Some(template) => table.set("template", template, "kpNodeTemplateName"),
        None => table.missing("template", "\"k8s-worker\"", "the template, by name or VMID"),
    }
    table.set("clone", "linked", "as in kproximate");
    table.missing(
        "vmids",
        "\"9100-9149\"",
        "at least `max` VMIDs, for this pool only; kproximate uses the next free VMID",
    );
    table.set("addresses", "dhcp", "as in kproximate; a separate address range for the pool is safer");
    if let Some(strategy) = tree.text(&["nodeSelectionStrategy"]) {
        match strategy.as_str() {
            "spread" | "round-robin" => table.set("placement", "spread", "nodeSelectionStrategy"),
            "max-memory" | "balanced" => {
                table.set("placement", "balance", "nodeSelectionStrategy, by free memory");
            }
            _ => table.note(
                "nodeSelectionStrategy: not converted; set `placement` to \"balance\", \"spread\" or \
                \"pack\"",
            ),
        }
    } else {
        table.set(
            "placement",
            "spread",
            "as in kproximate: the host with the fewest of the pool's \
            machines comes first",
        );
    }
    if let Some(mib) = tree.whole(&["minAvailableMemoryMB"]) {
        table.set("memory_reserve", parts::size(mib.saturating_mul(1 << 20)), "minAvailableMemoryMB");
    }
    if tree.was(&["minAvailableCpuCores"]) {
        table.note("minAvailableCpuCores: not converted; set `cpu_reserve` in a `[[host]]` table");
    }
    keys(&mut table, tree, secrets);
    if !join.taints.is_empty() {
        table.set("taints", parts::list(join.taints.clone()), "kpJoinCommand: --node-taint");
    }
    draft.push(table);
    let mut arguments = Table::of_pool("[pool.kubelet_args]", &name);
    for (key, value) in &join.kubelet_args {
        arguments.set(key, value.as_str(), "kpJoinCommand: --kubelet-arg");
    }
    draft.push(arguments);
    let mut labels = Table::of_pool("[pool.labels]", &name);
    for label in tree.text(&["kpNodeLabels"]).unwrap_or_default().split(',').map(str::trim) {
        match label.split_once('=') {
            Some((key, value)) => labels.set(key.trim(), variables(value.trim()), "kpNodeLabels"),
            None if label.is_empty() => {}
            None => labels.note("kpNodeLabels: one of the labels has no `=`"),
        }
    }
    for (key, value) in &join.labels {
        labels.set(key, value.as_str(), "kpJoinCommand: --node-label");
    }
    draft.push(labels);
}

fn keys(table: &mut Table, tree: &mut Tree, secrets: &mut Tree) {
    let without = tree.truth(&["kpNodeDisableSsh"]).unwrap_or(false);
    let keys = secrets.text(&["sshKey"]).unwrap_or_default();
    let keys: Vec<_> = keys.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if without {
        table.note("kpNodeDisableSsh is true, so `ssh_keys` is not set");
    } else if !keys.is_empty() && keys.iter().all(|key| parts::is_public_key(key)) {
        table.set("ssh_keys", parts::list(keys), "sshKey");
    } else if !keys.is_empty() {
        table.note("sshKey: not copied, because it is not a public key");
    }
}

/// Replaces kproximate's only variable, which stands for the host, with `{{ host }}`.
fn variables(value: &str) -> String {
    match (value.find("{{"), value.find("}}")) {
        (Some(from), Some(to))
            if from < to && value[from..to].to_ascii_lowercase().contains("targethost") =>
        {
            format!("{}{{{{ host }}}}{}", &value[..from], &value[to + 2..])
        }
        _ => value.to_owned(),
    }
}
