//! The meaning of the script's exit status.

use secrecy::SecretString;

use super::masking::{hidden, last_lines};
use super::script::GuestCommand;
use proxmox::ExecStatus;

/// How a join ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JoinEnd {
    /// The machine has joined, now or in an earlier run.
    Joined {
        /// Whether systemd reported `degraded`.
        degraded: bool,
    },
    /// Another run of the script holds the lock. The join has to be tried again.
    Busy,
    /// The machine has not joined, for this reason.
    Failed(String),
}

/// Interprets the script's exit status and output. Secrets from its standard input are masked.
pub fn read(act: &GuestCommand, input: Option<&SecretString>, ended: &ExecStatus) -> JoinEnd {
    let (stdout, stderr) = (ended.stdout.as_str(), ended.stderr.as_str());
    // Secrets are masked before the output is cut to its last lines, because a part of a secret would not be
    // recognized.
    let last_lines = |text: &str| last_lines(&hidden(text, input));
    let what = act.name();
    match ended.exit_code {
        Some(0) => JoinEnd::Joined { degraded: stdout.contains("degraded") },
        Some(75) => JoinEnd::Busy,
        Some(71) => JoinEnd::Failed(
            "systemd came up degraded, and `bootstrap.accept_degraded` is off: run `systemctl --failed` in the template"
                .to_owned(),
        ),
        Some(72) => JoinEnd::Failed(format!("the guest did not come up: {}", last_lines(stderr))),
        Some(124) => JoinEnd::Failed(format!("{what} did not finish in time: {}", last_lines(stderr))),
        Some(127) => JoinEnd::Failed(format!("the template lacks a program: {}", last_lines(stderr))),
        Some(code) => {
            JoinEnd::Failed(format!("{what} exited with {code}: {}{}", last_lines(stderr), advice(stderr)))
        }
        None => {
            let signal = ended.signal.map_or_else(|| "an unknown cause".to_owned(), |signal| format!("signal {signal}"));
            JoinEnd::Failed(format!("the join was terminated by {signal}"))
        }
    }
}

/// Returns advice if standard error contains a known error message.
fn advice(stderr: &str) -> &'static str {
    // The error of kubeadm's `pubkeypin.Set.CheckAny`.
    if stderr.contains("none of the public keys") {
        return " (the CA in the ConfigMap kube-public/cluster-info is not the one that was pinned when \
            the machine was created. The next machine will pin the ConfigMap's current CA; compare that \
            CA with /etc/kubernetes/pki/ca.crt on the control plane)";
    }
    ""
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(exit_code: Option<i64>, signal: Option<i64>, stdout: &str, stderr: &str) -> ExecStatus {
        let (stdout, stderr) = (stdout.to_owned(), stderr.to_owned());
        ExecStatus { exited: true, exit_code, signal, stdout, stderr }
    }

    #[test]
    fn each_end_says_what_it_means() {
        let cases = [
            (Some(0), None, "joined, systemd was running\n", "", JoinEnd::Joined { degraded: false }),
            (Some(0), None, "joined, systemd was degraded\n", "", JoinEnd::Joined { degraded: true }),
            (Some(75), None, "", "another join runs here", JoinEnd::Busy),
            (
                Some(72),
                None,
                "",
                "systemd is starting\n",
                JoinEnd::Failed("the guest did not come up: systemd is starting".to_owned()),
            ),
            (Some(1), None, "", "a\n\nb\n", JoinEnd::Failed("`kubeadm join` exited with 1: a; b".to_owned())),
            (
                Some(1),
                None,
                "",
                "cluster CA found in cluster-info ConfigMap is invalid: none of the public keys \"sha256:00\" are pinned",
                JoinEnd::Failed(
                    "`kubeadm join` exited with 1: cluster CA found in cluster-info ConfigMap is invalid: none of the public keys \
                     \"sha256:00\" are pinned (the CA in the ConfigMap kube-public/cluster-info is not the one that was pinned when \
                     the machine was created. The next machine will pin the ConfigMap's current CA; compare that \
                     CA with /etc/kubernetes/pki/ca.crt on the control plane)"
                        .to_owned(),
                ),
            ),
            (None, Some(9), "", "", JoinEnd::Failed("the join was terminated by signal 9".to_owned())),
        ];
        for (code, signal, out, err, expected) in cases {
            let ended = ended(code, signal, out, err);
            assert_eq!(read(&GuestCommand::Kubeadm, None, &ended), expected);
        }
    }

    #[test]
    fn a_token_in_the_output_is_masked() {
        let stderr = "error: token \"abcdef.0123456789abcdef\" is bad";
        let ended = ended(Some(1), None, "", stderr);
        let end = read(&GuestCommand::Kubeadm, None, &ended);
        assert_eq!(
            end,
            JoinEnd::Failed("`kubeadm join` exited with 1: error: token \"abcdef.***\" is bad".to_owned())
        );
    }

    #[test]
    fn what_a_command_was_given_is_masked() {
        let input = SecretString::from("user: me\npassword: correct-horse-battery\n");
        let stderr = "+ login me\nrefused: correct-horse-battery, or password: correct-horse-battery";
        let ended = ended(Some(3), None, "", stderr);
        let end = read(&GuestCommand::Command(String::new()), Some(&input), &ended);
        let expected = "the command exited with 3: + login me; refused: ***, or ***";
        assert_eq!(end, JoinEnd::Failed(expected.to_owned()));
    }
}
