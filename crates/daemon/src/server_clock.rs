//! This host's clock beside the API server's: timers, tokens and the ages of Nodes go by both.

use jiff::SignedDuration;
use observability::Problem;

use super::Daemon;

/// What answers on their way, and dates in whole seconds, may make of it.
const TOLERATED: SignedDuration = SignedDuration::from_secs(30);

impl Daemon {
    /// A difference between both clocks is a problem while it lasts.
    pub(super) fn say_clocks(&self) {
        match self.kubernetes.behind() {
            Some(behind) if behind.abs() > TOLERATED => {
                let which = if behind.is_positive() { "behind" } else { "ahead of" };
                let by = SignedDuration::from_secs(behind.abs().as_secs());
                self.board.problem(
                    &Problem::Clock,
                    &format!(
                        "this host's clock is {by:#} {which} the Kubernetes API server's, so that new nodes seem older or younger than \
                         they are: `timedatectl` and `chronyc tracking` on both show which is wrong"
                    ),
                );
            }
            _ => self.board.clear(&Problem::Clock),
        }
    }
}
