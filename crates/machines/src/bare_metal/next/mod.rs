//! Decides what to do next for a bare-metal machine. Pure functions.

mod joining;
mod leaving;

use std::time::Duration;

use super::sight::{Moment, Now, Sight};
use super::step::{Look, Step};
use super::stuck::Stuck;
use model::Record;
use settings::{Config, Limits};

pub(super) use joining::joining;
pub(super) use leaving::leaving;

/// The time between two looks at a machine's power.
const LOOK: Duration = Duration::from_secs(5);
/// A controller is asked again after this time if its machine has not switched on, or if it refuses to shut
/// the machine down.
const AGAIN: Duration = Duration::from_secs(45);

/// What to do next.
#[derive(Debug, PartialEq)]
pub(super) enum Next<D> {
    /// Carry out this step and look at its result.
    Do(Step),
    /// Do nothing until this time, unless the watches show a change earlier.
    Wait(Moment, Wait),
    /// The run is finished.
    Done(D),
    /// The run cannot go on.
    Stuck(Stuck),
}

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// The next look at its power, or the next try.
    Power,
    /// Its Node.
    Node,
    /// Its Node falls silent or disappears.
    Silence,
}

/// A function that decides, given what was seen.
pub(super) type Decide<D> = fn(&Record, &Settings, &Sight, Now) -> Next<D>;

/// The settings that these decisions depend on.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    /// Whether the configuration closes the machine: it is then not switched on.
    pub closed: bool,
    /// The limit from its request until it is a Node.
    pub provision: Duration,
    /// The limit for switching it on, and for waiting until it is off after its power was cut.
    pub start: Duration,
    /// The limit for its shutdown, before its power is cut.
    pub shutdown: Duration,
    /// The limit for retries of a call at the end of its life.
    pub destroy: Duration,
}

impl Settings {
    pub fn of(config: &Config, record: &Record) -> Self {
        let Limits { start, shutdown, destroy, .. } = config.limits;
        let provision = config.scale_up.max_node_provision_time;
        let pool = config.pools.iter().find(|pool| pool.name == record.pool);
        let closed = pool.and_then(|pool| pool.physical(&record.name)).is_some_and(|own| own.closed);
        Self { closed, provision, start, shutdown, destroy }
    }
}

/// Looks at the machine's power if the last look or request is long enough ago; otherwise waits.
fn poll<D>(look: Look, last: Moment, until: Moment, now: Now) -> Next<D> {
    let due = last + LOOK;
    if now.moment >= due { Next::Do(Step::Look(look)) } else { Next::Wait(due.min(until), Wait::Power) }
}

#[cfg(test)]
mod tests;
