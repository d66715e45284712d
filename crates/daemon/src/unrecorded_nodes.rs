//! Handles Nodes that have a pool's label but belong to no managed machine. Usually another client has set
//! the label. However, an administrator may have just adopted the machine. This instance may then not have
//! read the machine's record yet, although the machine already counts towards its pool's maximum.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Daemon;
use super::long_work::at_length;
use model::Snapshot;
use observability::Problem;
use settings::Config;

/// The uids of the unrecorded Nodes in the last snapshot, and the uids of the unrecorded Nodes that were
/// already known when the records were last read.
#[derive(Debug, Default)]
pub(super) struct Labelled {
    here: BTreeSet<String>,
    met: BTreeSet<String>,
}

impl Labelled {
    /// Replaces the last snapshot's Nodes with those of a new one. A Node that disappears and comes back
    /// counts as new.
    pub fn see(&mut self, here: BTreeSet<String>) {
        self.met.retain(|uid| here.contains(uid));
        self.here = here;
    }

    /// Whether the records have been read since this Node appeared, and none of the records owns the Node.
    pub fn has_met(&self, uid: &str) -> bool {
        self.met.contains(uid)
    }

    fn has_new(&self) -> bool {
        !self.here.is_subset(&self.met)
    }

    fn meet(&mut self) {
        self.met.clone_from(&self.here);
    }
}

impl Daemon {
    /// Returns the snapshot for a decision. If it contains a Node that may belong to an adopted machine, the
    /// records are read first, once for each such Node. Returns `None` if the records cannot be read.
    pub(super) async fn gather_with_records(&mut self, config: &Arc<Config>) -> Option<Snapshot> {
        loop {
            let now = self.clock.now();
            let snapshot = at_length(|| self.gather(config, now));
            if !self.labelled.has_new() {
                return Some(snapshot);
            }
            match self.kubernetes.list_records().await {
                Ok(records) => self.take_up(records),
                Err(error) => {
                    tracing::warn!(%error, "the machine records cannot be read, and there may be a new \
                        record: skipping this decision");
                    self.board.problem(&Problem::Kubernetes, &error.to_string());
                    return None;
                }
            }
            self.labelled.meet();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_met_once_while_it_is_here() {
        let all = |uids: &[&str]| uids.iter().map(|uid| (*uid).to_owned()).collect();
        let mut labelled = Labelled::default();
        for (here, expected) in [
            (all(&[]), false),
            (all(&["a"]), true),
            (all(&["a"]), false),
            (all(&["a", "b"]), true),
            (all(&["b"]), false),
            (all(&["a", "b"]), true),
        ] {
            labelled.see(here);
            assert_eq!(labelled.has_new(), expected, "{labelled:?}");
            labelled.meet();
        }
    }
}
