//! What is asked of the helper, and what it answers: one line of JSON each.

use serde::{Deserialize, Serialize};

use super::cpus::Cpus;

/// What is asked. It names a machine and nothing that should become of it: that the helper reads itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Request {
    /// Pin a managed machine that has not started.
    Pin {
        /// Its VMID.
        vmid: u32,
        /// Its id.
        machine: String,
    },
    /// Say what is free, and change nothing.
    Look {},
    /// Say which managed machines run on other CPUs than those that they are pinned to, and change nothing.
    Runs {},
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
    /// Machines that run, and not on the CPUs that they are pinned to.
    Runs {
        /// Each of them.
        astray: Vec<Astray>,
    },
    /// It is not done, and why.
    Refused {
        /// Why.
        reason: String,
    },
}

/// A machine that runs on other CPUs than those that it is pinned to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Astray {
    /// Its VMID.
    pub vmid: u32,
    /// The name of its VM.
    pub name: String,
    /// `affinity` of its configuration.
    pub affinity: String,
    /// The CPUs that the kernel lets it run on.
    pub on: String,
}

impl Astray {
    /// A machine, where it is one: pinned to CPUs, and let run on others.
    pub fn found(vmid: u32, name: &str, affinity: &str, on: &Cpus) -> Option<Self> {
        let pinned: Cpus = affinity.parse().ok()?;
        let astray = !pinned.is_empty() && !on.is_empty() && !on.is_within(&pinned);
        let (name, affinity) = (name.to_owned(), affinity.to_owned());
        astray.then(|| Self { vmid, name, affinity, on: on.to_string() })
    }
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
