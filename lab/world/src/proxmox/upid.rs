//! Worker ids: `UPID:<node>:<pid>:<pstart>:<starttime>:<type>:<id>:<user>:` with hexadecimal numbers.

use std::fmt;

/// A task's unique id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Upid {
    /// The node that runs the task.
    pub node: String,
    /// Process id of the worker.
    pub pid: u32,
    /// Start time of the process in ticks since the host's boot.
    pub pstart: u64,
    /// Unix time of the start.
    pub starttime: i64,
    /// `qmclone`, `qmstart` …
    pub kind: String,
    /// The VMID that the task works on, or empty. For a clone, this is the *template*'s VMID.
    pub id: String,
    /// `user@realm` or `user@realm!token`.
    pub user: String,
}

impl fmt::Display for Upid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { node, pid, pstart, starttime, kind, id, user } = self;
        write!(f, "UPID:{node}:{pid:08X}:{pstart:08X}:{starttime:08X}:{kind}:{id}:{user}:")
    }
}

impl Upid {
    /// Parses a worker id. Returns `None` if Proxmox VE would report `unable to parse worker upid`.
    pub fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix("UPID:")?.strip_suffix(':')?;
        let parts: Vec<&str> = rest.split(':').collect();
        let [node, pid, pstart, starttime, kind, id, user] = parts.as_slice() else { return None };
        if pid.len() != 8 || starttime.len() != 8 || !(8..=9).contains(&pstart.len()) {
            return None;
        }
        Some(Self {
            node: (*node).to_owned(),
            pid: u32::from_str_radix(pid, 16).ok()?,
            pstart: u64::from_str_radix(pstart, 16).ok()?,
            starttime: i64::from_str_radix(starttime, 16).ok()?,
            kind: (*kind).to_owned(),
            id: (*id).to_owned(),
            user: (*user).to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Upid;

    #[test]
    fn a_recorded_upid_reads_and_prints_the_same() {
        let text = "UPID:pve1:0000018B:00074D5C:6B00E3C7:qmclone:9010:autoscaler@pve!agent:";
        let upid = Upid::parse(text).expect("a UPID");
        assert_eq!((upid.pid, upid.pstart, upid.starttime), (395, 478_556, 1_795_220_423));
        assert_eq!(upid.to_string(), text);
    }

    #[test]
    fn a_upid_without_its_last_colon_is_none() {
        assert_eq!(
            Upid::parse("UPID:pve1:0000018B:00074D5C:6B00E3C7:qmclone:9010:autoscaler@pve!agent"),
            None
        );
    }
}
