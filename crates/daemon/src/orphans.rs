//! Orphans are VMs that bear this cluster's mark but have no record. This module judges them, and collects
//! them one at a time.
//!
//! A round judges orphans by its own observations. Before an orphan is collected (destroyed), the task checks
//! again, against the current state of Kubernetes and Proxmox VE, whether the VM is a proven orphan. If this
//! last check fails, the orphan is only tried again after all others. At most one collection begins per hour.
//! Its time is stored before it begins, so that the limit also holds across restarts and changes of the
//! leader.

use std::collections::{BTreeMap, BTreeSet};
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

/// The time at which each orphan's collection last began in this term, by region and VMID.
pub(super) type Tried = BTreeMap<(String, Vmid), Timestamp>;

/// An orphan with its verdict.
#[derive(Clone, Debug)]
pub(super) struct Judged {
    claim: Claim,
    verdict: Verdict,
}

impl Judged {
    fn key(&self) -> (String, Vmid) {
        (self.claim.host.region().to_owned(), self.claim.vmid)
    }

    /// The orphan in the form that `status` shows.
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
            self.orphans_tried.clear();
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
        let there: BTreeSet<(String, Vmid)> = self.orphans.iter().map(Judged::key).collect();
        self.orphans_tried.retain(|key, _| there.contains(key));
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
        let Some((claim, record)) = self.next_orphan(config, now) else { return };
        if !self.may_begin().await {
            return;
        }
        if !self.memory.collects(now).await {
            let what = "not destroying an orphan: the start of the collection cannot be stored";
            self.said.once("orphan not stored", || tracing::warn!("{what}"));
            return;
        }
        self.orphans_tried.insert((claim.host.region().to_owned(), claim.vmid), now);
        let Some(context) = self.context(config, &record) else { return };
        self.board.decided(now, format!("- {}: VM {} is an orphan", record.name, claim.vmid));
        // Registered before the task begins, so that the slot counts as taken.
        let shown = MachineView { phase: Phase::Failed, ..MachineView::requested(record.clone(), now) };
        self.registry.put(shown);
        self.spawn(orphans::collect(context, claim, record, self.reports.clone()));
    }

    /// Returns the orphan to collect next, with a new record for it. Orphans whose collection has not begun
    /// yet come first, then those whose collection began longest ago.
    fn next_orphan(&self, config: &Config, now: Timestamp) -> Option<(Claim, Record)> {
        let mut proven: Vec<&Judged> = self.orphans.iter().filter(|one| one.verdict.is_proven()).collect();
        proven.sort_by_key(|one| self.orphans_tried.get(&one.key()).copied());
        proven.into_iter().find_map(|one| {
            let record = one.claim.record(config, now)?;
            // If the machine has been registered since this round observed the VM, the VM is not collected.
            self.registry.get(&record.id).is_none().then(|| (one.claim.clone(), record))
        })
    }
}
