//! Checks whether the hosts with `power` in their `[[host]]` table can be switched off and woken.

use super::findings::{Answer, Line};
use super::proxmox_view::Pve;
use crate::cli::exit::{FINDINGS, SUCCESS, UNREACHABLE, chain};
use crate::cli::live;
use files::ReadSecret;
use machines::answering_hosts;
use settings::Power;

/// Checks rights, votes, Ceph, and how each host is woken.
pub(super) async fn check(pve: &Pve, answer: &mut Answer) {
    let hosts: Vec<(&str, bool, bool)> = pve
        .special
        .iter()
        .filter_map(|(name, own)| {
            let by_packet = *own.power.as_ref()? == Power::WakeOnLan;
            Some((name.as_str(), pve.seen.hosts.get(name.as_str())?.online, by_packet))
        })
        .collect();
    if hosts.is_empty() {
        return;
    }
    let on = hosts.iter().filter(|(_, on, _)| *on).map(|(name, ..)| *name);
    let answering = answering_hosts(&pve.client, on).await;
    let hosts: Vec<(&str, bool, bool)> =
        hosts.iter().map(|&(name, _, by_packet)| (name, answering.contains(name), by_packet)).collect();
    let found = match pve.client.power_survey(&hosts).await {
        Ok(found) => found,
        Err(error) => {
            return answer.say(Line::wrong("power of hosts", chain(&error)).key("power"), UNREACHABLE);
        }
    };
    controllers(pve, answer).await;
    let all: u32 = found.votes.values().sum();
    for (name, one) in &found.hosts {
        let what = format!("power of {name}");
        let own = found.votes.get(name).copied().unwrap_or(0);
        if let Some(why) = &one.stays_on {
            answer.say(
                Line::wrong(what, format!("the host is never switched off: {why}")).key("power"),
                FINDINGS,
            );
        } else if (all - own) * 2 <= all {
            let message = format!(
                "the host is never switched off: without its {own} of {all} votes, the other hosts \
                    would have no majority"
            );
            answer.say(Line::doubtful(what, message).key("power"), SUCCESS);
        } else {
            answer.say(Line::good(what, "can be switched off and woken"), SUCCESS);
        }
    }
}

/// Checks that the management controllers answer and accept the daemon's user.
async fn controllers(pve: &Pve, answer: &mut Answer) {
    for (name, own) in &pve.special {
        let Some(Power::Redfish(settings)) = &own.power else { continue };
        // A password that cannot be read is reported with the other credentials.
        if settings.password.read().is_err() {
            continue;
        }
        let what = format!("controller of {name}");
        let power = match live::controller(settings) {
            Ok(client) => client.power().await.map_err(|error| chain(&error)),
            Err(failure) => Err(failure.words()),
        };
        match power {
            Ok(power) => answer.say(Line::good(what, format!("answers, power {power:?}")), SUCCESS),
            Err(why) => answer.say(Line::wrong(what, why).key("redfish"), UNREACHABLE),
        }
    }
}
