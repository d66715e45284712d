//! Labels and taints of a pool's nodes. A label's value may contain `{{ host }}`, `{{ zone }}`, `{{ region
//! }}`, `{{ pool }}`, `{{ name }}` and `{{ vmid }}`.

use std::collections::BTreeMap;

use toml::Spanned;

use super::{Pool, Written};
use crate::name_rules::{is_key, is_word};
use crate::region::Place;
use crate::values::Checker;
use model::selector::Labels;
use model::snapshot::POOL_LABEL;
use model::{HostKey, Vmid};

/// The variables in a label's value.
const VARIABLES: [&str; 6] = ["host", "zone", "region", "pool", "name", "vmid"];

/// The VMID with the most digits, for checking the length of label values.
const LONGEST_VMID: Vmid = Vmid(999_999_999);

/// Domain of the labels and taints that the daemon itself sets.
pub(super) const OURS: &str = "pve-autoscaler/";

/// Fills in the variables in a value. Variables that `of` does not contain are left unchanged.
pub(super) fn fill(text: &str, of: &BTreeMap<&str, String>) -> String {
    let mut filled = String::new();
    let mut rest = text;
    while let Some((before, variable, after)) = next(rest) {
        filled.push_str(before);
        match of.get(variable) {
            Some(value) => filled.push_str(value),
            None => filled.extend(["{{ ", variable, " }}"]),
        }
        rest = after;
    }
    filled + rest
}

/// Whether a value uses any of the given variables.
pub(super) fn uses(text: &str, variables: &[&str]) -> bool {
    let mut rest = text;
    while let Some((_, variable, after)) = next(rest) {
        if variables.contains(&variable) {
            return true;
        }
        rest = after;
    }
    false
}

/// Splits a text at its first `{{ … }}`. Returns the text before it, the name inside, and the text after it.
fn next(text: &str) -> Option<(&str, &str, &str)> {
    let (before, inside) = text.split_once("{{")?;
    let (variable, after) = inside.split_once("}}")?;
    Some((before, variable.trim(), after))
}

pub(super) fn labels(pool: &Written, checker: &mut Checker) -> Labels {
    let name = pool.name.get_ref();
    for (key, value) in &pool.labels {
        if !is_key(key.get_ref()) {
            let title = format!("pool `{name}`: `{}` is not a valid label key", key.get_ref());
            checker.wrong(title, key.span(), "expected `name` or `prefix/name`", "");
        }
        if key.get_ref().starts_with(OURS) {
            let title = format!("pool `{name}`: the label `{}` is reserved for the daemon", key.get_ref());
            let help = format!("remove this label: the daemon sets `{POOL_LABEL}` on each node");
            checker.wrong(title, key.span(), "reserved", &help);
        }
        // `--node-labels` would override the hostname that each kubelet determines. All nodes would have the
        // same hostname, so pods could not be spread across them.
        if key.get_ref() == "kubernetes.io/hostname" {
            let title = format!("pool `{name}`: each kubelet sets the label `{}` itself", key.get_ref());
            checker.wrong(title, key.span(), "each kubelet uses its own hostname", "remove it");
        }
        if let Some(hint) = reserved(key.get_ref()) {
            let title = format!("pool `{name}`: the label `{}` cannot be set on workers", key.get_ref());
            checker.wrong(title, key.span(), "reserved by Kubernetes", hint);
        }
        is_known(pool, value, checker);
    }
    pool.labels.iter().map(|(key, value)| (key.get_ref().clone(), value.get_ref().clone())).collect()
}

/// Returns what to do instead of setting a label in one of Kubernetes' own domains; `None` if the label is
/// allowed. Roles, and labels that kubelets may set (`k8s.io/kubelet/pkg/apis`), are allowed. Labels that
/// NodeRestriction forbids kubelets to set are also allowed, because the daemon sets them through the API.
fn reserved(key: &str) -> Option<&'static str> {
    const CONTROL_PLANE: [&str; 3] = [
        "node-role.kubernetes.io/control-plane",
        "node-role.kubernetes.io/master",
        "node-role.kubernetes.io/etcd",
    ];
    const KNOWN: [&str; 11] = [
        "kubernetes.io/hostname",
        "kubernetes.io/os",
        "kubernetes.io/arch",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "node.kubernetes.io/instance-type",
        "beta.kubernetes.io/os",
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/instance-type",
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
    ];
    let (domain, _) = key.split_once('/')?;
    let inside = |parent: &str| {
        domain == parent || domain.strip_suffix(parent).is_some_and(|rest| rest.ends_with('.'))
    };
    let theirs = inside("kubernetes.io") || inside("k8s.io");
    let open = ["kubelet", "node", "node-role", "node-restriction"];
    let open = open.iter().any(|name| inside(&format!("{name}.kubernetes.io")));
    if CONTROL_PLANE.contains(&key) {
        return Some("remove this label: a pool's machines are workers");
    }
    (theirs && !open && !KNOWN.contains(&key))
        .then_some("use a label in your own domain or in `node.kubernetes.io/`")
}

/// Whether every `{{ … }}` in a value can be filled in.
fn is_known(pool: &Written, value: &Spanned<String>, checker: &mut Checker) -> bool {
    let name = pool.name.get_ref();
    let mut rest = value.get_ref().as_str();
    while let Some((_, variable, after)) = next(rest) {
        rest = after;
        if VARIABLES.contains(&variable) {
            continue;
        }
        let title = format!("pool `{name}`: unknown variable `{{{{ {variable} }}}}`");
        let closest = VARIABLES
            .into_iter()
            .map(|known| (strsim::jaro_winkler(variable, known), known))
            .max_by(|a, b| a.0.total_cmp(&b.0))
            .filter(|(likeness, _)| *likeness > 0.7);
        let help =
            closest.map_or_else(String::new, |(_, known)| format!("did you mean `{{{{ {known} }}}}`?"));
        checker.wrong(title, value.span(), "known variables: host, zone, region, pool, name and vmid", &help);
        return false;
    }
    if rest.contains("{{") || rest.contains("}}") {
        let title = format!("pool `{name}`: unmatched `{{{{` or `}}}}` in `{}`", value.get_ref());
        checker.wrong(title, value.span(), "expected e.g. \"{{ host }}\"", "");
        return false;
    }
    true
}

/// Checks the labels' values as they would be on each known host, in the zone of that host.
pub(super) fn values_fit(written: &Written, pool: &Pool, checker: &mut Checker) {
    let mut hosts: Vec<&str> = pool.hosts.iter().map(HostKey::host).collect();
    if hosts.is_empty() {
        // `pve` stands for hosts without a configured zone. The zone of such a host is its own name.
        hosts = pool.zones.keys().map(String::as_str).chain(["pve"]).collect();
    }
    // A VM's name ends in a hyphen and five characters. The names of bare-metal machines are configured.
    let mut names: Vec<String> = pool.machines.iter().map(|machine| machine.name.clone()).collect();
    if names.is_empty() {
        names.push(format!("{}-xxxxx", pool.name));
    }
    let filled: Vec<_> = hosts
        .iter()
        .flat_map(|host| names.iter().map(move |name| (*host, name)))
        .map(|(host, name)| (host, pool.labels_for(host, name, LONGEST_VMID)))
        .collect();
    for (key, value) in &written.labels {
        // Unknown variables and a missing region have already been reported.
        let text = value.get_ref();
        let reported = |filled: &str| filled.contains("{{") || filled.contains("}}");
        if pool.region.is_none() && uses(text, &["region"]) {
            continue;
        }
        let wrong = filled.iter().find_map(|(host, labels)| {
            let filled = labels.get(key.get_ref())?;
            let fits = filled.is_empty() || is_word(filled) || reported(filled);
            (!fits).then_some((*host, filled))
        });
        let Some((host, filled)) = wrong else { continue };
        let title = format!("pool `{}`: `{text}` is not a valid label value", pool.name);
        let help = match filled == text {
            true => String::new(),
            false if uses(text, &["host", "zone"]) => format!("on host `{host}`, the value is `{filled}`"),
            false => format!("it becomes `{filled}`"),
        };
        checker.wrong(title, value.span(), "expected at most 63 letters, digits, `-`, `_` and `.`", &help);
    }
}

/// Reports `{{ region }}` if the only cluster has no name.
pub(super) fn region(pool: &Written, at: &Place, checker: &mut Checker) {
    if at.region.is_some() {
        return;
    }
    let values = pool.labels.values().chain(pool.annotations.values()).chain(&pool.provider_id);
    for value in values.filter(|value| uses(value.get_ref(), &["region"])) {
        let title = format!("pool `{}`: `{{{{ region }}}}` has no value", pool.name.get_ref());
        let help = "name the region with `region` in `[proxmox]`";
        checker.wrong(title, value.span(), "the region has no name", help);
    }
}

/// Checks the annotations of the pool's nodes, and returns them. A value may be any text, and may contain
/// variables.
pub(super) fn annotations(pool: &Written, checker: &mut Checker) -> Labels {
    let name = pool.name.get_ref();
    for (key, value) in &pool.annotations {
        if !is_key(key.get_ref()) {
            let title = format!("pool `{name}`: `{}` is not a valid annotation key", key.get_ref());
            checker.wrong(title, key.span(), "expected `name` or `prefix/name`", "");
        }
        if key.get_ref().starts_with(OURS) {
            let title =
                format!("pool `{name}`: the annotation `{}` is reserved for the daemon", key.get_ref());
            checker.wrong(
                title,
                key.span(),
                "reserved",
                "remove it; to keep a node, use `pve-autoscaler pin`",
            );
        }
        is_known(pool, value, checker);
    }
    pool.annotations.iter().map(|(key, value)| (key.get_ref().clone(), value.get_ref().clone())).collect()
}

/// Returns the `providerID` of the pool's nodes. It must have a scheme, and a part that differs between
/// machines.
pub(super) fn provider_id(pool: &Written, checker: &mut Checker) -> Option<String> {
    let written = pool.provider_id.as_ref()?;
    let text = written.get_ref();
    let name = pool.name.get_ref();
    if is_known(pool, written, checker) {
        let scheme = text.split_once("://").is_some_and(|(scheme, rest)| {
            !rest.is_empty()
                && !scheme.is_empty()
                && scheme.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
        });
        if !scheme || text.contains(char::is_control) {
            let title = format!("pool `{name}`: `{text}` is not a valid provider ID");
            checker.wrong(title, written.span(), "expected e.g. \"proxmox://home/{{ vmid }}\"", "");
        } else if !uses(text, &["vmid", "name"]) {
            let title = format!("pool `{name}`: all nodes would have the same `provider_id`");
            checker.wrong(title, written.span(), "must contain {{ vmid }} or {{ name }}", "");
        }
    }
    Some(text.clone())
}
