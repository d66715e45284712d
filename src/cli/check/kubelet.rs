//! Kubelet arguments that a release of Kubernetes removes: a kubelet does not start with one of them, and its
//! machine never becomes a node. The same applies to feature gates ([`super::feature_gates`]).

use super::feature_gates;
use super::findings::{Answer, Line};
use crate::cli::exit::FINDINGS;
use settings::{Config, Pool};

/// An argument that was or will be removed.
struct Gone {
    argument: &'static str,
    /// The first minor version of Kubernetes 1 without the argument.
    since: u32,
    help: &'static str,
}

/// The help for cAdvisor's flags, which the kubelet had by mistake.
const CADVISOR: &str = "remove it: there is no replacement";
/// The help for the flags of cAdvisor's database, which the kubelet never used.
const STORAGE: &str = "remove it: the kubelet's cAdvisor writes to no database";
/// The arguments that each release removes, according to its change log and `cmd/kubelet/app/options`.
const GONE: [Gone; 22] = [
    gone("application-metrics-count-limit", 37, CADVISOR),
    gone("boot-id-file", 37, "remove it: the kubelet reads the kernel's boot ID"),
    gone("cgroup-driver", 38, "remove it: containerd 2 tells the kubelet which cgroup driver it uses"),
    gone("cloud-config", 34, "remove it: the cloud controller manager has a configuration of its own"),
    gone("container-hints", 37, CADVISOR),
    gone("containerd", 37, "remove it: kubeadm tells the kubelet the runtime's socket"),
    gone("containerd-namespace", 37, "remove it: kubeadm tells the kubelet the runtime's socket"),
    gone("enable-load-reader", 37, CADVISOR),
    gone("event-storage-age-limit", 37, CADVISOR),
    gone("event-storage-event-limit", 37, CADVISOR),
    gone("global-housekeeping-interval", 37, "remove it; `housekeeping-interval` still exists"),
    gone("log-cadvisor-usage", 37, CADVISOR),
    gone("machine-id-file", 37, "remove it: the kubelet reads `/etc/machine-id`"),
    gone("pod-infra-container-image", 35, "remove it: containerd's configuration names the sandbox image"),
    gone("register-schedulable", 34, "use the pool's `taints`"),
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
