//! The settings of a pool's kubelets, and the declared resources of its nodes.

use std::collections::BTreeMap;

use toml::Spanned;

use super::Written;
use crate::name_rules;
use crate::one_or_many::Scalar;
use crate::report::Finding;
use crate::values::Checker;
use model::quantity;
use model::resources::Resources;

/// Arguments that the daemon or kubeadm sets, each with what to do instead.
const SET_ALREADY: [(&str, &str); 12] = [
    ("bootstrap-kubeconfig", "remove this argument: kubeadm sets it"),
    ("config", "remove this argument: kubeadm sets it"),
    ("container-runtime-endpoint", "remove this argument: kubeadm detects the container runtime"),
    ("hostname-override", "remove this argument: the daemon names each node after its machine"),
    ("kubeconfig", "remove this argument: kubeadm sets it"),
    ("max-pods", "use the pool's `max_pods`"),
    ("node-ip", "use the pool's `addresses`: a node has the address of its machine's slot"),
    ("node-labels", "use the pool's `labels`"),
    ("provider-id", "use the pool's `provider_id`"),
    ("register-node", "remove this argument: a machine always registers as a node"),
    ("register-with-taints", "use the pool's `taints` and `startup_taints`"),
    ("rotate-certificates", "remove this argument: kubeadm sets it"),
];

pub(super) fn arguments(pool: &Written, checker: &mut Checker) -> BTreeMap<String, String> {
    let name = pool.name.get_ref();
    for (key, value) in &pool.kubelet_args {
        let text = key.get_ref();
        if let Some((_, help)) = SET_ALREADY.into_iter().find(|(known, _)| known == text) {
            let title = format!("pool `{name}`: `{text}` is already set");
            checker.wrong(title, key.span(), "set elsewhere", help);
        } else if !name_rules::is_label(text) {
            let title = format!("pool `{name}`: `{text}` is not a valid kubelet argument");
            let bare = text.trim_start_matches('-');
            let help = if bare != text && name_rules::is_label(bare) {
                format!("write it without the dashes: `{bare}`")
            } else {
                String::new()
            };
            checker.wrong(title, key.span(), "expected lower-case letters, digits and `-`", &help);
        }
        if value.get_ref().to_string().chars().any(char::is_control) {
            let title = format!("pool `{name}`: the value of `{text}` must be a single line of text");
            checker.wrong(title, value.span(), "no control characters", "");
        }
    }
    pool.kubelet_args
        .iter()
        .map(|(key, value)| (key.get_ref().clone(), value.get_ref().to_string()))
        .collect()
}

/// Reports kubelet settings that have no effect on machines that join by themselves. Only the machines'
/// template can set them.
pub(super) fn untold(pool: &Written, checker: &mut Checker) {
    let name = pool.name.get_ref();
    let arguments = pool.kubelet_args.first_key_value().map(|(key, _)| ("kubelet_args", key.span()));
    // A `startup_taints` entry for a domain (`…/*`) sets no taint. It only declares that the domain's taints
    // are temporary.
    let mut single = pool.startup_taints.iter().filter(|taint| !taint.get_ref().contains('*'));
    let taints = single.next().map(|taint| ("startup_taints", taint.span()));
    for (key, at) in arguments.into_iter().chain(taints) {
        let title = format!("pool `{name}`: `{key}` has no effect with `method = \"none\"`");
        let help = "configure the template's kubelet instead: the pool's machines join by themselves";
        checker.wrong(title, at, "not used", help);
    }
}

pub(super) fn max_pods(pool: &Written, checker: &mut Checker) -> Option<u32> {
    let written = pool.max_pods.as_ref()?;
    let most = *written.get_ref();
    if most == 0 {
        let title = format!("pool `{}`: `max_pods` is zero", pool.name.get_ref());
        checker.wrong(title, written.span(), "must be at least 1", "by default, a node runs up to 110 pods");
    }
    Some(most)
}

/// Returns the declared number of volumes that a fresh node can attach, by CSI driver.
pub(super) fn csi_volumes(pool: &Written, checker: &mut Checker) -> BTreeMap<String, i64> {
    let name = pool.name.get_ref();
    for (driver, most) in &pool.csi_volumes {
        if !name_rules::is_key(driver.get_ref()) {
            let title = format!("pool `{name}`: `{}` is not a valid CSI driver name", driver.get_ref());
            checker.wrong(title, driver.span(), "expected e.g. \"csi.proxmox.sinextra.dev\"", "");
        }
        if !(0..=i64::from(i32::MAX)).contains(most.get_ref()) {
            let title = format!("pool `{name}`: `csi_volumes` contains an invalid number of volumes");
            checker.wrong(title, most.span(), "expected 0 or more", "");
        }
    }
    pool.csi_volumes.iter().map(|(driver, most)| (driver.get_ref().clone(), *most.get_ref())).collect()
}

/// Returns the declared allocatable resources of a fresh node.
pub(super) fn allocatable(pool: &Written, checker: &mut Checker) -> Option<Resources> {
    let name = pool.name.get_ref();
    let mut sum = Resources::default();
    let declared = pool.allocatable.as_ref()?;
    complete(pool, declared, checker);
    for (key, written) in declared {
        let text = written.get_ref().to_string();
        let parsed =
            if key.get_ref() == "cpu" { quantity::limited_milli(&text) } else { quantity::limited(&text) };
        if !name_rules::is_key(key.get_ref()) {
            let title = format!("pool `{name}`: `{}` is not a valid resource name", key.get_ref());
            checker.wrong(title, key.span(), "expected e.g. cpu, memory, pods or \"nvidia.com/gpu\"", "");
        }
        let Ok(amount) = parsed else {
            let title = format!("pool `{name}`: `allocatable.{}` is not a quantity", key.get_ref());
            checker.wrong(title, written.span(), "expected e.g. \"3900m\", \"7Gi\" or 110", "");
            continue;
        };
        if amount < 0 {
            let title = format!("pool `{name}`: `allocatable.{}` is negative", key.get_ref());
            checker.wrong(title, written.span(), "must not be less than zero", "");
        }
        let most = match key.get_ref().as_str() {
            "cpu" => i64::from(*pool.cores.get_ref()) * 1000,
            // An invalid `memory` is reported elsewhere.
            "memory" => quantity::limited(pool.memory.get_ref().trim_end_matches('B')).unwrap_or(i64::MAX),
            _ => i64::MAX,
        };
        if amount > most {
            let whole = if key.get_ref() == "cpu" { pool.cores.span() } else { pool.memory.span() };
            checker.findings.push(Finding {
                title: format!("pool `{name}`: `allocatable.{}` is more than the machine has", key.get_ref()),
                at: Some((
                    written.span(),
                    "pods would wait for a node that is never large enough".to_owned(),
                )),
                because: Some(whole),
                help: Some(
                    "`allocatable` is what a node offers to pods: slightly less than the machine has"
                        .to_owned(),
                ),
            });
        }
        match key.get_ref().as_str() {
            "cpu" => sum.cpu_milli = amount,
            "memory" => sum.memory = amount,
            "ephemeral-storage" => sum.ephemeral_storage = amount,
            "pods" => sum.pods = amount,
            other => {
                sum.other.insert(other.to_owned(), amount);
            }
        }
    }
    Some(sum)
}

/// Reports resources that are missing from `allocatable`. They would count as zero, so no pod would fit.
fn complete(pool: &Written, declared: &BTreeMap<Spanned<String>, Spanned<Scalar>>, checker: &mut Checker) {
    let missing = ["cpu", "memory", "pods"];
    let missing: Vec<_> =
        missing.into_iter().filter(|key| !declared.keys().any(|given| given.get_ref() == key)).collect();
    let Some(first) = declared.keys().next().filter(|_| !missing.is_empty()) else { return };
    checker.wrong(
        format!("pool `{}`: `allocatable` lacks {}", pool.name.get_ref(), missing.join(", ")),
        first.span(),
        "must name cpu, memory and pods",
        "set e.g. { cpu = \"3900m\", memory = \"7Gi\", pods = 110 }, or remove `allocatable`: the \
            daemon then reads the values from a ready node",
    );
}
