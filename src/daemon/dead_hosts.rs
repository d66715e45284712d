//! Hosts that have lost their power, with machines on them. Their kubelets can end no pod and unmount no volume, and Kubernetes does
//! neither without them: pods of StatefulSets stay where nothing runs.
//!
//! Where `[health]` says so, their Nodes are taken out of service once the host was off for long enough
//! (`node.kubernetes.io/out-of-service`, non-graceful node shutdown): their pods go, their volumes come free. A host that cannot be reached
//! is not off for that. It has to be off in every look for all of that time, a quorate cluster has to say so in the end, and nothing may be
//! heard of the kubelet. Once the host is back and its Node ready, the taint goes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::regions::{Region, Regions};
use crate::clock::SharedClock;
use crate::config::{Config, Mode};
use crate::kubernetes::{Cluster, EventKind, Recorder, Watches};
use crate::machines::{self, Registry, View};
use crate::model::machine::Intent;
use crate::model::node::Node;
use crate::model::place;
use crate::model::snapshot::{OUT_OF_SERVICE_BY, OUT_OF_SERVICE_TAINT};
use crate::observability::Board;

/// An answer that took longer may tell of a time before the host was back.
const FRESH: Duration = Duration::from_secs(2);

/// Looks for them beside the rounds.
pub(super) struct DeadHosts {
    pub regions: Regions,
    pub registry: Registry,
    pub watches: Watches,
    pub kubernetes: Cluster,
    pub recorder: Recorder,
    pub board: Board,
    pub clock: SharedClock,
    pub config: watch::Receiver<Arc<Config>>,
    /// By their names among those of all clusters, since when each look has shown them off.
    pub off: BTreeMap<String, Instant>,
}

/// What is to be done about a Node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    /// Its host has been off for long enough.
    Out,
    /// It is there again.
    Back,
}

impl DeadHosts {
    /// Never ends.
    pub async fn watch(mut self) {
        loop {
            let config = self.config.borrow().clone();
            if config.mode == Mode::Active && self.watches.is_current() {
                self.look(&config).await;
            }
            tokio::time::sleep(config.scan_interval).await;
        }
    }

    async fn look(&mut self, config: &Config) {
        let now = self.clock.now();
        let mut before = std::mem::take(&mut self.off);
        for region in self.regions.clone().iter() {
            // The time of hosts that nobody sees begins anew.
            let Some(look) = region.fresh(config, now) else { continue };
            for (name, _) in look.seen.hosts.iter().filter(|(_, host)| !host.online) {
                let key = place::key(&region.prefix, name);
                let since = before.remove(&key).unwrap_or_else(Instant::now);
                self.off.insert(key, since);
            }
            for view in self.registry.all() {
                let here = config.prefix(view.record.region.as_deref()) == region.prefix;
                if !here || view.record.is_physical() {
                    continue;
                }
                let guest = look.seen.guests.get(&view.record.slot.vmid);
                let (Some(guest), Some(node)) = (guest, machines::node_of(&self.watches, &view.record))
                else {
                    continue;
                };
                let off = self.off.get(&place::key(&region.prefix, &guest.host));
                let long = off.map(|since| {
                    config.health.out_of_service_after.is_some_and(|after| since.elapsed() >= after)
                });
                match due(&view, &node, long) {
                    Some(Due::Out) => self.take_out(region, &view, &node, &guest.host).await,
                    Some(Due::Back) => self.bring_back(&node).await,
                    None => {}
                }
            }
        }
    }

    async fn take_out(&self, region: &Region, view: &View, node: &Arc<Node>, host: &str) {
        match self.is_off(region, view, host).await {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => {
                tracing::debug!(node = node.name, error, "nobody knows for now whether its host is off");
                return;
            }
        }
        // A kubelet that reports changes the Node, and then nothing is written.
        let may = |now: &Node| now.uid == node.uid && machines::is_silent(now);
        match self.kubernetes.add_taint_if(&node.name, &machines::out_of_service(), may).await {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => {
                tracing::warn!(node = node.name, %error, "a Node whose host is off cannot be taken out of service yet");
                return;
            }
        }
        let host = place::key(&region.prefix, host);
        tracing::warn!(node = node.name, host, "the host is off: its Node is taken out of service");
        let what = format!("{} is taken out of service: its host {host} is off", node.name);
        self.board.decided(self.clock.now(), what);
        let note = format!("Host {host} is off: pods and volumes of this node are let go of");
        let said =
            self.recorder.event_on_node(node, EventKind::Warning, "OutOfService", "OutOfService", &note);
        if let Err(error) = said.await {
            tracing::debug!(%error, node = node.name, "an event could not be sent");
        }
    }

    /// Asks once more, and for the host last: what is told of it must not be old. What could not be asked is said.
    async fn is_off(&self, region: &Region, view: &View, host: &str) -> Result<bool, String> {
        // To one that has lost the others it is them that are off.
        if !region.proxmox.quorate().await.map_err(|error| error.to_string())? {
            return Ok(false);
        }
        if self.kubernetes.pause().await.map_err(|error| error.to_string())?.is_some() {
            return Ok(false);
        }
        let asked = Instant::now();
        let seen = region.proxmox.resources().await.map_err(|error| error.to_string())?;
        let guest = seen.guests.get(&view.record.slot.vmid);
        Ok(asked.elapsed() <= FRESH
            && seen.hosts.get(host).is_some_and(|host| !host.online)
            && guest.is_some_and(|guest| guest.host == host))
    }

    async fn bring_back(&self, node: &Node) {
        match self.kubernetes.remove_taint(&node.name, &machines::out_of_service()).await {
            Ok(()) => tracing::info!(node = node.name, "the host is back: its Node is in service again"),
            Err(error) => {
                tracing::debug!(node = node.name, %error, "a Node is not in service again yet");
            }
        }
    }
}

/// What is to be done, where a host is off for long enough or not, or not at all.
fn due(view: &View, node: &Node, off_for_long: Option<bool>) -> Option<Due> {
    let taint = node.taints.iter().find(|taint| taint.key == OUT_OF_SERVICE_TAINT);
    match (off_for_long, taint) {
        (Some(true), None) if machines::is_silent(node) => Some(Due::Out),
        // What its end has set goes with it.
        (None, Some(taint)) if taint.value == OUT_OF_SERVICE_BY => {
            let serves = !view.busy && view.record.intent == Intent::Create && machines::is_ready(node);
            serves.then_some(Due::Back)
        }
        _ => None,
    }
}
