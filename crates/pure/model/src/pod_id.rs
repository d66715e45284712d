//! How plans refer to pods.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use serde::{Serialize, Serializer};

use super::pod::Pod;

/// A pod's id, `namespace/name`. It shares the pod instead of copying the id, because a plan can contain the
/// ids of tens of thousands of pods. It can be used like a `str`.
#[derive(Clone)]
pub struct PodId(Arc<Pod>);

impl PodId {
    /// The id of this pod.
    pub fn of(pod: &Arc<Pod>) -> Self {
        Self(pod.clone())
    }
}

impl Deref for PodId {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0.digest().id
    }
}

impl Borrow<str> for PodId {
    fn borrow(&self) -> &str {
        self
    }
}

impl fmt::Display for PodId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self)
    }
}

impl fmt::Debug for PodId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl PartialEq for PodId {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for PodId {}

impl PartialOrd for PodId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for PodId {
    fn cmp(&self, other: &Self) -> Ordering {
        (**self).cmp(&**other)
    }
}

impl Serialize for PodId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self)
    }
}
