//! Why the run of a bare-metal machine cannot continue.

use std::time::Duration;

use crate::step_error::{BackoffTarget, StepError, time_text};
use proxmox::redfish::{self, PowerState};

/// Why the run of a machine cannot continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stuck {
    /// The machine is closed, because an administrator is working on it.
    Closed { name: String },
    /// The machine is not off, and the record does not say that the daemon has switched it on.
    NotOurs { name: String, power: Option<PowerState> },
    /// A step would change the machine, although the record does not claim it.
    Unclaimed { name: String },
    /// The machine is off, but a Node has its name.
    HasNode { name: String },
    /// Another client switched the machine on before the daemon could.
    JustTaken { name: String },
    /// The controller permanently refuses to switch the machine on.
    Refuses(redfish::Error),
    /// The machine was not on within this time limit.
    NotOn { limit: Duration },
    /// The Node did not register within this limit. `power` is the machine's power state at that time, or why
    /// it is unknown.
    NoNode { limit: Duration, power: Result<PowerState, String> },
    /// A Node with the machine's name registered, but reports this uuid instead of the machine's.
    AnotherNode { limit: Duration, name: String, uuid: String, own: Option<String> },
    /// The machine's Node cannot be identified.
    NoUuid { node: String },
    /// The machine's Node can neither be emptied nor uncordoned.
    Stays { why: String },
    /// The machine's power was cut, but the machine was not off within this time limit.
    NotOff { limit: Duration },
}

impl From<Stuck> for StepError {
    fn from(stuck: Stuck) -> Self {
        let taken = |what: String| Self::Taken { what };
        let failed = |what: String, blame| Self::Failed { what, blame };
        let late =
            |what: &str, limit| Self::Limit { what: what.to_owned(), limit, blame: BackoffTarget::Host };
        match stuck {
            Stuck::Closed { name } => taken(format!("`{name}` is closed")),
            Stuck::NotOurs { name, power } => {
                let power = power.map_or_else(|| "unknown".to_owned(), |power| format!("{power:?}"));
                taken(format!("`{name}` was not switched on by this daemon, and its power is {power}"))
            }
            Stuck::Unclaimed { name } => taken(format!("`{name}` was not switched on by this daemon")),
            Stuck::HasNode { name } => {
                taken(format!("Node `{name}` belongs to no managed machine: delete the Node first"))
            }
            Stuck::JustTaken { name } => taken(format!("`{name}` was just switched on by another client")),
            Stuck::Refuses(error) => Self::Redfish(error),
            Stuck::NotOn { limit } => late("switching it on", limit),
            Stuck::NoNode { limit, power } => failed(
                format!("its Node did not register within {}: {}", time_text(limit), instead(power)),
                BackoffTarget::Host,
            ),
            Stuck::AnotherNode { limit, name, uuid, own } => {
                let (limit, own) = (time_text(limit), own.as_deref().unwrap_or("unknown"));
                let what = format!(
                    "its Node did not register within {limit}: there is a Node `{name}`, but its systemUUID \
                     ({uuid}) is not the machine's ({own})"
                );
                failed(what, BackoffTarget::Host)
            }
            Stuck::NoUuid { node } => {
                let what = format!("its Node `{node}` reports no systemUUID, so it cannot be identified");
                failed(what, BackoffTarget::Host)
            }
            Stuck::Stays { why } => {
                failed(format!("it will not be switched off: {why}"), BackoffTarget::Other)
            }
            Stuck::NotOff { limit } => late("switching it off", limit),
        }
    }
}

/// Describes what was found instead of the machine's Node.
fn instead(power: Result<PowerState, String>) -> String {
    match power {
        Ok(PowerState::On) => "it is on, but its kubelet has not registered: check its console".to_owned(),
        Ok(power) => format!("its power is {power:?}"),
        Err(error) => format!("its power cannot be read: {error}"),
    }
}
