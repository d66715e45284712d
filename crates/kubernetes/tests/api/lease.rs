//! Tests two instances that compete for one lease.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Method;
use jiff::Timestamp;
use kubernetes::{Claim, Cluster, Lease};
use runtime::clock::TokioClock;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until};

use crate::fake::{Log, Reply, cluster, refusal};

/// A server with one lease. Its versions follow the rules of the Kubernetes API.
fn server() -> (Cluster, Arc<Mutex<Option<Value>>>, Log) {
    let held: Arc<Mutex<Option<Value>>> = Arc::default();
    let inside = held.clone();
    let (cluster, log) = cluster(move |asked| {
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
    (cluster.with_clock(Arc::new(clock)), held, log)
}

const TEN: Duration = Duration::from_secs(10);

fn is_held(claim: &Claim) -> bool {
    matches!(claim, Claim::Held { .. })
}

fn is_held_by(claim: &Claim, who: &str) -> bool {
    matches!(claim, Claim::Other { holder, .. } if holder == who)
}

#[tokio::test(start_paused = true)]
async fn one_holds_it_and_the_other_takes_it_only_after_it_was_not_renewed() {
    let (cluster, held, _) = server();
    let mut one = Lease::new(cluster.clone(), "one", "a");
    let mut two = Lease::new(cluster, "two", "b");
    assert_eq!(one.claim(TEN).await.unwrap(), Claim::Held { since: Instant::now() });
    let mut free_at = None;
    for _ in 0..20 {
        sleep(Duration::from_secs(2)).await;
        assert!(is_held(&one.claim(TEN).await.unwrap()));
        let claim = two.claim(TEN).await.unwrap();
        assert!(is_held_by(&claim, "one"), "{claim:?}");
        let Claim::Other { free_at: at, .. } = claim else { panic!("{claim:?}") };
        assert_eq!(at, Some(Instant::now() + TEN));
        free_at = at;
    }
    sleep_until(free_at.unwrap()).await;
    assert!(!is_held(&two.claim(TEN).await.unwrap()), "the lease was acquired before it expired");
    sleep(Duration::from_millis(1)).await;
    assert!(is_held(&two.claim(TEN).await.unwrap()));
    let claim = one.claim(TEN).await.unwrap();
    assert!(is_held_by(&claim, "two"), "{claim:?}");
    let lease = held.lock().unwrap().clone().unwrap();
    assert_eq!(lease["spec"]["leaseTransitions"], 1);
    assert_eq!(lease["spec"]["renewTime"].as_str().map(str::len), Some("1970-01-01T00:00:00.000000Z".len()));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_given_up_is_free_at_once() {
    let (cluster, ..) = server();
    let mut one = Lease::new(cluster.clone(), "one", "a");
    let mut two = Lease::new(cluster, "two", "b");
    assert!(is_held(&one.claim(TEN).await.unwrap()));
    two.release().await.unwrap();
    assert!(!is_held(&two.claim(TEN).await.unwrap()), "an instance released a lease that it did not hold");
    one.release().await.unwrap();
    assert!(is_held(&two.claim(TEN).await.unwrap()));
}

#[tokio::test(start_paused = true)]
async fn one_that_was_deleted_is_its_holders_until_it_may_have_noticed() {
    let (cluster, held, _) = server();
    let mut one = Lease::new(cluster.clone(), "one", "a");
    let mut two = Lease::new(cluster, "two", "b");
    assert!(is_held(&one.claim(TEN).await.unwrap()));
    assert!(!is_held(&two.claim(TEN).await.unwrap()));
    held.lock().unwrap().take();
    sleep(Duration::from_secs(1)).await;
    let claim = two.claim(TEN).await.unwrap();
    let Claim::Other { free_at, .. } = claim else { panic!("{claim:?}") };
    // The holder creates the lease again.
    assert!(is_held(&one.claim(TEN).await.unwrap()));
    assert!(is_held_by(&two.claim(TEN).await.unwrap(), "one"));
    held.lock().unwrap().take();
    sleep_until(free_at.unwrap() + Duration::from_secs(2)).await;
    assert!(is_held(&two.claim(TEN).await.unwrap()), "the deleted lease could not be acquired");
}

#[tokio::test(start_paused = true)]
async fn it_is_taken_with_two_calls_and_renewed_with_one() {
    let (cluster, _, log) = server();
    let mut one = Lease::new(cluster.clone(), "one", "a");
    for calls in [2, 1, 1, 1] {
        let before = log.all().len();
        assert!(is_held(&one.claim(TEN).await.unwrap()));
        assert_eq!(log.all().len() - before, calls);
        sleep(Duration::from_secs(2)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_was_killed_has_its_own_lease_back_at_once() {
    let (cluster, held, _) = server();
    assert!(is_held(&Lease::new(cluster.clone(), "one", "a").claim(TEN).await.unwrap()));
    let mut again = Lease::new(cluster, "one", "b");
    assert!(is_held(&again.claim(TEN).await.unwrap()));
    assert_eq!(held.lock().unwrap().clone().unwrap()["spec"]["leaseTransitions"], 1);
}

#[tokio::test(start_paused = true)]
async fn of_two_living_instances_of_one_name_the_first_gives_way_and_does_not_come_back() {
    let (cluster, ..) = server();
    let mut first = Lease::new(cluster.clone(), "one", "a");
    let mut second = Lease::new(cluster, "one", "b");
    assert!(is_held(&first.claim(TEN).await.unwrap()));
    assert!(is_held(&second.claim(TEN).await.unwrap()));
    for _ in 0..20 {
        let claim = first.claim(TEN).await.unwrap();
        assert!(is_held_by(&claim, "one"), "{claim:?}");
        sleep(Duration::from_secs(2)).await;
        assert!(is_held(&second.claim(TEN).await.unwrap()));
    }
    first.release().await.unwrap();
    assert!(is_held(&second.claim(TEN).await.unwrap()));
}
