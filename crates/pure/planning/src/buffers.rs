//! CapacityBuffers: objects that reserve free room on nodes. A buffer consists of a number of chunks, and
//! each chunk takes as much room as one pod.
//!
//! * A buffer's size is computed as in Cluster Autoscaler's buffer controller: the larger of `replicas` and
//!   `percentage`, but no more chunks than `limits` allow; if neither is set, as many as `limits` allow.
//! * A chunk is an imagined pod. It is placed after all pending pods, so that it takes no room from them.
//!   Otherwise it is treated like a pending pod: pools grow for it, and a node stays as long as its chunks
//!   fit nowhere else. No object is created for a chunk, so nothing needs to be preempted: a real pod can use
//!   the free room immediately, and the next decision makes new room.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use super::requests::Request;
use super::scale_up_decision::ScaleUpDecision;
use super::view::View;
use model::Snapshot;
use model::buffer::{ACTIVE, CapacityBuffer, PodTemplate, TemplateRef};
use model::plan::{BufferOutcome, BufferVerdict, Plan, PodOutcome, PodVerdict};
use model::pod::{Affinity, Owner, Pod, VolumeSource};
use model::pod_spec::PodSpec;
use model::selector::{Labels, Operator, Requirement};
use scheduling::NodeIndex;
use scheduling::selector::labels_match;

/// Maximum total number of chunks of all buffers. If the buffers ask for more, this number is divided among
/// their namespaces.
const MOST: i64 = 10_000;

/// A buffer and its chunks.
pub(super) struct Buffer<'a> {
    of: &'a CapacityBuffer,
    size: Result<i64, NotReady>,
    /// The PodTemplate in use, and its generation.
    template: Option<(String, i64)>,
    chunks: Vec<Arc<Pod>>,
}

/// Why a buffer's chunks are not known.
struct NotReady {
    outcome: BufferOutcome,
    reason: &'static str,
    message: String,
}

impl NotReady {
    fn because(reason: &'static str, message: String) -> Self {
        Self { outcome: BufferOutcome::NotReady, reason, message }
    }
}

/// The pod that a buffer's chunks are copied from.
struct Template<'a> {
    pod: &'a Pod,
    /// The name and the generation of the PodTemplate, if the buffer refers to one.
    of: Option<(String, i64)>,
    /// The controller's desired number of pods, if the buffer refers to a controller.
    replicas: Option<i64>,
}

/// Returns the cluster's buffers with their chunks, the oldest buffer first.
pub(super) fn resolve(snapshot: &Snapshot) -> Vec<Buffer<'_>> {
    let mut sorted: Vec<&CapacityBuffer> = snapshot.buffers.iter().map(AsRef::as_ref).collect();
    sorted.sort_by(|a, b| (a.created, &a.namespace, &a.name).cmp(&(b.created, &b.namespace, &b.name)));
    let sized = sorted.into_iter().map(|of| {
        let found = template(snapshot, of);
        let template = found.as_ref().ok().and_then(|found| found.of.clone());
        (of, template, found.and_then(|found| Ok((size(of, &found)?, found.pod))))
    });
    let sized: Vec<_> = sized.collect();
    let wanted = sized.iter().map(|(of, _, size)| {
        let size = size.as_ref().map_or(0, |(size, _)| *size);
        (of.namespace.as_str(), size)
    });
    let mut shares = shares(wanted, MOST);
    let resolved = sized.into_iter().map(|(of, template, size)| {
        let mut chunks = Vec::new();
        if let Ok((size, pod)) = &size {
            let left = shares.entry(of.namespace.as_str()).or_default();
            let count = (*size).min(*left);
            chunks = (1..=count).map(|number| Arc::new(chunk(of, pod, number))).collect();
            *left -= count;
        }
        Buffer { of, size: size.map(|(size, _)| size), template, chunks }
    });
    resolved.collect()
}

/// Divides `most` among the namespaces. Each namespace gets at most what it wants. What a namespace does not
/// use of its equal share is divided among the others.
fn shares<'a>(wanted: impl Iterator<Item = (&'a str, i64)>, most: i64) -> BTreeMap<&'a str, i64> {
    let mut sums: BTreeMap<&str, i64> = BTreeMap::new();
    for (namespace, size) in wanted {
        let sum = sums.entry(namespace).or_default();
        *sum = sum.saturating_add(size);
    }
    let mut smallest_first: Vec<(i64, &str)> = sums.into_iter().map(|(name, sum)| (sum, name)).collect();
    smallest_first.sort_unstable();
    let mut left = most;
    let count = smallest_first.len();
    let shared = smallest_first.into_iter().enumerate().map(|(number, (sum, namespace))| {
        let others = i64::try_from(count - number).unwrap_or(i64::MAX);
        let share = sum.min(left / others);
        left -= share;
        (namespace, share)
    });
    shared.collect()
}

/// Returns the given pods, followed by the imagined pods that represent ProvisioningRequests and buffer
/// chunks.
pub(super) fn beside<'p>(
    pods: &'p [Arc<Pod>],
    buffers: &[Buffer],
    requests: &[Request],
) -> Cow<'p, [Arc<Pod>]> {
    let chunks = buffers.iter().flat_map(|buffer| &buffer.chunks);
    let mut imagined = requests.iter().flat_map(|request| &request.pods).chain(chunks).peekable();
    if imagined.peek().is_none() {
        return Cow::Borrowed(pods);
    }
    pods.iter().chain(imagined).cloned().collect()
}

/// Moves the verdicts of chunks from `plan.pods` to `plan.chunks`, and determines how far each buffer is
/// filled.
pub(super) fn tell(buffers: &[Buffer], plan: &mut Plan) {
    if buffers.is_empty() {
        return;
    }
    let ids = buffers
        .iter()
        .enumerate()
        .flat_map(|(number, buffer)| buffer.chunks.iter().map(move |chunk| (&*chunk.digest().id, number)));
    let ids: BTreeMap<&str, usize> = ids.collect();
    let mut filled: Vec<BufferVerdict> = buffers.iter().map(begun).collect();
    let mut chunks = Vec::new();
    plan.pods.retain(|verdict| {
        let Some(number) = ids.get(&*verdict.pod) else { return true };
        count(&mut filled[*number], verdict);
        chunks.push(verdict.clone());
        false
    });
    plan.chunks = chunks;
    for (verdict, buffer) in filled.iter_mut().zip(buffers) {
        if buffer.size.is_ok() {
            conclude(verdict, buffer);
        }
    }
    plan.buffers = filled;
}

/// The chunks of all buffers, by their ids.
pub(super) fn chunks(snapshot: &Snapshot) -> BTreeMap<String, Arc<Pod>> {
    let all = resolve(snapshot).into_iter().flat_map(|buffer| buffer.chunks);
    all.map(|chunk| (chunk.id(), chunk)).collect()
}

/// For each node on which chunks were placed, the kind and name of the object that owns one of these chunks.
pub(super) fn holders(view: &View, growth: &ScaleUpDecision) -> BTreeMap<NodeIndex, String> {
    if view.snapshot.buffers.is_empty() && view.snapshot.requests.is_none() {
        return BTreeMap::new();
    }
    let chunks = growth.placed.iter().filter(|(pod, _)| pod.chunk);
    let named = |pod: &Pod| {
        let owner = pod.owner.as_ref()?;
        Some(format!("{} {}/{}", owner.kind, pod.namespace, owner.name))
    };
    chunks.filter_map(|(pod, at)| Some((*at, named(pod)?))).collect()
}

fn template<'a>(snapshot: &'a Snapshot, buffer: &CapacityBuffer) -> Result<Template<'a>, NotReady> {
    if buffer.strategy != ACTIVE {
        let message = format!("its strategy `{}` belongs to another autoscaler", buffer.strategy);
        return Err(NotReady { outcome: BufferOutcome::NotOurs, reason: "OtherStrategy", message });
    }
    match &buffer.template {
        None => {
            let message = "it has neither `podTemplateRef` nor `scalableRef`".to_owned();
            Err(NotReady::because("ResolutionFailed", message))
        }
        Some(TemplateRef::PodTemplate(name)) => {
            let named = |one: &&Arc<PodTemplate>| (&one.namespace, &one.name) == (&buffer.namespace, name);
            let Some(found) = snapshot.pod_templates.iter().find(named) else {
                let message = format!("there is no PodTemplate `{name}` in namespace `{}`", buffer.namespace);
                return Err(NotReady::because("PodTemplateNotFound", message));
            };
            Ok(Template { pod: &found.pod, of: Some((name.clone(), found.generation)), replicas: None })
        }
        Some(TemplateRef::Scalable { group, kind, name }) => {
            of_scalable(snapshot, buffer, (group, kind, name))
        }
    }
}

/// Determines the template for the chunks of a buffer that refers to a controller. This is the controller's
/// newest pod, because the next pod will most likely resemble it. If the controller has no pod, its pod
/// template is used.
fn of_scalable<'a>(
    snapshot: &'a Snapshot,
    buffer: &CapacityBuffer,
    (group, kind, name): (&str, &str, &str),
) -> Result<Template<'a>, NotReady> {
    const KINDS: [&str; 5] = ["Deployment", "ReplicaSet", "StatefulSet", "ReplicationController", "Job"];
    if !KINDS.contains(&kind) {
        let kinds = KINDS.join(", ");
        let message = format!(
            "kind `{kind}` of group `{group}` is not supported; supported kinds: \
            {kinds}"
        );
        return Err(NotReady::because("ResolutionFailed", message));
    }
    let Some(controller) = snapshot.controllers.iter().find(|one| buffer.refers_to(one)) else {
        let message =
            format!("there is no {kind} `{name}` of group `{group}` in namespace `{}`", buffer.namespace);
        return Err(NotReady::because("ScalableRefNotFound", message));
    };
    let is_own = |pod: &&Arc<Pod>| {
        pod.namespace == buffer.namespace
            && pod.deletion.is_none()
            && !pod.is_finished()
            && match &controller.selector {
                Some(selector) => labels_match(selector, &pod.labels),
                None => pod.owner.as_ref().is_some_and(|owner| owner.uid == controller.uid),
            }
    };
    let newest = snapshot.pods.iter().filter(is_own).max_by_key(|pod| (pod.created, &pod.name));
    let Some(pod) = newest.map(AsRef::as_ref).or(controller.template.as_deref()) else {
        let message = format!("{kind} `{name}` has neither a pod nor a template");
        return Err(NotReady::because("ResolutionFailed", message));
    };
    Ok(Template { pod, of: None, replicas: Some(controller.replicas) })
}

/// How many chunks the buffer should have.
fn size(buffer: &CapacityBuffer, template: &Template) -> Result<i64, NotReady> {
    let by_share = buffer.percentage.zip(template.replicas);
    let by_share = by_share.map(|(share, of)| {
        // Rounded up.
        if share <= 0 || of <= 0 { 0 } else { (i128::from(share) * i128::from(of) + 99) / 100 }
    });
    let asked = buffer.replicas.map(|replicas| i128::from(replicas.max(0))).max(by_share);
    let fitting = buffer.limits.as_ref().map(|limits| fitting(limits, template.pod)).transpose()?;
    let size = match (asked, fitting) {
        (Some(asked), Some(fitting)) => asked.min(fitting),
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => {
            let message = "none of `replicas`, `percentage` and `limits` sets the number of chunks";
            return Err(NotReady::because("ResolutionFailed", message.to_owned()));
        }
    };
    Ok(i64::try_from(size).unwrap_or(i64::MAX).min(i64::from(i32::MAX)))
}

/// How many chunks fit into the buffer's limits. The limits are in thousandths of each resource's unit.
fn fitting(limits: &BTreeMap<String, i64>, pod: &Pod) -> Result<i128, NotReady> {
    let requests = &pod.requests;
    let named = [
        ("cpu", i128::from(requests.cpu_milli)),
        ("memory", i128::from(requests.memory) * 1000),
        ("ephemeral-storage", i128::from(requests.ephemeral_storage) * 1000),
    ];
    let other = requests.other.iter().map(|(name, amount)| (name.as_str(), i128::from(*amount) * 1000));
    let counts =
        named.into_iter().chain(other).filter(|(_, request)| *request > 0).filter_map(|(name, request)| {
            let limit = limits.get(name).filter(|limit| **limit >= 0)?;
            Some(i128::from(*limit) / request)
        });
    counts.min().ok_or_else(|| {
        let message = "a chunk requests none of the resources in `limits`".to_owned();
        NotReady::because("ResolutionFailed", message)
    })
}

/// A chunk as a pending pod.
fn chunk(buffer: &CapacityBuffer, template: &Pod, number: i64) -> Pod {
    let owner = Owner {
        api_version: "autoscaling.x-k8s.io/v1beta1".to_owned(),
        kind: "CapacityBuffer".to_owned(),
        name: buffer.name.clone(),
        uid: buffer.uid.clone(),
    };
    // This is not a valid object name, so no real pod has it.
    let name = format!("{} (chunk {number} of a CapacityBuffer)", buffer.name);
    imagined(template, &buffer.namespace, name, owner)
}

/// An imagined pending pod. It has no volume claims, because it is unknown which volumes a real pod's claims
/// would be bound to.
pub(super) fn imagined(template: &Pod, namespace: &str, name: String, owner: Owner) -> Pod {
    let claims = |source: &VolumeSource| matches!(source, VolumeSource::Claim { .. });
    let uid = format!("{}/{name}", owner.uid);
    let spec = PodSpec {
        namespace: namespace.to_owned(),
        labels: template.labels.clone(),
        owner: Some(owner),
        scheduler: template.scheduler.clone(),
        priority: template.priority,
        priority_class: template.priority_class.clone(),
        never_preempts: true,
        requests: template.requests.clone(),
        node_selector: template.node_selector.clone(),
        affinity: merged(&template.affinity, &template.labels),
        tolerations: template.tolerations.clone(),
        spread: template.spread.clone(),
        host_ports: template.host_ports.clone(),
        volumes: template.volumes.iter().filter(|volume| !claims(&volume.source)).cloned().collect(),
        features: template.features,
        extended: template.extended.clone(),
        restarts_always: template.restarts_always,
        grace_seconds: template.grace_seconds,
        ..PodSpec::default()
    };
    Pod { name, uid, chunk: true, spec: spec.into(), ..Pod::default() }
}

/// The affinity of a pod with these labels. When a pod is created, the API server merges `matchLabelKeys` and
/// `mismatchLabelKeys` into the selectors (`applyMatchLabelKeysAndMismatchLabelKeys`). In a template, they
/// are not merged yet.
fn merged(affinity: &Affinity, labels: &Labels) -> Affinity {
    let mut affinity = affinity.clone();
    let required = affinity.pods.iter_mut().chain(&mut affinity.anti);
    let preferred = affinity.pods_preferred.iter_mut().chain(&mut affinity.anti_preferred);
    for term in required.chain(preferred.map(|one| &mut one.term)) {
        let Some(selector) = &mut term.selector else { continue };
        for (keys, operator) in
            [(&term.match_label_keys, Operator::In), (&term.mismatch_label_keys, Operator::NotIn)]
        {
            for (key, value) in keys.iter().filter_map(|key| labels.get_key_value(key)) {
                let one = Requirement { key: key.clone(), operator, values: vec![value.clone()] };
                // If the template was taken from an existing pod, the selector already contains this
                // requirement.
                if !selector.requirements.contains(&one) {
                    selector.requirements.push(one);
                }
            }
        }
    }
    affinity
}

/// Returns the buffer's initial verdict, before it is known where its chunks are placed.
fn begun(buffer: &Buffer) -> BufferVerdict {
    let mut verdict = BufferVerdict {
        buffer: buffer.of.id(),
        verdict: BufferOutcome::Empty,
        reason: None,
        message: String::new(),
        chunks: None,
        on_nodes: 0,
        on_machines: 0,
        on_new_machines: 0,
        nowhere: 0,
        nowhere_because: None,
        template: buffer.template.clone(),
        reasons: Vec::new(),
    };
    match &buffer.size {
        Ok(size) => verdict.chunks = Some(*size),
        Err(why) => {
            verdict.verdict = why.outcome;
            verdict.reason = Some(why.reason);
            verdict.message.clone_from(&why.message);
        }
    }
    verdict
}

fn count(buffer: &mut BufferVerdict, chunk: &PodVerdict) {
    match chunk.verdict {
        PodOutcome::ExistingNode => buffer.on_nodes += 1,
        PodOutcome::UpcomingNode | PodOutcome::GrownNode => buffer.on_machines += 1,
        PodOutcome::NewNode => buffer.on_new_machines += 1,
        other => {
            if buffer.nowhere == 0 {
                buffer.nowhere_because = Some(other);
                buffer.reasons = chunk.reasons().to_vec();
            }
            buffer.nowhere += 1;
        }
    }
}

fn conclude(verdict: &mut BufferVerdict, buffer: &Buffer) {
    let (size, planned) = (verdict.chunks.unwrap_or(0), buffer.chunks.len());
    verdict.verdict = if size == 0 {
        BufferOutcome::Empty
    } else if verdict.nowhere > 0 || i64::try_from(planned).is_ok_and(|planned| planned < size) {
        BufferOutcome::Short
    } else if verdict.on_machines + verdict.on_new_machines > 0 {
        BufferOutcome::Filling
    } else {
        BufferOutcome::Filled
    };
    let mut parts = Vec::new();
    for (number, one, more) in [
        (verdict.on_nodes, "fits existing nodes", "fit existing nodes"),
        (verdict.on_machines, "fits machines being created", "fit machines being created"),
        (verdict.on_new_machines, "gets a new machine", "get new machines"),
    ] {
        if number > 0 {
            parts.push(format!("{number} {}", if number == 1 { one } else { more }));
        }
    }
    if verdict.nowhere > 0 {
        let finds = if verdict.nowhere == 1 { "finds" } else { "find" };
        let mut part = format!("{} {finds} no room", verdict.nowhere);
        let why: Vec<String> =
            verdict.reasons.iter().map(|one| format!("{}: {}", one.pool, one.message)).collect();
        if !why.is_empty() {
            let _ = write!(part, " ({})", why.join("; "));
        } else if let Some(why) = verdict.nowhere_because {
            let _ = write!(part, " ({})", why.code());
        }
        parts.push(part);
    }
    let beyond = size.saturating_sub(i64::try_from(planned).unwrap_or(i64::MAX));
    if beyond > 0 {
        parts.push(format!(
            "{beyond} beyond the namespace's share of the limit of {MOST} chunks for all \
            buffers"
        ));
    }
    let chunks = if size == 1 { "1 chunk".to_owned() } else { format!("{size} chunks") };
    verdict.message = if parts.is_empty() { chunks } else { format!("{chunks}: {}", parts.join(", ")) };
}
