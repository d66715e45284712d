//! Compares this host's clock with that of the API server, because timers, tokens and the ages of Nodes
//! depend on both.

use observability::Problem;

use super::Daemon;

impl Daemon {
    /// Reports a difference between the clocks as a problem for as long as it lasts.
    pub(super) fn say_clocks(&self) {
        match self.kubernetes.clock_difference() {
            Some(difference) => self.board.problem(
                &Problem::Clock,
                &format!(
                    "{difference}, which makes new nodes seem older or younger than they are: to find \
                        out which clock is wrong, run `timedatectl` and `chronyc tracking` on both hosts"
                ),
            ),
            None => self.board.clear(&Problem::Clock),
        }
    }
}
