//! What the conditions of ProvisioningRequests say: that there is room for all of their pods, or why not.

use std::sync::Arc;

use futures::StreamExt;
use jiff::Timestamp;

use super::Daemon;
use super::buffers::{AT_A_TIME, WRITING, set};
use crate::causes::chain;
use crate::kubernetes::ErrorKind;
use crate::model::Snapshot;
use crate::model::condition::StatusCondition;
use crate::model::plan::{Plan, RequestOutcome, RequestVerdict};
use crate::model::request::{CHECK_CAPACITY, ProvisioningRequest};

/// What the status calls the problem that no condition can be written.
const ABOUT: &str = "requests";

impl Daemon {
    /// Answers requests.
    pub(super) async fn answer_requests(&self, snapshot: &Snapshot, plan: &Plan) {
        let changes = plan.requests.iter().filter_map(|verdict| {
            let mut all = snapshot.requests.iter().flatten();
            let request = all.find(|request| request.id() == verdict.request)?;
            let conditions = conditions(request, verdict, snapshot.time)?;
            (conditions != request.conditions).then(|| (Arc::clone(request), conditions))
        });
        let changes: Vec<_> = changes.collect();
        let kubernetes = &self.kubernetes;
        let write = |(request, conditions): (Arc<ProvisioningRequest>, Vec<StatusCondition>)| async move {
            kubernetes.write_request_conditions(&request, &conditions).await.err()
        };
        let written = futures::stream::iter(changes).map(write).buffer_unordered(AT_A_TIME);
        let Ok(outcomes) = tokio::time::timeout(WRITING, written.collect::<Vec<_>>()).await else {
            tracing::debug!("requests' conditions take long to be written; the next round goes on with them");
            return;
        };
        // It is another one by now, or gone: the next round knows.
        let known = |kind: ErrorKind| matches!(kind, ErrorKind::Conflict | ErrorKind::NotFound);
        match outcomes.iter().flatten().find(|failure| !known(failure.kind())) {
            Some(failure) => self.board.problem(ABOUT, &chain(failure)),
            None => self.board.clear(ABOUT),
        }
    }
}

/// What the conditions are to say; `None`: there is nothing to say. Reasons are Cluster Autoscaler's.
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
        say(("Accepted", true, "Accepted", "pve-autoscaler looks for room for it"));
    }
    say((kind, is, reason, &verdict.message));
    Some(conditions)
}
