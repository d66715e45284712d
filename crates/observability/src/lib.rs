//! The operator's view of a running daemon: its status over a local socket, metrics over HTTP, and
//! notifications to systemd.

mod http_server;
mod metrics;
mod notify;
mod orders;
mod page;
pub mod problem;
mod socket;
mod status;
mod status_board;
mod timeline;

pub use http_server::Pages;
pub use metrics::{GaugeValues, RoundOutcome, names, number};
pub use metrics::{Metrics, OthersNames};
pub use model::snapshot::Decision;
pub use notify::Supervisor;
pub use notify::counted;
pub use orders::{Order, Orders};
pub use problem::Problem;
pub use socket::{DEFAULT_SOCKET, Listener, SocketError, ask, order};
pub use status::{
    BufferState, HostStatus, MachineStatus, NodeStatus, OrphanStatus, PodStatus, PoolStatus, RequestState,
    Status, StorageStatus,
};
pub use status_board::Board;
pub use status_board::Judge;
