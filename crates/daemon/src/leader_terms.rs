//! How terms end, and how operators learn of terms that were lost because the host or the API server was too
//! slow.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use tokio::time::Instant;

use observability::{Board, Problem};

/// How long a term that was lost to slowness is reported as a problem.
const SHOWN: Duration = Duration::from_mins(10);
/// The maximum number of lost terms that are counted.
const COUNTED: usize = 1000;
/// The host counts as too slow if a timer is late by at least this fraction (1/`LATE`) of the deadline.
const LATE: u32 = 4;

/// Why the lease could not be claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unclaimed {
    /// There was no answer in time.
    Silence,
    /// The API server could not be reached, or refused the request.
    Refused(String),
}

impl fmt::Display for Unclaimed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Silence => f.write_str("the Kubernetes API does not answer in time"),
            Self::Refused(why) => f.write_str(why),
        }
    }
}

/// How a term ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TermEnd {
    /// Another instance holds the lease.
    Taken { holder: String },
    /// A timer of this process fired much too late.
    HostSlow { late: Duration },
    /// The API server answered too late, or not at all.
    ApiSlow { deadline: Duration },
    /// The API server refused the request, or could not be reached.
    ApiFailed { why: String },
}

impl TermEnd {
    /// Determines why the lease could not be renewed in time. `trouble`: why the last claim failed, if it
    /// did; `late`: the longest delay of a timer.
    pub fn of(trouble: Option<Unclaimed>, late: Duration, deadline: Duration) -> Self {
        match trouble {
            _ if late >= deadline / LATE => Self::HostSlow { late },
            None | Some(Unclaimed::Silence) => Self::ApiSlow { deadline },
            Some(Unclaimed::Refused(why)) => Self::ApiFailed { why },
        }
    }

    /// The metric's label value.
    pub fn cause(&self) -> &'static str {
        match self {
            Self::Taken { .. } => "Taken",
            Self::HostSlow { .. } => "HostSlow",
            Self::ApiSlow { .. } => "ApiSlow",
            Self::ApiFailed { .. } => "ApiFailed",
        }
    }
}

impl fmt::Display for TermEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taken { holder } => write!(f, "{holder} has taken the lease"),
            Self::HostSlow { late } => write!(
                f,
                "this host was too slow to renew the lease, or stalled: a timer fired {:.1} s late",
                late.as_secs_f64()
            ),
            Self::ApiSlow { deadline } => write!(
                f,
                "the Kubernetes API was too slow to renew the lease: no answer within {} s",
                deadline.as_secs_f64()
            ),
            Self::ApiFailed { why } => write!(f, "the lease was not renewed in time: {why}"),
        }
    }
}

/// The terms that were recently lost to slowness.
#[derive(Debug, Default)]
pub(super) struct Lost {
    when: VecDeque<Instant>,
    last: String,
}

impl Lost {
    /// Records the end of a term. Only terms that were lost to slowness are counted.
    pub fn note(&mut self, end: &TermEnd) {
        if !matches!(end, TermEnd::HostSlow { .. } | TermEnd::ApiSlow { .. }) {
            return;
        }
        if self.when.len() >= COUNTED {
            self.when.pop_front();
        }
        self.when.push_back(Instant::now());
        self.last = end.to_string();
    }

    /// Shows the terms that were lost in the last minutes as a problem, or clears the problem if there are
    /// none. To be called when the lease can be claimed again.
    pub fn show(&mut self, board: &Board) {
        while self.when.front().is_some_and(|when| when.elapsed() >= SHOWN) {
            self.when.pop_front();
        }
        let times = match self.when.len() {
            0 => return board.clear(&Problem::Lease),
            1 => "once".to_owned(),
            many => format!("{many} times"),
        };
        let minutes = SHOWN.as_secs() / 60;
        board.problem(
            &Problem::Lease,
            &format!("it was lost {times} within the last {minutes} minutes: {}", self.last),
        );
    }
}
