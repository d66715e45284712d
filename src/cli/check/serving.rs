//! If approval of serving certificates is enabled, checks whether the daemon has the rights that it needs for
//! this, and which pools' certificates it can approve.

use super::findings::{Answer, Line};
use crate::cli::exit::{SUCCESS, UNREACHABLE, chain};
use kubernetes::Cluster;
use settings::{Addressing, Config, Pool};

const KEY: &str = "kubernetes.approve_serving_certificates";

/// Whether the daemon approves serving certificates.
fn is_on(config: &Config) -> bool {
    config.kubernetes.as_ref().is_some_and(|settings| settings.approve_serving_certificates)
}

/// Reports each missing right on a line of its own.
pub(super) async fn rights(config: &Config, cluster: &Cluster, answer: &mut Answer) {
    if !is_on(config) {
        return;
    }
    let what = "  serving certificates";
    let rights = match cluster.serving_rights().await {
        Ok(rights) => rights,
        Err(error) => return answer.say(Line::wrong(what, chain(&error)), UNREACHABLE),
    };
    let missing = rights.iter().filter(|right| !right.granted);
    let line = |right: &kubernetes::Right| {
        Line::wrong(what, format!("may not {}, which is needed to {}", right.words(), right.purpose)).key(KEY)
    };
    let mut wrong: Vec<Line> = missing.map(line).collect();
    if let Some(last) = wrong.pop() {
        wrong.push(last.help(
            "`kubectl apply -f rbac-serving.yaml` (packaging/rbac-serving.yaml) grants these \
                rights",
        ));
    }
    answer.say_all(wrong, Line::good(what, format!("{0} of {0} rights", rights.len())), UNREACHABLE);
}

/// Reports a pool whose machines' addresses are not known in advance.
pub(super) fn addresses(config: &Config, pool: &Pool, answer: &mut Answer) {
    if is_on(config) && matches!(pool.addressing, Addressing::Dhcp) {
        let line = Line::doubtful(
            "serving certificates",
            "the pool's machines get their addresses by DHCP, so the daemon approves none of their \
                certificates",
        );
        let help = "give the pool `addresses`, or use another approver";
        answer.say(line.help(help).key(KEY).of(&pool.name), SUCCESS);
    }
}
