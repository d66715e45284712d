//! CPUs and memory that are hotplugged into a running guest. They are offline until a program in the guest
//! brings them online. Programs that query the kernel after that see them. A kubelet queries the kernel only
//! when it starts.

use super::Guest;

/// The size of the kernel's memory blocks in bytes.
const BLOCK: u64 = 128 << 20;
/// The prefix of the sysfs paths of CPUs.
const CPUS: &str = "/sys/devices/system/cpu/cpu";
/// The prefix of the sysfs paths of memory blocks.
const BLOCKS: &str = "/sys/devices/system/memory/memory";

impl Guest {
    /// Sets the total number of CPUs and the total memory in bytes of the guest's machine. Added CPUs and
    /// memory are offline at first.
    pub fn plug(&self, cpus: u32, memory: u64) {
        if self.0.faults.deaf_to_plugs {
            return;
        }
        let identity = self.identity();
        let seen = if self.0.faults.deaf_to_cpus { identity.cpus } else { cpus };
        for cpu in identity.cpus..seen {
            self.show(&format!("{CPUS}{cpu}/online"), "0\n");
        }
        for block in identity.memory / BLOCK..memory / BLOCK {
            self.show(&format!("{BLOCKS}{block}/state"), "offline\n");
        }
        self.lose(CPUS, u64::from(cpus));
        self.lose(BLOCKS, memory / BLOCK);
    }

    /// Whether the guest refuses to release CPUs and memory when they are unplugged.
    pub fn holds_on(&self) -> bool {
        self.0.faults.deaf_to_plugs
    }

    /// Whether CPUs cannot be hotplugged into the guest's machine.
    pub fn has_no_room_for_cpus(&self) -> bool {
        self.0.faults.plugs_no_cpus
    }

    /// Removes the unplugged CPUs or memory blocks, which are those with the number `first` or a higher
    /// number.
    fn lose(&self, below: &str, first: u64) {
        let is_left = |path: &str| {
            let number =
                path.strip_prefix(below).and_then(|rest| rest.split('/').next()?.parse::<u64>().ok());
            number.is_none_or(|number| number < first)
        };
        self.live().files.retain(|path, _| is_left(path));
    }

    fn show(&self, path: &str, state: &str) {
        if self.read_file(path).is_none() {
            self.write_file(path, state.as_bytes().to_vec());
        }
    }

    /// The number of CPUs that are online.
    pub fn cpus(&self) -> u32 {
        self.identity().cpus + u32::try_from(self.count(CPUS, "1")).unwrap_or(u32::MAX)
    }

    /// The memory that is online, in bytes.
    pub fn memory(&self) -> u64 {
        self.identity().memory + BLOCK * self.count(BLOCKS, "online")
    }

    fn count(&self, below: &str, state: &str) -> u64 {
        let live = self.live();
        let files = live.files.iter().filter(|(path, _)| path.starts_with(below));
        files.filter(|(_, content)| String::from_utf8_lossy(content).trim() == state).count() as u64
    }

    /// Restarts the guest's kubelet.
    pub(super) fn restart_kubelet(&self) {
        if self.joined() && !self.0.faults.kubelet_reports_no_more {
            self.0.control_plane.kubelet_restarted(&self.0.identity.uuid, self.cpus(), self.memory());
        }
    }
}
