//! Events: the same objects in two groups with two sets of field names.

use serde_json::{Value, json};

use super::{
    kinds::{EVENT, Kind},
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

/// An object as its resource shows it.
pub(super) fn outgoing(kind: &Kind, object: &Value) -> Value {
    let mut object = object.clone();
    if kind.group == "events.k8s.io" {
        object["apiVersion"] = json!("events.k8s.io/v1");
        rename(&mut object, |(core, new)| (core, new));
    }
    object
}

/// An object as it is kept.
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
    /// Writes an event about an object, in the form of the newer recorders.
    pub(super) fn note_event(
        &mut self,
        about: &Value,
        kind: &str,
        reason: &str,
        action: &str,
        component: &str,
        message: &str,
    ) {
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
        let event = json!({
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
            "source": {},
            "firstTimestamp": null,
            "lastTimestamp": null,
            "type": kind,
            "eventTime": object::micro_stamp(time),
            "action": action,
            "reportingComponent": component,
            "reportingInstance": format!("{component}-cp1"),
        });
        self.create(&EVENT, event);
    }
}
