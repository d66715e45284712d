use super::*;
use crate::{Board, Problem};
use model::Record;

#[test]
fn the_names_of_cluster_autoscaler_are_there_where_they_are_asked_for() {
    let board = Board::default();
    board.begin(true);
    let mut seen = GaugeValues::default();
    seen.put(names::NODES, &["workers", "Ready"], 3.0);
    seen.put(names::PENDING, &["NoPoolFits"], 2.0);
    seen.put(names::PENDING, &["Gated"], 5.0);
    seen.put(names::LAST_SUCCESS, &[], 1.7e9);
    let metrics = board.metrics();
    metrics.show(seen, &["workers".into()]);
    metrics.asked_for(&PoolName::from("workers"), &MachineId::from("m1"), true, None);
    metrics.taken_back(&PoolName::from("workers"), Some(RemovalReason::Empty));
    metrics.round(RoundOutcome::Decided, Duration::from_millis(20));
    let others = OthersNames { cluster_autoscaler: true, ..OthersNames::default() };
    let text = metrics.encode_beside(&board.status(), others).unwrap();
    for line in [
        "cluster_autoscaler_cluster_safe_to_autoscale 1.0",
        "cluster_autoscaler_nodes_count{state=\"ready\"} 3.0",
        "cluster_autoscaler_unschedulable_pods_count{type=\"unschedulable\"} 2.0",
        "cluster_autoscaler_last_activity{activity=\"main\"} 1700000000.0",
        "cluster_autoscaler_scaled_up_nodes_total 1",
        "cluster_autoscaler_scaled_down_nodes_total{reason=\"empty\"} 1",
        "cluster_autoscaler_scaled_down_nodes_total{reason=\"underutilized\"} 0",
        "cluster_autoscaler_function_duration_seconds_count{function=\"main\"} 1",
    ] {
        assert!(text.lines().any(|one| one == line), "no {line} in\n{text}");
    }
    assert!(!metrics.encode(&board.status()).unwrap().contains("cluster_autoscaler_"));
    metrics.forget();
    let stands_by = metrics.encode_beside(&board.status(), others).unwrap();
    assert!(!stands_by.contains("last_activity"), "{stands_by}");
}

#[test]
fn machines_that_are_gone_keep_no_other_from_being_measured() {
    let metrics = Metrics::default();
    let pool = PoolName::from("workers");
    let asked_for = |id: &MachineId| {
        metrics.asked_for(&pool, id, true, Some(Timestamp::UNIX_EPOCH));
    };
    for number in 0..FOLLOWED {
        asked_for(&MachineId::from(format!("gone-{number}")));
    }
    metrics.follow_only(&BTreeSet::new());
    let ready = Timestamp::UNIX_EPOCH + jiff::SignedDuration::from_secs(60);
    let record = Record { entered: [(Phase::Ready, ready)].into(), ..Record::example() };
    asked_for(&record.id);
    metrics.follow_only(&[&record.id].into());
    metrics.heard(&MachineReport { record, ending: Ending::Ready, at: ready });
    let text = metrics.encode(&Status::default()).unwrap();
    let line = |text: &str| text.lines().any(|line| line.ends_with("ready_seconds_count 1"));
    assert!(line(&text), "{text}");
}

#[test]
fn every_outcome_of_a_pool_has_a_series_from_the_start() {
    let metrics = Metrics::default();
    metrics.show(GaugeValues::default(), &["workers".into()]);
    let text = metrics.encode(&Status::default()).unwrap();
    for outcome in ["Ready", "Warm", "SlotTaken", "Pool", "Host", "Other"] {
        let line = format!("machines_made_total{{pool=\"workers\",outcome=\"{outcome}\"}} 0");
        assert!(text.contains(&line), "no {line} in\n{text}");
    }
}

#[test]
fn every_problem_of_the_status_has_a_series() {
    let board = Board::default();
    for problem in [Problem::Region("east".to_owned()), Problem::PinningAstray, Problem::Proxmox] {
        board.problem(&problem, "something");
    }
    let text = board.metrics().encode(&board.status()).unwrap();
    for (about, value) in [("region", "1.0"), ("pinning", "1.0"), ("proxmox", "1.0"), ("lease", "0.0")] {
        let line = format!("pve_autoscaler_problem{{about=\"{about}\"}} {value}");
        assert!(text.lines().any(|one| one == line), "no {line} in\n{text}");
    }
}

#[test]
fn the_process_says_what_it_uses() {
    let board = Board::default();
    let text = board.metrics().encode(&board.status()).unwrap();
    let value = |name: &str| -> f64 {
        let line = text.lines().find(|line| line.starts_with(&format!("{name} "))).unwrap_or_default();
        line.rsplit(' ').next().and_then(|value| value.parse().ok()).unwrap_or(-1.0)
    };
    assert!(value("process_resident_memory_bytes") > 1e6, "{text}");
    assert!(value("process_open_fds") >= 3.0 && value("process_max_fds") >= 64.0, "{text}");
    assert!(value("process_cpu_seconds_total") >= 0.0 && value("process_threads") >= 1.0, "{text}");
    assert!(value("process_start_time_seconds") > 1.7e9, "{text}");
}

#[test]
fn who_stands_by_shows_nothing_of_what_it_knew_when_it_led() {
    let board = Board::default();
    board.begin(true);
    let mut seen = GaugeValues::default();
    seen.put(names::NODES, &["workers", "Ready"], 3.0);
    board.metrics().show(seen, &["workers".into()]);
    let page = || {
        board
            .metrics()
            .encode_beside(&board.status(), OthersNames { kproximate: true, ..OthersNames::default() })
            .unwrap()
    };
    let nodes = "pve_autoscaler_nodes{pool=\"workers\",state=\"Ready\"} 3.0\n";
    let led = page();
    assert!(led.contains(nodes) && led.contains("\npve_autoscaler_leader 1.0\n"), "{led}");
    assert!(led.contains("\nkpnodes_running 3.0\n"), "{led}");
    // While no instance leads, this instance keeps its values, because it may lead next.
    board.stand_by("", Timestamp::UNIX_EPOCH);
    assert!(page().contains(nodes) && page().contains("\npve_autoscaler_leader 0.0\n"));
    board.stand_by("pve2", Timestamp::UNIX_EPOCH);
    let stands_by = page();
    assert!(!stands_by.contains("pve_autoscaler_nodes{"), "{stands_by}");
    assert!(stands_by.contains("\nkpnodes_running 0.0\n"), "{stands_by}");
}
