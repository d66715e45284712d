//! What one run has seen of a bare-metal machine, and how its controller has answered. Plain data.
//!
//! Times are measured from the start of the run, by a monotonic clock. Stored times are compared with the
//! wall clock.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::node::is_silent;
use model::node::Node;
use proxmox::redfish::{self, Kind, PowerState};

/// A point in time, measured from the start of the run.
pub(super) type Moment = Duration;

/// The current time, by the wall clock and by the run's monotonic clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    pub date: Timestamp,
    pub moment: Moment,
}

/// Everything that the run has seen. It is empty at the start.
#[derive(Debug, Default)]
pub(super) struct Sight {
    /// What the watches show. They are read before each decision, because that needs no API call.
    pub watched: Watched,
    /// Whether the machine is in the configuration, so that a client for its controller exists.
    pub has_controller: bool,
    /// The last reading of the machine's power state.
    pub power: Option<Power>,
    /// The progress of switching the machine on.
    pub start: Start,
    /// Whether a Node has the machine's name. This is queried before the machine is claimed.
    pub namesake: Option<bool>,
    /// The machine's power state, read after its Node did not register in time, or the reason why the power
    /// state is unknown.
    pub instead: Option<Result<PowerState, String>>,
    /// Whether the machine's Node exists in the API server and reports.
    pub heard: Option<bool>,
    /// The machine's Node from the API server, if it was read for the next decision.
    pub node: OwnNode,
    /// Whether pods that have to move are left on the Node.
    pub emptied: Emptied,
    /// The progress of shutting the machine down.
    pub stopping: Stopping,
    /// How the controller answered the request to shut the machine down.
    pub shutdown: Shutdown,
    /// The progress of the cleanup, once the machine is off or belongs to another client.
    pub cleared: Cleared,
}

/// What the watches show for the machine's name.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Watched {
    #[default]
    Nothing,
    /// Its Node.
    Own(Arc<Node>),
    /// A Node that is not the machine's, with this `systemUUID`.
    Other(String),
}

/// The machine's Node when it was last read from the API server.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum OwnNode {
    /// The Node has not been read, or the last reading is outdated.
    #[default]
    Unknown,
    Gone,
    There(Arc<Node>),
}

/// A reading of the machine's power state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Power {
    /// When the controller answered, or when the daemon stopped waiting for its answer.
    pub at: Moment,
    /// The power state; `None` if the controller did not report it.
    pub state: Option<PowerState>,
    /// The uuid that the controller reports.
    pub uuid: Option<String>,
}

/// This run's progress in switching a machine on.
#[derive(Debug, Default)]
pub(super) struct Start {
    /// Whether this run has claimed the machine.
    pub claimed: bool,
    /// Whether the controller has accepted, or may have accepted, this run's request to switch the machine
    /// on. If so, a running machine is ours.
    pub asked: bool,
    /// When this run first tried to switch the machine on.
    pub since: Option<Moment>,
    /// The time and the result of the last try.
    pub answer: Option<(Moment, Answer)>,
}

/// How a controller answered the request to switch its machine on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The controller has accepted the request, or may have accepted it.
    Asked,
    /// No request was needed, because the machine is running or is about to run.
    WasOn,
    /// The controller could not be reached, or refuses for now because it is busy.
    NotNow,
    /// The controller permanently refuses to switch the machine on.
    Never(redfish::Error),
}

/// Whether pods that have to move are left on a machine's Node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Emptied {
    #[default]
    Unknown,
    /// The Node was empty at this time. `again` is true if the Node was checked a second time, just before a
    /// request to the controller.
    Yes { at: Moment, again: bool },
    /// A pod or a volume stays on the Node, for this reason.
    No(String),
}

/// Whether the record says that the machine is being shut down, and whether an annotation keeps its Node.
#[derive(Debug, Default)]
pub(super) enum Stopping {
    /// This run has not recorded the shutdown.
    #[default]
    NotYet,
    /// This run was the first to record the shutdown. An administrator may have pinned the Node before that.
    Unpinned,
    /// The shutdown is recorded, but this Node is kept by an annotation.
    Pinned(Arc<Node>, String),
    /// The shutdown is recorded, and nothing prevents it.
    Free,
}

/// How a machine's controller answered the request to shut it down.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Shutdown {
    #[default]
    NotAsked,
    /// The controller accepted the request at this time.
    Taken(Moment),
    /// It refuses.
    Refused(Refused),
    /// The power has to be cut. If `may_stay` is true, the controller has never accepted a shutdown, so the
    /// machine may still stay in service.
    InVain { may_stay: bool },
    /// The power was cut at this time.
    Cut(Moment),
}

/// A controller's refusal to shut its machine down. The controller may be busy, or the machine may already be
/// shutting down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    /// When the controller first refused.
    pub since: Moment,
    /// When the controller last refused.
    pub at: Moment,
    pub error: redfish::Error,
}

/// The last completed cleanup step for a machine. The steps are listed in the order in which they are carried
/// out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cleared {
    #[default]
    Nothing,
    /// The record says that the machine was seen to be off.
    OffNoted,
    /// Its Node is gone.
    Node,
    /// Its record is gone.
    Record,
}

impl Watched {
    /// Whether the watches show that the machine's Node reports.
    pub fn is_heard(&self) -> bool {
        matches!(self, Self::Own(node) if !is_silent(node))
    }
}

impl Start {
    /// Whether this run has claimed the machine, but its controller has not accepted a request yet. If the
    /// machine runs now, another client has switched it on.
    pub fn is_unproven(&self) -> bool {
        self.claimed && !self.asked
    }

    /// Notes that the record claims the machine. The next step is a request to its controller.
    pub fn claimed(&mut self) {
        (self.claimed, self.answer) = (true, None);
    }

    pub fn answered(&mut self, at: Moment, answer: Answer) {
        self.asked |= answer == Answer::Asked;
        self.answer = Some((at, answer));
    }
}

impl Refused {
    /// Whether the controller will be asked again.
    pub fn is_asked_again(&self, shutdown: Duration) -> bool {
        self.error.kind != Kind::Unsupported && !self.left(shutdown).is_zero()
    }

    /// How much of the time limit for the shutdown was left at the last refusal.
    pub fn left(&self, shutdown: Duration) -> Duration {
        shutdown.saturating_sub(self.at.saturating_sub(self.since))
    }

    pub fn words(&self) -> String {
        match self.error.kind {
            Kind::Unsupported => format!("it cannot be shut down gracefully ({})", self.error),
            _ => format!("its controller refuses to shut it down gracefully ({})", self.error),
        }
    }
}

impl Sight {
    /// Whether the machine was seen running, or about to run.
    pub fn is_on(&self) -> bool {
        matches!(self.state(), Some(PowerState::On | PowerState::PoweringOn))
    }

    /// Whether the machine was seen to be off.
    pub fn is_off(&self) -> bool {
        self.state() == Some(PowerState::Off)
    }

    fn state(&self) -> Option<PowerState> {
        self.power.as_ref()?.state
    }

    /// Notes that the record no longer claims the machine. From now on, another client may use the machine,
    /// and a Node with the machine's name may appear.
    pub fn disowned(&mut self) {
        (self.start.claimed, self.namesake) = (false, None);
    }

    /// Notes the machine's Node, as read from the API server. If there is no Node, no pods have to move.
    pub fn saw_node(&mut self, at: Moment, node: Option<Node>) {
        if node.is_none() && self.emptied == Emptied::Unknown {
            self.emptied(at);
        }
        self.node = node.map_or(OwnNode::Gone, |node| OwnNode::There(Arc::new(node)));
    }

    /// Notes that the machine's Node has no more pods that have to move.
    pub fn emptied(&mut self, at: Moment) {
        let again = !matches!(self.stopping, Stopping::NotYet);
        self.emptied = Emptied::Yes { at, again };
        self.node = OwnNode::Unknown;
    }

    /// Notes that the machine's Node cannot be emptied. The current state of the Node has to be read.
    pub fn stays(&mut self, why: String) {
        self.emptied = Emptied::No(why);
        self.node = OwnNode::Unknown;
    }

    /// Notes that the last reading of the machine's Node is too old for the next step, so that it is read
    /// again.
    pub fn doubt_emptiness(&mut self) {
        (self.emptied, self.node) = (Emptied::Unknown, OwnNode::Unknown);
    }

    /// Notes a request to the controller to change the machine's power state. The last reading of the power
    /// state is now outdated. The last check that found the Node empty remains valid only for a short time.
    pub fn asks(&mut self) {
        self.power = None;
        if let Emptied::Yes { again, .. } = &mut self.emptied {
            *again = false;
        }
    }

    /// Notes that the controller has refused to shut the machine down.
    pub fn refused(&mut self, at: Moment, error: redfish::Error) -> Refused {
        let since = match &self.shutdown {
            Shutdown::Refused(before) => before.since,
            _ => at,
        };
        let refused = Refused { since, at, error };
        self.shutdown = Shutdown::Refused(refused.clone());
        refused
    }
}
