//! The conditions of ProvisioningRequests: whether all of their pods fit, and if not, why.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::Daemon;
use super::buffers::set;
use super::status_writes::without_words;
use model::Snapshot;
use model::condition::StatusCondition;
use model::plan::{Plan, RequestOutcome, RequestVerdict};
use model::request::{CHECK_CAPACITY, ProvisioningRequest};
use observability::Problem;

impl Daemon {
    /// Writes the conditions of ProvisioningRequests that have changed.
    pub(super) async fn answer_requests(&self, snapshot: &Snapshot, plan: &Plan) {
        let written = &self.told_requests;
        let all = || snapshot.requests.iter().flatten();
        written.keep(&all().map(|request| request.uid.as_str()).collect::<BTreeSet<_>>());
        let named: BTreeMap<(&str, &str), &Arc<ProvisioningRequest>> =
            all().map(|one| ((one.namespace.as_str(), one.name.as_str()), one)).collect();
        let changes = plan.requests.iter().filter_map(|verdict| {
            let request = *named.get(&verdict.request.split_once('/')?)?;
            let conditions = conditions(request, verdict, snapshot.time)?;
            let only_words = || without_words(&conditions) == without_words(&request.conditions);
            let may = conditions != request.conditions && written.may(&request.uid, only_words());
            may.then(|| (request.uid.clone(), (Arc::clone(request), conditions)))
        });
        let changes: Vec<_> = changes.collect();
        let kubernetes = &self.kubernetes;
        let write = |(request, conditions): (Arc<ProvisioningRequest>, Vec<StatusCondition>)| async move {
            kubernetes.write_request_conditions(&request, &conditions).await
        };
        self.write_statuses((&Problem::Requests, written), changes, write).await;
    }
}

/// The conditions to write; `None` if there is nothing to report. The reasons have the same names as in
/// Cluster Autoscaler.
fn conditions(
    request: &ProvisioningRequest,
    verdict: &RequestVerdict,
    now: Timestamp,
) -> Option<Vec<StatusCondition>> {
    let final_ =
        request.class == CHECK_CAPACITY && request.parameters.get("noRetry").is_some_and(|one| one == "true");
    let (kind, is, reason) = match verdict.verdict {
        RequestOutcome::NotOurs
        | RequestOutcome::Over
        | RequestOutcome::Booked
        | RequestOutcome::Unfinished => return None,
        RequestOutcome::Found => ("Provisioned", true, "CapacityIsFound"),
        RequestOutcome::Provisioned => ("Provisioned", true, "CapacityIsProvisioned"),
        RequestOutcome::NotFound if final_ => ("Failed", true, "CapacityIsNotFound"),
        RequestOutcome::NotFound => ("Provisioned", false, "CapacityIsNotFound"),
        RequestOutcome::Consumed => ("BookingExpired", true, "CapacityBookingConsumed"),
        RequestOutcome::BookingExpired => ("BookingExpired", true, "CapacityReservationTimeExpired"),
        RequestOutcome::Expired => ("Failed", true, "Expired"),
        RequestOutcome::Broken => ("Failed", true, "FailedToCreatePods"),
    };
    let mut conditions = request.conditions.clone();
    let mut say = |what| set(&mut conditions, request.generation, now, what);
    if request.is("Accepted").is_none() && kind != "BookingExpired" {
        say(("Accepted", true, "Accepted", "pve-autoscaler is looking for room for this request"));
    }
    say((kind, is, reason, &verdict.message));
    Some(conditions)
}
