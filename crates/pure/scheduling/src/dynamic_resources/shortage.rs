//! Explains why a search found nothing: the request that cannot be satisfied, and the number of devices that
//! match and are free.

use std::sync::Arc;

use super::ask::{Ask, ClaimAsk};
use super::capacity;
use super::counters::Counters;
use super::facts::Facts;
use super::pools::Pool;
use super::problem::{DeviceProblem, Shortage};
use super::search::{is_selectable, tolerates};
use super::state::{State, Use};
use model::devices::AllocationMode;

/// Determines why the devices are not enough for these claims.
pub(super) fn find(facts: &Facts, state: &State, pools: &[Pool], claims: &[Arc<ClaimAsk>]) -> DeviceProblem {
    for claim in claims {
        for request in &claim.requests {
            let short = |ask: &Ask| of_ask(facts, state, pools, claim, &request.name, ask);
            let mut all = request.asks.iter().map(short);
            // If every alternative is short of devices, report the first one.
            if let Some(Some(first)) = all.next()
                && all.all(|other| other.is_some())
            {
                return DeviceProblem::Short(Box::new(first));
            }
        }
    }
    if let Some((pool, why)) = pools.iter().find_map(|pool| pool.invalid.as_ref().map(|why| (pool, why))) {
        return DeviceProblem::Pool { pool: format!("{}/{}", pool.driver, pool.name), why: why.clone() };
    }
    DeviceProblem::Together(claims.iter().map(|claim| claim.name.clone()).collect())
}

/// Returns the shortage of devices for one alternative of a request. `None` if there is no shortage.
fn of_ask(
    facts: &Facts,
    state: &State,
    pools: &[Pool],
    claim: &ClaimAsk,
    request: &str,
    ask: &Ask,
) -> Option<Shortage> {
    let class = facts.class(&ask.object.class)?;
    let mut counters = Counters::new(state, pools);
    let (mut matching, mut free) = (0, 0);
    for (number, pool) in pools.iter().enumerate().filter(|(_, pool)| !pool.incomplete) {
        for candidate in &pool.devices {
            if is_selectable(facts, claim, ask, class, candidate) != Ok(true) {
                continue;
            }
            matching += 1;
            let (dev, device) = (&candidate.dev, candidate.dev.object());
            let used = state.used(dev.id);
            let before = used.and_then(Use::consumed);
            let taken = capacity::taken(&ask.object.capacity, &device.capacity, facts.version).ok().flatten();
            let has_room =
                taken.is_some_and(|taken| capacity::fits(&taken, &device.capacity, &[before], facts.version));
            let open = ask.object.admin || !used.is_some_and(Use::is_whole);
            let counted = device.shared && used.is_some_and(Use::is_shared);
            if has_room && open && dev.taints.iter().all(|taint| tolerates(&ask.object.tolerations, taint)) {
                let suffices = counted || counters.take(number, &device.consumes);
                free += usize::from(suffices);
                if suffices && !counted {
                    counters.give_back(number, &device.consumes);
                }
            }
        }
    }
    let (wanted, short) = match ask.object.mode {
        AllocationMode::ExactCount(count) => {
            (Some(count), usize::try_from(count).is_ok_and(|count| free < count))
        }
        _ => (None, matching == 0 || free < matching),
    };
    let selectors = ask.selectors.iter().flatten().map(|number| facts.text(*number).to_owned());
    short.then(|| Shortage {
        claim: claim.name.clone(),
        request: request.to_owned(),
        class: ask.object.class.clone(),
        selectors: selectors.collect(),
        wanted,
        matching,
        free,
    })
}
