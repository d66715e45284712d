//! This host's clock beside the API server's: timers, tokens and the ages of Nodes go by both.

use observability::Problem;

use super::Daemon;

impl Daemon {
    /// A difference between both clocks is a problem while it lasts.
    pub(super) fn say_clocks(&self) {
        match self.kubernetes.clock_difference() {
            Some(difference) => self.board.problem(
                &Problem::Clock,
                &format!(
                    "{difference}, so that new nodes seem older or younger than they are: `timedatectl` and `chronyc tracking` on \
                     both show which is wrong"
                ),
            ),
            None => self.board.clear(&Problem::Clock),
        }
    }
}
