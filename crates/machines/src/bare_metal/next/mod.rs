//! What is to be done next for a bare-metal machine. Pure.

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

/// Between two looks at a machine's power.
const LOOK: Duration = Duration::from_secs(5);
/// A controller that was asked to switch on and shows nothing of it, or refuses to shut down, is asked again
/// after this time.
const AGAIN: Duration = Duration::from_secs(45);

/// What is to be done next.
#[derive(Debug, PartialEq)]
pub(super) enum Next<D> {
    /// This; what comes of it is seen then.
    Do(Step),
    /// Nothing until then, unless the watches show something before.
    Wait(Moment, Wait),
    /// It is brought to its end.
    Done(D),
    /// It cannot go on.
    Stuck(Stuck),
}

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// The next look at its power, or the next try.
    Power,
    /// Its Node.
    Node,
    /// Its Node falls silent, or goes.
    Silence,
}

/// What decides, given what was seen.
pub(super) type Decide<D> = fn(&Record, &Settings, &Sight, Now) -> Next<D>;

/// What settings say of a machine and its life.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    /// The machine is closed: it is not switched on.
    pub closed: bool,
    /// From when it was wanted until it is a Node.
    pub provision: Duration,
    /// Until it runs, and until it is off once its power was cut.
    pub start: Duration,
    /// Its shutdown, before its power is cut.
    pub shutdown: Duration,
    /// A call that passes by itself, at the end of its life.
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

/// A look at its power, if the last one, or what was asked then, is long enough ago.
fn poll<D>(look: Look, last: Moment, until: Moment, now: Now) -> Next<D> {
    let due = last + LOOK;
    if now.moment >= due { Next::Do(Step::Look(look)) } else { Next::Wait(due.min(until), Wait::Power) }
}

#[cfg(test)]
mod tests;
