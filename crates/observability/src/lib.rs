//! What an operator sees of a running daemon: its status, over a local socket; figures, over HTTP; what is
//! reported to systemd.

mod board;
mod metrics;
mod notify;
mod orders;
mod page;
mod pages;
pub mod problem;
mod socket;
mod status;
mod timeline;

pub use board::Board;
pub use board::Judge;
pub use metrics::{Metrics, OthersNames};
pub use metrics::{RoundOutcome, Seen, names, number};
pub use model::snapshot::Decision;
pub use notify::Supervisor;
pub use notify::counted;
pub use orders::{Order, Orders};
pub use pages::Pages;
pub use problem::Problem;
pub use socket::{DEFAULT_SOCKET, Listener, SocketError, ask, order};
pub use status::{
    BufferState, HostStatus, MachineStatus, NodeStatus, OrphanStatus, PodStatus, PoolStatus, RequestState,
    Status, StorageStatus,
};
