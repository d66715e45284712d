//! The script that a guest runs: it waits for systemd, then joins once.

use std::time::Duration;

use jiff::Timestamp;

/// The beginning of the script. The script waits inside the guest until systemd has started everything, then
/// joins.
///
/// * A lock and a result file in `/run` make it safe to run the script again after a lost answer: it joins
///   once per boot.
/// * `is-system-running` exits with 1 for both `starting` and `degraded`, so only its output is used. With
///   `--wait`, it returns immediately if the bus does not exist yet.
/// * The arguments contain no secrets: the machine's id, the seconds for systemd and for the join, whether
///   `degraded` is accepted, and further arguments of a method. Secrets are on standard input.
const BEGIN: &str = r#"umask 077
dir=/run/pve-autoscaler
mkdir -p "$dir"
exec 9>"$dir/lock"
flock -w "$3" 9 || { echo "another join runs here" >&2; exit 75; }
if [ -e "$dir/joined-$1" ]; then cat "$dir/joined-$1"; exit 0; fi
"#;

const SETTLE: &str = r#"tries=0
until [ "$tries" = "$2" ]; do
    code=0
    state="$(timeout "$2" systemctl is-system-running --wait 2>/dev/null </dev/null)" || code=$?
    case "$state" in
        running|degraded|maintenance|stopping) break ;;
    esac
    [ "$code" != 124 ] || break
    tries=$((tries + 1))
    sleep 1
done
case "$state" in
    running) ;;
    degraded) [ "$4" = yes ] || { echo "systemd is degraded" >&2; exit 71; } ;;
    *) echo "systemd is ${state:-unknown}" >&2; exit 72 ;;
esac
"#;

const END: &str = r#"    echo "joined, systemd was $state" >"$dir/joined-$1"
    cat "$dir/joined-$1"
else
    code=$?
    tail -n 20 "$dir/join.log" >&2
    exit "$code"
fi
"#;

const KUBEADM_DONE: &str = r#"if [ -e /etc/kubernetes/kubelet.conf ]; then echo "joined before"; exit 0; fi
"#;
const KUBEADM: &str = r#"if timeout "$3" kubeadm join --config /dev/stdin >"$dir/join.log" 2>&1; then
"#;

/// Writes the fields that override the cluster's kubelet configuration to the folder in which `kubeadm join`
/// looks for patches. The file's name consists of the patch's target and type. The fields contain no secrets.
const PATCH: &str = r#"mkdir -p "$dir/patches"
printf '%s\n' "$5" >"$dir/patches/kubeletconfiguration+merge.json"
"#;
/// The patches folder, as named in a join configuration.
pub(super) const PATCHES: &str = "/run/pve-autoscaler/patches";

/// Ends the script if the operator's script has already succeeded. The marker file survives a reboot, so the
/// operator's script does not run twice.
const COMMAND_DONE: &str = r#"if [ -e "/var/lib/pve-autoscaler/joined-$1" ]; then echo "joined before"; exit 0; fi
"#;
const COMMAND: &str = r#"if timeout "$3" /bin/sh -c "$5" >"$dir/join.log" 2>&1 9>&-; then
    mkdir -p /var/lib/pve-autoscaler
    touch "/var/lib/pve-autoscaler/joined-$1"
"#;

const K3S_DONE: &str = r#"if [ -e /var/lib/rancher/k3s/agent/client-kubelet.crt ]; then echo "joined before"; exit 0; fi
"#;
/// The agent receives its certificate once the server has accepted its token. It retries forever, so only the
/// time limit ends it.
const K3S: &str = r#"conf=/etc/rancher/k3s/config.yaml.d
mkdir -p "$conf"
cat >"$conf/pve-autoscaler.new" && mv "$conf/pve-autoscaler.new" "$conf/pve-autoscaler.yaml"
await='systemctl restart k3s-agent || exit 69
until [ -e /var/lib/rancher/k3s/agent/client-kubelet.crt ]; do
    if systemctl is-failed --quiet k3s-agent; then exit 69; fi
    sleep 1
done'
if timeout "$3" /bin/sh -c "$await" >"$dir/join.log" 2>&1; then
"#;
const K3S_END: &str = r#"    echo "joined, systemd was $state" >"$dir/joined-$1"
    cat "$dir/joined-$1"
else
    code=$?
    tail -n 5 "$dir/join.log" >&2
    journalctl -u k3s-agent -n 5 -o cat --no-pager >&2
    exit "$code"
fi
"#;

/// The end of a script that waits for systemd but does not join.
const WAITED: &str = r#"echo "systemd is $state"
"#;

/// The script's time limits, whether it accepts that systemd is `degraded`, and the time to which it sets the
/// guest's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitForBoot {
    /// How long systemd may take to start everything.
    pub settle: Duration,
    /// How long the join itself may take.
    pub join: Duration,
    /// Whether the script accepts that systemd is `degraded`.
    pub accept_degraded: bool,
    /// The time to which the script first sets the guest's clock, if any. After a guest resumes from disk,
    /// its clock is behind, so new certificates would not be valid yet.
    pub clock: Option<Timestamp>,
}

/// What the guest does to join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GuestCommand {
    /// `kubeadm join` with the configuration on standard input.
    Kubeadm,
    /// Like [`Self::Kubeadm`], with fields that override the cluster's kubelet configuration (a JSON object).
    KubeadmWith(String),
    /// The K3s agent, with its configuration on standard input.
    K3s,
    /// An operator's script, with its standard input.
    Command(String),
    /// Does not join. Only waits until systemd has started everything.
    Wait,
}

impl GuestCommand {
    /// The name of the command in messages.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Kubeadm | Self::KubeadmWith(_) => "`kubeadm join`",
            Self::K3s => "the K3s agent",
            Self::Command(_) => "the command",
            Self::Wait => "systemd",
        }
    }
}

/// The command for the guest agent. The standard input is passed separately.
pub fn command(machine: &str, settle: &WaitForBoot, act: &GuestCommand) -> Vec<String> {
    let seconds = |time: Duration| time.as_secs().max(1).to_string();
    let degraded = if settle.accept_degraded { "yes" } else { "no" };
    let script = match act {
        GuestCommand::Kubeadm => [BEGIN, KUBEADM_DONE, SETTLE, KUBEADM, END].concat(),
        GuestCommand::KubeadmWith(_) => [BEGIN, KUBEADM_DONE, SETTLE, PATCH, KUBEADM, END].concat(),
        GuestCommand::K3s => [BEGIN, K3S_DONE, SETTLE, K3S, K3S_END].concat(),
        GuestCommand::Command(_) => [BEGIN, COMMAND_DONE, SETTLE, COMMAND, END].concat(),
        GuestCommand::Wait => [SETTLE, WAITED].concat(),
    };
    let clock = settle.clock.map(|time| format!("date -u -s @{} >/dev/null\n", time.as_second()));
    let script = clock.unwrap_or_default() + &script;
    let (settle, join) = (seconds(settle.settle), seconds(settle.join));
    let mut words =
        ["/bin/sh", "-c", &script, "join", machine, &settle, &join, degraded].map(ToOwned::to_owned).to_vec();
    if let GuestCommand::Command(text) | GuestCommand::KubeadmWith(text) = act {
        words.push(text.clone());
    }
    words
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_program_that_the_operators_script_leaves_running_does_not_hold_the_lock() {
        let folder = tempfile::TempDir::new().unwrap();
        let at = folder.path().to_str().unwrap();
        let script = ["state=running\n", BEGIN, COMMAND, END].concat();
        let script = script
            .replace("/run/pve-autoscaler", at)
            .replace("/var/lib/pve-autoscaler", &format!("{at}/lib"));
        let join = |command: &str| {
            let words = ["-c", &script, "join", "m1", "1", "1", "no", command];
            Command::new("/bin/sh").args(words).output().unwrap()
        };
        let program = format!("sleep 60 >/dev/null 2>&1 </dev/null & echo $! >{at}/pid; exit 7");
        assert_eq!(join(&program).status.code(), Some(7));
        // If the first run still held the lock, the second run would wait for a second and fail.
        let again = join("true");
        let pid = std::fs::read_to_string(folder.path().join("pid")).unwrap();
        Command::new("kill").arg(pid.trim()).status().unwrap();
        assert_eq!(again.status.code(), Some(0), "{again:?}");
        assert_eq!(String::from_utf8_lossy(&again.stdout), "joined, systemd was running\n");
    }
}
