//! Orphans are VMs that bear this cluster's mark but have no record. This module judges them, and collects
//! them one at a time.
//!
//! A round judges orphans by what it has seen itself. The task that collects an orphan checks the proof
//! again, against the current state of Kubernetes and Proxmox VE. At most one collection begins per hour,
//! even across restarts and changes of the leader, because its start is stored first.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::Daemon;
use super::unmanaged_vms::Marked;
use machines::orphans::{Around, Claim, Verdict, Vm, verdict};
use machines::{MachineView, orphans};
use model::machine::Phase;
use model::node::Node;
use model::{Record, Snapshot, Vmid};
use observability::{GaugeValues, OrphanStatus, names};
use settings::{Config, Mode, Orphans};

/// The minimum time between the starts of two collections.
const BRAKE: SignedDuration = SignedDuration::from_hours(1);

/// An orphan with its verdict.
#[derive(Clone, Debug)]
pub(super) struct Judged {
    claim: Claim,
    verdict: Verdict,
}

impl Judged {
    /// The form that `status` shows.
    pub fn status(&self) -> OrphanStatus {
        let Claim { vmid, host, config, .. } = &self.claim;
        OrphanStatus {
            vmid: *vmid,
            host: host.clone(),
            name: config.get("name").unwrap_or_default().to_owned(),
            proven: self.verdict.is_proven(),
            proof: self.verdict.proof.iter().map(ToString::to_string).collect(),
            missing: self.verdict.missing.iter().map(ToString::to_string).collect(),
        }
    }
}

/// Sets the metrics about orphans.
pub(super) fn measure(judged: &[Judged], seen: &mut GaugeValues) {
    for state in ["Proven", "Unproven"] {
        seen.put(names::ORPHANS, &[state], 0.0);
    }
    for one in judged {
        let state = if one.verdict.is_proven() { "Proven" } else { "Unproven" };
        seen.count(names::ORPHANS, &[state]);
    }
}

impl Daemon {
    /// Judges all orphans by what this round has seen.
    pub(super) fn judge_orphans(&mut self, config: &Config, views: &[MachineView], snapshot: &Snapshot) {
        let marked = self.strangers.marked(config, views);
        if marked.is_empty() {
            self.orphans.clear();
            return;
        }
        let owner = self.owner(config);
        let records: Vec<&Record> = views.iter().map(|view| &view.record).collect();
        let nodes: Vec<&Node> = snapshot.nodes.iter().map(|node| &**node).collect();
        let mut same: BTreeMap<&str, Vec<Vmid>> = BTreeMap::new();
        for one in &marked {
            same.entry(&one.marker.machine).or_default().push(one.vmid);
        }
        let judge = |one: &Marked| {
            let twins = same.get(one.marker.machine.as_str()).into_iter().flatten();
            let twins: Vec<Vmid> = twins.copied().filter(|vmid| *vmid != one.vmid).collect();
            let (steady, looks) = one.steady;
            let vm = Vm { vmid: one.vmid, host: &one.host, config: &one.config, steady, looks };
            let around = Around {
                config,
                owner: &owner,
                records: &records,
                unreadable: self.reconcile.has_unreadable(),
                nodes: &nodes,
                twins: &twins,
                live: None,
            };
            let verdict = verdict(vm, &around);
            let (host, config) = (one.host.clone(), one.config.clone());
            Judged { claim: Claim { vmid: one.vmid, host, config, steady, looks, twins }, verdict }
        };
        self.orphans = marked.iter().map(judge).collect();
    }

    /// Collects a proven orphan, if the last collection began at least an hour ago. If the daemon is paused
    /// or only observes, none is collected.
    pub(super) async fn collect_orphan(&mut self, config: &Arc<Config>, now: Timestamp) {
        if config.orphans != Orphans::Collect
            || config.mode != Mode::Active
            || self.memory.orphan_collected().is_some_and(|last| now.duration_since(last).abs() < BRAKE)
        {
            return;
        }
        let Some(claim) =
            self.orphans.iter().find(|one| one.verdict.is_proven()).map(|one| one.claim.clone())
        else {
            return;
        };
        let Some(record) = claim.record(config, now) else { return };
        // The VM may have become a managed machine since this round observed it.
        if self.registry.get(&record.id).is_some() || !self.may_begin().await {
            return;
        }
        if !self.memory.collects(now).await {
            let what = "not destroying an orphan: the start of the collection cannot be stored";
            self.said.once("orphan not stored", || tracing::warn!("{what}"));
            return;
        }
        let Some(context) = self.context(config, &record) else { return };
        self.board.decided(now, format!("- {}: VM {} is an orphan", record.name, claim.vmid));
        // Registered before the task begins, so that the slot counts as taken.
        let shown = MachineView { phase: Phase::Failed, ..MachineView::requested(record.clone(), now) };
        self.registry.put(shown);
        self.spawn(orphans::collect(context, claim, record, self.reports.clone()));
    }
}
