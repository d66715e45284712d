//! The clients that may use the helper: root, and the daemon's own unit.

use std::path::Path;

/// The control group of the daemon's unit. Only systemd can put a process into it.
const UNIT: &str = "0::/system.slice/pve-autoscaler.service";

/// Whether a process may use the helper. It must run as root, or as the user `uid` in the daemon's unit.
/// systemd creates the unit's user at each start, so the uid cannot be known in advance. `proc` is the path
/// of `/proc`.
pub(super) fn may_ask(proc: &Path, uid: u32, pid: Option<i32>) -> bool {
    if uid == 0 {
        return true;
    }
    let Some(folder) = pid.map(|pid| proc.join(pid.to_string())) else { return false };
    let text = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap_or_default();
    let status = text("status");
    let own = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
    let same = own.split_whitespace().next().and_then(|own| own.parse().ok()) == Some(uid);
    same && text("cgroup").lines().any(|line| line == UNIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_and_the_daemons_unit_may_ask_and_no_others() {
        let proc = tempfile::TempDir::new().unwrap();
        let process = |pid: &str, uid: &str, group: &str| {
            let folder = proc.path().join(pid);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("status"), format!("Name:\tx\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n"))
                .unwrap();
            std::fs::write(folder.join("cgroup"), format!("{group}\n")).unwrap();
        };
        process("10", "61999", UNIT);
        process("11", "1000", "0::/user.slice/user-1000.slice/system.slice/pve-autoscaler.service");
        process("12", "1000", "0::/system.slice/pve-autoscaler.service/child");
        process("13", "33", "0::/system.slice/pveproxy.service");
        for (uid, pid, may) in [
            (0, None, true),
            (61999, Some(10), true),
            (61999, None, false),
            (61999, Some(99), false),
            (1000, Some(10), false),
            (1000, Some(11), false),
            (1000, Some(12), false),
            (33, Some(13), false),
        ] {
            assert_eq!(may_ask(proc.path(), uid, pid), may, "{uid} {pid:?}");
        }
    }
}
