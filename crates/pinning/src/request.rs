//! Requests to the helper and its answers. Each is one line of JSON.

use serde::{Deserialize, Serialize};

use super::cpus::Cpus;

/// A request. It contains no more than the identity of a machine, because the helper reads the machine's
/// settings itself.
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
    /// Report the free CPUs. Nothing is changed.
    Look {},
    /// Report managed machines that run on CPUs other than those they are pinned to. Nothing is changed.
    Runs {},
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Answer {
    /// The machine is pinned.
    Pinned {
        /// Its CPUs.
        affinity: String,
        /// Whether any setting had to be changed.
        changed: bool,
    },
    /// The number of free CPUs of the host.
    Free {
        /// The number of free CPUs on each NUMA node, by the node's number.
        cpus: Vec<(u32, usize)>,
    },
    /// The running machines that are not on the CPUs they are pinned to.
    Runs {
        /// The machines.
        astray: Vec<Astray>,
    },
    /// The request was refused.
    Refused {
        /// The reason.
        reason: String,
    },
}

/// A machine that runs on CPUs other than those it is pinned to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Astray {
    /// Its VMID.
    pub vmid: u32,
    /// The name of the machine's VM.
    pub name: String,
    /// The value of `affinity` in the VM's configuration.
    pub affinity: String,
    /// The CPUs on which the kernel lets the VM run.
    pub on: String,
}

impl Astray {
    /// Returns the machine if it is pinned but the kernel lets it run on other CPUs.
    pub fn found(vmid: u32, name: &str, affinity: &str, on: &Cpus) -> Option<Self> {
        let pinned: Cpus = affinity.parse().ok()?;
        let astray = !pinned.is_empty() && !on.is_empty() && !on.is_within(&pinned);
        let (name, affinity) = (name.to_owned(), affinity.to_owned());
        astray.then(|| Self { vmid, name, affinity, on: on.to_string() })
    }
}

/// The maximum size of a request, in bytes.
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
