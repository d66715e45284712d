//! Problems that last until they are fixed. The status, the metric, the alert and the docs all use this list.

use std::fmt;

/// A problem. Its text form is the problem's name in the status. The first word of that name is the value of
/// the metric's label `about`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The status of CapacityBuffers cannot be written.
    Buffers,
    /// The kubelets' serving certificates are not approved.
    Certificates,
    /// This host's clock and the API server's differ.
    Clock,
    /// The most recently read configuration is invalid.
    Configuration,
    /// Credentials expire soon.
    Credentials,
    /// Objects of a kind cannot be read; rounds continue without them.
    Kinds,
    /// The Kubernetes cluster cannot be read completely.
    Kubernetes,
    /// The Lease was lost, or cannot be acquired.
    Lease,
    /// The VM of the machine with this name is not in the expected state.
    Machine(String),
    /// Bare-metal machines are not in the expected state.
    Machines,
    /// The metrics cannot be served.
    Metrics,
    /// The pinning helper refuses a request or does not answer.
    Pinning,
    /// Machines on this host run on CPUs other than those they are pinned to.
    PinningAstray,
    /// The Proxmox VE cluster in `[proxmox]` cannot be read completely, or is not quorate.
    Proxmox,
    /// Hosts report nothing about their guests.
    Pvestatd,
    /// Like [`Problem::Proxmox`], for the region with this name.
    Region(String),
    /// The status of ProvisioningRequests cannot be written.
    Requests,
    /// A right is missing.
    Rights,
    /// VMs carry the mark of this cluster but have no record.
    Strangers,
    /// A round could not consider all pods and nodes.
    Unfinished,
}

/// The description of each problem in the docs, by the value of the metric's label `about`.
pub const ALL: [(&str, &str); 19] = [
    ("buffers", "the status of CapacityBuffers cannot be written"),
    ("certificates", "the kubelets' serving certificates are not approved"),
    ("clock", "the clocks of this host and of the Kubernetes API server differ"),
    ("configuration", "the most recently read configuration is invalid, so the previous one stays in force"),
    ("credentials", "credentials expire within two weeks"),
    ("kinds", "objects of some kind cannot be read; rounds continue without them"),
    ("kubernetes", "the Kubernetes cluster cannot be read completely"),
    ("lease", "the leader election Lease was lost, or cannot be acquired"),
    ("machine", "the VM of the named machine is not in the expected state"),
    ("machines", "bare-metal machines are not in the expected state"),
    ("metrics", "the metrics cannot be served"),
    (
        "pinning",
        "machines do not get dedicated CPUs, or do not run on the CPUs assigned to them \
        (`pinning astray`)",
    ),
    ("proxmox", "the Proxmox VE cluster cannot be read completely, or is not quorate"),
    ("pvestatd", "hosts report nothing about their guests"),
    ("region", "the same as `proxmox`, for the named region"),
    ("requests", "the status of ProvisioningRequests cannot be written"),
    ("rights", "rights are missing in Proxmox VE or Kubernetes"),
    ("strangers", "VMs carry the mark of this cluster but have no record"),
    ("unfinished", "a round could not consider all pods and nodes; later rounds continue"),
];

impl Problem {
    /// The value of the metric's label `about`.
    pub fn about(&self) -> &'static str {
        match self {
            Self::Buffers => "buffers",
            Self::Certificates => "certificates",
            Self::Clock => "clock",
            Self::Configuration => "configuration",
            Self::Credentials => "credentials",
            Self::Kinds => "kinds",
            Self::Kubernetes => "kubernetes",
            Self::Lease => "lease",
            Self::Machine(_) => "machine",
            Self::Machines => "machines",
            Self::Metrics => "metrics",
            Self::Pinning | Self::PinningAstray => "pinning",
            Self::Proxmox => "proxmox",
            Self::Pvestatd => "pvestatd",
            Self::Region(_) => "region",
            Self::Requests => "requests",
            Self::Rights => "rights",
            Self::Strangers => "strangers",
            Self::Unfinished => "unfinished",
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.about())?;
        match self {
            Self::Machine(name) | Self::Region(name) => write!(f, " {name}"),
            Self::PinningAstray => f.write_str(" astray"),
            _ => Ok(()),
        }
    }
}

/// Returns the value of the metric's label `about` for a problem with this name in the status.
pub(super) fn about(name: &str) -> &str {
    name.split(' ').next().unwrap_or_default()
}

/// Whether every instance detects this problem, even if it does not lead. Only the leader detects the other
/// problems.
pub(super) fn is_of_its_own(name: &str) -> bool {
    ["configuration", "credentials", "kubernetes", "lease", "metrics", "pinning"].contains(&about(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_about_alerts_has_each_problem() {
        let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/alerts.md");
        let page = std::fs::read_to_string(page).unwrap();
        let rows: Vec<String> = ALL.iter().map(|(about, what)| format!("| `{about}` | {what} |\n")).collect();
        let rows = rows.concat();
        assert!(page.contains(&rows), "docs/reference/alerts.md should have these rows:\n{rows}");
        assert!(ALL.is_sorted() && ALL.windows(2).all(|two| two[0].0 != two[1].0));
    }

    #[test]
    fn a_problem_is_known_by_the_first_word_of_its_name() {
        for (problem, name) in [
            (Problem::Lease, "lease"),
            (Problem::Machine("workers-a1".to_owned()), "machine workers-a1"),
            (Problem::PinningAstray, "pinning astray"),
            (Problem::Region("east".to_owned()), "region east"),
        ] {
            assert_eq!(problem.to_string(), name);
            assert_eq!(about(name), problem.about());
        }
        assert!(is_of_its_own("pinning astray") && !is_of_its_own("machine workers-a1"));
    }
}
