//! Task ids: `UPID:<node>:<pid>:<pstart>:<starttime>:<type>:<id>:<user>:`.

use std::fmt;

/// The id of a task.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Upid(String);

impl Upid {
    /// Parses an id. `None` if the text is not a task's id.
    pub fn parse(text: &str) -> Option<Self> {
        let parts: Vec<_> = text.split(':').collect();
        let hex = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_hexdigit());
        let [kind, node, pid, pstart, start, task, _, user, ""] = parts.as_slice() else { return None };
        let fine = *kind == "UPID" && !node.is_empty() && hex(pid) && hex(pstart) && hex(start);
        (fine && !task.is_empty() && !user.is_empty()).then(|| Self(text.to_owned()))
    }

    /// The host that runs the task. Only this host can report on the task.
    pub fn node(&self) -> &str {
        self.0.split(':').nth(1).unwrap_or_default()
    }

    /// The kind of task, e.g. `qmclone`.
    pub fn kind(&self) -> &str {
        self.0.split(':').nth(5).unwrap_or_default()
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Upid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_and_anything_else_is_not() {
        let text = "UPID:pve1:000A1B2C:0123ABCD9:66F00000:qmclone:9000:autoscaler@pve!agent:";
        let upid = Upid::parse(text).unwrap();
        assert_eq!((upid.node(), upid.kind(), upid.as_str()), ("pve1", "qmclone", text));
        for wrong in ["", "UPID:", &text[..text.len() - 1], &text.replace("66F00000", "now"), "null"] {
            assert_eq!(Upid::parse(wrong), None, "{wrong}");
        }
    }
}
