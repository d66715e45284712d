//! Compares this host's clock with the API server's: timers, tokens and the ages of Nodes depend on both.

use observability::Problem;

use super::Daemon;

impl Daemon {
    /// Reports a difference between the clocks as a problem while it lasts.
    pub(super) fn say_clocks(&self) {
        match self.kubernetes.clock_difference() {
            Some(difference) => self.board.problem(
                &Problem::Clock,
                &format!(
                    "{difference}, which makes new nodes seem older or younger than they are: `timedatectl` \
                     and `chronyc tracking` on both hosts show which is wrong"
                ),
            ),
            None => self.board.clear(&Problem::Clock),
        }
    }
}
