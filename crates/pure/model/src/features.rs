//! Kubelet features that pods may need. A Node declares its features in `status.declaredFeatures`.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::version::KubernetesVersion;

/// A kubelet feature. The scheduler places a pod that uses the feature only on a node that declares it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// A container's restart rule can restart all containers of the pod.
    RestartAllContainers,
    /// The pod has its own user namespace (`hostUsers: false`), but uses the host's network.
    UserNamespacesOnHostNetwork,
    /// A container uses bind mount options (`bindMountOptions`).
    BindMountOptions,
}

impl Feature {
    /// All features.
    pub const ALL: [Self; 3] =
        [Self::RestartAllContainers, Self::UserNamespacesOnHostNetwork, Self::BindMountOptions];

    /// The feature's name in a Node's declaration, which is also the name of the kubelet's feature gate.
    pub fn name(self) -> &'static str {
        match self {
            Self::RestartAllContainers => "RestartAllContainersOnContainerExits",
            Self::UserNamespacesOnHostNetwork => "UserNamespacesHostNetworkSupport",
            Self::BindMountOptions => "VolumeBindMountOptions",
        }
    }

    /// The first Kubernetes version whose scheduler requires the feature.
    fn since(self) -> KubernetesVersion {
        match self {
            Self::RestartAllContainers | Self::UserNamespacesOnHostNetwork => KubernetesVersion::V1_36,
            Self::BindMountOptions => KubernetesVersion::V1_37,
        }
    }
}

/// A set of features. In JSON it is a list of names.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Features(u8);

impl Features {
    /// Returns the features with these names. Unknown names are ignored, because the scheduler does not
    /// require those features.
    pub fn named<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let known = |name: &str| Feature::ALL.into_iter().find(|one| one.name() == name);
        names.into_iter().filter_map(known).collect()
    }

    /// Returns the features that a kubelet of this version declares by default. Of the known features, only
    /// [`Feature::RestartAllContainers`] is ever on by default.
    pub fn by_default(version: KubernetesVersion) -> Self {
        Feature::ALL
            .into_iter()
            .filter(|one| *one == Feature::RestartAllContainers && version >= one.since())
            .collect()
    }

    /// Returns the features in this set that the scheduler of the given Kubernetes version requires of a
    /// node.
    pub fn asked_by(self, version: KubernetesVersion) -> Self {
        self.iter().filter(|one| one.since() <= version).collect()
    }

    /// The features of this set that are not in `others`.
    pub fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    /// The set with this feature added or removed.
    #[must_use]
    pub fn with(self, feature: Feature, is_in: bool) -> Self {
        let bit = 1 << feature as u8;
        Self(if is_in { self.0 | bit } else { self.0 & !bit })
    }

    /// Whether the feature is in the set.
    pub fn has(self, feature: Feature) -> bool {
        self.0 & (1 << feature as u8) != 0
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0 == 0
    }

    /// The features in the set.
    pub fn iter(self) -> impl Iterator<Item = Feature> {
        Feature::ALL.into_iter().filter(move |one| self.has(*one))
    }
}

impl FromIterator<Feature> for Features {
    fn from_iter<T: IntoIterator<Item = Feature>>(features: T) -> Self {
        features.into_iter().fold(Self::default(), |all, one| all.with(one, true))
    }
}

impl fmt::Debug for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl Serialize for Features {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter().map(Feature::name))
    }
}

impl<'de> Deserialize<'de> for Features {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let names = Vec::<String>::deserialize(deserializer)?;
        Ok(Self::named(names.iter().map(String::as_str)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_lists_of_names_in_json() {
        let all: Features = Feature::ALL.into_iter().collect();
        let text = serde_json::to_string(&all).unwrap();
        assert_eq!(serde_json::from_str::<Features>(&text).unwrap(), all);
        let some: Features = serde_json::from_str(r#"["VolumeBindMountOptions", "SomethingNew"]"#).unwrap();
        assert_eq!(some.iter().collect::<Vec<_>>(), [Feature::BindMountOptions]);
        assert!(all.without(all).is_empty() && some.without(all).is_empty());
        assert_eq!(all.without(some).iter().count(), 2);
    }

    #[test]
    fn versions_ask_for_and_declare_what_they_know() {
        let all: Features = Feature::ALL.into_iter().collect();
        let count = |minor| all.asked_by(KubernetesVersion { major: 1, minor }).iter().count();
        assert_eq!([35, 36, 37, 38].map(count), [0, 2, 3, 3]);
        let declared = |minor| Features::by_default(KubernetesVersion { major: 1, minor });
        assert!(declared(35).is_empty() && declared(36).has(Feature::RestartAllContainers));
    }
}
