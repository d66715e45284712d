//! A cheap check of whether a guest is up. The check is made before the guest agent is called, because a call
//! to the agent of a guest that is still booting occupies one of its host's three workers for 3 s.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::net::TcpStream;

/// The time limit for a connection attempt.
const CONNECT_LIMIT: Duration = Duration::from_secs(1);

/// Checks from outside the guest whether it has booted.
pub trait Probe: Send + Sync {
    /// Whether the guest with this address has booted. Returns `None` if that cannot be determined. In that
    /// case, the usual boot time decides when the agent is first called.
    fn booted(&self, address: IpAddr) -> BoxFuture<'_, Option<bool>>;
}

/// A probe that always answers `None`.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoProbe;

impl Probe for NoProbe {
    fn booted(&self, _: IpAddr) -> BoxFuture<'_, Option<bool>> {
        Box::pin(async { None })
    }
}

/// A TCP connection to a port that the guest opens late in its boot, such as sshd's port.
#[derive(Clone, Copy, Debug)]
pub struct TcpProbe {
    /// The port.
    pub port: u16,
}

impl Probe for TcpProbe {
    fn booted(&self, address: IpAddr) -> BoxFuture<'_, Option<bool>> {
        let target = SocketAddr::new(address, self.port);
        Box::pin(async move {
            let connected = tokio::time::timeout(CONNECT_LIMIT, TcpStream::connect(target)).await;
            Some(matches!(connected, Ok(Ok(_))))
        })
    }
}
