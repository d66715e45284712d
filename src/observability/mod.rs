//! What an operator sees of a running daemon: its status, over a local socket; what systemd is told.

mod board;
mod notify;
mod orders;
mod socket;
mod status;

pub use board::Board;
pub use notify::Supervisor;
pub use orders::{Order, Orders};
pub use socket::{DEFAULT_SOCKET, Listener, SocketError, ask, order};
pub use status::{Decision, MachineStatus, NodeStatus, PodStatus, PoolStatus, Status};
