//! The version of the control plane. The rules of kube-scheduler change with each minor version.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer};
use thiserror::Error;

/// The control plane's version without the patch number, on which no rule depends. The default is the newest
/// version that is simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KubernetesVersion {
    /// The `1` of `v1.37.2`.
    pub major: u32,
    /// The `37` of `v1.37.2`.
    pub minor: u32,
}

/// The error for a text that is not a Kubernetes version.
#[derive(Debug, Error)]
#[error("`{0}` is not a Kubernetes version such as `v1.37.2`")]
pub struct VersionError(String);

impl KubernetesVersion {
    /// Kubernetes 1.36.
    pub const V1_36: Self = Self { major: 1, minor: 36 };
    /// Kubernetes 1.37.
    pub const V1_37: Self = Self { major: 1, minor: 37 };
    /// The newest version whose scheduler is simulated. Newer versions are treated like this one.
    pub const NEWEST: Self = Self::V1_37;

    /// Returns a warning if the scheduler of this version may have rules that are not simulated.
    pub fn newer_than_known(self) -> Option<String> {
        (self > Self::NEWEST).then(|| {
            format!(
                "Kubernetes {self} is newer than {newest}; the planner applies the rules of \
                    kube-scheduler {newest}",
                newest = Self::NEWEST
            )
        })
    }
}

impl Default for KubernetesVersion {
    fn default() -> Self {
        Self::NEWEST
    }
}

impl fmt::Display for KubernetesVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}.{}", self.major, self.minor)
    }
}

impl<'de> Deserialize<'de> for KubernetesVersion {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl FromStr for KubernetesVersion {
    type Err = VersionError;

    /// Parses `v1.37.2`, `v1.37.2+k3s1`, `1.37` and similar texts.
    fn from_str(text: &str) -> Result<Self, VersionError> {
        let number = |part: &str| {
            let end = part.find(|one: char| !one.is_ascii_digit()).unwrap_or(part.len());
            part[..end].parse::<u32>().ok()
        };
        let trimmed = text.strip_prefix('v').unwrap_or(text);
        let parsed = trimmed
            .split_once('.')
            .and_then(|(major, rest)| Some(Self { major: major.parse().ok()?, minor: number(rest)? }));
        parsed.ok_or_else(|| VersionError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_distributions_write_them() {
        for text in ["v1.36.2", "1.36", "v1.36.2+k3s1", "v1.36.0-rc.0", "v1.36+", "v1.36.3-gke.100"] {
            assert_eq!(text.parse::<KubernetesVersion>().unwrap(), KubernetesVersion::V1_36, "{text}");
        }
        for text in ["", "v1", "1.x", "v.36", "latest", "37"] {
            let error = text.parse::<KubernetesVersion>().unwrap_err();
            assert!(error.to_string().contains(&format!("`{text}`")), "{error}");
        }
        assert_eq!(KubernetesVersion::V1_37.to_string().parse::<KubernetesVersion>().unwrap().minor, 37);
    }

    #[test]
    fn only_what_is_newer_than_all_that_is_known_is_unknown() {
        for known in [KubernetesVersion::V1_36, KubernetesVersion::NEWEST] {
            assert_eq!(known.newer_than_known(), None);
        }
        for newer in ["v1.38.0", "v2.0.0"] {
            let warning = newer.parse::<KubernetesVersion>().unwrap().newer_than_known().unwrap();
            assert!(warning.contains(&newer[..4]) && warning.contains("v1.37"), "{warning}");
        }
    }
}
