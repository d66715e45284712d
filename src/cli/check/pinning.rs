//! Checks whether the pinning helper answers. This is possible only on the helper's own host.

use super::findings::{Answer, Line};
use crate::cli::exit::{FINDINGS, SUCCESS, chain};
use pinning::{Door, DoorError, ENABLE, Request, SOCKET, SocketDoor};
use settings::Config;

const WHAT: &str = "this host's pinning helper";

/// Asks the helper which CPUs are free, if a pool pins its machines.
pub(super) async fn check(config: &Config, answer: &mut Answer) {
    if config.pools.iter().any(|pool| pool.pinning.is_some()) {
        judge(SocketDoor::new(SOCKET).ask(Request::Look {}).await, answer);
    }
}

fn judge(said: Result<pinning::Answer, DoorError>, answer: &mut Answer) {
    match said {
        Ok(pinning::Answer::Free { cpus }) => {
            let words: Vec<String> =
                cpus.iter().map(|(node, count)| format!("{count} on NUMA node {node}")).collect();
            answer.say(Line::good(WHAT, format!("free CPUs: {}", words.join(", "))), SUCCESS);
        }
        Ok(pinning::Answer::Refused { reason }) => {
            answer.say(Line::wrong(WHAT, reason).key("pinning"), FINDINGS);
        }
        Ok(pinning::Answer::Pinned { .. } | pinning::Answer::Runs { .. }) => {
            let line = Line::wrong(WHAT, "the helper's answer does not match the request");
            answer.say(line.key("pinning"), FINDINGS);
        }
        // Only a warning: perhaps no pool uses this host, or this host does not run Proxmox VE.
        Err(error) => {
            let help = format!("run as root on each host that pools with `[pool.pinning]` may use: {ENABLE}");
            answer.say(Line::doubtful(WHAT, chain(&error)).key("pinning").help(help), SUCCESS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_helper_says_is_told() {
        let unreachable =
            || DoorError::Unreachable { path: SOCKET.into(), source: std::io::ErrorKind::NotFound.into() };
        for (said, expected, status) in [
            (
                Ok(pinning::Answer::Free { cpus: vec![(0, 6), (1, 8)] }),
                "6 on NUMA node 0, 8 on NUMA node 1",
                0,
            ),
            (Ok(pinning::Answer::Refused { reason: "no topology".to_owned() }), "no topology", FINDINGS),
            (Err(unreachable()), ENABLE, 0),
        ] {
            let mut answer = Answer::default();
            judge(said, &mut answer);
            assert!(answer.render().contains(expected), "no {expected:?} in {}", answer.render());
            assert_eq!(answer.status, status);
        }
    }
}
