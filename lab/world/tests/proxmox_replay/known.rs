//! Where the embedded cluster's answers differ from the recorded ones, and why.

/// Each entry: a scenario, the numbers of the exchanges that differ, and the reason.
pub const KNOWN: &[(&str, &[u64], &str)] = &[
    ("02-version-nodes-status", &[3, 16, 42], "the recorded hosts boot without EFI"),
    ("02-version-nodes-status", &[44], "the embedded cluster has no SDN"),
    ("02-version-nodes-status", &[49], "the embedded cluster's options contain no description"),
    ("02-version-nodes-status", &[57], RESOLVER),
    ("12-agent-exec", &[2, 3, 4, 12, 13, 14, 47, 48, 55, 56, 57, 59, 60, 61, 68, 69], AT_ONCE),
    (
        "12-agent-exec",
        &[50, 52, 53, 77, 78],
        "the call runs a program that the simulated guests do not have, or returns its output",
    ),
    ("12-agent-exec", &[15], "the configuration does not show how the recorded guest got its address"),
    ("12-agent-exec", &[17, 37], "the recorded guest kept the host name from its first boot"),
    ("12-agent-exec", &[19], "the simulated agent has fewer commands"),
    ("12-agent-exec", &[33], "simulated programs are not ended by signals"),
    ("12b-agent-exec-missing-command", &[2, 3, 14, 15, 16], AT_ONCE),
    ("12b-agent-exec-missing-command", &[7, 19], "the recorded guest has no kubeadm"),
    (
        "12b-agent-exec-missing-command",
        &[10, 11, 12],
        "the simulated shell calls itself `sh`, and the simulated guest has no `env`",
    ),
    ("21-clone-collisions", &[8], RESOLVER),
    (
        "21-clone-collisions",
        &[16],
        "of two clones that race on one host, the loser ends before or after its first log line",
    ),
    (
        "21-clone-collisions",
        &[35, 36, 39, 40, 41, 42, 43, 61, 62, 63, 64, 65, 66, 67, 91],
        "exactly one task wins a race, and which one is random",
    ),
    ("22b-clone-stopped-or-killed", &[5, 6, 15], "the recording contains qemu-img's command line and output"),
    ("23-power-edge-cases", &[4, 5, 9, 10], "a recorded clone of another scenario held the template"),
    ("23-power-edge-cases", &[160, 161], "other scenarios had made linked clones of the template"),
    (
        "24-parameters-and-encodings",
        &[89, 90, 91, 92],
        "the embedded cluster refuses a null in POST config at once, not in the task",
    ),
    ("25-authentication", &[28, 29], NO_TICKETS),
    ("27-pool-visibility", &[43], "the embedded cluster cannot create pools through the API"),
    ("30-node-down", &[28], "a recorded clone was a tenth of a second faster"),
    ("31-no-quorum", &[17], "the recorded hosts boot without EFI"),
    (
        "31-no-quorum",
        &[20],
        "the recording has a VMID without a VM, and privileges on a bridge from another scenario",
    ),
    ("31-no-quorum", &[38], "the recorded guest's interface has another name"),
    ("31-no-quorum", &[67], NO_TICKETS),
    ("31-no-quorum", &[83, 84], "the recording does not show when the third host came back"),
    ("31b-no-quorum-destroy-local", &[22], "one of the two recorded hosts was a second slower"),
    ("40-tasks", &[16], "the recorded list ends before the running task"),
    ("40-tasks", &[22, 25], "the length of a full clone's log depends on its speed"),
    ("41-storage", &[3, 14], "the recorded lists contain volumes of other scenarios"),
    ("41-storage", &[36, 39], "the recorded answers contain uploaded images, and uploads are skipped"),
    ("61-seed-lacks-cloudinit", &[6, 9, 12, 14], HALFWAY),
    ("65-user-tag-access", &[4, 6], HALFWAY),
];

const HALFWAY: &str = "a change that is refused halfway has already set some keys, and which ones is random";
const RESOLVER: &str = "the recorded cluster had no name resolver";
const AT_ONCE: &str = "simulated programs have already ended when their state is requested";
const NO_TICKETS: &str = "the embedded cluster has only API tokens";

/// Each entry: a scenario, the numbers of the exchanges that are skipped, and the reason.
pub const SKIPPED: &[(&str, &[u64], &str)] = &[
    (
        "12-agent-exec",
        &[41, 42],
        "after these calls, the recorded agent recovered, as it did in only one of twelve tries",
    ),
    ("12-agent-exec", &[62, 63, 64, 65, 81], "the recording contains only the length of the parameters"),
    (
        "23-power-edge-cases",
        &span::<30>(87),
        "these calls pause a VM or use the paused VM; the embedded cluster cannot pause VMs",
    ),
    (
        "24-parameters-and-encodings",
        &[271, 272, 273],
        "the recording contains only the beginning of the bodies",
    ),
    (
        "25-authentication",
        &span::<19>(8),
        "these calls use headers that the recording does not contain, or a disabled user",
    ),
    (
        "26-permissions-one-missing",
        &[73, 74, 75, 76, 77, 78],
        "these calls change grants, or depend on the changed grants",
    ),
    ("41-storage", &span::<16>(20), "uploads"),
    ("66-restart-of-pvedaemon-and-pveproxy", &[15, 17, 29], "the host's daemons were being restarted"),
    (
        "71-pool-of-a-guest-needs-pool-audit",
        &[4],
        "the call names the digest of a configuration that the recording does not show",
    ),
    (
        "66-restart-of-pvedaemon-and-pveproxy",
        &[30, 32, 33, 34, 35, 36, 37],
        "the recorded guest has booted in the meantime, and runs a program",
    ),
];

/// Returns `COUNT` consecutive numbers, starting with `first`.
const fn span<const COUNT: usize>(first: u64) -> [u64; COUNT] {
    let mut numbers = [first; COUNT];
    let mut at = 1;
    while at < COUNT {
        numbers[at] = numbers[at - 1] + 1;
        at += 1;
    }
    numbers
}

/// Calls that the embedded cluster does not implement.
pub const ABSENT: &[&str] = &[
    "DELETE /nodes/*/storage/shared/content/shared:iso/bad_name_.iso",
    "DELETE /nodes/*/storage/shared/content/shared:iso/nope.iso",
    "DELETE /nodes/*/storage/shared/content/shared:iso/seed.iso",
    "DELETE /pools",
    "GET /",
    "GET /access/users",
    "GET /access/users/autoscaler@pve/token",
    "GET /cluster",
    "GET /cluster/ha/resources",
    "GET /nodes/*",
    "GET /nodes/*/qemu/*",
    "GET /nodes/*/qemu/*/agent/get-fsinfo",
    "GET /nodes/*/qemu/*/agent/get-memory-block-info",
    "GET /nodes/*/qemu/*/agent/get-time",
    "GET /nodes/*/qemu/*/agent/get-users",
    "GET /nodes/*/qemu/*/agent/get-vcpus",
    "GET /nodes/*/qemu/*/firewall/options",
    "GET /nodes/*/qemu/*/snapshot",
    "GET /nodes/*/storage/shared/content/shared:9010/base-9010-disk-0.qcow2",
    "GET /nodes/*/tasks/*",
    "POST /access/ticket",
    "POST /access/users/autoscaler@pve/token/own",
    "POST /access/users/autoscaler@pve/token/tmp",
    "POST /nodes/*/qemu/*/agent",
    "POST /nodes/*/qemu/*/agent/fstrim",
    "POST /nodes/*/qemu/*/firewall/rules",
    "POST /nodes/*/qemu/*/template",
    "POST /pools",
    "PUT /access/password",
    "PUT /nodes/*/qemu/*/firewall/options",
];
