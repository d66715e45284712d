//! Commands for the guest of a machine that grows. One checks whether the machine can grow; the other brings
//! plugged CPUs and memory into use and reports the result.
//!
//! A kubelet only reads its machine's size (`cadvisor`'s machine info) when it starts, so the kubelet is
//! restarted. The pods keep running. Depending on the kernel and its udev rules, plugged CPUs and memory may
//! stay offline at first. They are then brought online through files in `/sys`.

/// Checks for obstacles before CPUs or memory are plugged. `$1` is the kubelet's unit.
const ASK: &str = r#"systemctl cat "$1" >/dev/null 2>&1 || { echo "there is no unit $1" >&2; exit 73; }
case "$(cat /var/lib/kubelet/cpu_manager_state 2>/dev/null)" in
    *'"policyName":"static"'*) echo "its kubelet has the CPU manager policy static, and does not start if its CPUs have changed" >&2; exit 76 ;;
esac
case "$(cat /var/lib/kubelet/memory_manager_state 2>/dev/null)" in
    *'"policyName":"Static"'*) echo "its kubelet has the memory manager policy Static, and does not start if its memory has changed" >&2; exit 76 ;;
esac
"#;

/// The exit status if some of the CPUs did not appear. The kubelet was restarted nevertheless.
pub const TOO_FEW_CPUS: i64 = 74;

/// Waits for `$1` CPUs, then restarts the unit `$2`. The unit is restarted even if some CPUs do not appear,
/// because the kubelet still has to detect plugged memory.
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

/// The command with which the guest agent checks whether a machine can grow. If it cannot, the command fails
/// with the reason on standard error.
pub fn can_grow(unit: &str) -> Vec<String> {
    ["/bin/sh", "-c", ASK, "sh", unit].map(String::from).to_vec()
}

/// The command with which the guest agent brings plugged CPUs and memory into use. It can safely be repeated.
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
