//! What is asked of the helper, and what it answers: one line of JSON each.

use serde::{Deserialize, Serialize};

/// What is asked. It names a machine and nothing that should become of it: that the helper reads itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Request {
    /// Pin a machine of ours that has not started.
    Pin {
        /// Its VMID.
        vmid: u32,
        /// Its id.
        machine: String,
    },
    /// Say what is free, and change nothing.
    Look {},
}

/// What it answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Answer {
    /// The machine is pinned.
    Pinned {
        /// Its CPUs.
        affinity: String,
        /// Whether anything had to be set for it.
        changed: bool,
    },
    /// CPUs of the host that are free.
    Free {
        /// How many on each NUMA node.
        cpus: Vec<(u32, usize)>,
    },
    /// It is not done, and why.
    Refused {
        /// Why.
        reason: String,
    },
}

/// No request is longer, in bytes.
pub const LONGEST: u64 = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_says_which_machine_and_no_more() {
        let pin = Request::Pin { vmid: 9100, machine: "id".to_owned() };
        assert_eq!(serde_json::to_string(&pin).unwrap(), r#"{"pin":{"vmid":9100,"machine":"id"}}"#);
        assert_eq!(serde_json::from_str::<Request>(r#"{"look":{}}"#).unwrap(), Request::Look {});
        for wrong in [
            "",
            "{}",
            r#"{"pin":{"vmid":9100}}"#,
            r#"{"pin":{"vmid":-1,"machine":"id"}}"#,
            r#"{"pin":{"vmid":9100,"machine":"id","affinity":"0"}}"#,
            r#"{"pin":{"vmid":9100,"machine":"id"},"look":{}}"#,
        ] {
            assert!(serde_json::from_str::<Request>(wrong).is_err(), "{wrong}");
        }
    }
}
