//! Tests of single decisions, and of complete machine lives with answers that a controller may give.

mod joining;
mod leaving;
mod lives;

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::{Next, Settings};
use crate::bare_metal::sight::{Now, Power, Sight, Watched};
use crate::bare_metal::step::{Look, Step};
use model::machine::{Intent, Phase};
use model::node::{Condition, Node};
use model::{Record, Slot};
use proxmox::redfish::{Error, Kind, PowerState};

const UUID: &str = "4c4c4544-0052-3510-8052-b4c04f4d3332";

/// A situation, and the expected decision.
struct Row<D> {
    what: &'static str,
    record: Record,
    sight: Sight,
    /// Seconds since the run began. The machine was requested at second 0.
    at: u64,
    next: Next<D>,
}

fn row<D>(what: &'static str, record: Record, sight: Sight, at: u64, next: Next<D>) -> Row<D> {
    Row { what, record, sight, at, next }
}

/// Checks the decision for each row. A wait has to end in the future, because otherwise the loop would never
/// sleep.
fn check<D: std::fmt::Debug + PartialEq>(rows: Vec<Row<D>>, decide: super::Decide<D>) {
    for Row { what, record, sight, at, next } in rows {
        let now = at_second(at);
        let decided = decide(&record, &settings(), &sight, now);
        assert_eq!(decided, next, "{what}");
        if let Next::Wait(until, _) = decided {
            assert!(until > now.moment, "{what}: the wait ends in the past");
        }
    }
}

fn settings() -> Settings {
    Settings {
        closed: false,
        provision: Duration::from_mins(15),
        start: seconds(120),
        shutdown: seconds(180),
        destroy: seconds(300),
    }
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn at_second(second: u64) -> Now {
    let date = Timestamp::UNIX_EPOCH + SignedDuration::from_secs(i64::try_from(second).unwrap());
    Now { date, moment: seconds(second) }
}

/// A machine that was just requested.
fn requested() -> Record {
    let slot = Slot { machine: Some("metal-1".to_owned()), ..Slot::default() };
    let (id, pool, name) = ("m1".to_owned(), "metal".to_owned(), "metal-1".to_owned());
    Record::new(id.into(), pool.into(), name, slot, String::new(), Timestamp::UNIX_EPOCH)
}

/// A machine that the daemon has switched on, according to the record.
fn ours() -> Record {
    let mut record = requested();
    record.entered.insert(Phase::Starting, Timestamp::UNIX_EPOCH);
    record
}

/// A machine that was in service and whose Node is to be removed.
fn retired() -> Record {
    let reason = "unneeded".to_owned();
    let intent = Intent::Retire { reason, since: Timestamp::UNIX_EPOCH };
    let (smbios_uuid, node_uid) = (Some(UUID.to_owned()), Some("n1".to_owned()));
    Record { intent, smbios_uuid, node_uid, ..ours() }
}

/// A machine that was in service and is to be discarded.
fn given_up() -> Record {
    let reason = "its Node was lost".to_owned();
    let intent = Intent::Discard { reason, since: Timestamp::UNIX_EPOCH };
    Record { intent, ..retired() }
}

/// A sight with a known controller. `look` sets the other fields.
fn seen(look: impl FnOnce(&mut Sight)) -> Sight {
    let mut sight = Sight { has_controller: true, ..Sight::default() };
    look(&mut sight);
    sight
}

fn power(at: u64, state: PowerState) -> Power {
    Power { at: seconds(at), state: Some(state), uuid: None }
}

/// A query for the power state that the controller did not answer.
fn no_answer(at: u64) -> Power {
    Power { at: seconds(at), state: None, uuid: None }
}

/// The machine's Node. `ready` is the status of its `Ready` condition, which is `Unknown` if its kubelet is
/// silent.
fn node(ready: &str) -> Arc<Node> {
    let (kind, status) = ("Ready".to_owned(), ready.to_owned());
    let condition = Condition { kind, status, last_transition: None };
    Arc::new(Node {
        name: "metal-1".to_owned(),
        uid: "n1".to_owned(),
        system_uuid: UUID.to_owned(),
        conditions: vec![condition],
        ..Node::default()
    })
}

fn watched(ready: &str) -> Watched {
    Watched::Own(node(ready))
}

fn refusal(kind: Kind) -> Error {
    Error::new(kind, "POST /redfish/v1/Systems/1", "it is busy")
}

fn look<D>(look: Look) -> Next<D> {
    Next::Do(Step::Look(look))
}
