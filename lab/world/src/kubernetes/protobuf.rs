//! Converts bodies in Kubernetes' protobuf encoding, as kubectl's typed clients send them, to JSON.
//!
//! Only the messages and fields that such clients send to this API are known (`generated.proto` of each API
//! group). An object of another kind is refused, and unknown fields are ignored.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value, json};

use super::refusal::Refusal;

/// The prefix of an encoded object.
const MAGIC: &[u8] = b"k8s\0";
/// The maximum nesting of messages. A `LabelSelector` in the affinity of a pod template is nested most
/// deeply.
const DEPTH: usize = 16;

/// How to read a field. Fields that are pointers in Go are sent only if they are set. All other fields are
/// always sent.
#[derive(Clone, Copy, Debug)]
enum Form {
    Text,
    TextPointer,
    Number,
    NumberPointer,
    Flag,
    FlagPointer,
    Texts,
    TextMap,
    BytesMap,
    QuantityMap,
    NumberOrText,
    One(&'static str),
    Many(&'static str),
}

use Form::{
    BytesMap, Flag, FlagPointer, Many, Number, NumberOrText, NumberPointer, One, QuantityMap, Text, TextMap,
    TextPointer, Texts,
};

/// The number, the JSON name and the form of each field of a message.
fn fields(message: &str) -> Option<&'static [(u64, &'static str, Form)]> {
    Some(match message {
        "ObjectMeta" => &[
            (1, "name", Text),
            (2, "generateName", Text),
            (3, "namespace", Text),
            (5, "uid", Text),
            (6, "resourceVersion", Text),
            (11, "labels", TextMap),
            (12, "annotations", TextMap),
            (13, "ownerReferences", Many("OwnerReference")),
            (14, "finalizers", Texts),
        ],
        "OwnerReference" => &[
            (1, "kind", Text),
            (3, "name", Text),
            (4, "uid", Text),
            (5, "apiVersion", Text),
            (6, "controller", FlagPointer),
            (7, "blockOwnerDeletion", FlagPointer),
        ],
        "Namespace" | "ServiceAccount" | "SelfSubjectReview" => &[(1, "metadata", One("ObjectMeta"))],
        "ConfigMap" => {
            &[(1, "metadata", One("ObjectMeta")), (2, "data", TextMap), (3, "binaryData", BytesMap)]
        }
        "Secret" => &[
            (1, "metadata", One("ObjectMeta")),
            (2, "data", BytesMap),
            (3, "type", Text),
            (4, "stringData", TextMap),
        ],
        "Eviction" => &[(1, "metadata", One("ObjectMeta")), (2, "deleteOptions", One("DeleteOptions"))],
        "DeleteOptions" => &[
            (1, "gracePeriodSeconds", NumberPointer),
            (2, "preconditions", One("Preconditions")),
            (4, "propagationPolicy", TextPointer),
            (5, "dryRun", Texts),
        ],
        "Preconditions" => &[(1, "uid", TextPointer), (2, "resourceVersion", TextPointer)],
        "SelfSubjectAccessReview" => {
            &[(1, "metadata", One("ObjectMeta")), (2, "spec", One("SelfSubjectAccessReviewSpec"))]
        }
        "SelfSubjectAccessReviewSpec" => &[
            (1, "resourceAttributes", One("ResourceAttributes")),
            (2, "nonResourceAttributes", One("NonResourceAttributes")),
        ],
        "ResourceAttributes" => &[
            (1, "namespace", Text),
            (2, "verb", Text),
            (3, "group", Text),
            (4, "version", Text),
            (5, "resource", Text),
            (6, "subresource", Text),
            (7, "name", Text),
        ],
        "NonResourceAttributes" => &[(1, "path", Text), (2, "verb", Text)],
        "PodDisruptionBudget" => {
            &[(1, "metadata", One("ObjectMeta")), (2, "spec", One("PodDisruptionBudgetSpec"))]
        }
        "PodDisruptionBudgetSpec" => &[
            (1, "minAvailable", NumberOrText),
            (2, "selector", One("LabelSelector")),
            (3, "maxUnavailable", NumberOrText),
        ],
        "PriorityClass" => &[
            (1, "metadata", One("ObjectMeta")),
            (2, "value", Number),
            (3, "globalDefault", Flag),
            (4, "description", Text),
            (5, "preemptionPolicy", TextPointer),
        ],
        _ => return workload_fields(message),
    })
}

fn workload_fields(message: &str) -> Option<&'static [(u64, &'static str, Form)]> {
    Some(match message {
        "Deployment" => &[(1, "metadata", One("ObjectMeta")), (2, "spec", One("DeploymentSpec"))],
        "DeploymentSpec" => &[
            (1, "replicas", NumberPointer),
            (2, "selector", One("LabelSelector")),
            (3, "template", One("PodTemplateSpec")),
            (9, "progressDeadlineSeconds", NumberPointer),
        ],
        "Job" => &[(1, "metadata", One("ObjectMeta")), (2, "spec", One("JobSpec"))],
        "JobSpec" => &[
            (1, "parallelism", NumberPointer),
            (2, "completions", NumberPointer),
            (6, "template", One("PodTemplateSpec")),
            (7, "backoffLimit", NumberPointer),
        ],
        "LabelSelector" => &[(1, "matchLabels", TextMap), (2, "matchExpressions", Many("Requirement"))],
        "Requirement" => &[(1, "key", Text), (2, "operator", Text), (3, "values", Texts)],
        "PodTemplateSpec" | "Pod" => &[(1, "metadata", One("ObjectMeta")), (2, "spec", One("PodSpec"))],
        "PodSpec" => &[
            (2, "containers", Many("Container")),
            (3, "restartPolicy", Text),
            (4, "terminationGracePeriodSeconds", NumberPointer),
            (6, "dnsPolicy", Text),
            (7, "nodeSelector", TextMap),
            (8, "serviceAccountName", Text),
            (10, "nodeName", Text),
            (11, "hostNetwork", Flag),
            (19, "schedulerName", Text),
            (20, "initContainers", Many("Container")),
            (22, "tolerations", Many("Toleration")),
            (24, "priorityClassName", Text),
        ],
        "Container" => &[
            (1, "name", Text),
            (2, "image", Text),
            (3, "command", Texts),
            (4, "args", Texts),
            (6, "ports", Many("ContainerPort")),
            (8, "resources", One("ResourceRequirements")),
            (14, "imagePullPolicy", Text),
        ],
        "ContainerPort" => {
            &[(1, "name", Text), (2, "hostPort", Number), (3, "containerPort", Number), (4, "protocol", Text)]
        }
        "ResourceRequirements" => &[(1, "limits", QuantityMap), (2, "requests", QuantityMap)],
        "Toleration" => &[
            (1, "key", Text),
            (2, "operator", Text),
            (3, "value", Text),
            (4, "effect", Text),
            (5, "tolerationSeconds", NumberPointer),
        ],
        _ => return None,
    })
}

/// Converts a protobuf body to JSON. `None` if the body is not protobuf.
///
/// # Errors
/// Returns 400 if the body is broken, or 415 if its kind is unknown.
pub(super) fn to_json(body: &[u8]) -> Result<Option<Value>, Refusal> {
    let Some(envelope) = body.strip_prefix(MAGIC) else { return Ok(None) };
    let broken = || Refusal::bad_request("the request body is not valid protobuf");
    let (mut kind, mut version, mut raw): (String, String, &[u8]) = Default::default();
    for part in Parts(envelope) {
        match part.ok_or_else(broken)? {
            (1, Part::Bytes(bytes)) => {
                for part in Parts(bytes) {
                    match part.ok_or_else(broken)? {
                        (1, Part::Bytes(text)) => version = plain(text),
                        (2, Part::Bytes(text)) => kind = plain(text),
                        _ => {}
                    }
                }
            }
            (2, Part::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    if fields(&kind).is_none() {
        let text = format!(
            "objects of kind {kind} are supported only as application/json, not as \
            protobuf"
        );
        return Err(Refusal::new(415, "UnsupportedMediaType", text, Value::Null));
    }
    let mut object = message(&kind, raw, DEPTH).ok_or_else(broken)?;
    object["kind"] = json!(kind);
    object["apiVersion"] = json!(version);
    Ok(Some(object))
}

/// A field's value on the wire.
enum Part<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// An iterator over the fields of a message. If a field cannot be read, the iterator yields `None` and then
/// ends.
struct Parts<'a>(&'a [u8]);

impl<'a> Iterator for Parts<'a> {
    type Item = Option<(u64, Part<'a>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let part = self.read();
        if part.is_none() {
            self.0 = &[];
        }
        Some(part)
    }
}

impl<'a> Parts<'a> {
    fn read(&mut self) -> Option<(u64, Part<'a>)> {
        let tag = self.number()?;
        let part = match tag & 7 {
            0 => Part::Number(self.number()?),
            1 => Part::Bytes(self.bytes(8)?),
            2 => {
                let length = usize::try_from(self.number()?).ok()?;
                Part::Bytes(self.bytes(length)?)
            }
            5 => Part::Bytes(self.bytes(4)?),
            _ => return None,
        };
        Some((tag >> 3, part))
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let (first, rest) = self.0.split_first()?;
            self.0 = rest;
            number |= u64::from(first & 0x7f) << shift;
            if first & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }
}

fn plain(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn message(name: &str, bytes: &[u8], depth: usize) -> Option<Value> {
    let known = fields(name)?;
    let mut object = Map::new();
    for part in Parts(bytes) {
        let (number, part) = part?;
        let Some((_, field, form)) = known.iter().find(|(known, ..)| *known == number) else { continue };
        let slot = || (*field).to_owned();
        match (form, part) {
            // Go omits these values from JSON.
            (Text, Part::Bytes([])) | (Number | Flag, Part::Number(0)) => {}
            (Text | TextPointer, Part::Bytes(text)) => {
                object.insert(slot(), json!(plain(text)));
            }
            (Number | NumberPointer, Part::Number(number)) => {
                object.insert(slot(), json!(number.cast_signed()));
            }
            (Flag | FlagPointer, Part::Number(number)) => {
                object.insert(slot(), json!(number != 0));
            }
            (NumberOrText, Part::Bytes(bytes)) => {
                object.insert(slot(), number_or_text(bytes)?);
            }
            (One(of), Part::Bytes(bytes)) => {
                object.insert(slot(), message(of, bytes, depth.checked_sub(1)?)?);
            }
            (Many(of), Part::Bytes(bytes)) => {
                push(&mut object, field, message(of, bytes, depth.checked_sub(1)?)?);
            }
            (Texts, Part::Bytes(text)) => push(&mut object, field, json!(plain(text))),
            (TextMap | BytesMap | QuantityMap, Part::Bytes(bytes)) => {
                let (key, value) = entry(bytes, *form)?;
                let map = object.entry(slot()).or_insert_with(|| json!({}));
                map[key] = value;
            }
            _ => return None,
        }
    }
    Some(Value::Object(object))
}

fn push(object: &mut Map<String, Value>, field: &str, value: Value) {
    if let Some(list) = object.entry(field).or_insert_with(|| json!([])).as_array_mut() {
        list.push(value);
    }
}

/// An entry of a map: key and value are fields 1 and 2 of a message.
fn entry(bytes: &[u8], form: Form) -> Option<(String, Value)> {
    let (mut key, mut value) = (String::new(), json!(""));
    for part in Parts(bytes) {
        match part? {
            (1, Part::Bytes(text)) => key = plain(text),
            (2, Part::Bytes(bytes)) => {
                value = match form {
                    BytesMap => json!(STANDARD.encode(bytes)),
                    QuantityMap => Parts(bytes)
                        .find_map(|part| match part? {
                            (1, Part::Bytes(text)) => Some(json!(plain(text))),
                            _ => None,
                        })
                        .unwrap_or_else(|| json!("0")),
                    _ => json!(plain(bytes)),
                }
            }
            _ => {}
        }
    }
    Some((key, value))
}

fn number_or_text(bytes: &[u8]) -> Option<Value> {
    let (mut is_text, mut number, mut text) = (false, 0, String::new());
    for part in Parts(bytes) {
        match part? {
            (1, Part::Number(kind)) => is_text = kind == 1,
            (2, Part::Number(value)) => number = value,
            (3, Part::Bytes(value)) => text = plain(value),
            _ => {}
        }
    }
    Some(if is_text { json!(text) } else { json!(number.cast_signed()) })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::to_json;

    /// What kubectl sends for `create deployment two --image=pause`.
    const DEPLOYMENT: &[u8] = b"k8s\0\x0a\x15\x0a\x07apps/v1\x12\x0aDeployment\x12\xab\x01\x0a\x1f\x0a\x03two\x12\x00\x1a\x00\x22\x00\x2a\x00\x32\x00\x38\x00\x42\x00\x5a\x0a\x0a\x03app\x12\x03two\x12\x7a\x08\x01\x12\x0c\x0a\x0a\x0a\x03app\x12\x03two\x1a\x60\x0a\x1c\x0a\x00\x12\x00\x1a\x00\x22\x00\x2a\x00\x32\x00\x38\x00\x42\x00\x5a\x0a\x0a\x03app\x12\x03two\x12\x40\x12\x22\x0a\x05pause\x12\x05pause\x2a\x00\x42\x00\x6a\x00\x72\x00\x80\x01\x00\x88\x01\x00\x90\x01\x00\xa2\x01\x00\x1a\x00\x32\x00\x42\x00\x4a\x00\x52\x00\x58\x00\x60\x00\x68\x00\x82\x01\x00\x8a\x01\x00\x9a\x01\x00\xc2\x01\x00\x22\x02\x0a\x00\x28\x00\x38\x00\x1a\x0c\x08\x00\x10\x00\x18\x00\x20\x00\x28\x00\x38\x00\x1a\x00\x22\x00";

    #[test]
    fn a_deployment_of_kubectl_is_read() {
        let expected = json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": { "name": "two", "labels": { "app": "two" } },
            "spec": {
                "replicas": 1,
                "selector": { "matchLabels": { "app": "two" } },
                "template": {
                    "metadata": { "labels": { "app": "two" } },
                    "spec": { "containers": [{ "name": "pause", "image": "pause", "resources": {} }] },
                },
            },
        });
        assert_eq!(to_json(DEPLOYMENT), Ok(Some(expected)));
    }

    #[test]
    fn a_body_that_ends_early_is_refused_wherever_it_ends_in_its_object() {
        // Two empty fields of the envelope follow the object.
        for end in 40..DEPLOYMENT.len() - 4 {
            let code = to_json(&DEPLOYMENT[..end]).map_err(|refusal| refusal.code);
            assert_eq!(code, Err(400), "{end}");
        }
    }

    #[test]
    fn json_is_left_alone_and_an_unknown_kind_refused() {
        assert_eq!(to_json(b"{}"), Ok(None));
        let code = to_json(b"k8s\0\x0a\x08\x0a\x02v1\x12\x02Ab").map_err(|refusal| refusal.code);
        assert_eq!(code, Err(415));
    }
}
