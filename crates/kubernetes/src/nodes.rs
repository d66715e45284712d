//! Changes to Node objects. Each change either touches only its own field or is based on the version that was
//! read.

use std::sync::atomic::{AtomicBool, Ordering};

use k8s_openapi::api::core::v1::Node as Object;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use runtime::boxed;
use serde_json::{Value, json};

use super::cluster::Cluster;
use super::convert;
use super::error::{Error, ErrorKind};
use model::node::{Node, Taint, TaintEffect};
use model::selector::Labels;

/// The maximum number of attempts to change a Node that other clients change at the same time.
const ATTEMPTS: u32 = 5;

impl Cluster {
    /// Reads a Node from the API server, bypassing the watch cache. Returns `None` if the Node does not
    /// exist.
    ///
    /// # Errors
    /// Returns an error if the call fails, or the object is malformed.
    #[boxed]
    pub async fn get_node(&self, name: &str) -> Result<Option<Node>, Error> {
        let action = format!("read node `{name}`");
        let found = self.call(action.clone(), self.nodes().get_opt(name)).await?;
        found
            .map(|object| convert::node(&object))
            .transpose()
            .map_err(|source| Error::Malformed { action, source: Box::new(source) })
    }

    /// Sets an annotation, or removes it if the value is `None`.
    ///
    /// # Errors
    /// Returns an error if the call fails: [`ErrorKind::NotFound`] if the Node is gone.
    #[boxed]
    pub async fn annotate_node(&self, name: &str, key: &str, value: Option<&str>) -> Result<(), Error> {
        let change = json!({ "metadata": { "annotations": { key: value } } });
        self.patch_node(format!("annotate node `{name}`"), name, &change).await
    }

    /// Adds labels or changes their values. Other labels are kept.
    ///
    /// # Errors
    /// Returns an error if the call fails: [`ErrorKind::NotFound`] if the Node is gone.
    #[boxed]
    pub async fn set_labels(&self, name: &str, labels: &Labels) -> Result<(), Error> {
        let change = json!({ "metadata": { "labels": labels } });
        self.patch_node(format!("label node `{name}`"), name, &change).await
    }

    /// Cordons a node. The node controller then adds the `unschedulable` taint.
    ///
    /// # Errors
    /// Returns an error if the call fails: [`ErrorKind::NotFound`] if the Node is gone.
    #[boxed]
    pub async fn cordon(&self, name: &str) -> Result<(), Error> {
        self.patch_node(format!("cordon node `{name}`"), name, &json!({ "spec": { "unschedulable": true } }))
            .await
    }

    /// Uncordons a node, so that new pods can be scheduled on it.
    ///
    /// # Errors
    /// Returns an error if the call fails: [`ErrorKind::NotFound`] if the Node is gone.
    #[boxed]
    pub async fn uncordon(&self, name: &str) -> Result<(), Error> {
        self.patch_node(
            format!("uncordon node `{name}`"),
            name,
            &json!({ "spec": { "unschedulable": null } }),
        )
        .await
    }

    /// Adds a taint. A taint with the same key and effect is replaced.
    ///
    /// # Errors
    /// Returns an error if the call fails, or [`Error::Contended`] if every attempt conflicted with another
    /// client's change.
    #[boxed]
    pub async fn add_taint(&self, name: &str, taint: &Taint) -> Result<(), Error> {
        self.edit_taints(format!("taint node `{name}`"), name, |_, taints| add(taint, taints)).await
    }

    /// Like [`Self::add_taint`], but only if `may` returns true for the version of the Node that is changed,
    /// and the Node has no taint with this key. Returns the result of `may`.
    ///
    /// # Errors
    /// Returns an error if the call fails, or [`Error::Contended`] if every attempt conflicted with another
    /// client's change.
    pub async fn add_taint_if(
        &self,
        name: &str,
        taint: &Taint,
        may: impl Fn(&Node) -> bool,
    ) -> Result<bool, Error> {
        let has = AtomicBool::new(false);
        let edit = |node: &Object, taints: &mut Vec<Value>| {
            let fits = convert::node(node).is_ok_and(|node| may(&node));
            has.store(fits, Ordering::Relaxed);
            // An existing taint with this key is kept.
            let there = || taints.iter().any(|one| one["key"] == taint.key.as_str());
            fits && !there() && add(taint, taints)
        };
        self.edit_taints(format!("taint node `{name}`"), name, edit).await?;
        Ok(has.into_inner())
    }

    /// Removes the taint with this key and effect, whatever its value.
    ///
    /// # Errors
    /// Returns an error if the call fails, or [`Error::Contended`] if every attempt conflicted with another
    /// client's change.
    #[boxed]
    pub async fn remove_taint(&self, name: &str, taint: &Taint) -> Result<(), Error> {
        self.edit_taints(format!("remove a taint of node `{name}`"), name, |_, taints| {
            let before = taints.len();
            taints.retain(|one| !same(one, taint));
            taints.len() != before
        })
        .await
    }

    /// Deletes the Node with this name and uid. Succeeds if the Node is already gone.
    ///
    /// The precondition is in the body, because the API server ignores the query parameters of a request with
    /// a body.
    ///
    /// # Errors
    /// Returns [`ErrorKind::Conflict`] if the Node with this name has another uid, or another error if the
    /// call fails.
    #[boxed]
    pub async fn delete_node(&self, name: &str, uid: &str) -> Result<(), Error> {
        let only = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
        let options = DeleteParams::default().preconditions(only);
        match self.call(format!("delete node `{name}`"), self.nodes().delete(name, &options)).await {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn nodes(&self) -> Api<Object> {
        Api::all(self.client.clone())
    }

    async fn patch_node(&self, action: String, name: &str, change: &Value) -> Result<(), Error> {
        self.call(action, self.nodes().patch(name, &PatchParams::default(), &Patch::Merge(change))).await?;
        Ok(())
    }

    /// Changes the list of taints. The list can only be written as a whole, so it is only written if the Node
    /// still has the version that was read. `edit` returns whether anything must be written.
    async fn edit_taints(
        &self,
        action: String,
        name: &str,
        edit: impl Fn(&Object, &mut Vec<Value>) -> bool,
    ) -> Result<(), Error> {
        for _ in 0..ATTEMPTS {
            let node = self.call(action.clone(), self.nodes().get(name)).await?;
            let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
            let mut taints: Vec<Value> =
                taints.iter().map(serde_json::to_value).collect::<Result<_, _>>().map_err(|source| {
                    Error::Malformed { action: action.clone(), source: Box::new(source) }
                })?;
            if !edit(&node, &mut taints) {
                return Ok(());
            }
            let change = json!({
                "metadata": { "resourceVersion": node.metadata.resource_version },
                "spec": { "taints": taints },
            });
            match self.patch_node(action.clone(), name, &change).await {
                Err(error) if error.kind() == ErrorKind::Conflict => {}
                outcome => return outcome,
            }
        }
        Err(Error::Contended { action, attempts: ATTEMPTS })
    }
}

fn word(effect: TaintEffect) -> &'static str {
    match effect {
        TaintEffect::NoSchedule => "NoSchedule",
        TaintEffect::PreferNoSchedule => "PreferNoSchedule",
        TaintEffect::NoExecute => "NoExecute",
    }
}

/// Adds a taint to the list. Returns whether the list was changed.
fn add(taint: &Taint, taints: &mut Vec<Value>) -> bool {
    if taints.iter().any(|one| same(one, taint) && one["value"].as_str().unwrap_or("") == taint.value) {
        return false;
    }
    taints.retain(|one| !same(one, taint));
    taints.push(written(taint));
    true
}

fn same(object: &Value, taint: &Taint) -> bool {
    object["key"] == taint.key.as_str() && object["effect"] == word(taint.effect)
}

fn written(taint: &Taint) -> Value {
    let mut object = json!({ "key": taint.key, "effect": word(taint.effect) });
    if !taint.value.is_empty() {
        object["value"] = json!(taint.value);
    }
    object
}
