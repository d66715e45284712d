//! What the other clusters of this host have in their configurations, too.

use std::path::Path;

use super::lines::{Answer, Line};
use crate::cli::exit::{SUCCESS, USAGE};
use crate::cli::neighbours;
use crate::config::Config;

/// Holds a configuration against those of the other clusters of this host.
pub(super) fn check(file: &Path, config: &Config, answer: &mut Answer) {
    for other in neighbours::of(file) {
        let what = format!("beside {}", other.words());
        let line = |clash: neighbours::Clash| Line::wrong(&what, clash.words).key(clash.key).help(clash.help);
        let wrong: Vec<Line> = other.clashes(file, config).into_iter().map(line).collect();
        let good = Line::good(&what, "no VMIDs, addresses, ids or ports are shared");
        answer.say_all(wrong, good, USAGE);
    }
    for (what, error) in neighbours::unusable(file) {
        answer
            .say(Line::doubtful(what, error).help("its daemon does not start until that is mended"), SUCCESS);
    }
}
