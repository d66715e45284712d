//! PodGroups. They are watched if the API server serves them. To serve them, the API server needs the feature
//! gate `GenericWorkload`, and the API version of PodGroups in `--runtime-config`.

use k8s_openapi::api::scheduling::v1beta1 as scheduling;

use super::convert;
use super::optional_kinds::Custom;
use super::wake_signals;
use model::gang::PodGroup;

/// The name of the kind.
pub(super) const KIND: &str = "PodGroup";

/// The kind's API group and version.
pub(super) const VERSION: &str = "scheduling.k8s.io/v1beta1";
/// The plural name, which is used in API paths.
pub(super) const PLURAL: &str = "podgroups";

/// The settings for watching PodGroups.
pub(super) const GROUPS: Custom<scheduling::PodGroup, PodGroup> = Custom {
    kind: KIND,
    version: VERSION,
    plural: PLURAL,
    convert: convert::pod_group,
    worth: wake_signals::any,
};
