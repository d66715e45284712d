//! A simulation as JSON for programs.

use serde_json::{Map, Value, json};

use super::{Column, Found};
use model::PoolName;
use replay::{ASSUMPTIONS, CREATION, PoolFigures, RETIREMENT, Took, Use, WAKING, Waits};

pub(super) fn render(found: &Found) -> Value {
    let facts = &found.facts;
    let took = |all: &std::collections::BTreeMap<PoolName, Took>, default: std::time::Duration| {
        let pools: Map<String, Value> = all
            .iter()
            .map(|(pool, took)| {
                (pool.to_string(), json!({ "medianSeconds": took.median(), "seen": took.count() }))
            })
            .collect();
        json!({ "pools": pools, "otherwiseSeconds": default.as_secs() })
    };
    json!({
        "record": {
            "from": facts.from, "to": facts.to, "rounds": facts.rounds,
            "gaps": facts.gaps.iter().map(|(from, to)| json!({ "from": from, "to": to })).collect::<Vec<_>>(),
            "damages": found.damages.iter().map(ToString::to_string).collect::<Vec<_>>(),
        },
        "warnings": found.doubts,
        "whatIf": { "scale": f64::from(found.what_if.demand) / 1000.0, "withoutHosts": found.what_if.without },
        "configurations": found.columns.iter().map(column).collect::<Vec<_>>(),
        "assumptions": ASSUMPTIONS,
        "machines": {
            "creation": took(&facts.creation, CREATION),
            "waking": took(&facts.waking, WAKING),
            "retirement": took(&facts.retirement, RETIREMENT),
        },
    })
}

/// Rounds to two decimals, which is sufficient.
fn rounded(number: f64) -> f64 {
    (number * 100.0).round() / 100.0
}

fn waits(waits: &Waits) -> Value {
    json!({
        "pods": waits.count(),
        "p50Seconds": waits.percentile(50),
        "p95Seconds": waits.percentile(95),
        "worstSeconds": waits.percentile(100),
    })
}

fn pool(pool: &PoolFigures) -> Value {
    json!({
        "made": pool.made, "removed": pool.removed, "failed": pool.failed, "grown": pool.grown,
        "nodesAtMost": pool.most, "nodeHours": rounded(pool.node_hours),
        "pods": pool.pods, "waited": waits(&pool.waits),
    })
}

fn column(Column { name, figures }: &Column) -> Value {
    let hours = |one: &Use| json!({ "coreHours": rounded(one.cores), "gibHours": rounded(one.memory) });
    let used = &figures.used;
    let pools: Map<String, Value> =
        figures.pools.iter().map(|(name, own)| (name.to_string(), pool(own))).collect();
    let each: Map<String, Value> = figures
        .hosts
        .iter()
        .map(|(host, own)| {
            let (empty, off) = (own.empty.map(rounded), own.off.map(rounded));
            (host.clone(), json!({ "onHours": rounded(own.on), "emptyHours": empty, "offHours": off }))
        })
        .collect();
    let sum = |of: fn(&PoolFigures) -> u64| figures.pools.values().map(of).sum::<u64>();
    json!({
        "configuration": name,
        "hours": rounded(figures.hours),
        "decisions": figures.decisions,
        "made": sum(|pool| pool.made),
        "removed": sum(|pool| pool.removed),
        "nodeHours": rounded(figures.pools.values().fold(0.0, |sum, pool| sum + pool.node_hours)),
        "waited": waits(&figures.waits()),
        "wentWithoutNode": waits(&figures.without),
        "waitingAtTheEnd": figures.waiting,
        "pools": pools,
        "refusals": figures.refusals,
        "hosts": {
            "have": hours(&used.hosts), "othersTake": hours(&used.others), "machinesTake": hours(&used.machines),
            "nodesOffer": hours(&used.offered), "podsRequest": hours(&used.requested),
            "each": each,
        },
        "series": figures.series,
    })
}
