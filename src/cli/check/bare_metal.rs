//! Checks whether the machines of a bare-metal pool can be switched on and off.

use super::findings::{Answer, Line};
use crate::cli::exit::{FINDINGS, UNREACHABLE, chain};
use crate::cli::live;
use proxmox::redfish::{PowerState, Reset, SystemState};
use settings::{PhysicalMachine, Pool};

/// Reads the power state of each machine from its controller, and the values of `ResetType` that the
/// controller supports.
pub(super) async fn check(pool: &Pool, answer: &mut Answer) {
    for machine in &pool.machines {
        let what = format!("machine {}", machine.name);
        let looked = match live::controller(&machine.redfish) {
            Ok(client) => client.look().await.map_err(|error| chain(&error)),
            Err(failure) => Err(failure.words()),
        };
        match looked {
            Ok(look) => judge(&what, pool, machine, &look, answer),
            Err(why) => answer.say(Line::wrong(what, why).key("redfish").of(&pool.name), UNREACHABLE),
        }
    }
}

fn judge(what: &str, pool: &Pool, machine: &PhysicalMachine, look: &SystemState, answer: &mut Answer) {
    let lacks = |reset: Reset| !look.resets.is_empty() && !look.resets.iter().any(|one| one == reset.name());
    let mut wrong = Vec::new();
    let takes = look.resets.join(", ");
    for reset in [Reset::On, Reset::ForceOff] {
        if lacks(reset) {
            let words = format!("the machine's controller does not support `{}`, only {takes}", reset.name());
            wrong.push(Line::wrong(what.to_owned(), words).key("redfish"));
        }
    }
    if lacks(Reset::GracefulShutdown) {
        let words = format!(
            "the machine cannot be shut down gracefully, only by force: its controller supports {takes}"
        );
        wrong.push(Line::doubtful(what.to_owned(), words).key("redfish"));
    }
    if look.power == PowerState::Other {
        let words = "the power state is unknown, so the daemon does not switch the machine on".to_owned();
        wrong.push(Line::doubtful(what.to_owned(), words));
    }
    let uuid = look.uuid.as_deref().unwrap_or("no uuid: the machine's Node is identified only by its name");
    let closed = if machine.closed { ", closed" } else { "" };
    let good = format!("answers, power {:?}{closed}; {uuid}", look.power);
    let wrong = wrong.into_iter().map(|line| line.of(&pool.name)).collect();
    answer.say_all(wrong, Line::good(what.to_owned(), good).of(&pool.name), FINDINGS);
}

#[cfg(test)]
mod tests {
    use super::*;
    use settings::{Needs, parse};

    #[test]
    fn what_a_controller_lacks_is_said() {
        let text = "[[pool]]\nname = \"metal\"\nmax = 1\ncores = 2\nmemory = \"4GiB\"\n[[pool.machine]]\nname = \"m1\"\n\
                    [pool.machine.redfish]\nendpoint = \"https://m1\"\nuser = \"u\"\npassword_file = \"/x\"\nca = \"system\"\n";
        let config = parse("c.toml", text, Needs::Plan).unwrap();
        let pool = &config.pools[0];
        for (resets, power, expected) in [
            (&["On", "ForceOff", "GracefulShutdown"][..], PowerState::Off, "answers, power Off; no uuid"),
            (&[][..], PowerState::On, "answers, power On; no uuid"),
            (&["On", "ForceOff"][..], PowerState::Off, "only by force: its controller supports On, ForceOff"),
            (&["ForceOff", "GracefulShutdown"][..], PowerState::Off, "does not support `On`"),
            (&[][..], PowerState::Other, "power state is unknown"),
        ] {
            let resets = resets.iter().map(|one| (*one).to_owned()).collect();
            let mut answer = Answer::default();
            let look = SystemState { power, uuid: None, resets };
            judge("machine m1", pool, &pool.machines[0], &look, &mut answer);
            let said = answer.render();
            assert!(said.contains(expected), "no {expected:?} in {said}");
        }
    }
}
