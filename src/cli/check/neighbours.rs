//! Checks what the configuration shares with the configurations of other clusters on this host.

use std::path::Path;

use super::findings::{Answer, Line};
use super::proxmox_view::Pve;
use crate::cli::cluster;
use crate::cli::exit::{FINDINGS, SUCCESS, USAGE};
use crate::cli::neighbours;
use settings::Config;

/// Compares a configuration with those of the other clusters on this host.
pub(super) fn check(file: &Path, config: &Config, answer: &mut Answer) {
    for other in neighbours::read_beside(file) {
        let what = format!("beside {}", other.words());
        let line = |clash: neighbours::Clash| Line::wrong(&what, clash.words).key(clash.key).help(clash.help);
        let wrong: Vec<Line> = other.clashes(file, config).into_iter().map(line).collect();
        let good = Line::good(&what, "no VMIDs, addresses, bare-metal machines, ids or ports are shared");
        answer.say_all(wrong, good, USAGE);
    }
    for (what, error) in neighbours::unusable(file) {
        answer.say(
            Line::doubtful(what, error)
                .help("the daemon of that cluster does not start until the problem is fixed"),
            SUCCESS,
        );
    }
    let pinned = config.pools.iter().find(|pool| pool.pinning.is_some());
    if let (Some(pool), Some((_, Some(_)))) = (pinned, cluster::base_of(file)) {
        let words = "the pinning helper, which runs as root, reads only the configuration of the \
            cluster without a name";
        let help = "remove `[pool.pinning]`, or move the pool to the cluster without a name";
        answer.say(Line::wrong("pinning", words).of(&pool.name).key("pinning").help(help), FINDINGS);
    }
}

/// Checks whether the token can see the VMs of other clusters. If it cannot, the daemon does not know how
/// much room is promised to those VMs.
pub(super) async fn rights(file: &Path, pve: &Pve, answer: &mut Answer) {
    if neighbours::read_beside(file).is_empty() {
        return;
    }
    // If this query fails, the reason is reported elsewhere.
    if let Ok(Some((lacks, help))) = pve.lacks("/vms", &["VM.Audit"]).await {
        let words = format!(
            "{lacks}: the daemon cannot see room promised to other clusters' machines until \
                they use it"
        );
        answer.say(Line::doubtful("shared hosts", words).key("proxmox.token_id").help(help), SUCCESS);
    }
}
