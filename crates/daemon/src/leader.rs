//! Leader election among several instances. The instance that holds the Lease leads, for as long as it can
//! renew the Lease.
//!
//! A term begins when this instance acquires the lease. It ends when the lease could not be renewed for
//! `renew_deadline`, when another instance holds the lease, or when the daemon stops. All writes must pass
//! the term's fence, which closes by itself at the deadline. When the term ends, the fence is closed and the
//! term's token is cancelled.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::leader_terms::{Lost, TermEnd, Unclaimed};
use kubernetes::{Claim, ErrorKind, Lease};
use observability::{Board, Problem};
use runtime::error_chain::chain;
use runtime::fence::Fence;
use settings::{Config, Leader};

/// The time limit for releasing the lease when the daemon stops. If the release fails, other instances wait
/// until the lease expires.
const RELEASE: Duration = Duration::from_secs(3);

/// The time during which this instance leads.
#[derive(Clone, Debug)]
pub(super) struct Term {
    /// The fence that writes have to pass.
    pub fence: Fence,
    /// Cancelled when the term is over.
    pub over: CancellationToken,
}

/// This instance's role.
#[derive(Clone, Debug)]
pub(super) enum Standing {
    /// It is not known yet which instance leads.
    Unknown,
    /// Another instance leads.
    Standby {
        /// The leader.
        leader: String,
    },
    /// This instance leads.
    Leading(Term),
}

/// Takes part in the election until `cancel` is cancelled. Returns the lease, which may only be released
/// ([`give_up`]) once all writers of the term have ended.
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

/// Releases the lease, so that another instance can take over immediately.
pub(super) async fn give_up(mut lease: Lease) {
    match tokio::time::timeout(RELEASE, lease.release()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "the lease could not be released; it expires by itself"),
        Err(_) => tracing::debug!("the lease could not be released in time; it expires by itself"),
    }
}

async fn campaign(
    lease: &mut Lease,
    config: &watch::Receiver<Arc<Config>>,
    board: &Board,
    standing: &watch::Sender<Standing>,
    cancel: &CancellationToken,
) {
    let mut lost = Lost::default();
    loop {
        let settings = config.borrow().leader.clone();
        let pause = match ask(lease, &settings).await {
            Ok(Claim::Held { since }) => {
                lost.show(board);
                let term =
                    Term { fence: Fence::until(since + settings.renew_deadline), over: cancel.child_token() };
                standing.send_replace(Standing::Leading(term.clone()));
                let end = hold(lease, config, board, &mut lost, &term, since).await;
                // The fence is closed before the tasks are cancelled, because the tasks must not write while
                // they end.
                term.fence.close();
                term.over.cancel();
                board.metrics().term_ended(end.cause());
                lost.note(&end);
                tracing::warn!(why = %end, "lost leadership");
                standing.send_replace(Standing::Unknown);
                continue;
            }
            Ok(Claim::Other { holder, free_at }) => {
                board.clear(&Problem::Lease);
                let usual = settings.retry_period / 2;
                standing.send_if_modified(|standing| {
                    let same = matches!(standing, Standing::Standby { leader } if *leader == holder);
                    if !same {
                        *standing = Standing::Standby { leader: holder.clone() };
                    }
                    !same
                });
                // Tries again just after the lease expires. At the exact moment of expiry, it would still be
                // valid.
                let left = free_at.map(|at| at.saturating_duration_since(Instant::now()));
                left.map_or(usual, |left| usual.min(left + Duration::from_millis(10)))
            }
            Err(problem) => {
                board.problem(&Problem::Lease, &problem.to_string());
                settings.retry_period / 2
            }
        };
        tokio::time::sleep(pause).await;
    }
}

/// Renews the lease until the term ends; returns why it ended.
async fn hold(
    lease: &mut Lease,
    config: &watch::Receiver<Arc<Config>>,
    board: &Board,
    lost: &mut Lost,
    term: &Term,
    since: Instant,
) -> TermEnd {
    let settings = config.borrow().leader.clone();
    let mut end = since + settings.renew_deadline;
    let mut pause = settings.retry_period;
    let (mut trouble, mut late) = (None, Duration::ZERO);
    loop {
        late = late.max(wake(end.min(Instant::now() + pause)).await);
        let settings = config.borrow().leader.clone();
        match tokio::time::timeout_at(end, ask(lease, &settings)).await {
            Ok(Ok(Claim::Held { since })) => {
                end = since + settings.renew_deadline;
                term.fence.extend(end);
                pause = settings.retry_period;
                (trouble, late) = (None, Duration::ZERO);
                lost.show(board);
            }
            // Another write came first. It may be an earlier write of this instance that arrived late. The
            // next try will show which instance wrote. In any case, the fence closes in time.
            Ok(Ok(Claim::Other { free_at: None, .. })) => pause = settings.retry_period / 4,
            Ok(Ok(Claim::Other { holder, .. })) => return TermEnd::Taken { holder },
            Ok(Err(why)) => {
                board.problem(&Problem::Lease, &format!("it cannot be renewed: {why}"));
                // If there was no answer, little time is left, so the next try follows immediately.
                pause = if why == Unclaimed::Silence { Duration::ZERO } else { settings.retry_period / 4 };
                trouble = Some(why);
            }
            Err(_) => {
                late = late.max(end.elapsed());
                return TermEnd::of(trouble, late, settings.renew_deadline);
            }
        }
    }
}

/// Waits until `due`. Returns the delay of the wake-up.
async fn wake(due: Instant) -> Duration {
    tokio::time::sleep_until(due).await;
    due.elapsed()
}

/// Tries once to claim the lease, for at most half of `renew_deadline`, so that there is time for another
/// try.
async fn ask(lease: &mut Lease, settings: &Leader) -> Result<Claim, Unclaimed> {
    match tokio::time::timeout(settings.renew_deadline / 2, lease.claim(settings.lease_duration)).await {
        Ok(Ok(claim)) => Ok(claim),
        Ok(Err(error)) if error.kind() == ErrorKind::Timeout => Err(Unclaimed::Silence),
        Ok(Err(error)) => Err(Unclaimed::Refused(chain(&error))),
        Err(_) => Err(Unclaimed::Silence),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_term_that_ends_for_slowness_says_which_side_was_slow() {
        let seconds = Duration::from_secs_f64;
        let deadline = seconds(6.0);
        let refused = || Unclaimed::Refused("connection refused".to_owned());
        for (trouble, late, cause) in [
            (None, 0.1, "ApiSlow"),
            (Some(Unclaimed::Silence), 0.1, "ApiSlow"),
            (Some(refused()), 0.1, "ApiFailed"),
            // A host that stalls also misses answers, so the host is the cause, whatever the error was.
            (None, 4.0, "HostSlow"),
            (Some(Unclaimed::Silence), 2.0, "HostSlow"),
            (Some(refused()), 30.0, "HostSlow"),
        ] {
            let end = TermEnd::of(trouble, seconds(late), deadline);
            assert_eq!(end.cause(), cause, "{end}");
        }
        let stood = TermEnd::of(None, seconds(4.25), deadline).to_string();
        assert!(stood.contains("4.2 s late"), "{stood}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_term_lost_to_slowness_stays_a_problem_for_a_while() {
        let (board, mut lost) = (Board::default(), Lost::default());
        let problem = || board.status().problems.get("lease").cloned();
        lost.note(&TermEnd::Taken { holder: "pve2".to_owned() });
        lost.show(&board);
        assert_eq!(problem(), None);
        let slow = TermEnd::ApiSlow { deadline: Duration::from_secs(6) };
        lost.note(&slow);
        lost.show(&board);
        let once = problem().unwrap();
        assert!(
            once.starts_with("it was lost once within the last 10 minutes: the Kubernetes API"),
            "{once}"
        );
        tokio::time::advance(Duration::from_mins(6)).await;
        lost.note(&slow);
        lost.show(&board);
        assert!(problem().unwrap().starts_with("it was lost 2 times within"));
        tokio::time::advance(Duration::from_mins(6)).await;
        lost.show(&board);
        assert!(problem().unwrap().starts_with("it was lost once within"));
        tokio::time::advance(Duration::from_mins(6)).await;
        lost.show(&board);
        assert_eq!(problem(), None);
    }
}
