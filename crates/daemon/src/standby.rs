//! What an instance does while another instance leads: it keeps its watches up to date, reports its role, and
//! waits for a term of its own.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::leader::{Standing, Term};
use super::regions::Regions;
use super::{Deps, lead};
use kubernetes::Watches;
use machines::Pace;
use observability::{Judge, Problem};

/// The state that is kept from one term to the next.
pub(super) struct StandbyState {
    pub watches: Watches,
    pub pace: Pace,
    random: Arc<Mutex<fastrand::Rng>>,
}

impl StandbyState {
    /// Returns a random number generator whose sequence no earlier term has used.
    pub fn random(&self) -> fastrand::Rng {
        self.random.lock().unwrap_or_else(PoisonError::into_inner).fork()
    }
}

/// The ongoing observation of the Proxmox VE clusters. Only an instance that leads, or may lead soon, needs
/// it. The observation ends when this value is dropped.
pub(super) struct RegionViews {
    pub regions: Regions,
    _open: DropGuard,
}

impl RegionViews {
    fn open(deps: &Deps, cancel: &CancellationToken, tasks: &TaskTracker) -> Self {
        let token = cancel.child_token();
        Self { regions: Regions::open(deps, &token, tasks), _open: token.drop_guard() }
    }
}

/// Waits for this instance's terms and leads during each of them, until cancelled.
pub(super) async fn serve(
    deps: &Deps,
    cancel: &CancellationToken,
    tasks: &TaskTracker,
    mut standing: watch::Receiver<Standing>,
) {
    let warm = StandbyState {
        watches: Watches::start(&deps.kubernetes, cancel),
        pace: Pace::default(),
        random: Arc::new(Mutex::new(fastrand::Rng::with_seed(deps.seed))),
    };
    deps.board.judges(judge(deps, &warm.watches));
    // The observation starts before it is known which instance leads. Usually this instance does, and its
    // term can then begin without a delay.
    let mut eyes = Some(RegionViews::open(deps, cancel, tasks));
    loop {
        let term = tokio::select! {
            biased;
            () = cancel.cancelled() => return,
            term = next_term(deps, &warm, &mut standing, &mut eyes) => term,
        };
        let Some(term) = term else { return };
        tracing::info!(instance = deps.instance, "this instance leads");
        let eyes = eyes.take().unwrap_or_else(|| RegionViews::open(deps, cancel, tasks));
        lead(deps, &warm, eyes, &term).await;
    }
}

/// Returns a function that uses the watches to determine why an order to remove a node must be refused. The
/// function also works on an instance that does not lead. It returns `None` if the order need not be refused,
/// or if the watches are outdated.
fn judge(deps: &Deps, watches: &Watches) -> Judge {
    let (watches, config, clock) = (watches.clone(), deps.config.clone(), deps.clock.clone());
    Arc::new(move |node| {
        if !watches.is_current() {
            return None;
        }
        let mut snapshot = watches.snapshot();
        snapshot.time = clock.now();
        let config = config.borrow().clone();
        planning::must_stay(&snapshot, &config, node)
    })
}

/// Waits for the next term. Returns `None` if there will be no more terms.
async fn next_term(
    deps: &Deps,
    warm: &StandbyState,
    standing: &mut watch::Receiver<Standing>,
    eyes: &mut Option<RegionViews>,
) -> Option<Term> {
    let mut led_by = String::new();
    loop {
        let now = standing.borrow_and_update().clone();
        match now {
            Standing::Leading(term) if !term.over.is_cancelled() => return Some(term),
            Standing::Leading(_) | Standing::Unknown => {}
            Standing::Standby { leader } => {
                *eyes = None;
                if led_by != leader {
                    tracing::info!(leader, "another instance leads; this one stands by");
                    led_by = leader;
                }
            }
        }
        show(deps, warm, &led_by);
        let beat = deps.config.borrow().scan_interval;
        tokio::select! {
            biased;
            changed = standing.changed() => if changed.is_err() { return None },
            () = tokio::time::sleep(beat) => {}
        }
    }
}

fn show(deps: &Deps, warm: &StandbyState, leader: &str) {
    let problems = warm.watches.problems();
    match problems.iter().find(|one| one.essential) {
        Some(problem) => deps.board.problem(&Problem::Kubernetes, &problem.what),
        None => deps.board.clear(&Problem::Kubernetes),
    }
    deps.board.stand_by(leader, deps.clock.now());
}
