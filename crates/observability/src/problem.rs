//! What can be wrong until it is mended: one list for the status, the metric, the alert and the docs.

use std::fmt;

/// What is wrong. Its text is the problem's name in the status; the first word of it is the label `about` of
/// the metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// Statuses of CapacityBuffers cannot be written.
    Buffers,
    /// Serving certificates of kubelets are not approved.
    Certificates,
    /// This host's clock and the API server's differ.
    Clock,
    /// The configuration that was read last cannot be taken.
    Configuration,
    /// Credentials end soon.
    Credentials,
    /// A kind of object that decisions can do without cannot be seen.
    Kinds,
    /// The Kubernetes cluster cannot be seen, or not all of it.
    Kubernetes,
    /// The Lease was lost, or cannot be had.
    Lease,
    /// The VM of the machine of this name is not as it should be.
    Machine(String),
    /// Bare-metal machines are not as they should be.
    Machines,
    /// The page of metrics cannot be served.
    Metrics,
    /// The helper that gives machines their CPUs refuses, or does not answer.
    Pinning,
    /// Machines of this host run on CPUs of others.
    PinningAstray,
    /// The one Proxmox VE cluster cannot be seen, or not all of it.
    Proxmox,
    /// Hosts say nothing of their guests.
    Pvestatd,
    /// The same as [`Problem::Proxmox`] of the region of this name.
    Region(String),
    /// Statuses of ProvisioningRequests cannot be written.
    Requests,
    /// A right is missing.
    Rights,
    /// VMs carry the mark of this cluster and have no record.
    Strangers,
    /// A round could not look at everything.
    Unfinished,
}

/// What the docs say about each, by the label of the metric.
pub const ALL: [(&str, &str); 19] = [
    ("buffers", "the statuses of CapacityBuffers cannot be written"),
    ("certificates", "serving certificates of kubelets are not approved"),
    ("clock", "this host's clock and that of the Kubernetes API server differ"),
    (
        "configuration",
        "the configuration that was read last has mistakes, so that the one before is in force",
    ),
    ("credentials", "credentials end within two weeks"),
    ("kinds", "objects of a kind cannot be seen; rounds go on without them"),
    ("kubernetes", "the Kubernetes cluster cannot be seen, or only in part"),
    ("lease", "the Lease by which one instance leads was lost, or cannot be had"),
    ("machine", "the VM of the machine that follows is not as it should be"),
    ("machines", "bare-metal machines are not as they should be"),
    ("metrics", "the metrics cannot be served"),
    ("pinning", "machines do not get CPUs of their own, or run on those of others (`pinning astray`)"),
    ("proxmox", "the Proxmox VE cluster cannot be seen, or only in part"),
    ("pvestatd", "hosts say nothing of their guests"),
    ("region", "the same as `proxmox`, of the region that follows"),
    ("requests", "the statuses of ProvisioningRequests cannot be written"),
    ("rights", "rights are missing, in Proxmox VE or in Kubernetes"),
    ("strangers", "VMs carry the mark of this cluster, and no record is theirs"),
    ("unfinished", "a round could not look at everything; later ones go on"),
];

impl Problem {
    /// The label of the metric.
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

/// The label of the metric of a problem that the status names so.
pub(super) fn about(name: &str) -> &str {
    name.split(' ').next().unwrap_or_default()
}

/// Whether an instance finds out about it whether it leads or not. Of the others it knows only while it
/// leads.
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
