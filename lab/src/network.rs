//! The guests' network: loopback addresses that accept connections once a guest has booted. This lets the
//! daemon probe a guest's port, as it does on real machines.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use world::proxmox::Pve;

/// The port that guests listen on, as `sshd` does on 22.
pub const PORT: u16 = 2222;
/// A loopback address that does not exist on every system.
pub const SOME: Ipv4Addr = Ipv4Addr::new(127, 10, 10, 11);
/// How often the lab checks whether a guest has booted or stopped.
const LOOK: Duration = Duration::from_millis(20);

/// Whether this system has the address. Linux has all of 127/8 on the loopback device; other systems have
/// only one of these addresses.
pub async fn is_there(address: Ipv4Addr) -> bool {
    TcpListener::bind((address, 0)).await.is_ok()
}

/// Starts a task that keeps the port of each guest open while the guest is up.
pub fn keep(pve: Pve) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut open: BTreeMap<Ipv4Addr, JoinHandle<()>> = BTreeMap::new();
        loop {
            let up: BTreeSet<Ipv4Addr> =
                pve.open_guests().iter().filter_map(|address| address.parse().ok()).collect();
            open.retain(|address, port| {
                if !up.contains(address) {
                    port.abort();
                }
                up.contains(address)
            });
            for &address in up.iter().filter(|address| address.is_loopback()) {
                if !open.contains_key(&address)
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
    // A connection is dropped immediately: a probe only checks that it can be opened.
    while listener.accept().await.is_ok() {}
}
