//! Handles hosts that went off while machines were running on them. Without the machines' kubelets, the pods
//! on these machines do not end and their volumes stay mounted. Kubernetes does not release the pods and
//! volumes by itself. For example, StatefulSet pods stay on nodes that are off.
//!
//! If `out_of_service_after` in `[health]` is set and a host has been off for that time, the Nodes of its
//! machines are tainted as out of service (`node.kubernetes.io/out-of-service`, non-graceful node shutdown).
//! Kubernetes then deletes their pods, and releases the pods' volumes. Once a Node is ready again, its taint
//! is removed.
//!
//! For the entire `out_of_service_after`, every answer of a quorate cluster must show that the host is not a
//! member. A host that only lacks statistics (`unknown`) does not count as off. Just before a Node is
//! tainted, the daemon queries the cluster once more, and the Node's kubelet must still be silent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use model::HostKey;
use tokio::sync::watch;
use tokio::time::Instant;

use super::announce::RateLimitedLog;
use super::regions::{Region, Regions};
use kubernetes::{Cluster, EventKind, Recorder, Saying, Watches};
use machines::{MachineView, Registry};
use model::machine::Intent;
use model::node::Node;
use model::snapshot::{OUT_OF_SERVICE_BY, OUT_OF_SERVICE_TAINT};
use observability::Board;
use proxmox::{Client, Error};
use runtime::clock::SharedClock;
use settings::{Config, Mode};

/// The maximum time for an answer about which hosts are off. A later answer is not used, because the host may
/// have come back in the meantime.
const FRESH: Duration = Duration::from_secs(2);

/// Detects failed hosts concurrently with the rounds.
pub(super) struct FailedHosts {
    pub regions: Regions,
    pub registry: Registry,
    pub watches: Watches,
    pub kubernetes: Cluster,
    pub recorder: Recorder,
    pub board: Board,
    pub clock: SharedClock,
    pub config: watch::Receiver<Arc<Config>>,
    /// The time at which each host was first reported as off. Every answer since then has confirmed that the
    /// host is off.
    pub off: BTreeMap<HostKey, Instant>,
    pub said: RateLimitedLog,
}

impl FailedHosts {
    /// Checks the hosts periodically; never returns.
    pub async fn watch(mut self) {
        loop {
            let config = self.config.borrow().clone();
            if config.mode == Mode::Active && self.watches.is_current() {
                self.bring_back().await;
                self.look(&config).await;
            } else {
                // After a gap in the checks, a host has to be off for the full time again.
                self.off.clear();
            }
            tokio::time::sleep(config.scan_interval).await;
        }
    }

    async fn look(&mut self, config: &Config) {
        let mut before = std::mem::take(&mut self.off);
        let Some(after) = config.health.out_of_service_after else { return };
        for region in self.regions.clone().iter() {
            let Some(look) = region.fresh(config, self.clock.now()) else { continue };
            if look.seen.hosts.values().all(|host| host.online) {
                continue;
            }
            let off = match off(&region.proxmox).await {
                Ok(off) => off,
                Err(error) => {
                    tracing::debug!(region = region.name(), %error, "cannot determine at the moment which hosts are off");
                    continue;
                }
            };
            for name in off {
                let key = HostKey::new(&region.prefix, &name);
                let since = before.remove(&key).unwrap_or_else(Instant::now);
                self.off.insert(key, since);
            }
            for view in self.registry.all() {
                let here = config.prefix(view.record.region.as_deref()) == region.prefix;
                let node = machines::node_of(&self.watches, &view.record);
                let guest = look.seen.guests.get(&view.record.slot.vmid);
                let (true, Some(guest), Some(node)) = (here && !view.record.is_physical(), guest, node)
                else {
                    continue;
                };
                let off = self.off.get(&HostKey::new(&region.prefix, &guest.host));
                if off.is_some_and(|since| since.elapsed() >= after) && is_due(&node) {
                    self.take_out(region, &view, &node, &guest.host).await;
                }
            }
        }
    }

    async fn take_out(&mut self, region: &Region, view: &MachineView, node: &Arc<Node>, host: &str) {
        match self.is_off(region, view, host).await {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => {
                self.said.once(&node.name, || {
                    tracing::warn!(
                        node = node.name,
                        host,
                        error,
                        "a Node's host seems to be off, but this cannot be confirmed: the Node stays in \
                            service"
                    );
                });
                return;
            }
        }
        // If the kubelet reports in the meantime, the Node changes, and the taint is not written.
        let may = |now: &Node| now.uid == node.uid && is_due(now);
        match self.kubernetes.add_taint_if(&node.name, &machines::out_of_service(), may).await {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => {
                tracing::warn!(node = node.name, %error, "a Node whose host is off cannot be taken out of service yet");
                return;
            }
        }
        let host = HostKey::new(&region.prefix, host);
        tracing::warn!(
            node = node.name,
            host = &*host,
            "a Node's host is off: taking the Node out of service"
        );
        let what = format!("{} is taken out of service: its host {host} is off", node.name);
        self.board.decided(self.clock.now(), what);
        let note = format!("Host {host} is off: releasing the pods and volumes of this node");
        let saying = Saying {
            kind: EventKind::Warning,
            reason: "OutOfService",
            action: "OutOfService",
            code: host.to_string(),
            note,
        };
        if let Err(error) = self.recorder.event_on_node(node, &saying).await {
            tracing::debug!(%error, node = node.name, "an event could not be sent");
        }
    }

    /// Whether a Node may be taken out of service: the daemon is not paused, the Node's VM is still on the
    /// host, and the host is still off. The hosts are queried last, because their state must be recent.
    async fn is_off(&self, region: &Region, view: &MachineView, host: &str) -> Result<bool, String> {
        if self.kubernetes.pause().await.map_err(|error| error.to_string())?.is_some() {
            return Ok(false);
        }
        let seen = region.proxmox.resources().await.map_err(|error| error.to_string())?;
        if seen.guests.get(&view.record.slot.vmid).is_none_or(|guest| guest.host != host) {
            return Ok(false);
        }
        let asked = Instant::now();
        let off = off(&region.proxmox).await.map_err(|error| error.to_string())?;
        if asked.elapsed() > FRESH {
            return Err("Proxmox VE answers too slowly".to_owned());
        }
        Ok(off.contains(host))
    }

    /// Removes the taint from Nodes that are ready again. The taint of a Node whose machine is being removed
    /// stays until the Node is deleted.
    async fn bring_back(&self) {
        let serves = |view: &MachineView| !view.busy && view.record.intent == Intent::Create;
        for view in self.registry.all().into_iter().filter(serves) {
            let Some(node) = machines::node_of(&self.watches, &view.record) else { continue };
            let ours = node
                .taints
                .iter()
                .any(|taint| taint.key == OUT_OF_SERVICE_TAINT && taint.value == OUT_OF_SERVICE_BY);
            if !ours || !machines::is_ready(&node) {
                continue;
            }
            match self.kubernetes.remove_taint(&node.name, &machines::out_of_service()).await {
                Ok(()) => tracing::info!(node = node.name, "the node is back in service"),
                Err(error) => {
                    tracing::debug!(node = node.name, %error, "a Node cannot be put back into service yet");
                }
            }
        }
    }
}

/// Returns the hosts that are currently not members of the cluster. Returns no hosts if the cluster is not
/// quorate: if a host has lost contact with the others, all others seem off to it.
async fn off(proxmox: &Client) -> Result<BTreeSet<String>, Error> {
    let status = proxmox.cluster_status().await?;
    let off = status.hosts.into_iter().filter(|(_, online)| status.quorate && !online);
    Ok(off.map(|(host, _)| host).collect())
}

/// Whether a Node whose host is off should be taken out of service: its kubelet is silent, and the Node is
/// not out of service yet.
fn is_due(node: &Node) -> bool {
    machines::is_silent(node) && !machines::is_out(node)
}
