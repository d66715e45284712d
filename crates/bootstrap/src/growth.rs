//! What a guest runs whose machine grows: whether it can, and then to take what was plugged into use and to
//! say so.
//!
//! A kubelet looks at its machine once, when it starts (`cadvisor`'s machine info), so it is started again;
//! pods keep running meanwhile. Whether plugged CPUs and memory are used at once depends on the kernel and
//! its udev rules: what is not used yet is switched on here, through the kernel's own files.

/// What speaks against it is found out before anything is plugged.
const ASK: &str = r#"systemctl cat "$1" >/dev/null 2>&1 || { echo "there is no unit $1" >&2; exit 73; }
case "$(cat /var/lib/kubelet/cpu_manager_state 2>/dev/null)" in
    *'"policyName":"static"'*) echo "its kubelet has the CPU manager policy static, and starts with no other CPUs than it had" >&2; exit 76 ;;
esac
case "$(cat /var/lib/kubelet/memory_manager_state 2>/dev/null)" in
    *'"policyName":"Static"'*) echo "its kubelet has the memory manager policy Static, and starts with no other memory than it had" >&2; exit 76 ;;
esac
"#;

/// How what takes CPUs and memory into use ends if some of the CPUs do not come. The unit was restarted then,
/// too.
pub const TOO_FEW_CPUS: i64 = 74;

/// Waits for `$1` CPUs, then starts the unit `$2` again, even if some of the CPUs do not come: memory may
/// have.
const TAKE: &str = r#"tries=0
until [ "$tries" = 15 ]; do
    sleep 1
    for one in /sys/devices/system/cpu/cpu*/online; do
        if [ -e "$one" ] && [ "$(cat "$one")" = 0 ]; then echo 1 >"$one"; fi
    done
    for one in /sys/devices/system/memory/memory*/state; do
        if [ -e "$one" ] && [ "$(cat "$one")" = offline ]; then echo online >"$one"; fi
    done
    if [ "$(nproc)" -ge "$1" ]; then break; fi
    tries=$((tries + 1))
done
timeout 60 systemctl restart "$2" || exit
[ "$(nproc)" -ge "$1" ] || { echo "it has $(nproc) of $1 CPUs" >&2; exit 74; }
"#;

/// The command for the guest agent that finds out whether a machine can grow: fails, with the reason on
/// standard error, if not.
pub fn can_grow(unit: &str) -> Vec<String> {
    ["/bin/sh", "-c", ASK, "sh", unit].map(String::from).to_vec()
}

/// The command for the guest agent that takes what was plugged into use. Safe to run again.
pub fn take_up(cores: u32, unit: &str) -> Vec<String> {
    let cores = cores.to_string();
    ["/bin/sh", "-c", TAKE, "sh", &cores, unit].map(String::from).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_ends_as_its_reader_expects() {
        assert!(TAKE.contains(&format!("exit {TOO_FEW_CPUS}; }}")));
    }
}
