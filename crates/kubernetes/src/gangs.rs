//! PodGroups. They are watched if the API server serves them, which requires the feature gate
//! `GenericWorkload` and this API version in `--runtime-config`.

use k8s_openapi::api::scheduling::v1beta1 as scheduling;

use super::convert;
use super::optional_kinds::Custom;
use super::wake_signals;
use model::gang::PodGroup;

/// The name of the kind.
pub(super) const KIND: &str = "PodGroup";

/// The kind's API group and version.
pub(super) const VERSION: &str = "scheduling.k8s.io/v1beta1";
/// The plural name, as in API paths.
pub(super) const PLURAL: &str = "podgroups";

/// How PodGroups are watched.
pub(super) const GROUPS: Custom<scheduling::PodGroup, PodGroup> = Custom {
    kind: KIND,
    version: VERSION,
    plural: PLURAL,
    convert: convert::pod_group,
    worth: wake_signals::any,
};
