//! What an operator sees of a running daemon: its status, over a local socket; figures, over HTTP; what is
//! reported to systemd.

mod board;
mod metrics;
mod notify;
mod orders;
mod page;
mod pages;
mod rounds;
mod socket;
mod status;
mod timeline;

pub use crate::model::snapshot::Decision;
pub use board::Board;
pub(crate) use board::Judge;
pub use metrics::{Metrics, OthersNames};
pub(crate) use metrics::{RoundOutcome, Seen, names, number};
pub use notify::Supervisor;
pub(crate) use notify::counted;
pub use orders::{Order, Orders};
pub use pages::Pages;
pub use rounds::{RecordError, Rounds};
pub use socket::{DEFAULT_SOCKET, Listener, SocketError, ask, order};
pub use status::{
    BufferState, HostStatus, MachineStatus, NodeStatus, PodStatus, PoolStatus, RequestState, Status,
};
