//! Checks each call against the Lease and the pause switch in the cluster: only the leader may write, and no
//! new work may begin during a pause.

use std::time::Duration;

use serde_json::Value;
use stage::{Call, Side};
use tokio::time::Instant;

use crate::simulate::checker::{Checker, Promise};

/// How long a leader may take to notice the pause: an earlier read may still be in progress.
const HEARD: Duration = Duration::from_secs(30);
/// The name of the object that contains the pause switch.
const STATE: &str = "autoscaler-state";

/// Only the leader writes, and no removal or creation begins while the daemon is paused.
pub struct Leadership;

impl Promise for Leadership {
    fn on_call(&self, checker: &Checker, who: &str, call: &Call<'_>) {
        checker.must_lead(who, call);
        checker.must_not_begin(who, call);
    }

    fn throughout(&self, checker: &Checker) {
        checker.look_at_turns();
    }
}

impl Checker {
    /// The instance that holds the Lease.
    pub fn leader(&self) -> Option<String> {
        let lease = self.world.kube.get("Lease", "pve-autoscaler", "pve-autoscaler")?;
        lease["spec"]["holderIdentity"].as_str().filter(|holder| !holder.is_empty()).map(ToOwned::to_owned)
    }

    /// Whether the daemon is paused.
    pub fn is_paused(&self) -> bool {
        let map = self.world.kube.get("ConfigMap", "pve-autoscaler", STATE);
        map.is_some_and(|map| !map["data"]["paused"].is_null())
    }

    /// Reads the Lease and the pause switch.
    pub fn look_at_turns(&self) {
        let now = ["Lease", "ConfigMap"].map(|kind| self.world.kube.latest_change(kind));
        if std::mem::replace(&mut self.inner().looked_at.turns, now) == now {
            return;
        }
        let lease = self.world.kube.get("Lease", "pve-autoscaler", "pve-autoscaler");
        let paused = self.is_paused();
        let mut inner = self.inner();
        if let Some(lease) = lease {
            let version = lease["metadata"]["resourceVersion"].as_str().unwrap_or_default();
            inner.turns.renewed(lease["spec"]["holderIdentity"].as_str().unwrap_or_default(), version);
        }
        let since = inner.turns.paused_since;
        inner.turns.paused_since = paused.then(|| since.unwrap_or_else(Instant::now));
    }

    /// Checks that a daemon's write was sent within the daemon's term.
    pub fn must_lead(&self, who: &str, call: &Call<'_>) {
        if call.method == "GET" || call.path.contains("/leases") || self.is_order(call) {
            return;
        }
        self.look_at_turns();
        let term = self.world.config.leader.renew_deadline;
        let refusal = self.inner().turns.refusal(who, call.sent, term);
        if let Some(why) = refusal {
            self.violated(&format!("{} {} comes from {who}, but {why}", call.method, call.path));
        }
    }

    /// Checks that a paused daemon writes no record that begins a creation or removal.
    pub fn must_not_begin(&self, who: &str, call: &Call<'_>) {
        let paused = self.inner().turns.paused_since;
        if paused.is_none_or(|since| call.sent.saturating_duration_since(since) <= HEARD) {
            return;
        }
        let Some((before, written)) = self.change_of_record(call) else { return };
        let kinds = (before["intent"]["kind"].as_str(), written["intent"]["kind"].as_str());
        match (call.method, kinds) {
            ("PUT", (Some("create"), Some("retire"))) => {
                self.violated(&format!(
                    "{who} begins to remove {} while the daemon is paused",
                    written["name"]
                ));
            }
            ("POST", (None, Some("create"))) => {
                self.violated(&format!(
                    "{who} begins to create {} while the daemon is paused",
                    written["name"]
                ));
            }
            _ => {}
        }
    }

    /// Returns the records before and after a call that writes a ConfigMap. A record that does not exist is
    /// null. Returns `None` for other calls.
    pub fn change_of_record(&self, call: &Call<'_>) -> Option<(Value, Value)> {
        let writes = call.side == Side::Kubernetes && matches!(call.method, "POST" | "PUT");
        let path = call.path.split("/configmaps").nth(1).filter(|_| writes)?;
        let map: Value = serde_json::from_slice(call.body).unwrap_or_default();
        // A call that creates a record has no name in its path. The record may already exist if an earlier
        // answer was lost.
        let name = map["metadata"]["name"].as_str().unwrap_or(path.trim_start_matches('/'));
        let before = self.world.kube.get("ConfigMap", "pve-autoscaler", name).map(|map| record(&map));
        Some((before.unwrap_or_default(), record(&map)))
    }

    /// Whether the call writes an operator's order to pause or resume. Any instance may write it, not only
    /// the leader.
    fn is_order(&self, call: &Call<'_>) -> bool {
        let of_state = call.path.ends_with(&format!("/configmaps/{STATE}"))
            || (call.method == "POST" && call.path.ends_with("/configmaps"));
        let written: Value = serde_json::from_slice(call.body).unwrap_or_default();
        let before = self.world.kube.get("ConfigMap", "pve-autoscaler", STATE);
        let was = before.map_or(Value::Null, |map| map["data"]["paused"].clone());
        of_state && written["metadata"]["name"] == STATE && written["data"]["paused"] != was
    }
}

fn record(map: &Value) -> Value {
    serde_json::from_str(map["data"]["record"].as_str().unwrap_or_default()).unwrap_or_default()
}
