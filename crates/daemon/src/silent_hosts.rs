//! Hosts whose `pvestatd` says nothing: the cluster's list knows nothing but names of them. What was known
//! before holds.

use jiff::{SignedDuration, Timestamp};

use super::Daemon;
use super::build_snapshot::Looks;
use model::workload::Backoff;
use model::{HostKey, Snapshot};
use observability::Problem;

/// What is said of a host whose `pvestatd` is silent.
pub(super) fn silence(host: &str) -> String {
    format!(
        "pvestatd on {host} has said nothing for five minutes: how its VMs and storages are is not known, and it gets no new machine; a storage \
         that hangs may hold it up; on {host}: systemctl restart pvestatd"
    )
}

impl Daemon {
    /// Hosts of which nothing is known for the moment get no machine, and lose none for that.
    pub(super) fn hold_silent_hosts(&self, snapshot: &mut Snapshot, looks: &Looks) {
        let until = snapshot.time.saturating_add(SignedDuration::from_mins(1)).unwrap_or(Timestamp::MAX);
        let mut all = Vec::new();
        for (prefix, look) in looks {
            for host in look.seen.silent() {
                let key = HostKey::new(prefix, &host.name);
                let reason = silence(&host.name);
                all.push(reason.clone());
                let place = &mut snapshot.memory.hosts.entry(key).or_default().backoff;
                if place.as_ref().is_none_or(|backoff| backoff.until < until) {
                    *place = Some(Backoff { until, reason, seconds: 0 });
                }
            }
        }
        if all.is_empty() {
            self.board.clear(&Problem::Pvestatd);
        } else {
            self.board.problem(&Problem::Pvestatd, &all.join("; "));
        }
    }
}
