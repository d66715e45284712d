//! Checks the requirements of `[pool.security]`: whether its security groups exist, and whether the firewall
//! is on.

use super::findings::{Answer, Line};
use super::proxmox_view::Pve;
use crate::cli::exit::{FINDINGS, SUCCESS, UNREACHABLE, chain};
use settings::Pool;

/// Checks whether the datacenter's firewall meets the requirements of the pool's `security` settings.
pub(super) async fn check(pve: &Pve, pool: &Pool, answer: &mut Answer) {
    let Some(security) = &pool.security else { return };
    let what = "  firewall";
    let (groups, on) = match (pve.client.security_groups().await, pve.client.cluster_firewall().await) {
        (Ok(groups), Ok(on)) => (groups, on),
        (Err(error), _) | (_, Err(error)) => {
            return answer.say(Line::wrong(what, chain(&error)).key("security").of(&pool.name), UNREACHABLE);
        }
    };
    let missing: Vec<&str> =
        security.groups.iter().filter(|group| !groups.contains(*group)).map(String::as_str).collect();
    if !missing.is_empty() {
        let line = Line::wrong(what, format!("there is no security group {}", missing.join(", ")));
        let help = "create the group in the datacenter's firewall, or fix `groups`: the pool's machines \
            do not start without the group";
        return answer.say(line.help(help).key("security").of(&pool.name), FINDINGS);
    }
    if !on {
        let line = Line::doubtful(what, "the datacenter's firewall is off: nothing is filtered");
        return answer.say(
            line.help("switch it on in the datacenter's firewall options").key("security").of(&pool.name),
            SUCCESS,
        );
    }
    let groups =
        if security.groups.is_empty() { "no security group".to_owned() } else { security.groups.join(", ") };
    answer.say(Line::good(what, groups).of(&pool.name), SUCCESS);
}
