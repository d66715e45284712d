//! Stores the daemon's status in Cluster Autoscaler's format, in a ConfigMap in the daemon's namespace.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ObjectMeta, PostParams};
use runtime::boxed;

use super::cluster::Cluster;
use super::error::Error;
use super::{MANAGED_BY, MANAGED_BY_LABEL};

/// Cluster Autoscaler uses the same ConfigMap name and annotation.
const NAME: &str = "cluster-autoscaler-status";
const UPDATED: &str = "cluster-autoscaler.kubernetes.io/last-updated";
const KEY: &str = "status";

impl Cluster {
    /// The version of the stored status, for [`Cluster::store_status`].
    ///
    /// # Errors
    /// Returns an error if the call fails.
    #[boxed]
    pub async fn status_version(&self) -> Result<Option<String>, Error> {
        let stored = self.call("read the stored status", self.config_maps().get_opt(NAME)).await?;
        Ok(stored.and_then(|map| map.metadata.resource_version))
    }

    /// Replaces the status that has the given version, and returns the new version. If `version` is `None`,
    /// the status is created, which fails if there already is one. `updated` is the time of the update, as
    /// text.
    ///
    /// # Errors
    /// Returns [`super::ErrorKind::Conflict`], [`super::ErrorKind::AlreadyExists`] or
    /// [`super::ErrorKind::NotFound`] if the stored version is not the given one, or another error if the
    /// call fails.
    #[boxed]
    pub async fn store_status(
        &self,
        text: &str,
        updated: &str,
        version: Option<&str>,
    ) -> Result<String, Error> {
        let map = ConfigMap {
            metadata: ObjectMeta {
                name: Some(NAME.to_owned()),
                labels: Some(BTreeMap::from([(MANAGED_BY_LABEL.to_owned(), MANAGED_BY.to_owned())])),
                annotations: Some(BTreeMap::from([(UPDATED.to_owned(), updated.to_owned())])),
                resource_version: version.map(ToOwned::to_owned),
                ..ObjectMeta::default()
            },
            data: Some(BTreeMap::from([(KEY.to_owned(), text.to_owned())])),
            ..ConfigMap::default()
        };
        let (maps, options, action) = (self.config_maps(), PostParams::default(), "store the status");
        let stored = match version {
            Some(_) => self.call(action, maps.replace(NAME, &options, &map)).await?,
            None => self.call(action, maps.create(&options, &map)).await?,
        };
        Ok(stored.metadata.resource_version.unwrap_or_default())
    }
}
