//! Deletion of objects: preconditions, grace periods, finalizers and dependents.

use std::{sync::Arc, time::Duration};

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::{
    kinds::{self, KINDS, Kind, POD},
    object::{self, Key, list, number, text},
    path::{Query, Route},
    read::selection,
    refusal::Refusal,
    state::{State, Work},
};

/// How an object is to be deleted.
#[derive(Clone, Debug, Default)]
pub(super) struct Options {
    grace: Option<i64>,
    uid: Option<String>,
    version: Option<String>,
    pub dry_run: bool,
    orphan: bool,
}

impl Options {
    /// Reads the options from a `DeleteOptions` object.
    pub fn of(body: &Value) -> Self {
        let string = |pointer: &str| body.pointer(pointer).and_then(Value::as_str).map(String::from);
        Self {
            grace: number(body, "/gracePeriodSeconds"),
            uid: string("/preconditions/uid"),
            version: string("/preconditions/resourceVersion"),
            dry_run: list(body, "/dryRun").iter().any(|one| one == "All"),
            orphan: text(body, "/propagationPolicy") == "Orphan",
        }
    }

    /// Reads the options of a request. If the request has a body, the query is ignored, as in the API server.
    ///
    /// # Errors
    /// Returns 400 if the body is not JSON.
    pub fn read(query: &Query, body: &[u8]) -> Result<Self, Refusal> {
        if body.is_empty() {
            return Ok(Self {
                grace: query.get("gracePeriodSeconds").parse().ok(),
                dry_run: query.dry_run(),
                orphan: query.get("propagationPolicy") == "Orphan",
                ..Self::default()
            });
        }
        let body: Value =
            serde_json::from_slice(body).map_err(|error| Refusal::bad_request(error.to_string()))?;
        Ok(Self::of(&body))
    }

    /// Compares the uid and the version in the preconditions with those of the object.
    ///
    /// # Errors
    /// Returns 409 if the uid or the version differs.
    pub fn check(&self, kind: &Kind, object: &Value) -> Result<(), Refusal> {
        let name = object::name(object);
        let found = object::uid(object);
        if let Some(uid) = self.uid.as_deref().filter(|uid| *uid != found) {
            let why = format!(
                "the UID in the precondition ({uid}) does not match the UID in record ({found}). The object might have been deleted and then recreated"
            );
            return Err(Refusal::precondition(kind, name, &why));
        }
        let found = text(object, "/metadata/resourceVersion");
        if let Some(version) = self.version.as_deref().filter(|version| *version != found) {
            let why = format!(
                "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({found}). The object might have been modified"
            );
            return Err(Refusal::precondition(kind, name, &why));
        }
        Ok(())
    }
}

impl State {
    /// Answers a DELETE of one object.
    ///
    /// # Errors
    /// Returns 400, 404 or 409, as the API server does.
    pub(super) fn delete(&mut self, route: &Route, query: &Query, body: &[u8]) -> Result<Value, Refusal> {
        let kind = route.kind;
        let name = route.name.as_deref().unwrap_or("");
        let options = Options::read(query, body)?;
        let object =
            self.store.get(kind, &route.namespace, name).ok_or_else(|| Refusal::not_found(kind, name))?;
        options.check(kind, &object)?;
        let success = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "details": details(kind, &object),
        });
        let returned = matches!(
            kind.plural,
            "pods" | "persistentvolumeclaims" | "persistentvolumes" | "serviceaccounts"
        );
        if options.dry_run {
            return Ok(if returned { (*object).clone() } else { success });
        }
        let key = object::key(&object);
        let left = self.remove(kind, &key, &options);
        let there = self.store.get(kind, &key.0, &key.1).is_some();
        Ok(match left {
            Some(left) if there || returned => (*left).clone(),
            _ => success,
        })
    }

    /// Answers a DELETE of a collection.
    ///
    /// # Errors
    /// Returns 400 if a selector or the body cannot be read.
    pub(super) fn delete_all(&mut self, route: &Route, query: &Query, body: &[u8]) -> Result<Value, Refusal> {
        let kind = route.kind;
        let options = Options::read(query, body)?;
        let selection = selection(route, query)?;
        let found: Vec<Arc<Value>> = self
            .store
            .all(kind)
            .filter(|one| route.namespace.is_empty() || object::namespace(one) == route.namespace)
            .filter(|one| selection.matches(one))
            .cloned()
            .collect();
        if !options.dry_run {
            for one in &found {
                self.remove(kind, &object::key(one), &options);
            }
        }
        let metadata = json!({ "resourceVersion": self.store.revision().to_string() });
        Ok(super::table::list(kind, &found, metadata, super::path::Form::Plain, self.now()))
    }

    /// Removes an object, or marks it for deletion if it cannot be removed yet. Returns its last state.
    pub(super) fn remove(&mut self, kind: &'static Kind, key: &Key, options: &Options) -> Option<Arc<Value>> {
        let object = self.store.get(kind, &key.0, &key.1)?;
        if options.orphan {
            self.orphan(object::uid(&object));
        }
        if kind.plural == "pods" {
            return self.remove_pod(key, &object, options.grace);
        }
        let held = !list(&object, "/metadata/finalizers").is_empty()
            || (kind.plural == "namespaces" && !object::is_terminating(&object));
        if !held {
            return self.erase(kind, key);
        }
        let now = self.stamp();
        self.edit(kind, key, |object| {
            if !object::is_terminating(object) {
                object::set_meta(object, "deletionTimestamp", json!(now));
                object::set_meta(object, "deletionGracePeriodSeconds", json!(0));
                if kind.generation {
                    let generation = number(object, "/metadata/generation").unwrap_or(0) + 1;
                    object::set_meta(object, "generation", json!(generation));
                }
            }
            if kind.plural == "namespaces" {
                object["status"]["phase"] = json!("Terminating");
            }
        })
    }

    /// Deletes a pod immediately if its grace period is 0 and it has no finalizers. Otherwise, marks it for
    /// deletion. If a pod has ended or is not bound, its grace period is 0.
    fn remove_pod(&mut self, key: &Key, pod: &Value, grace: Option<i64>) -> Option<Arc<Value>> {
        let ended = matches!(text(pod, "/status/phase"), "Succeeded" | "Failed");
        let unbound = text(pod, "/spec/nodeName").is_empty();
        let own = number(pod, "/spec/terminationGracePeriodSeconds").unwrap_or(30);
        let grace = if ended || unbound { 0 } else { grace.unwrap_or(own).max(0) };
        if grace == 0 {
            let marked = self.mark(key, 0);
            if list(pod, "/metadata/finalizers").is_empty() {
                return self.erase(&POD, key);
            }
            return marked;
        }
        let known = number(pod, "/metadata/deletionGracePeriodSeconds");
        if object::is_terminating(pod) && known.is_some_and(|known| known <= grace) {
            return self.store.get(&POD, &key.0, &key.1);
        }
        self.mark(key, grace)
    }

    fn mark(&mut self, key: &Key, grace: i64) -> Option<Arc<Value>> {
        let end = self.now().saturating_add(SignedDuration::from_secs(grace)).unwrap_or(self.now());
        let end = object::stamp(end);
        let old = self.store.get(&POD, &key.0, &key.1)?;
        let mut pod = (*old).clone();
        if !object::is_terminating(&pod) {
            let generation = number(&pod, "/metadata/generation").unwrap_or(0) + 1;
            object::set_meta(&mut pod, "generation", json!(generation));
        }
        object::set_meta(&mut pod, "deletionTimestamp", json!(end));
        object::set_meta(&mut pod, "deletionGracePeriodSeconds", json!(grace));
        Some(self.put(&POD, pod))
    }

    /// Removes a pod whose containers have ended. Sets its grace period to 0, and erases it unless a
    /// finalizer holds it.
    pub(super) fn finish_pod(&mut self, key: &Key) {
        self.mark(key, 0);
        let held = self
            .store
            .get(&POD, &key.0, &key.1)
            .is_none_or(|pod| !list(&pod, "/metadata/finalizers").is_empty());
        if !held {
            self.erase(&POD, key);
        }
    }

    /// Removes objects whose owner is gone, as the garbage collector does.
    pub(super) fn collect_orphans(&mut self, owner: &str) {
        let owned: Vec<(&'static str, Key)> = self.owned.get(owner).into_iter().flatten().cloned().collect();
        for (store, key) in owned {
            if let Some(kind) = kinds::by_store(store) {
                self.remove(kind, &key, &Options::default());
            }
        }
    }

    /// Removes the references to an owner from its dependents, so that they outlive it.
    fn orphan(&mut self, owner: &str) {
        let owned: Vec<(&'static str, Key)> = self.owned.get(owner).into_iter().flatten().cloned().collect();
        for (store, key) in owned {
            let Some(kind) = kinds::by_store(store) else { continue };
            self.edit(kind, &key, |object| {
                let rest: Vec<Value> = list(object, "/metadata/ownerReferences")
                    .iter()
                    .filter(|one| one["uid"] != owner)
                    .cloned()
                    .collect();
                object::set_meta(object, "ownerReferences", json!(rest));
            });
        }
    }

    /// Empties a namespace that is being deleted, then removes it.
    pub(super) fn empty_namespace(&mut self, namespace: &str) {
        let mut left = false;
        for kind in KINDS.iter().filter(|kind| kind.namespaced && kind.group != "events.k8s.io") {
            let keys: Vec<Key> = self.store.within(kind, namespace).map(|one| object::key(one)).collect();
            for key in keys {
                self.remove(kind, &key, &Options::default());
                left |= self.store.get(kind, &key.0, &key.1).is_some();
            }
        }
        if left {
            self.wake(Work::NamespaceGone(namespace.into()), Duration::from_secs(1));
        } else {
            self.erase(&kinds::NAMESPACE, &(String::new(), namespace.into()));
        }
    }
}

fn details(kind: &Kind, object: &Value) -> Value {
    let mut details =
        json!({ "name": object::name(object), "kind": kind.plural, "uid": object::uid(object) });
    if !kind.group.is_empty() {
        details["group"] = json!(kind.group);
    }
    details
}
