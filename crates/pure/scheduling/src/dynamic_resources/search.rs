//! The search for devices, one claim, request and device at a time. It ends with the first choice that
//! satisfies all requests (the `incubating` allocator of `k8s.io/dynamic-resource-allocation/structured`).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::ask::{Ask, ClaimAsk};
use super::capacity;
use super::constraints::Constraint;
use super::counters::Counters;
use super::facts::{Class, Facts};
use super::pools::{Candidate, Pool};
use super::problem::DeviceProblem;
use super::slices::DeviceId;
use super::state::{State, Taken, TakenDevice};
use super::taking::Undo;
use crate::NodeIndex;
use model::devices::{AllocationMode, Amounts, DeviceTaint, DeviceToleration};

/// The maximum number of devices for a claim (`AllocationResultsMaxSize`).
const MOST_DEVICES: usize = 32;
/// The maximum number of steps of a search. Each check of a device counts as a step. kube-scheduler limits
/// the time to ten seconds instead.
const MOST_STEPS: u32 = 100_000;
/// The maximum depth of a search: each claim, request and device is a level. The search is recursive, and a
/// pod may name any number of claims.
const DEEPEST: usize = 1000;

/// The result of a search: the devices for each claim, `None` if no choice satisfies all claims, or the
/// problem that ended the search.
pub(super) type Found = Result<Option<Vec<Taken>>, DeviceProblem>;

/// Why the search stops at a step.
pub(super) enum Stop {
    /// The whole search fails.
    Problem(DeviceProblem),
    /// The claim would get too many devices if the search continued.
    Full,
}

impl From<DeviceProblem> for Stop {
    fn from(problem: DeviceProblem) -> Self {
        Self::Problem(problem)
    }
}

/// The devices that a request, or one of its alternatives, asks for.
pub(super) struct Wanted<'s> {
    pub(super) ask: &'s Ask,
    class: &'s Class,
    count: usize,
    /// If the request asks for all devices, the devices that match. Each is given by the index of its pool
    /// and its index in the pool.
    all: Option<Vec<(usize, usize)>>,
}

/// A step of the search: the claim, the request and the number of the device to choose next.
#[derive(Clone, Copy, Default)]
pub(super) struct Step {
    pub(super) claim: usize,
    pub(super) request: usize,
    /// The chosen alternative. `None` if it has yet to be chosen.
    choice: Option<usize>,
    device: usize,
}

/// A search in progress.
pub(super) struct Search<'s> {
    pub(super) facts: &'s Facts,
    pub(super) state: &'s State,
    pub(super) pools: &'s [Pool],
    pub(super) claims: &'s [Arc<ClaimAsk>],
    /// The wanted devices, by claim, request and alternative.
    pub(super) wanted: Vec<Vec<Vec<Wanted<'s>>>>,
    pub(super) constraints: Vec<Vec<Constraint<'s>>>,
    pub(super) counters: Counters<'s>,
    /// For each device: the claims that the whole device was chosen for.
    pub(super) chosen: BTreeMap<DeviceId, Vec<usize>>,
    /// For each device: the number of chosen shares, and their total consumption.
    pub(super) shares: BTreeMap<DeviceId, (u32, Amounts)>,
    /// For each claim: the chosen devices, each with the index of its pool and its index in the pool.
    pub(super) results: Vec<Vec<(usize, usize, TakenDevice)>>,
    steps: u32,
}

/// Searches the pools for devices that satisfy all claims.
pub(super) fn search(
    facts: &Facts,
    state: &State,
    pools: &[Pool],
    claims: &[Arc<ClaimAsk>],
    at: Option<NodeIndex>,
) -> Found {
    let mut search = Search {
        facts,
        state,
        pools,
        claims,
        wanted: Vec::new(),
        constraints: Vec::new(),
        counters: Counters::new(state, pools),
        chosen: BTreeMap::new(),
        shares: BTreeMap::new(),
        results: vec![Vec::new(); claims.len()],
        steps: 0,
    };
    search.prepare()?;
    if search.depth() > DEEPEST {
        return Err(DeviceProblem::Steps);
    }
    match search.next(Step::default(), (0, 0)) {
        Ok(true) => Ok(Some(search.taken(at))),
        Ok(false) | Err(Stop::Full) => Ok(None),
        Err(Stop::Problem(problem)) => Err(problem),
    }
}

impl<'s> Search<'s> {
    /// Determines the devices that each request asks for, including the list of devices if a request asks for
    /// all of them. Fails if a request cannot be processed.
    fn prepare(&mut self) -> Result<(), DeviceProblem> {
        for claim in self.claims {
            let mut requests = Vec::with_capacity(claim.requests.len());
            let mut least = 0_usize;
            for request in &claim.requests {
                let mut choices = Vec::with_capacity(request.asks.len());
                for ask in &request.asks {
                    choices.push(self.wanted(claim, &request.name, ask)?);
                }
                least = least.saturating_add(choices.iter().map(|one| one.count).min().unwrap_or(0));
                if least > MOST_DEVICES {
                    return Err(DeviceProblem::TooMany(claim.name.clone()));
                }
                if choices.is_empty() {
                    let (claim, what) = (claim.name.clone(), format!("the request {}", request.name));
                    return Err(DeviceProblem::Unknown { claim, what });
                }
                requests.push(choices);
            }
            self.wanted.push(requests);
            self.constraints.push(claim.constraints.iter().map(Constraint::new).collect());
        }
        Ok(())
    }

    fn wanted(&mut self, claim: &ClaimAsk, request: &str, ask: &'s Ask) -> Result<Wanted<'s>, DeviceProblem> {
        let unknown = |what: String| DeviceProblem::Unknown { claim: claim.name.clone(), what };
        if ask.object.derived || ask.selectors.contains(&None) {
            return Err(unknown(format!("the request {request}")));
        }
        let Some(class) = self.facts.class(&ask.object.class) else {
            let (claim, request, class) = (claim.name.clone(), request.to_owned(), ask.object.class.clone());
            return Err(DeviceProblem::ClassMissing { claim, request, class });
        };
        let mut wanted = Wanted { ask, class, count: 0, all: None };
        match &ask.object.mode {
            AllocationMode::ExactCount(count) => wanted.count = usize::try_from(*count).unwrap_or(0),
            AllocationMode::Other(word) => return Err(unknown(format!("the allocation mode {word}"))),
            AllocationMode::All => {
                let all = self.all(claim, &wanted)?;
                wanted.count = all.len();
                wanted.all = Some(all);
            }
        }
        Ok(wanted)
    }

    /// Returns the devices that match a request for all devices. Each is given by the index of its pool and
    /// its index in the pool.
    fn all(&mut self, claim: &ClaimAsk, wanted: &Wanted) -> Result<Vec<(usize, usize)>, DeviceProblem> {
        let mut all = Vec::new();
        for (number, pool) in self.pools.iter().enumerate() {
            let why =
                pool.invalid.clone().or_else(|| pool.incomplete.then(|| "it is being updated".to_owned()));
            if let Some(why) = why {
                return Err(DeviceProblem::Pool { pool: format!("{}/{}", pool.driver, pool.name), why });
            }
            for (place, candidate) in pool.devices.iter().enumerate() {
                self.pay()?;
                if !is_selectable(self.facts, claim, wanted.ask, wanted.class, candidate)? {
                    continue;
                }
                let (capacity, version) = (&candidate.dev.object().capacity, self.facts.version);
                let taken = capacity::taken(&wanted.ask.object.capacity, capacity, version)?;
                if taken.is_some_and(|taken| capacity::fits(&taken, capacity, &[], version)) {
                    all.push((number, place));
                }
            }
        }
        Ok(all)
    }

    /// The maximum depth of the search.
    fn depth(&self) -> usize {
        let most = |choices: &Vec<Wanted>| choices.iter().map(|one| one.count.min(MOST_DEVICES)).max();
        let of_claim = |requests: &Vec<Vec<Wanted>>| {
            requests.iter().fold(1, |sum, choices| sum + 2 + most(choices).unwrap_or(0))
        };
        self.wanted.iter().map(of_claim).fold(0, usize::saturating_add)
    }

    fn pay(&mut self) -> Result<(), DeviceProblem> {
        self.steps += 1;
        if self.steps > MOST_STEPS { Err(DeviceProblem::Steps) } else { Ok(()) }
    }

    /// Takes this step and all later steps. Devices are tried in order, beginning with the pool and device
    /// whose indices are `start`. Returns whether devices were found for all these steps.
    fn next(&mut self, step: Step, start: (usize, usize)) -> Result<bool, Stop> {
        self.pay()?;
        let Some(claim) = self.claims.get(step.claim) else { return Ok(true) };
        if step.request >= claim.requests.len() {
            let next = Step { claim: step.claim + 1, ..Step::default() };
            return match self.next(next, (0, 0)) {
                Err(Stop::Full) => Ok(false),
                other => other,
            };
        }
        let Some(choice) = step.choice else { return self.choose(step) };
        let wanted = &self.wanted[step.claim][step.request][choice];
        if wanted.all.as_ref().is_some_and(Vec::is_empty) {
            return Ok(false);
        }
        if step.device >= wanted.count {
            let next = Step { claim: step.claim, request: step.request + 1, ..Step::default() };
            return self.next(next, (0, 0));
        }
        if wanted.count - step.device > MOST_DEVICES.saturating_sub(self.results[step.claim].len()) {
            return Err(Stop::Full);
        }
        let next = Step { device: step.device + 1, ..step };
        if let Some(all) = &wanted.all {
            let device = all[step.device];
            let request = &claim.requests[step.request].name;
            return match self.take(step, choice, device, Some((&claim.name, request)))? {
                None => Ok(false),
                Some(undo) => self.go_on(next, (0, 0), &undo),
            };
        }
        self.one_of_all(step, choice, start)
    }

    /// Chooses an alternative of a request: tries the alternatives in order, or takes the only one.
    fn choose(&mut self, step: Step) -> Result<bool, Stop> {
        let request = &self.claims[step.claim].requests[step.request];
        if !request.prioritized {
            return self.next(Step { choice: Some(0), ..step }, (0, 0));
        }
        let mut full = true;
        for choice in 0..request.asks.len() {
            match self.next(Step { choice: Some(choice), ..step }, (0, 0)) {
                Err(Stop::Full) => {}
                Ok(false) => full = false,
                other => return other,
            }
        }
        if full { Err(Stop::Full) } else { Ok(false) }
    }

    fn one_of_all(&mut self, step: Step, choice: usize, start: (usize, usize)) -> Result<bool, Stop> {
        let (pools, facts) = (self.pools, self.facts);
        let claim = &self.claims[step.claim];
        for (number, pool) in pools.iter().enumerate().skip(start.0) {
            if pool.incomplete || pool.invalid.is_some() {
                continue;
            }
            let first = if number == start.0 { start.1 } else { 0 };
            for (place, candidate) in pool.devices.iter().enumerate().skip(first) {
                self.pay()?;
                let wanted = &self.wanted[step.claim][step.request][choice];
                let (ask, class) = (wanted.ask, wanted.class);
                let id = candidate.dev.id;
                let taken = if ask.object.admin {
                    self.chosen.get(&id).is_some_and(|claims| claims.contains(&step.claim))
                } else {
                    self.in_use(id)
                };
                if taken
                    || !is_selectable(facts, claim, ask, class, candidate)?
                    || self.capacity(ask, candidate)?.is_none()
                {
                    continue;
                }
                let Some(undo) = self.take(step, choice, (number, place), None)? else { continue };
                let next = Step { choice: Some(choice), device: step.device + 1, ..step };
                if self.go_on(next, (number, place + 1), &undo)? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Continues after a device was taken, and gives the device back if the remaining steps fail.
    fn go_on(&mut self, next: Step, start: (usize, usize), undo: &Undo) -> Result<bool, Stop> {
        let found = self.next(next, start);
        if !matches!(found, Ok(true)) {
            self.give_back(undo);
        }
        found
    }
}

/// Whether a request may use a device. Checks the selectors of the class, then those of the request, then
/// whether the node can use the device.
pub(super) fn is_selectable(
    facts: &Facts,
    claim: &ClaimAsk,
    ask: &Ask,
    class: &Class,
    candidate: &Candidate,
) -> Result<bool, DeviceProblem> {
    let problem = |of: String, number: usize, fault| {
        let (expression, device) = (facts.text(number).to_owned(), candidate.dev.words());
        DeviceProblem::Selector { of, expression, device, fault }
    };
    for selector in &class.selectors {
        let Some(number) = *selector else {
            let (claim, what) =
                (claim.name.clone(), format!("a selector of the class {}", class.object.name));
            return Err(DeviceProblem::Unknown { claim, what });
        };
        let of = || format!("device class {}", class.object.name);
        if !facts.is_selected(&candidate.dev, number).map_err(|fault| problem(of(), number, fault))? {
            return Ok(false);
        }
    }
    for number in ask.selectors.iter().flatten() {
        let selected = facts.is_selected(&candidate.dev, *number);
        if !selected.map_err(|fault| problem(claim.name.clone(), *number, fault))? {
            return Ok(false);
        }
    }
    Ok(candidate.reached)
}

/// Whether pods with these tolerations may use a device with this taint.
pub(super) fn tolerates(tolerations: &[DeviceToleration], taint: &DeviceTaint) -> bool {
    let matches = |one: &DeviceToleration| {
        (one.effect.is_empty() || one.effect == taint.effect)
            && (one.key.is_empty() || one.key == taint.key)
            && match one.operator.as_str() {
                "" | "Equal" => one.value == taint.value,
                operator => operator == "Exists",
            }
    };
    !matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute") || tolerations.iter().any(matches)
}
