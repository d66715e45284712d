//! Shortens back-offs if the settings change, and ends them at an operator's request. Performs no I/O.

use jiff::Timestamp;

use model::plan::MissedPrediction;
use model::snapshot::Memory;
use model::workload::Backoff;
use settings::Config;

/// Shortens the running back-offs of pools and hosts to the lengths that are now configured in `[scale_up]`.
/// Returns whether any back-off has changed.
pub(super) fn shorten(memory: &mut Memory, config: &Config) -> bool {
    let whole = |time: std::time::Duration| i64::try_from(time.as_secs()).unwrap_or(i64::MAX).max(1);
    let (first, most) = (whole(config.scale_up.backoff_initial), whole(config.scale_up.backoff_max));
    let before = memory.backoff_initial.replace(first).unwrap_or(first);
    let mut changed = before != first;
    let pools = memory.pools.values_mut().flat_map(|pool| [&mut pool.backoff, &mut pool.grow_backoff]);
    let hosts = memory.hosts.values_mut().map(|host| &mut host.backoff);
    for backoff in pools.chain(hosts).flatten() {
        changed |= backoff.shorten((before, first), most);
    }
    changed
}

/// Ends the back-offs of the host or pool with this name, and of the pool's nodes. Without a name, ends all
/// back-offs. Returns a text about each back-off that was still running, with its cause.
pub(super) fn end(memory: &mut Memory, name: Option<&str>, now: Timestamp) -> Vec<String> {
    let meant = |one: &str| name.is_none_or(|name| name == one);
    let mut ended = Vec::new();
    let mut note = |what: &str, backoff: Option<Backoff>| {
        if let Some(backoff) = backoff.filter(|backoff| backoff.runs(now)) {
            ended.push(format!("{what}: back-off ended; its cause was: {}", backoff.reason));
        }
    };
    for (host, memory) in memory.hosts.iter_mut().filter(|(host, _)| meant(host)) {
        note(host, memory.backoff.take());
        note(&format!("switching off {host}"), memory.emptying_backoff.take());
    }
    for (pool, memory) in &mut memory.pools {
        // After a failure on a host, the pool uses the host only as a last resort. This restriction ends if
        // an operator asks to try the host or the pool again.
        memory.failed_on.retain(|host, _| !meant(host) && !meant(pool));
        if meant(pool) {
            note(&format!("pool {pool}"), memory.backoff.take());
            note(&format!("growing machines of pool {pool}"), memory.grow_backoff.take());
        }
    }
    for (node, memory) in memory.nodes.iter_mut().filter(|(_, memory)| meant(&memory.pool)) {
        note(&format!("removing {node}"), memory.removal_backoff.take());
    }
    for missed in &mut memory.predictions.missed {
        // A wrong prediction about a node that belongs to no pool also makes pools back off. Such a back-off
        // is only ended here if no name is given.
        if missed.pool.as_deref().map_or(name.is_none(), meant) {
            let over = Backoff { until: missed.backoff.until.min(now), seconds: 0, ..Backoff::default() };
            let backoff = std::mem::replace(&mut missed.backoff, over);
            let reason = MissedPrediction::of(missed).words();
            note(
                &format!("creating machines for pods like {}", missed.pod),
                Some(Backoff { reason, ..backoff }),
            );
        }
    }
    ended
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jiff::SignedDuration;

    use super::*;
    use model::prediction::Missed;
    use model::snapshot::{HostMemory, PoolMemory};

    fn at(seconds: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds)
    }

    fn backoff(until: i64, seconds: i64) -> Backoff {
        Backoff { until: at(until), reason: "the clone failed".to_owned(), seconds }
    }

    fn config(text: &str) -> Config {
        settings::parse("c", text, settings::Needs::Plan).unwrap()
    }

    #[test]
    fn a_shorter_first_back_off_counts_at_once() {
        let mut memory = Memory::default();
        memory.hosts.insert(
            "pve1".into(),
            HostMemory { backoff: Some(backoff(1200, 1200)), ..HostMemory::default() },
        );
        memory.pools.insert(
            "w".into(),
            PoolMemory { grow_backoff: Some(backoff(300, 300)), ..PoolMemory::default() },
        );
        let usual = config("");
        assert!(!shorten(&mut memory, &usual), "unchanged settings shorten nothing");
        assert!(shorten(&mut memory, &config("[scale_up]\nbackoff_initial = \"1m\"\n")));
        // The third back-off in a row lasts four times as long as the first.
        assert_eq!(memory.hosts["pve1"].backoff, Some(backoff(240, 240)));
        assert_eq!(memory.pools["w"].grow_backoff, Some(backoff(60, 60)));
        assert!(shorten(
            &mut memory,
            &config("[scale_up]\nbackoff_initial = \"1m\"\nbackoff_max = \"2m\"\n")
        ));
        assert_eq!(memory.hosts["pve1"].backoff, Some(backoff(120, 120)));
        assert!(shorten(&mut memory, &usual));
        assert_eq!(memory.hosts["pve1"].backoff, Some(backoff(120, 120)), "none gets longer");
    }

    #[test]
    fn only_what_is_named_is_tried_again_or_all() {
        let mut all = Memory::default();
        for name in ["pve1", "pve2"] {
            all.hosts.insert(
                name.into(),
                HostMemory { backoff: Some(backoff(100, 100)), ..HostMemory::default() },
            );
        }
        let failed_on = [("pve1".into(), at(99)), ("pve2".into(), at(99))].into();
        all.pools.insert(
            "w".into(),
            PoolMemory { backoff: Some(backoff(100, 100)), failed_on, ..PoolMemory::default() },
        );
        let mut one = all.clone();
        assert_eq!(
            end(&mut one, Some("pve1"), at(50)),
            ["pve1: back-off ended; its cause was: the clone failed"]
        );
        assert_eq!(one.hosts["pve1"].backoff, None);
        assert_eq!(one.hosts["pve2"].backoff, Some(backoff(100, 100)));
        assert_eq!(one.pools["w"].backoff, Some(backoff(100, 100)));
        assert_eq!(one.pools["w"].failed_on.keys().collect::<Vec<_>>(), ["pve2"]);
        assert_eq!(end(&mut one, Some("pve1"), at(50)), [""; 0]);
        assert_eq!(end(&mut all, None, at(50)).len(), 3);
        assert!(all.pools["w"].failed_on.is_empty());
        assert_eq!(end(&mut all, None, at(50)), [""; 0]);
    }

    #[test]
    fn misses_of_predictions_are_tried_again_with_their_pool_and_begin_anew() {
        let missed = |pool: Option<&str>| Missed {
            pod: "shop/web".to_owned(),
            pool: pool.map(Into::into),
            ours: "it fits".to_owned(),
            theirs: "0/1 nodes".to_owned(),
            backoff: Backoff { reason: String::new(), ..backoff(100, 400) },
            ..Missed::default()
        };
        for (name, expected) in [
            (None, [false, false, false]),
            (Some("w"), [false, true, true]),
            (Some("other"), [true, false, true]),
            (Some("pve1"), [true, true, true]),
        ] {
            let mut memory = Memory::default();
            memory.predictions.missed = [Some("w"), Some("other"), None].map(missed).into();
            let said = end(&mut memory, name, at(50));
            let runs = memory.predictions.missed.iter().map(|one| one.backoff.runs(at(50)));
            assert_eq!(runs.collect::<Vec<_>>(), expected, "{name:?}");
            assert_eq!(said.len(), expected.iter().filter(|runs| !**runs).count(), "{said:?}");
            let words = "creating machines for pods like shop/web: back-off ended; its cause was: it fits; kube-scheduler reports: 0/1 nodes";
            assert!(said.iter().all(|one| one == words), "{said:?}");
            let lengths = (Duration::from_secs(30), Duration::from_mins(15));
            for one in memory.predictions.missed.iter().filter(|one| !one.backoff.runs(at(50))) {
                assert_eq!(Backoff::next(Some(&one.backoff), "", lengths, at(60)).seconds, 30);
            }
        }
    }
}
