//! The pods' names in one piece of memory: with many pods, fetching each name from where it lies takes longer than deciding.

use std::cmp::Ordering;

use crate::model::Pod;

/// Names of pods, one behind the other, as `namespace/name`.
#[derive(Default)]
pub(super) struct Ids {
    text: String,
}

/// A name among [`Ids`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Id {
    from: usize,
    namespace: u32,
    name: u32,
}

impl Ids {
    pub(super) fn add(&mut self, pod: &Pod) -> Id {
        let length = |text: &str| u32::try_from(text.len()).unwrap_or(u32::MAX);
        let from = self.text.len();
        self.text.push_str(&pod.namespace);
        self.text.push('/');
        self.text.push_str(&pod.name);
        Id { from, namespace: length(&pod.namespace), name: length(&pod.name) }
    }

    /// Adds other names behind these; gives what turns a name of the others into one of these.
    pub(super) fn append(&mut self, others: &Self) -> impl Fn(Id) -> Id + use<> {
        let behind = self.text.len();
        self.text.push_str(&others.text);
        move |id| Id { from: behind + id.from, ..id }
    }

    /// `namespace/name`.
    pub(super) fn get(&self, id: Id) -> &str {
        &self.text[id.from..id.from + id.namespace as usize + 1 + id.name as usize]
    }

    /// Compares by namespace, then by name.
    pub(super) fn compare(&self, a: Id, b: Id) -> Ordering {
        let parts = |id: Id| self.get(id).split_at(id.namespace as usize);
        parts(a).cmp(&parts(b))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_are_compared_before_names() {
        let pod = |namespace: &str, name: &str| Pod {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            ..Pod::default()
        };
        let mut ids = Ids::default();
        let [a, b, c] = [("a", "z"), ("a-b", "a"), ("a", "zz")].map(|(ns, name)| ids.add(&pod(ns, name)));
        assert_eq!(ids.get(b), "a-b/a");
        assert_eq!([ids.compare(a, b), ids.compare(c, b), ids.compare(a, c)], [Ordering::Less; 3]);
    }
}
