//! Volumes that must be attached to a node before the pods that use them start. The attach/detach controller
//! and a driver are simulated. Attaching and detaching take some time. A volume is attached to one node at a
//! time, and is released once no pod on that node uses it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    kinds::{ATTACHMENT, CLAIM, NODE, POD},
    object::{self, Key, list, text},
    state::{State, Work},
};

/// The name of the simulated driver. Attachments of other drivers are left to tests that simulate those
/// drivers.
const DRIVER: &str = "csi.lab.example";
/// How long attaching or detaching takes.
const TAKES: Duration = Duration::from_millis(1500);
/// How long a volume stays attached if its unmount is not reported (`maxWaitForUnmountDuration`).
const UNMOUNT: Duration = Duration::from_mins(6);

/// Attachments that no pod needs, each with the time at which it became unneeded.
#[derive(Debug, Default)]
pub(super) struct Unneeded(BTreeMap<Key, Instant>);

impl State {
    /// Plans the attaching and detaching of volumes after a change to a pod.
    pub(super) fn pod_has_volumes(&mut self, pod: &Value) {
        if claims(pod).next().is_some() && !text(pod, "/spec/nodeName").is_empty() {
            self.wake(Work::Volumes, TAKES);
        }
    }

    /// Whether all volumes of the pod are attached to its node.
    pub(super) fn has_its_volumes(&self, pod: &Value) -> bool {
        let node = text(pod, "/spec/nodeName");
        let namespace = object::namespace(pod);
        claims(pod).filter_map(|claim| self.volume_of(namespace, claim)).all(|volume| {
            let is_it = |one: &Value| is_of(one, &volume) && text(one, "/spec/nodeName") == node;
            self.store.all(&ATTACHMENT).any(|one| is_it(one))
        })
    }

    /// Attaches the volumes that pods need, and detaches all others.
    pub(super) fn tend_volumes(&mut self) {
        let needed = self.needed_volumes();
        let there: Vec<(Key, String, String)> = (self.store.all(&ATTACHMENT))
            .filter(|one| text(one, "/spec/attacher") == DRIVER)
            .map(|one| {
                let key = (String::new(), text(one, "/metadata/name").to_owned());
                let volume = text(one, "/spec/source/persistentVolumeName").to_owned();
                (key, volume, text(one, "/spec/nodeName").to_owned())
            })
            .collect();
        let mut waits = false;
        let mut before = std::mem::take(&mut self.unneeded.0);
        for (key, volume, node) in there {
            if needed.contains(&(volume, node.clone())) {
                continue;
            }
            let since = before.remove(&key).unwrap_or_else(Instant::now);
            let unmounts = self.hears(&node) && self.store.get(&NODE, "", &node).is_some();
            if unmounts || since.elapsed() >= UNMOUNT {
                self.erase(&ATTACHMENT, &key);
            } else {
                self.unneeded.0.insert(key, since);
                waits = true;
            }
        }
        for (volume, node) in needed {
            let holder = self.store.all(&ATTACHMENT).find(|one| is_of(one, &volume));
            match holder.map(|one| text(one, "/spec/nodeName") == node) {
                Some(true) => {}
                Some(false) => waits = true,
                None => {
                    let attachment = json!({
                        "metadata": { "name": format!("csi-{volume}-{node}") },
                        "spec": {
                            "attacher": DRIVER,
                            "nodeName": node,
                            "source": { "persistentVolumeName": volume },
                        },
                        "status": { "attached": true },
                    });
                    self.create(&ATTACHMENT, attachment);
                }
            }
        }
        if waits {
            self.wake(Work::Volumes, TAKES);
        }
    }

    /// Detaches the volumes of a node that is off, except those that its pods still need.
    pub(super) fn let_volumes_go(&mut self, node: &str) {
        let needed = self.needed_volumes();
        let held: Vec<Key> = (self.store.all(&ATTACHMENT))
            .filter(|one| text(one, "/spec/nodeName") == node && list(one, "/metadata/finalizers").is_empty())
            .filter(|one| {
                let volume = text(one, "/spec/source/persistentVolumeName").to_owned();
                !needed.contains(&(volume, node.to_owned()))
            })
            .map(|one| (String::new(), text(one, "/metadata/name").to_owned()))
            .collect();
        for key in held {
            self.erase(&ATTACHMENT, &key);
        }
    }

    /// The volumes that pods need, each with the node of its pod.
    fn needed_volumes(&self) -> BTreeSet<(String, String)> {
        let ended = |pod: &Value| matches!(text(pod, "/status/phase"), "Succeeded" | "Failed");
        let mut needed = BTreeSet::new();
        for pod in self.store.all(&POD).filter(|pod| !ended(pod)) {
            let node = text(pod, "/spec/nodeName");
            if node.is_empty() {
                continue;
            }
            let volumes = claims(pod).filter_map(|claim| self.volume_of(object::namespace(pod), claim));
            needed.extend(volumes.map(|volume| (volume, node.to_owned())));
        }
        needed
    }

    fn volume_of(&self, namespace: &str, claim: &str) -> Option<String> {
        let claim = self.store.get(&CLAIM, namespace, claim)?;
        Some(text(&claim, "/spec/volumeName").to_owned()).filter(|volume| !volume.is_empty())
    }
}

fn is_of(attachment: &Value, volume: &str) -> bool {
    text(attachment, "/spec/source/persistentVolumeName") == volume
}

fn claims(pod: &Value) -> impl Iterator<Item = &str> {
    list(pod, "/spec/volumes").iter().filter_map(|one| one["persistentVolumeClaim"]["claimName"].as_str())
}
