//! What an operator sees of a running daemon: its status, over a local socket; figures, over HTTP; what systemd is told.

mod board;
mod metrics;
mod notify;
mod orders;
mod pages;
mod rounds;
mod socket;
mod status;

pub use board::Board;
pub use metrics::Metrics;
pub(crate) use metrics::{Seen, names, number};
pub use notify::Supervisor;
pub use orders::{Order, Orders};
pub use pages::Pages;
pub use rounds::{RecordError, Rounds};
pub use socket::{DEFAULT_SOCKET, Listener, SocketError, ask, order};
pub use status::{Decision, MachineStatus, NodeStatus, PodStatus, PoolStatus, Status};
