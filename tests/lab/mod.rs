//! The embedded Proxmox VE, for tests whose guests do not join a Kubernetes cluster.

use std::sync::Arc;

use futures::future::BoxFuture;
use world::clock::WorldClock;
use world::guest::control_plane::{ControlPlane, JoinFailure, JoinRequest};
use world::proxmox::Pve;
use world::proxmox::spec::ClusterSpec;

/// A control plane that accepts every join and ignores it.
struct NoControlPlane;

impl ControlPlane for NoControlPlane {
    fn join(&self, _: JoinRequest) -> BoxFuture<'_, Result<(), JoinFailure>> {
        Box::pin(async { Ok(()) })
    }

    fn power_lost(&self, _: &str) {}

    fn booted_again(&self, _: &str) {}
}

/// A Proxmox VE cluster that matches this specification. Must be called inside a tokio runtime.
pub fn pve(spec: ClusterSpec) -> Pve {
    let clock = WorldClock::starting_at("2026-11-21T00:00:00Z".parse().unwrap());
    Pve::new(spec, clock, 7, Arc::new(NoControlPlane))
}
