//! The script that a guest runs: wait for systemd, then join, once.

use std::time::Duration;

/// Waits inside the guest until systemd has started everything, then joins with the configuration on standard input.
///
/// * A lock and a result in `/run` make it safe to run again when an answer was lost: it joins once for each boot.
/// * `is-system-running` exits 1 for `starting` and `degraded`: only its output counts. `--wait` returns at once where the
///   bus is not there yet.
/// * The arguments hold no secret: machine id, seconds for systemd, seconds for the join, whether `degraded` will do.
const SCRIPT: &str = r#"umask 077
dir=/run/pve-autoscaler
mkdir -p "$dir"
exec 9>"$dir/lock"
flock -w "$3" 9 || { echo "another join runs here" >&2; exit 75; }
if [ -e "$dir/joined-$1" ]; then cat "$dir/joined-$1"; exit 0; fi
if [ -e /etc/kubernetes/kubelet.conf ]; then echo "joined before"; exit 0; fi
tries=0
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
if timeout "$3" kubeadm join --config /dev/stdin >"$dir/join.log" 2>&1; then
    echo "joined, systemd was $state" >"$dir/joined-$1"
    cat "$dir/joined-$1"
else
    code=$?
    tail -n 20 "$dir/join.log" >&2
    exit "$code"
fi
"#;

/// How a guest waits before it joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settle {
    /// How long systemd may take to have started everything.
    pub settle: Duration,
    /// How long the join itself may take.
    pub join: Duration,
    /// `degraded` will do.
    pub accept_degraded: bool,
}

/// The command for the guest agent. Its standard input is the join configuration.
pub fn command(machine: &str, settle: &Settle) -> Vec<String> {
    let seconds = |time: Duration| time.as_secs().max(1).to_string();
    let degraded = if settle.accept_degraded { "yes" } else { "no" };
    ["/bin/sh", "-c", SCRIPT, "join", machine, &seconds(settle.settle), &seconds(settle.join), degraded]
        .map(ToOwned::to_owned)
        .to_vec()
}
