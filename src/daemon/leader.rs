//! Which of several instances acts: the one that holds the Lease, for as long as it can renew it.
//!
//! A term begins when the lease is ours and ends when it could not be renewed for `renew_deadline`, somebody else has it, or
//! the daemon stops. Whatever writes has the term's fence, which closes by the clock alone, and runs under the term's token.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::causes::chain;
use crate::config::{Config, Leader};
use crate::fence::Fence;
use crate::kubernetes::{Claim, Lease};
use crate::observability::Board;

/// How long giving up the lease may take when the daemon stops: without it others wait for its end.
const RELEASE: Duration = Duration::from_secs(3);
/// What the board calls trouble with the lease.
const PROBLEM: &str = "lease";

/// The time in which this instance acts.
#[derive(Clone, Debug)]
pub(super) struct Term {
    /// What writes have to pass.
    pub fence: Fence,
    /// Cancelled when the term is over.
    pub over: CancellationToken,
}

/// Where this instance stands.
#[derive(Clone, Debug)]
pub(super) enum Standing {
    /// It is not known yet who leads.
    Unknown,
    /// Somebody else leads.
    Standby {
        /// Who.
        leader: String,
    },
    /// It leads.
    Leading(Term),
}

/// Takes part until it is cancelled, and gives the lease back then: whatever wrote in the term must have ended first.
pub(super) async fn take_part(
    mut lease: Lease,
    config: watch::Receiver<Arc<Config>>,
    board: Board,
    standing: watch::Sender<Standing>,
    cancel: CancellationToken,
) -> Lease {
    tokio::select! {
        biased;
        () = cancel.cancelled() => {}
        () = campaign(&mut lease, &config, &board, &standing, &cancel) => {}
    }
    lease
}

/// Lets another instance take over at once.
pub(super) async fn give_up(mut lease: Lease) {
    match tokio::time::timeout(RELEASE, lease.release()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "the lease could not be given up; it runs out by itself"),
        Err(_) => tracing::debug!("the lease could not be given up in time; it runs out by itself"),
    }
}

async fn campaign(
    lease: &mut Lease,
    config: &watch::Receiver<Arc<Config>>,
    board: &Board,
    standing: &watch::Sender<Standing>,
    cancel: &CancellationToken,
) {
    loop {
        let settings = config.borrow().leader.clone();
        let pause = match ask(lease, &settings).await {
            Ok(Claim::Held { since }) => {
                board.clear(PROBLEM);
                let term =
                    Term { fence: Fence::until(since + settings.renew_deadline), over: cancel.child_token() };
                standing.send_replace(Standing::Leading(term.clone()));
                let why = hold(lease, config, board, &term, since).await;
                // Closed before anybody is told: nothing may be written while tasks still wind up.
                term.fence.close();
                term.over.cancel();
                tracing::warn!(why, "this instance leads no more");
                standing.send_replace(Standing::Unknown);
                continue;
            }
            Ok(Claim::Other { holder, free_at }) => {
                board.clear(PROBLEM);
                let usual = settings.retry_period / 2;
                standing.send_if_modified(|standing| {
                    let same = matches!(standing, Standing::Standby { leader } if *leader == holder);
                    if !same {
                        *standing = Standing::Standby { leader: holder.clone() };
                    }
                    !same
                });
                // Just after its end: asked at that very moment, it would not be over yet.
                let left = free_at.map(|at| at.saturating_duration_since(Instant::now()));
                left.map_or(usual, |left| usual.min(left + Duration::from_millis(10)))
            }
            Err(problem) => {
                board.problem(PROBLEM, &problem);
                settings.retry_period / 2
            }
        };
        tokio::time::sleep(pause).await;
    }
}

/// Renews the lease until that is not possible any more; says why.
async fn hold(
    lease: &mut Lease,
    config: &watch::Receiver<Arc<Config>>,
    board: &Board,
    term: &Term,
    since: Instant,
) -> String {
    let settings = config.borrow().leader.clone();
    let mut end = since + settings.renew_deadline;
    let mut pause = settings.retry_period;
    let mut problem = String::new();
    loop {
        tokio::time::sleep_until(end.min(Instant::now() + pause)).await;
        let settings = config.borrow().leader.clone();
        match tokio::time::timeout_at(end, ask(lease, &settings)).await {
            Ok(Ok(Claim::Held { since })) => {
                end = since + settings.renew_deadline;
                term.fence.extend(end);
                pause = settings.retry_period;
                problem.clear();
                board.clear(PROBLEM);
            }
            Ok(Ok(Claim::Other { holder, .. })) => return format!("{holder} has taken the lease"),
            Ok(Err(why)) => {
                board.problem(PROBLEM, &format!("it cannot be renewed: {why}"));
                problem = why;
                pause = settings.retry_period / 4;
            }
            Err(_) if problem.is_empty() => return "the lease was not renewed in time".to_owned(),
            Err(_) => return format!("the lease was not renewed in time: {problem}"),
        }
    }
}

/// One try, which must not use up the time for another.
async fn ask(lease: &mut Lease, settings: &Leader) -> Result<Claim, String> {
    match tokio::time::timeout(settings.renew_deadline / 3, lease.claim(settings.lease_duration)).await {
        Ok(outcome) => outcome.map_err(|error| chain(&error)),
        Err(_) => Err("the Kubernetes API does not answer".to_owned()),
    }
}
