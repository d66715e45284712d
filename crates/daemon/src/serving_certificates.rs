//! Approves serving certificates, concurrently with the rounds. If approval is enabled, each request by a
//! machine's kubelet is checked against the machine's record. Other requests are neither approved nor denied.
//!
//! A request that fails the check stays open. Kubelets send a new request after 15 minutes, and the cluster
//! deletes undecided requests after a day.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Daemon;
use kubernetes::{Cluster, ErrorKind, EventKind, Recorder, Saying, ServingRequest, ServingRequests, Watches};
use machines::{MachineView, NODE_USER, Registry, judge_serving};
use model::machine::Intent;
use model::{Node, Pause};
use observability::{Board, Problem};
use runtime::error_chain::chain;
use settings::{Config, Mode};

/// How often open requests are checked again even if nothing has changed.
const LOOK: Duration = Duration::from_secs(10);
/// The first and the longest time after which a failed approval is tried again. The time doubles with each
/// failure.
const AGAIN: (Duration, Duration) = (Duration::from_secs(5), Duration::from_mins(5));
/// The maximum number of requests that are handled in one pass. The oldest requests come first, except that
/// refused ones come last.
const AT_A_TIME: usize = 64;

/// Approves the requests of machines' kubelets for serving certificates.
pub(super) struct Approver {
    config: watch::Receiver<Arc<Config>>,
    pause: watch::Receiver<Option<Arc<Pause>>>,
    kubernetes: Cluster,
    watches: Watches,
    registry: Registry,
    recorder: Recorder,
    board: Board,
    cancel: CancellationToken,
    /// The uids of requests that were reported as not approved.
    refused: BTreeSet<String>,
    /// The uids of requests whose approval failed, with the time of the next try and the pause before it.
    failed: BTreeMap<String, (Instant, Duration)>,
}

impl Daemon {
    /// The approver for this term.
    pub(super) fn approver(&self) -> Approver {
        Approver {
            config: self.config.clone(),
            pause: self.switch.watch(),
            kubernetes: self.kubernetes.clone(),
            watches: self.watches.clone(),
            registry: self.registry.clone(),
            recorder: self.recorder.clone(),
            board: self.board.clone(),
            cancel: self.cancel.clone(),
            refused: BTreeSet::new(),
            failed: BTreeMap::new(),
        }
    }
}

impl Approver {
    /// Approves requests while approval is enabled, until the term is over.
    pub(super) async fn run(mut self) {
        loop {
            if self.is_on() {
                let requests = ServingRequests::start(&self.kubernetes, &self.cancel);
                self.follow(&requests).await;
                self.board.clear(&Problem::Certificates);
            }
            if self.config.changed().await.is_err() {
                return;
            }
        }
    }

    fn is_on(&self) -> bool {
        let config = self.config.borrow();
        config.mode == Mode::Active
            && config.kubernetes.as_ref().is_some_and(|settings| settings.approve_serving_certificates)
    }

    /// Checks open requests after every change, until approval is disabled.
    async fn follow(&mut self, requests: &ServingRequests) {
        let (mut asked, mut moved) = (requests.changed(), self.registry.changed());
        while self.is_on() {
            if self.pause.borrow().is_none() {
                self.look(requests).await;
            }
            tokio::select! {
                biased;
                () = asked.changed() => {}
                () = moved.changed() => {}
                changed = self.config.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }

    async fn look(&mut self, requests: &ServingRequests) {
        let open = requests.open();
        let is_open = |uid: &String| open.iter().any(|one| one.uid == *uid);
        self.refused.retain(|uid| is_open(uid));
        self.failed.retain(|uid, _| is_open(uid));
        let mut problem = requests.problems().into_iter().next().map(|problem| problem.what);
        let views = self.registry.all();
        let own = open.iter().filter_map(|one| Some((one, self.machine(one, &views)?)));
        let mut own: Vec<_> = own.collect();
        let now = Instant::now();
        own.sort_by_key(|(one, _)| self.has_been_looked_at(&one.uid, now));
        for (request, (view, node)) in own.into_iter().take(AT_A_TIME) {
            match judge_serving(request, &view.record) {
                Ok(()) => problem = self.approve(request, view, &node).await.err().or(problem),
                Err(why) => self.refuse(request, &node, &why.to_string()).await,
            }
        }
        match problem {
            Some(what) => self.board.problem(&Problem::Certificates, &what),
            None => self.board.clear(&Problem::Certificates),
        }
    }

    /// Whether a request was refused, or its approval failed and is not to be retried yet. Such requests may
    /// stay open for a long time, and must not delay others.
    fn has_been_looked_at(&self, uid: &str, now: Instant) -> bool {
        self.refused.contains(uid) || self.failed.get(uid).is_some_and(|(again, _)| *again > now)
    }

    /// The machine whose kubelet sent the request, and its Node. `None` if this is not proven: the Node is
    /// not visible yet, or has a different `systemUUID` from the machine.
    fn machine<'v>(
        &self,
        request: &ServingRequest,
        views: &'v [MachineView],
    ) -> Option<(&'v MachineView, Arc<Node>)> {
        let name = request.user.strip_prefix(NODE_USER)?;
        let lives = |view: &&MachineView| {
            view.record.name == name && !matches!(view.record.intent, Intent::Discard { .. })
        };
        let view = views.iter().find(lives)?;
        let node = self.watches.node(name)?;
        let uuid = view.record.smbios_uuid.as_deref()?;
        node.system_uuid.eq_ignore_ascii_case(uuid).then_some((view, node))
    }

    /// Approves one request. The error is the reason why the request could not be approved.
    async fn approve(
        &mut self,
        request: &ServingRequest,
        view: &MachineView,
        node: &Node,
    ) -> Result<(), String> {
        let now = Instant::now();
        let tried = self.failed.get(&request.uid).copied();
        if tried.is_some_and(|(again, _)| again > now) {
            return Err(format!("request `{}` could not be approved yet", request.name));
        }
        let why =
            format!("for the name and addresses of machine {} of pool {}", view.record.id, view.record.pool);
        match self.kubernetes.approve(request, &why).await {
            Ok(()) => {
                tracing::info!(node = %node.name, request = %request.name, "the node's serving certificate was approved");
                self.failed.remove(&request.uid);
                let note = format!("request {} for its name and addresses was approved", request.name);
                self.say(node, EventKind::Normal, "ServingCertificateApproved", note).await;
                Ok(())
            }
            // Another client decided the request first; the watch will show this.
            Err(error) if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::NotFound) => Ok(()),
            Err(error) => {
                let pause = tried.map_or(AGAIN.0, |(_, pause)| (pause * 2).min(AGAIN.1));
                self.failed.insert(request.uid.clone(), (now + pause, pause));
                tracing::warn!(node = %node.name, error = chain(&error), "the node's serving certificate could not be approved");
                Err(chain(&error))
            }
        }
    }

    async fn refuse(&mut self, request: &ServingRequest, node: &Node, why: &str) {
        if !self.refused.insert(request.uid.clone()) {
            return;
        }
        tracing::warn!(node = %node.name, request = %request.name, why, "a serving certificate is not approved");
        let note = format!("request {} is left for an administrator to decide: {why}", request.name);
        self.say(node, EventKind::Warning, "ServingCertificateNotApproved", note).await;
    }

    async fn say(&self, node: &Node, kind: EventKind, reason: &'static str, note: String) {
        let saying = Saying { kind, reason, action: "Approve", code: note.clone(), note };
        if let Err(error) = self.recorder.event_on_node(node, &saying).await {
            tracing::debug!(error = chain(&error), "an event could not be written");
        }
    }
}
