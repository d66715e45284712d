//! Priorities of pods: a pod's own priority, or that of its class.

use std::collections::BTreeMap;

use model::Snapshot;
use model::pod::Pod;

/// The priority classes that determine pods' priorities.
pub struct Priorities<'a> {
    classes: BTreeMap<&'a str, i32>,
    default: Option<i32>,
}

impl<'a> Priorities<'a> {
    /// The priority classes of a cluster.
    pub fn new(snapshot: &'a Snapshot) -> Self {
        let all = || snapshot.priority_classes.iter();
        Self {
            classes: all().map(|class| (class.name.as_str(), class.value)).collect(),
            default: all().filter(|class| class.global_default).map(|class| class.value).max(),
        }
    }

    /// The pod's priority, from the pod, its class or the default class. `None` if none of them sets it.
    pub fn given(&self, pod: &Pod) -> Option<i32> {
        let by_class = || self.classes.get(pod.priority_class.as_str()).copied();
        pod.priority.or_else(by_class).or(self.default)
    }

    /// The pod's priority, 0 if none is set.
    pub fn of(&self, pod: &Pod) -> i32 {
        self.given(pod).unwrap_or(0)
    }
}
