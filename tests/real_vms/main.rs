//! Real virtual machines: QEMU processes with a Debian guest, cloned and started through the API of the
//! embedded Proxmox VE.
//!
//! Only one test runs everywhere. It checks the requirements and starts this program again in a separate
//! network and process namespace, where the other tests run. The namespace's network has no connection to any
//! other network, and all processes end with the namespace.

#![expect(clippy::unwrap_used, reason = "a test may panic on unexpected results")]

mod facts;
mod join;
mod place;
mod playbook;
mod scene;
mod stage;
mod times;
mod uefi;

/// Starts this program again in a namespace in which the other tests may run.
#[tokio::test]
async fn real_machines_live_and_join_in_a_network_of_their_own() {
    match place::prepare() {
        Ok(image) => {
            stage::is_refused_beside_other_interfaces().await;
            place::run_the_others(&image).await;
        }
        Err(missing) if place::is_ci() => panic!("{missing}"),
        Err(missing) => eprintln!("skipped: {missing}"),
    }
}
