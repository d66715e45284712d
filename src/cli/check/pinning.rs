//! Does the helper of this host answer that gives machines CPUs of their own? Those of other hosts can only
//! be asked there.

use super::findings::{Answer, Line};
use crate::cli::exit::{FINDINGS, SUCCESS, chain};
use pinning::{Door, DoorError, ENABLE, Request, SOCKET, SocketDoor};
use settings::Config;

const WHAT: &str = "pinning helper of this host";

/// Asks it what is free, if a pool has machines that are to be pinned.
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
            answer.say(Line::wrong(WHAT, "its answer is not understood").key("pinning"), FINDINGS);
        }
        // This may be no host of a pool's machines, or none of Proxmox VE at all.
        Err(error) => {
            let help = format!("as root on each host that pools with `[pool.pinning]` may use: {ENABLE}");
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
