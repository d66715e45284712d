//! What the script's end means.

use super::masking::last_lines;

/// How a join ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JoinEnd {
    /// The machine has joined, now or before; what it says about it.
    Joined {
        /// systemd came up `degraded`.
        degraded: bool,
    },
    /// Another run of the script holds the lock: ask again.
    Busy,
    /// It has not joined, for this reason.
    Failed(String),
}

/// Reads the script's exit status and its output.
pub fn read(exit_code: Option<i64>, signal: Option<i64>, stdout: &str, stderr: &str) -> JoinEnd {
    match exit_code {
        Some(0) => JoinEnd::Joined { degraded: stdout.contains("degraded") },
        Some(75) => JoinEnd::Busy,
        Some(71) => JoinEnd::Failed(
            "systemd came up degraded, and `bootstrap.accept_degraded` is off: look at `systemctl --failed` in the template"
                .to_owned(),
        ),
        Some(72) => JoinEnd::Failed(format!("the guest did not come up: {}", last_lines(stderr))),
        Some(124) => JoinEnd::Failed(format!("`kubeadm join` did not end in time: {}", last_lines(stderr))),
        Some(127) => JoinEnd::Failed(format!("the template lacks a program: {}", last_lines(stderr))),
        Some(code) => JoinEnd::Failed(format!("`kubeadm join` exited with {code}: {}", last_lines(stderr))),
        None => {
            let signal = signal.map_or_else(|| "no status".to_owned(), |signal| format!("signal {signal}"));
            JoinEnd::Failed(format!("the join was ended by {signal}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            (None, Some(9), "", "", JoinEnd::Failed("the join was ended by signal 9".to_owned())),
        ];
        for (code, signal, out, err, expected) in cases {
            assert_eq!(read(code, signal, out, err), expected);
        }
    }

    #[test]
    fn a_token_in_the_output_is_masked() {
        let end = read(Some(1), None, "", "error: token \"abcdef.0123456789abcdef\" is bad");
        assert_eq!(
            end,
            JoinEnd::Failed("`kubeadm join` exited with 1: error: token \"abcdef.***\" is bad".to_owned())
        );
    }
}
