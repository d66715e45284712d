//! `[leader]`: which of several instances leads. The settings are named as in client-go's leader election.

use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;

use super::values::Checker;

/// Checked `[leader]`. It satisfies `retry_period` × 2 ≤ `renew_deadline` and `renew_deadline` + 1 s ≤
/// `lease_duration`, and `lease_duration` is a whole number of seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    /// Another instance takes over once it has seen the Lease unchanged for this long.
    pub lease_duration: Duration,
    /// A leader that has been unable to renew the Lease for this long stops writing.
    pub renew_deadline: Duration,
    /// How often a leader renews the Lease. Other instances check it twice as often.
    pub retry_period: Duration,
}

/// `[leader]` as written in the configuration file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    lease_duration: Option<Spanned<String>>,
    renew_deadline: Option<Spanned<String>>,
    retry_period: Option<Spanned<String>>,
}

/// The minimum time between the end of one leader's term and the start of the next. It allows for requests
/// that are already on their way.
const MARGIN: Duration = Duration::from_secs(1);

impl Written {
    pub(super) fn check(&self, checker: &mut Checker) -> Leader {
        let duration = self.lease_duration.as_ref();
        let (deadline, retry) = (self.renew_deadline.as_ref(), self.retry_period.as_ref());
        let leader = Leader {
            lease_duration: checker.positive("lease_duration", duration, Duration::from_secs(10)),
            renew_deadline: checker.positive("renew_deadline", deadline, Duration::from_secs(6)),
            retry_period: checker.positive("retry_period", retry, Duration::from_secs(2)),
        };
        if let (Some(written), true) = (duration, leader.lease_duration.subsec_nanos() != 0) {
            let title = "`lease_duration` is not a whole number of seconds".to_owned();
            checker.wrong(title, written.span(), "a Lease stores its duration in whole seconds", "");
        }
        let written = duration.or(deadline);
        if let (Some(written), true) = (written, leader.lease_duration < leader.renew_deadline + MARGIN) {
            checker.wrong(
                "`renew_deadline` is too close to `lease_duration`".to_owned(),
                written.span(),
                "`lease_duration` must be at least 1s longer than `renew_deadline`",
                "otherwise two instances could act at the same time",
            );
        }
        let written = retry.or(deadline);
        if let (Some(written), true) = (written, leader.retry_period * 2 > leader.renew_deadline) {
            checker.wrong(
                "`retry_period` is longer than half of `renew_deadline`".to_owned(),
                written.span(),
                "`renew_deadline` must leave time for two attempts",
                "",
            );
        }
        leader
    }
}
