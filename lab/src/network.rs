//! The guests' network: addresses of the loopback device that accept connections while a guest has booted, so that the
//! daemon can try a guest's port as it does on real machines.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use world::proxmox::Pve;

/// The port that guests listen on, as `sshd` does on 22.
pub const PORT: u16 = 2222;
/// How often it is looked whether a guest came up or went down.
const LOOK: Duration = Duration::from_millis(20);

/// Whether this system has the addresses: Linux gives all of 127/8 to the loopback device, others give only one.
pub async fn is_there(address: Ipv4Addr) -> bool {
    TcpListener::bind((address, 0)).await.is_ok()
}

/// Keeps the ports of these addresses as open as their guests are, for as long as the task lives.
pub fn keep(pve: Pve, addresses: Vec<Ipv4Addr>) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut open: BTreeMap<Ipv4Addr, JoinHandle<()>> = BTreeMap::new();
        loop {
            for &address in &addresses {
                let up = pve.guest_tcp_open(&address.to_string());
                if !up {
                    if let Some(closed) = open.remove(&address) {
                        closed.abort();
                    }
                } else if !open.contains_key(&address)
                    && let Ok(listener) = TcpListener::bind((address, PORT)).await
                {
                    open.insert(address, tokio::spawn(accept(listener)));
                }
            }
            tokio::time::sleep(LOOK).await;
        }
    })
}

async fn accept(listener: TcpListener) {
    // A connection is dropped at once: that it came up is all that a probe asks.
    while listener.accept().await.is_ok() {}
}
