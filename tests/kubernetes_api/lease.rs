//! Two instances and one lease.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Method;
use jiff::Timestamp;
use pve_autoscaler::clock::TokioClock;
use pve_autoscaler::kubernetes::{Claim, Cluster, Lease};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::fake::{Reply, cluster, refusal};

/// A server that holds one lease, by the API's rules for versions.
fn server() -> (Cluster, Arc<Mutex<Option<Value>>>) {
    let held: Arc<Mutex<Option<Value>>> = Arc::default();
    let inside = held.clone();
    let (cluster, _) = cluster(move |asked| {
        let mut held = inside.lock().unwrap();
        let version =
            |lease: &Value| lease["metadata"]["resourceVersion"].as_str().unwrap_or("0").parse::<u32>();
        let next = held.as_ref().map_or(1, |lease| version(lease).unwrap() + 1);
        match (asked.method.clone(), held.as_ref()) {
            (Method::GET, None) => return refusal(404, "NotFound", "no lease"),
            (Method::GET, Some(lease)) => return Reply::Json(200, lease.clone()),
            (Method::POST, Some(_)) => return refusal(409, "AlreadyExists", "there is one"),
            (Method::PUT, Some(lease))
                if lease["metadata"]["resourceVersion"] != asked.body["metadata"]["resourceVersion"] =>
            {
                return refusal(409, "Conflict", "modified");
            }
            _ => {}
        }
        let mut lease = asked.body.clone();
        lease["metadata"]["resourceVersion"] = json!(next.to_string());
        *held = Some(lease.clone());
        Reply::Json(200, lease)
    });
    let clock = TokioClock::starting_at(Timestamp::UNIX_EPOCH);
    (cluster.with_clock(Arc::new(clock)), held)
}

const TEN: Duration = Duration::from_secs(10);

fn is_held(claim: &Claim) -> bool {
    matches!(claim, Claim::Held { .. })
}

#[tokio::test(start_paused = true)]
async fn one_holds_it_and_the_other_takes_it_only_after_it_was_not_renewed() {
    let (cluster, held) = server();
    let mut one = Lease::new(cluster.clone(), "one", TEN);
    let mut two = Lease::new(cluster, "two", TEN);
    assert_eq!(one.claim().await.unwrap(), Claim::Held { until: Instant::now() + TEN });
    let others = Claim::Other { holder: "one".to_owned() };
    for _ in 0..20 {
        sleep(Duration::from_secs(2)).await;
        assert!(is_held(&one.claim().await.unwrap()));
        assert_eq!(two.claim().await.unwrap(), others);
    }
    let stopped = Instant::now();
    while !is_held(&two.claim().await.unwrap()) {
        sleep(Duration::from_secs(2)).await;
    }
    assert!(
        stopped.elapsed() > TEN && stopped.elapsed() <= Duration::from_secs(14),
        "{:?}",
        stopped.elapsed()
    );
    assert!(!is_held(&one.claim().await.unwrap()));
    let lease = held.lock().unwrap().clone().unwrap();
    assert_eq!(lease["spec"]["leaseTransitions"], 1);
    assert_eq!(lease["spec"]["renewTime"].as_str().map(str::len), Some("1970-01-01T00:00:00.000000Z".len()));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_given_up_is_free_at_once() {
    let (cluster, _) = server();
    let mut one = Lease::new(cluster.clone(), "one", TEN);
    let mut two = Lease::new(cluster, "two", TEN);
    assert!(is_held(&one.claim().await.unwrap()));
    two.release().await.unwrap();
    assert!(!is_held(&two.claim().await.unwrap()), "released by one that had none");
    one.release().await.unwrap();
    assert!(is_held(&two.claim().await.unwrap()));
}
