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

/// The time between two readings of a machine's power state.
const LOOK: Duration = Duration::from_secs(5);
/// The time after which a controller is asked again, if its machine has not been switched on or the
/// controller refuses to shut the machine down.
const AGAIN: Duration = Duration::from_secs(45);

/// What to do next.
#[derive(Debug, PartialEq)]
pub(super) enum Next<D> {
    /// Carry out this step and check its result.
    Do(Step),
    /// Do nothing until this time, unless the watches show a change earlier.
    Wait(Moment, Wait),
    /// The run is finished.
    Done(D),
    /// The run cannot continue.
    Stuck(Stuck),
}

/// What the run is waiting for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// The next reading of the machine's power state, or the next try.
    Power,
    /// Its Node.
    Node,
    /// The moment at which the machine's Node becomes silent or disappears.
    Silence,
}

/// A function that decides on the next step, given what was seen.
pub(super) type Decide<D> = fn(&Record, &Settings, &Sight, Now) -> Next<D>;

/// The settings that these decisions depend on.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    /// Whether the machine is closed in the configuration. A closed machine is not switched on.
    pub closed: bool,
    /// The time limit for the machine to become a node, counted from the time at which the machine was
    /// requested.
    pub provision: Duration,
    /// The time limit for switching the machine on. The same limit applies to the wait until the machine is
    /// off after its power was cut.
    pub start: Duration,
    /// How long the machine may take to shut down before its power is cut.
    pub shutdown: Duration,
    /// How long a failed call is retried during the machine's removal.
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

/// Reads the machine's power state if enough time has passed since the last reading or request. Otherwise,
/// waits.
fn poll<D>(look: Look, last: Moment, until: Moment, now: Now) -> Next<D> {
    let due = last + LOOK;
    if now.moment >= due { Next::Do(Step::Look(look)) } else { Next::Wait(due.min(until), Wait::Power) }
}

#[cfg(test)]
mod tests;
