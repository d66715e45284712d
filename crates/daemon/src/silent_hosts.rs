//! Handles hosts whose `pvestatd` is silent. Proxmox VE's list then contains only the name of such a host and
//! no other data about it, so the daemon keeps using the last data that the list contained.

use jiff::{SignedDuration, Timestamp};

use super::Daemon;
use super::build_snapshot::Looks;
use model::workload::Backoff;
use model::{HostKey, Snapshot};
use observability::Problem;

/// The problem text for a host whose `pvestatd` is silent.
pub(super) fn silence(host: &str) -> String {
    format!(
        "pvestatd on {host} has not reported for five minutes: the state of its VMs and storages is \
            unknown, and no machines are created on that host; pvestatd may be blocked by a hanging \
            storage; to restart pvestatd, on {host}: systemctl restart pvestatd"
    )
}

impl Daemon {
    /// Puts silent hosts into back-off. While a host's state is unknown, no machines are created on it, but
    /// none are removed merely because the state is unknown.
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
