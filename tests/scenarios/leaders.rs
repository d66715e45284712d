//! Several instances, one of them the leader.

use std::time::Duration;

use stage::Side;

use crate::stage::log::Arrived;
use crate::stage::{ONE_POOL, Stage};

const SOON: Duration = Duration::from_mins(3);
/// The longest time that a hand-over may take after a crash.
const HAND_OVER: Duration = Duration::from_secs(15);

fn three() -> Stage {
    let mut stage = Stage::new(ONE_POOL);
    for host in ["pve1", "pve2", "pve3"] {
        stage.start_on(host);
    }
    stage
}

/// Returns the hosts of the leader and of another instance.
async fn roles(stage: &Stage) -> (String, String) {
    stage.until("one leads", SOON, |stage| stage.leaders().len() == 1).await;
    let leader = stage.leaders()[0].to_owned();
    let other = ["pve1", "pve2", "pve3"].into_iter().find(|host| *host != leader).unwrap().to_owned();
    (leader, other)
}

fn all_there(stage: &Stage, pods: usize) -> bool {
    stage.running_pods() == pods && stage.vms(9100..=9109).len() == pods && stage.leftovers().len() == pods
}

#[tokio::test(start_paused = true)]
async fn of_three_exactly_one_acts_and_the_others_say_who() {
    let stage = three();
    stage.deploy("web", 2, "1500m", "1Gi");
    let (leader, _) = roles(&stage).await;
    stage.until("both pods run", SOON, |stage| all_there(stage, 2)).await;
    stage.throughout("one leads", SOON, |stage| stage.leaders() == [leader.as_str()]).await;
    for host in ["pve1", "pve2", "pve3"].into_iter().filter(|host| **host != *leader) {
        let status = stage.status_of(host);
        assert_eq!((status.leads, status.leader.as_str(), status.ready), (false, leader.as_str(), true));
        let writes: Vec<_> = stage.log(host).arrived().into_iter().filter(Arrived::is_write).collect();
        assert!(writes.is_empty(), "{host}: {writes:#?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_standby_costs_little() {
    let stage = three();
    let (_, other) = roles(&stage).await;
    tokio::time::sleep(SOON).await;
    let since = stage.now();
    tokio::time::sleep(Duration::from_mins(1)).await;
    let asked: Vec<_> = stage.log(&other).arrived().into_iter().filter(|one| one.at > since).collect();
    assert!(asked.iter().all(|one| one.side == Side::Kubernetes), "{asked:#?}");
    let leases = asked.iter().filter(|one| one.what.contains("/leases")).count();
    assert!(leases <= 61, "{leases}");
    // The rest are renewed watches, one for each of 22 kinds, and the version request.
    assert!(asked.len() - leases < 24, "{asked:#?}");
    println!("a standby: {} calls in a minute, {leases} of them for the lease", asked.len());
}

#[tokio::test(start_paused = true)]
async fn after_a_crash_another_goes_on_within_15_s() {
    for after in [0, 1, 2, 3, 5, 8, 13, 21] {
        let mut stage = three();
        stage.until("one leads", SOON, |stage| stage.leaders().len() == 1).await;
        stage.deploy("web", 1, "1500m", "1Gi");
        tokio::time::sleep(Duration::from_secs(after)).await;
        let (leader, _) = roles(&stage).await;
        stage.kill_on(&leader);
        let took = stage.until("another leads", SOON, |stage| stage.leaders().len() == 1).await;
        assert!(took < HAND_OVER, "after {after} s: {took:?}");
        println!("crash after {after} s: another leads {took:?} later");
        stage.until("the pod runs, and nothing is left over", SOON, |stage| all_there(stage, 1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_clean_stop_another_goes_on_at_once() {
    let mut stage = three();
    stage.deploy("web", 1, "1500m", "1Gi");
    let (leader, _) = roles(&stage).await;
    tokio::time::sleep(Duration::from_secs(7)).await;
    let stopped = tokio::time::Instant::now();
    stage.stop_on(&leader).await;
    stage.until("another leads", SOON, |stage| stage.leaders().len() == 1).await;
    let took = stopped.elapsed();
    assert!(took < Duration::from_millis(1500), "{took:?}");
    println!("clean stop: another leads {took:?} later");
    stage.until("the pod runs, and nothing is left over", SOON, |stage| all_there(stage, 1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_lone_instance_is_back_at_once_after_a_crash() {
    let mut stage = Stage::running(ONE_POOL);
    let first = stage.until("it leads", SOON, |stage| stage.leaders().len() == 1).await;
    stage.kill();
    stage.start();
    let second = stage.until("it leads again", SOON, |stage| stage.leaders().len() == 1).await;
    assert!(
        first < Duration::from_millis(500) && second < Duration::from_millis(500),
        "{first:?} {second:?}"
    );
}

/// Stalls the leader's connections to Kubernetes, or to both Kubernetes and Proxmox VE, until another
/// instance has taken over.
async fn a_leader_is_held_up(sides: &[Side], after: u64) {
    let stage = three();
    stage.until("one leads", SOON, |stage| stage.leaders().len() == 1).await;
    stage.deploy("web", 2, "1500m", "1Gi");
    tokio::time::sleep(Duration::from_secs(after)).await;
    let (leader, _) = roles(&stage).await;
    let held = tokio::time::Instant::now();
    for side in sides {
        stage.wire(&leader).hold(*side, true);
    }
    let taken = |stage: &Stage| stage.leaders().iter().any(|host| **host != *leader);
    stage.until("another leads", SOON, taken).await;
    let since = stage.now();
    assert!(held.elapsed() < HAND_OVER, "{sides:?} after {after} s: {:?}", held.elapsed());
    tokio::time::sleep(Duration::from_secs(5)).await;
    for side in sides {
        stage.wire(&leader).hold(*side, false);
    }
    stage.until("the pods run, and nothing is left over", SOON, |stage| all_there(stage, 2)).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(stage.leaders().len(), 1);
    let writes = stage.log(&leader).writes_after(since);
    assert!(writes.is_empty(), "{sides:?} after {after} s: {leader} wrote {writes:#?}");
    assert_eq!(stage.status_of(&leader).leader, stage.leaders()[0]);
}

#[tokio::test(start_paused = true)]
async fn a_leader_without_kubernetes_writes_nothing_after_its_term() {
    for after in [0, 1, 2, 4, 6, 9, 15, 25] {
        a_leader_is_held_up(&[Side::Kubernetes], after).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_stood_still_writes_nothing_after_its_term() {
    for after in [0, 1, 2, 4, 6, 9, 15, 25] {
        a_leader_is_held_up(&[Side::Kubernetes, Side::Proxmox], after).await;
    }
}

/// All instances wake up at the same moment, as if all hosts had been paused. The previous leader has to
/// claim the lease again before it writes.
#[tokio::test(start_paused = true)]
async fn after_a_jump_of_the_clock_no_instance_writes_before_it_has_claimed_the_lease_again() {
    for after in 0..30 {
        let stage = three();
        stage.until("one leads", SOON, |stage| stage.leaders().len() == 1).await;
        stage.deploy("web", 2, "1500m", "1Gi");
        tokio::time::sleep(Duration::from_millis(after * 870)).await;
        tokio::time::advance(Duration::from_secs(20)).await;
        let since = stage.now();
        tokio::time::sleep(Duration::from_secs(5)).await;
        for host in ["pve1", "pve2", "pve3"] {
            let arrived = stage.log(host).arrived();
            let mut late = arrived.iter().filter(|one| one.at >= since);
            let first = late.find(|one| one.is_write() || one.what.starts_with("PUT "));
            assert!(first.is_none_or(|one| !one.is_write()), "after {after}: {host} began with {first:?}");
        }
        stage.until("one leads", SOON, |stage| stage.leaders().len() == 1).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_lone_leader_without_kubernetes_pauses_and_goes_on() {
    for after in [1, 3, 5, 10, 14, 20] {
        let stage = Stage::running(ONE_POOL);
        stage.deploy("web", 1, "1500m", "1Gi");
        tokio::time::sleep(Duration::from_secs(after)).await;
        stage.wire("pve1").hold(Side::Kubernetes, true);
        tokio::time::sleep(Duration::from_secs(8)).await;
        let since = stage.now();
        stage
            .throughout("no instance leads", Duration::from_mins(2), |stage| stage.leaders().is_empty())
            .await;
        let writes = stage.log("pve1").writes_after(since);
        assert!(writes.is_empty(), "after {after} s: {writes:#?}");
        stage.wire("pve1").hold(Side::Kubernetes, false);
        stage.until("the pod runs, and nothing is left over", SOON, |stage| all_there(stage, 1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn who_led_before_shows_no_problem_that_only_who_leads_looks_at() {
    let stage = three();
    let (leader, _) = roles(&stage).await;
    stage.pve.set_away(true);
    let problems = |stage: &Stage, host: &str| stage.status_of(host).problems;
    stage.until("the outage is shown", SOON, |stage| problems(stage, &leader).contains_key("proxmox")).await;
    stage.wire(&leader).hold(Side::Kubernetes, true);
    let taken = |stage: &Stage| stage.leaders().iter().any(|host| **host != *leader);
    stage.until("another leads", SOON, taken).await;
    stage.wire(&leader).hold(Side::Kubernetes, false);
    let stands_by =
        |stage: &Stage| !stage.status_of(&leader).leader.is_empty() && !stage.status_of(&leader).leads;
    stage.until("the old leader stands by", SOON, stands_by).await;
    let now = stage.leaders()[0].to_owned();
    stage.until("the new leader says so", SOON, |stage| problems(stage, &now).contains_key("proxmox")).await;
    stage.pve.set_away(false);
    stage.until("the new leader has no problem", SOON, |stage| problems(stage, &now).is_empty()).await;
    stage.until("the old leader reports no problem", SOON, |stage| problems(stage, &leader).is_empty()).await;
}
