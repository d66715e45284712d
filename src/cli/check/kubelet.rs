//! Kubelet arguments that a Kubernetes release removes. A kubelet that is given a removed argument does not
//! start, and its machine never becomes a node. The same applies to removed feature gates
//! ([`super::feature_gates`]).

use super::feature_gates;
use super::findings::{Answer, Line};
use crate::cli::exit::FINDINGS;
use settings::{Config, Pool};

/// An argument that was or will be removed.
struct Gone {
    argument: &'static str,
    /// The first minor version of Kubernetes 1 that no longer accepts the argument.
    since: u32,
    help: &'static str,
}

/// The help for cAdvisor's flags, which the kubelet exposed by mistake.
const CADVISOR: &str = "remove the argument: it has no replacement";
/// The help for cAdvisor's database flags. The kubelet never used that database.
const STORAGE: &str = "remove the argument: the kubelet's cAdvisor does not write to a database";
/// The arguments that each release removes, according to its change log and `cmd/kubelet/app/options`.
const GONE: [Gone; 22] = [
    gone("application-metrics-count-limit", 37, CADVISOR),
    gone("boot-id-file", 37, "remove the argument: the kubelet reads the boot ID from the kernel"),
    gone(
        "cgroup-driver",
        38,
        "remove the argument: containerd 2 tells the kubelet which cgroup driver \
        to use",
    ),
    gone(
        "cloud-config",
        34,
        "remove the argument: the cloud controller manager has its own \
        configuration",
    ),
    gone("container-hints", 37, CADVISOR),
    gone("containerd", 37, "remove the argument: kubeadm tells the kubelet which runtime socket to use"),
    gone(
        "containerd-namespace",
        37,
        "remove the argument: kubeadm tells the kubelet which runtime \
        socket to use",
    ),
    gone("enable-load-reader", 37, CADVISOR),
    gone("event-storage-age-limit", 37, CADVISOR),
    gone("event-storage-event-limit", 37, CADVISOR),
    gone(
        "global-housekeeping-interval",
        37,
        "remove the argument; `housekeeping-interval` is still supported",
    ),
    gone("log-cadvisor-usage", 37, CADVISOR),
    gone("machine-id-file", 37, "remove the argument: the kubelet reads `/etc/machine-id`"),
    gone(
        "pod-infra-container-image",
        35,
        "remove the argument: the sandbox image is set in \
        containerd's configuration",
    ),
    gone("register-schedulable", 34, "use the pool's `taints` instead"),
    gone("storage-driver-buffer-duration", 37, STORAGE),
    gone("storage-driver-db", 37, STORAGE),
    gone("storage-driver-host", 37, STORAGE),
    gone("storage-driver-password", 37, STORAGE),
    gone("storage-driver-secure", 37, STORAGE),
    gone("storage-driver-table", 37, STORAGE),
    gone("storage-driver-user", 37, STORAGE),
];

const fn gone(argument: &'static str, since: u32, help: &'static str) -> Gone {
    Gone { argument, since, help }
}

/// Checks the arguments that pools give their kubelets. The kubelets are assumed to have the cluster's minor
/// version.
pub(super) fn arguments(config: &Config, version: &str, answer: &mut Answer) {
    let minor = version.trim_start_matches('v').split('.').nth(1);
    let minor = minor.map(|minor| minor.trim_end_matches(|sign: char| !sign.is_ascii_digit()));
    let Some(minor) = minor.and_then(|minor| minor.parse().ok()) else { return };
    for pool in &config.pools {
        for line in unfit(pool, minor).into_iter().chain(feature_gates::unfit(pool, minor)) {
            answer.say(line, FINDINGS);
        }
    }
}

fn unfit(pool: &Pool, minor: u32) -> Vec<Line> {
    let set = GONE.iter().filter(|gone| pool.kubelet_args.contains_key(gone.argument));
    let line = |gone: &Gone| {
        let (argument, since) = (gone.argument, gone.since);
        let what = "  kubelet arguments";
        let line = if since <= minor {
            let message = format!(
                "`{argument}` was removed: a kubelet of Kubernetes 1.{since} or newer does not start with it"
            );
            Line::wrong(what, message)
        } else {
            Line::doubtful(
                what,
                format!("`{argument}` is removed in Kubernetes 1.{since}; this cluster has 1.{minor}"),
            )
        };
        line.of(&pool.name).key("kubelet_args").help(gone.help)
    };
    set.map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_in_order_each_once() {
        assert!(GONE.is_sorted_by(|one, next| one.argument < next.argument));
    }
}
