//! Watches. A watch first streams the past changes of its kind as lines of JSON, and then waits for more.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    Kube, object,
    path::{Form, Query, Route},
    read::{selection, shaped},
    refusal::{Cause, Refusal},
    selector::Selection,
    store::Change,
};
use crate::{
    clock::WorldClock,
    serve::{Body, NoAnswer},
    signal::Waiter,
};

/// The interval between bookmarks.
const BOOKMARKS: Duration = Duration::from_mins(1);
/// How long before the end of a watch its last bookmark is sent.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);
/// The minimum duration of a watch without a timeout. The maximum is twice as long.
const MINIMUM: Duration = Duration::from_mins(30);

/// One open watch.
struct Watch {
    kube: Kube,
    clock: WorldClock,
    route: Route,
    selection: Selection,
    form: Form,
    /// Changes up to this version have been sent, or do not have to be.
    position: u64,
    queue: VecDeque<Bytes>,
    changed: Waiter,
    cut: Waiter,
    end: Instant,
    bookmark: Option<Instant>,
    ended: bool,
}

/// Opens a watch.
///
/// # Errors
/// Returns 400 or 422 if parameters are invalid.
pub(super) fn open(kube: &Kube, route: &Route, query: &Query, form: Form) -> Result<Body, Refusal> {
    let selection = selection(route, query)?;
    let version = query.version()?;
    let bookmarks = query.flag("allowWatchBookmarks");
    let initial = check_initial(query)?;
    let seconds: u64 = query.get("timeoutSeconds").parse().unwrap_or(0);
    let mut state = kube.state();
    let lasts = if seconds > 0 {
        Duration::from_secs(seconds)
    } else {
        MINIMUM + Duration::from_millis(state.random.u64(..1_800_000))
    };
    let now = Instant::now();
    let current = state.store.revision();
    let clock = state.clock.clone();
    let cut = state.cut.waiter();
    let collection = state.store.collection(route.kind);
    let mut watch = Watch {
        kube: kube.clone(),
        clock,
        route: route.clone(),
        selection,
        form,
        position: current,
        queue: VecDeque::new(),
        changed: collection.subscribe(),
        cut,
        end: now + lasts,
        bookmark: bookmarks
            .then(|| (now + BOOKMARKS).min((now + lasts).checked_sub(LAST_BOOKMARK).unwrap_or(now))),
        ended: false,
    };
    match version {
        Some(version) if version > 0 && initial != Some(true) => {
            if let Some(oldest) = collection.too_old(version) {
                watch.fail(version, oldest);
            }
            watch.position = version;
        }
        _ if initial == Some(false) => {}
        _ => {
            let objects: Vec<Arc<Value>> = collection.objects.values().cloned().collect();
            for one in &objects {
                if watch.is_mine(one) {
                    watch.say("ADDED", one);
                }
            }
            if bookmarks {
                watch.mark(current, true);
            }
        }
    }
    drop(state);
    let stream = futures::stream::unfold(watch, |mut watch| async move {
        let next = watch.next().await?;
        Some((next.map(Frame::data), watch))
    });
    Ok(StreamBody::new(stream).boxed_unsync())
}

/// Reads `sendInitialEvents`.
fn check_initial(query: &Query) -> Result<Option<bool>, Refusal> {
    let rule = query.get("resourceVersionMatch");
    let forbidden =
        |text: &str| Cause::new("resourceVersionMatch", "FieldValueForbidden", format!("Forbidden: {text}"));
    if query.get("sendInitialEvents").is_empty() {
        if rule.is_empty() {
            return Ok(None);
        }
        let cause =
            forbidden("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided");
        return Err(Refusal::invalid_options("ListOptions", &[cause]));
    }
    if rule != "NotOlderThan" {
        let mut causes =
            vec![forbidden("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")];
        if !rule.is_empty() {
            let text = format!("Unsupported value: \"{rule}\": supported values: \"NotOlderThan\"");
            causes.push(Cause::new("resourceVersionMatch", "FieldValueNotSupported", text));
        }
        return Err(Refusal::invalid_options("ListOptions", &causes));
    }
    Ok(Some(query.flag("sendInitialEvents")))
}

impl Watch {
    async fn next(&mut self) -> Option<Result<Bytes, NoAnswer>> {
        loop {
            if let Some(line) = self.queue.pop_front() {
                return Some(Ok(line));
            }
            if self.ended {
                return None;
            }
            self.changed.catch_up();
            self.collect();
            if !self.queue.is_empty() {
                continue;
            }
            let wake = self.bookmark.map_or(self.end, |bookmark| bookmark.min(self.end));
            tokio::select! {
                biased;
                () = self.cut.wait() => {
                    self.ended = true;
                    return Some(Err(NoAnswer));
                }
                () = self.changed.wait() => {}
                () = tokio::time::sleep_until(wake) => self.on_time(),
            }
        }
    }

    fn on_time(&mut self) {
        let now = Instant::now();
        if now >= self.end {
            self.ended = true;
            return;
        }
        let revision = self.kube.state().store.revision();
        self.mark(revision, false);
        let last = self.end.checked_sub(LAST_BOOKMARK).unwrap_or(now);
        self.bookmark = if now >= last { None } else { Some((now + BOOKMARKS).min(last)) };
    }

    /// Reads the changes since the last position.
    fn collect(&mut self) {
        let mut state = self.kube.state();
        let current = state.store.revision();
        let changes: Result<Vec<Change>, u64> = state
            .store
            .collection(self.route.kind)
            .since(self.position)
            .map(|found| found.cloned().collect());
        drop(state);
        match changes {
            Err(oldest) => self.fail(self.position, oldest),
            Ok(changes) => {
                for change in &changes {
                    self.tell(change);
                }
                self.position = self.position.max(current);
            }
        }
    }

    fn tell(&mut self, change: &Change) {
        let before = change.old.as_ref().is_some_and(|old| self.is_mine(old));
        let after = !change.gone && self.is_mine(&change.new);
        match (before, after) {
            (false, true) => self.say("ADDED", &change.new),
            (true, true) => self.say("MODIFIED", &change.new),
            (true, false) if change.gone => self.say("DELETED", &change.new),
            // If an object no longer matches the selection, the watch sends its old state with the version of
            // the change.
            (true, false) => {
                let mut left = change.old.as_deref().cloned().unwrap_or_default();
                object::set_meta(
                    &mut left,
                    "resourceVersion",
                    change.new["metadata"]["resourceVersion"].clone(),
                );
                self.say("DELETED", &left);
            }
            (false, false) => {}
        }
    }

    fn is_mine(&self, object: &Value) -> bool {
        let (namespace, name) = (object::namespace(object), object::name(object));
        (self.route.namespace.is_empty() || namespace == self.route.namespace)
            && self.route.name.as_deref().is_none_or(|wanted| wanted == name)
            && self.selection.matches(object)
    }

    fn say(&mut self, what: &str, object: &Value) {
        let shaped = shaped(self.route.kind, object, self.form, self.clock.now());
        self.line(&json!({ "type": what, "object": shaped }));
    }

    fn line(&mut self, event: &Value) {
        let mut line = event.to_string();
        line.push('\n');
        self.queue.push_back(line.into());
    }

    /// Sends a bookmark: an object that has only a version.
    fn mark(&mut self, revision: u64, initial_end: bool) {
        let kind = self.route.kind;
        let mut object = json!({
            "kind": kind.kind,
            "apiVersion": kind.api_version(),
            "metadata": { "resourceVersion": revision.to_string() },
        });
        if initial_end {
            object["metadata"]["annotations"] = json!({ "k8s.io/initial-events-end": "true" });
        }
        if matches!(self.form, Form::Metadata | Form::MetadataList) {
            object["kind"] = json!("PartialObjectMetadata");
            object["apiVersion"] = json!("meta.k8s.io/v1");
        } else {
            zero(kind.plural, &mut object);
        }
        self.line(&json!({ "type": "BOOKMARK", "object": object }));
    }

    fn fail(&mut self, version: u64, oldest: u64) {
        let text = format!("too old resource version: {version} ({oldest})");
        let status = Refusal::new(410, "Expired", text, Value::Null).body();
        self.line(&json!({ "type": "ERROR", "object": status }));
        self.ended = true;
    }
}

/// Adds the fields that Go's JSON contains even for an empty object of this kind.
fn zero(plural: &str, object: &mut Value) {
    match plural {
        "nodes" => {
            let fields = [
                "machineID",
                "systemUUID",
                "bootID",
                "kernelVersion",
                "osImage",
                "containerRuntimeVersion",
                "kubeletVersion",
                "kubeProxyVersion",
                "operatingSystem",
                "architecture",
            ];
            object["spec"] = json!({});
            object["status"]["daemonEndpoints"] = json!({ "kubeletEndpoint": { "Port": 0 } });
            for field in fields {
                object["status"]["nodeInfo"][field] = json!("");
            }
        }
        "pods" => {
            object["spec"] = json!({ "containers": null });
            object["status"] = json!({});
        }
        "poddisruptionbudgets" => {
            object["spec"] = json!({});
            object["status"] = json!({ "disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0 });
        }
        _ => {}
    }
}
