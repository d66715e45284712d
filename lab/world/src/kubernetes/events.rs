//! Events. The same objects are served in two groups, with different field names.

use serde_json::{Value, json};

use super::{
    kinds::{EVENT, Kind, NODE},
    object,
    state::State,
};

/// Field names in the core group and in `events.k8s.io`.
const NAMES: [(&str, &str); 7] = [
    ("message", "note"),
    ("involvedObject", "regarding"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// Converts a stored object to the form in which its resource serves it.
pub(super) fn outgoing(kind: &Kind, object: &Value) -> Value {
    let mut object = object.clone();
    if kind.group == "events.k8s.io" {
        object["apiVersion"] = json!("events.k8s.io/v1");
        rename(&mut object, |(core, new)| (core, new));
    }
    object
}

/// Converts a received object to the form in which it is stored.
pub(super) fn incoming(kind: &Kind, object: &mut Value) {
    if kind.group == "events.k8s.io" {
        object["apiVersion"] = json!("v1");
        rename(object, |(core, new)| (new, core));
    }
}

fn rename(object: &mut Value, direction: fn((&'static str, &'static str)) -> (&'static str, &'static str)) {
    let Some(fields) = object.as_object_mut() else { return };
    for (from, to) in NAMES.map(direction) {
        if let Some(value) = fields.remove(from) {
            fields.insert(to.into(), value);
        }
    }
}

impl State {
    /// Writes an event of the node controller about a Node.
    pub(super) fn note_node_event(&mut self, node: &str, reason: &str, message: &str) {
        let uid = self.store.get(&NODE, "", node).map(|node| object::uid(&node).to_owned());
        let about = json!({ "kind": "Node", "apiVersion": "v1", "metadata": { "name": node, "uid": uid } });
        self.note_plain_event(&about, "Normal", reason, "node-controller", message);
    }

    /// Writes an event about an object in the older form, with `firstTimestamp`, `lastTimestamp` and `count`.
    pub(super) fn note_plain_event(
        &mut self,
        about: &Value,
        kind: &str,
        reason: &str,
        component: &str,
        message: &str,
    ) {
        let now = self.stamp();
        let mut event = self.event(about, kind, reason, message);
        event["source"] = json!({ "component": component });
        event["firstTimestamp"] = json!(now);
        event["lastTimestamp"] = json!(now);
        event["count"] = json!(1);
        event["eventTime"] = Value::Null;
        event["reportingComponent"] = json!(component);
        event["reportingInstance"] = json!("");
        self.create(&EVENT, event);
    }

    /// Writes an event about an object in the newer form, with `eventTime` and `action`.
    pub(super) fn note_event(
        &mut self,
        about: &Value,
        kind: &str,
        reason: &str,
        action: &str,
        component: &str,
        message: &str,
    ) {
        let time = object::micro_stamp(self.now());
        let mut event = self.event(about, kind, reason, message);
        event["source"] = json!({});
        event["firstTimestamp"] = Value::Null;
        event["lastTimestamp"] = Value::Null;
        event["eventTime"] = json!(time);
        event["action"] = json!(action);
        event["reportingComponent"] = json!(component);
        event["reportingInstance"] = json!(format!("{component}-cp1"));
        self.create(&EVENT, event);
    }

    /// The fields that events of both forms share.
    fn event(&mut self, about: &Value, kind: &str, reason: &str, message: &str) -> Value {
        let time = self.now();
        let namespace = match object::namespace(about) {
            "" => "default",
            namespace => namespace,
        };
        let nanos = time.as_nanosecond();
        let mut name = format!("{}.{nanos:x}", object::name(about));
        while self.store.get(&EVENT, namespace, &name).is_some() {
            name = format!("{}.{:x}", object::name(about), nanos + i128::from(self.random.u32(1..)));
        }
        let mut event = json!({
            "metadata": { "name": name, "namespace": namespace },
            "involvedObject": {
                "kind": about["kind"],
                "namespace": about["metadata"]["namespace"],
                "name": about["metadata"]["name"],
                "uid": about["metadata"]["uid"],
                "apiVersion": about["apiVersion"],
                "resourceVersion": about["metadata"]["resourceVersion"],
            },
            "reason": reason,
            "message": message,
            "type": kind,
        });
        if let Some(fields) = event["involvedObject"].as_object_mut() {
            fields.retain(|_, value| !value.is_null());
        }
        event
    }
}
