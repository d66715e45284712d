//! Defaults and validation of objects that are written.

use serde_json::{Value, json};

use super::{
    kinds::{Kind, NODE, PRIORITY_CLASS},
    object::{self, list, number, text},
    quantity,
    refusal::{Cause, Refusal},
    state::State,
};

const NAME_RULE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const KEY_RULE: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

/// Sets the initial status of a new object, and drops the status that the client sent.
pub(super) fn fresh_status(kind: &Kind, object: &mut Value) {
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    let status = match kind.plural {
        "pods" => json!({ "phase": "Pending", "qosClass": quality(object) }),
        "namespaces" => json!({ "phase": "Active" }),
        "persistentvolumeclaims" => json!({ "phase": "Pending" }),
        "volumeattachments" => json!({ "attached": false }),
        "persistentvolumes" => json!({ "phase": "Available" }),
        "poddisruptionbudgets" => {
            json!({ "disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0 })
        }
        "customresourcedefinitions" => super::custom::established(),
        "replicasets" | "statefulsets" | "replicationcontrollers" => json!({ "replicas": 0 }),
        "daemonsets" => json!({
            "currentNumberScheduled": 0,
            "numberMisscheduled": 0,
            "desiredNumberScheduled": 0,
            "numberReady": 0,
        }),
        _ => json!({}),
    };
    object["status"] = status;
}

/// The condition that the API server gives to a new pod with scheduling gates.
pub(super) fn mark_gated(pod: &mut Value, now: &str) {
    let condition = json!({
        "type": "PodScheduled",
        "status": "False",
        "lastProbeTime": null,
        "reason": "SchedulingGated",
        "message": "Scheduling is blocked due to non-empty scheduling gates",
    });
    object::set_condition(pod, condition, now);
}

/// Returns a pod's quality-of-service (QoS) class.
fn quality(pod: &Value) -> &'static str {
    let (mut any, mut guaranteed) = (false, true);
    for container in list(pod, "/spec/containers").iter().chain(list(pod, "/spec/initContainers")) {
        let part = |what: &str, resource: &str| container["resources"][what][resource].as_str().unwrap_or("");
        for resource in ["cpu", "memory"] {
            let (request, limit) = (part("requests", resource), part("limits", resource));
            any |= !request.is_empty() || !limit.is_empty();
            let asked = if request.is_empty() { limit } else { request };
            guaranteed &= !limit.is_empty() && quantity::milli(asked) == quantity::milli(limit);
        }
    }
    match (any, guaranteed) {
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
        _ => "BestEffort",
    }
}

fn default(object: &mut Value, field: &str, value: Value) {
    if object[field].is_null() {
        object[field] = value;
    }
}

impl State {
    /// Fills in defaults and checks an object that is about to be written.
    ///
    /// # Errors
    /// Returns 400 or 422 with the API server's message.
    pub(super) fn admit(&self, kind: &Kind, old: Option<&Value>, new: &mut Value) -> Result<(), Refusal> {
        match kind.plural {
            "pods" if old.is_none() => self.default_pod(new),
            "deployments" => {
                default(&mut new["spec"], "replicas", json!(1));
                let rolling = json!({ "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": "25%", "maxSurge": "25%" } });
                default(&mut new["spec"], "strategy", rolling);
                default(&mut new["spec"], "progressDeadlineSeconds", json!(600));
                default(&mut new["spec"], "revisionHistoryLimit", json!(10));
            }
            "daemonsets" => {
                let rolling = json!({ "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": 1, "maxSurge": 0 } });
                default(&mut new["spec"], "updateStrategy", rolling);
                default(&mut new["spec"], "revisionHistoryLimit", json!(10));
                if old.is_none() {
                    new["metadata"]["annotations"]["deprecated.daemonset.template.generation"] = json!("1");
                }
            }
            "replicasets" | "replicationcontrollers" => default(&mut new["spec"], "replicas", json!(1)),
            "statefulsets" => {
                default(&mut new["spec"], "replicas", json!(1));
                default(&mut new["spec"], "podManagementPolicy", json!("OrderedReady"));
            }
            "jobs" => {
                default(&mut new["spec"], "parallelism", json!(1));
                default(&mut new["spec"], "completions", json!(1));
                default(&mut new["spec"], "backoffLimit", json!(6));
            }
            "podgroups" => default(&mut new["spec"], "priority", json!(0)),
            "secrets" => {
                fold_string_data(new);
                default(new, "type", json!("Opaque"));
            }
            "namespaces" => {
                let name = object::name(new).to_owned();
                new["metadata"]["labels"]["kubernetes.io/metadata.name"] = json!(name);
            }
            _ => {}
        }
        if kind.plural == "podtemplates"
            && let Some(spec) = new.pointer_mut("/template/spec").filter(|spec| spec.is_object())
        {
            default_pod_spec(spec);
        }
        if kind.group == "apps"
            && let Some(spec) = new.pointer_mut("/spec/template/spec").filter(|spec| spec.is_object())
        {
            default_pod_spec(spec);
        }
        if kind.is_custom() {
            self.keep_to_schema(kind, new)?;
        }
        if kind.plural == "nodes"
            && let Some(old) = old
        {
            check_node_change(old, new)?;
        }
        check(kind, new)
    }

    fn default_pod(&self, pod: &mut Value) {
        let class = text(pod, "/spec/priorityClassName").to_owned();
        let named = self.store.get(&PRIORITY_CLASS, "", &class);
        let preemption = named.as_ref().map_or(Value::Null, |class| class["preemptionPolicy"].clone());
        let priority = match class.as_str() {
            "" => 0,
            "system-node-critical" => 2_000_001_000,
            "system-cluster-critical" => 2_000_000_000,
            _ => named.and_then(|class| class["value"].as_i64()).unwrap_or(0),
        };
        let spec = &mut pod["spec"];
        if !self.spec.pod_groups
            && let Some(fields) = spec.as_object_mut()
        {
            // The API server drops a field whose feature gate is off.
            fields.remove("schedulingGroup");
        }
        default_pod_spec(spec);
        default(spec, "priority", json!(priority));
        default(spec, "enableServiceLinks", json!(true));
        default(spec, "preemptionPolicy", preemption);
        default(spec, "preemptionPolicy", json!("PreemptLowerPriority"));
        default(spec, "serviceAccountName", json!("default"));
        let account = spec["serviceAccountName"].clone();
        default(spec, "serviceAccount", account);
        tolerate_outages(spec);
    }
}

/// Fills in the defaults of a pod or a pod template.
fn default_pod_spec(spec: &mut Value) {
    default(spec, "restartPolicy", json!("Always"));
    default(spec, "terminationGracePeriodSeconds", json!(30));
    default(spec, "dnsPolicy", json!("ClusterFirst"));
    default(spec, "schedulerName", json!("default-scheduler"));
    default(spec, "securityContext", json!({}));
    for list in ["containers", "initContainers"] {
        for container in spec[list].as_array_mut().into_iter().flatten() {
            default(container, "resources", json!({}));
            default(container, "imagePullPolicy", json!("IfNotPresent"));
            for port in container.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
                default(port, "protocol", json!("TCP"));
            }
            default(container, "terminationMessagePath", json!("/dev/termination-log"));
            default(container, "terminationMessagePolicy", json!("File"));
            let limits = container["resources"]["limits"].clone();
            for (resource, limit) in limits.as_object().into_iter().flatten() {
                default(&mut container["resources"]["requests"], resource, limit.clone());
            }
        }
        if spec[list].is_null()
            && let Some(fields) = spec.as_object_mut()
        {
            fields.remove(list);
        }
    }
}

/// Adds the two default tolerations, unless the pod already tolerates these taints
/// (`DefaultTolerationSeconds`).
fn tolerate_outages(spec: &mut Value) {
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let has = list(spec, "/tolerations").iter().any(|one| {
            let (found, effect) = (text(one, "/key"), text(one, "/effect"));
            (found == key || found.is_empty()) && (effect == "NoExecute" || effect.is_empty())
        });
        if !has {
            let toleration =
                json!({ "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 });
            if !spec["tolerations"].is_array() {
                spec["tolerations"] = json!([]);
            }
            if let Some(tolerations) = spec["tolerations"].as_array_mut() {
                tolerations.push(toleration);
            }
        }
    }
}

fn fold_string_data(secret: &mut Value) {
    use base64::Engine as _;
    let Some(plain) = secret.as_object_mut().and_then(|fields| fields.remove("stringData")) else { return };
    for (name, value) in plain.as_object().into_iter().flatten() {
        let encoded = base64::engine::general_purpose::STANDARD.encode(value.as_str().unwrap_or(""));
        secret["data"][name] = json!(encoded);
    }
}

fn is_subdomain(name: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    name.len() <= 253
        && name
            .split('.')
            .all(|part| part.chars().all(inner) && edge(part.chars().next()) && edge(part.chars().last()))
}

fn is_label_key(key: &str) -> bool {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    prefix.is_none_or(is_subdomain)
        && name.len() <= 63
        && name.chars().all(inner)
        && edge(name.chars().next())
        && edge(name.chars().last())
}

fn check(kind: &Kind, new: &Value) -> Result<(), Refusal> {
    let name = object::name(new);
    let mut causes = Vec::new();
    let invalid = |value: &str, rule: &str| format!("Invalid value: \"{value}\": {rule}");
    let lax = kind.group == "rbac.authorization.k8s.io" || kind.plural == "events";
    if !lax && !is_subdomain(name) {
        causes.push(Cause::new("metadata.name", "FieldValueInvalid", invalid(name, NAME_RULE)));
    }
    for (key, _) in new["metadata"]["labels"].as_object().into_iter().flatten() {
        if !is_label_key(key) {
            causes.push(Cause::new("metadata.labels", "FieldValueInvalid", invalid(key, KEY_RULE)));
        }
    }
    match kind.plural {
        "pods" => check_pod(new, &mut causes)?,
        "nodes" => check_taints(new, &mut causes),
        "leases" => check_lease(new, &mut causes)?,
        "poddisruptionbudgets" => {
            let spec = &new["spec"];
            if !spec["minAvailable"].is_null() && !spec["maxUnavailable"].is_null() {
                let shown = format!(
                    "Invalid value: {{\"MinAvailable\":{},\"Selector\":{},\"MaxUnavailable\":{},\"UnhealthyPodEvictionPolicy\":null}}: minAvailable and maxUnavailable cannot be both set",
                    spec["minAvailable"], spec["selector"], spec["maxUnavailable"]
                );
                causes.push(Cause::new("spec", "FieldValueInvalid", shown));
            }
        }
        _ => {}
    }
    if causes.is_empty() { Ok(()) } else { Err(Refusal::invalid(kind, name, &causes)) }
}

fn check_pod(pod: &Value, causes: &mut Vec<Cause>) -> Result<(), Refusal> {
    let containers = list(pod, "/spec/containers");
    if containers.is_empty() {
        causes.push(Cause::new("spec.containers", "FieldValueRequired", "Required value"));
    }
    for (at, container) in containers.iter().enumerate() {
        for part in ["requests", "limits"] {
            for (_, value) in container["resources"][part].as_object().into_iter().flatten() {
                let text = value.as_str().map_or_else(|| value.to_string(), String::from);
                if quantity::milli(&text).is_none() {
                    let rule = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
                    return Err(Refusal::bad_request(format!(
                        "Pod in version \"v1\" cannot be handled as a Pod: {rule}"
                    )));
                }
            }
        }
        for (resource, limit) in container["resources"]["limits"].as_object().into_iter().flatten() {
            let request = text(container, &format!("/resources/requests/{}", resource.replace('/', "~1")));
            let limit = limit.as_str().unwrap_or("");
            if !request.is_empty() && quantity::milli(request) > quantity::milli(limit) {
                let message = format!(
                    "Invalid value: \"{request}\": must be less than or equal to {resource} limit of {limit}"
                );
                let field = format!("spec.containers[{at}].resources.requests");
                causes.push(Cause::new(field, "FieldValueInvalid", message));
            }
        }
    }
    Ok(())
}

/// Rejects changes to Node fields that cannot change once they are set.
fn check_node_change(old: &Value, new: &Value) -> Result<(), Refusal> {
    for (field, named) in [("providerID", "providerID"), ("podCIDR", "podCIDRs")] {
        let (before, after) = (&old["spec"][field], &new["spec"][field]);
        if before.as_str().is_some_and(|value| !value.is_empty()) && before != after {
            let text = format!("Forbidden: node updates may not change {field} except from \"\" to valid");
            let cause = Cause::new(format!("spec.{named}"), "FieldValueForbidden", text);
            return Err(Refusal::invalid(&NODE, object::name(old), &[cause]));
        }
    }
    Ok(())
}

fn check_taints(node: &Value, causes: &mut Vec<Cause>) {
    let taints = list(node, "/spec/taints");
    for (at, taint) in taints.iter().enumerate() {
        let (key, effect) = (text(taint, "/key"), text(taint, "/effect"));
        let field = format!("metadata.taints[{at}]");
        if !is_label_key(key) {
            let message = format!("Invalid value: \"{key}\": {KEY_RULE}");
            causes.push(Cause::new(format!("{field}.key"), "FieldValueInvalid", message));
        }
        if !matches!(effect, "NoSchedule" | "PreferNoSchedule" | "NoExecute") {
            let message = format!(
                "Unsupported value: \"{effect}\": supported values: \"NoSchedule\", \"PreferNoSchedule\", \"NoExecute\""
            );
            causes.push(Cause::new(format!("{field}.effect"), "FieldValueNotSupported", message));
        }
        if taints.iter().take(at).any(|one| one["key"] == taint["key"] && one["effect"] == taint["effect"]) {
            let message = format!(
                "Duplicate value: {{\"Key\":\"{key}\",\"Value\":\"{}\",\"Effect\":\"{effect}\",\"TimeAdded\":null}}: taints must be unique by key and effect pair",
                text(taint, "/value")
            );
            causes.push(Cause::new(field, "FieldValueDuplicate", message));
        }
    }
}

/// Checks that the times in a Lease have exactly six decimal places, as the decoder of Leases requires.
///
/// # Errors
/// Returns 400 if a time has a different format.
pub(super) fn check_lease_times(lease: &Value) -> Result<(), Refusal> {
    for field in ["acquireTime", "renewTime"] {
        let Some(time) = lease["spec"][field].as_str() else { continue };
        if let Some((value, wanted)) = micro_problem(time) {
            return Err(Refusal::bad_request(format!(
                "Lease in version \"v1\" cannot be handled as a Lease: parsing time \"{time}\" as \"2006-01-02T15:04:05.000000Z07:00\": cannot parse \"{value}\" as \"{wanted}\""
            )));
        }
    }
    Ok(())
}

fn check_lease(lease: &Value, causes: &mut Vec<Cause>) -> Result<(), Refusal> {
    check_lease_times(lease)?;
    if let Some(seconds) = number(lease, "/spec/leaseDurationSeconds").filter(|seconds| *seconds <= 0) {
        let message = format!("Invalid value: {seconds}: must be greater than 0");
        causes.push(Cause::new("spec.leaseDurationSeconds", "FieldValueInvalid", message));
    }
    Ok(())
}

/// Returns the part of a time that cannot be parsed, and the format that was expected there. Returns `None`
/// if the time has exactly six decimal places.
fn micro_problem(time: &str) -> Option<(String, &'static str)> {
    if time.parse::<jiff::Timestamp>().is_err() {
        return Some((time.to_owned(), "2006"));
    }
    let (_, rest) = time.split_at_checked(19)?;
    let digits =
        rest.strip_prefix('.').map_or(0, |rest| rest.chars().take_while(char::is_ascii_digit).count());
    match digits {
        6 => None,
        0..6 => Some((rest.to_owned(), ".000000")),
        _ => Some((rest.get(7..).unwrap_or("").to_owned(), "Z07:00")),
    }
}
