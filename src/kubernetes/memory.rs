//! What the daemon remembers between rounds, in one ConfigMap of its own namespace.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ObjectMeta, PostParams};

use super::cluster::Cluster;
use super::error::Error;
use super::{MANAGED_BY, MANAGED_BY_LABEL};
use crate::model::snapshot::Memory;

const NAME: &str = "autoscaler-state";
const KEY: &str = "state";

impl Cluster {
    /// What was remembered, with the version that [`Cluster::store_memory`] needs; nothing where nothing was stored yet.
    ///
    /// # Errors
    /// The call failed, or what is stored cannot be read.
    pub async fn load_memory(&self) -> Result<(Memory, Option<String>), Error> {
        let action = "read what was remembered";
        let Some(map) = self.call(action, self.config_maps().get_opt(NAME)).await? else {
            return Ok((Memory::default(), None));
        };
        let version = map.metadata.resource_version;
        let Some(text) = map.data.as_ref().and_then(|data| data.get(KEY)) else {
            return Ok((Memory::default(), version));
        };
        let memory = serde_json::from_str(text)
            .map_err(|source| Error::Malformed { action: action.to_owned(), source: Box::new(source) })?;
        Ok((memory, version))
    }

    /// Stores what is to be remembered over the given version (`None`: there must be none yet) and returns the new one.
    ///
    /// # Errors
    /// [`super::ErrorKind::Conflict`] or [`super::ErrorKind::AlreadyExists`] where somebody else stored something
    /// meanwhile; else the call failed.
    pub async fn store_memory(&self, memory: &Memory, version: Option<&str>) -> Result<String, Error> {
        let action = "store what is to be remembered";
        let text = serde_json::to_string(memory)
            .map_err(|source| Error::Malformed { action: action.to_owned(), source: Box::new(source) })?;
        let map = ConfigMap {
            metadata: ObjectMeta {
                name: Some(NAME.to_owned()),
                labels: Some(BTreeMap::from([(MANAGED_BY_LABEL.to_owned(), MANAGED_BY.to_owned())])),
                resource_version: version.map(ToOwned::to_owned),
                ..ObjectMeta::default()
            },
            data: Some(BTreeMap::from([(KEY.to_owned(), text)])),
            ..ConfigMap::default()
        };
        let (maps, options) = (self.config_maps(), PostParams::default());
        let stored = match version {
            Some(_) => self.call(action, maps.replace(NAME, &options, &map)).await?,
            None => self.call(action, maps.create(&options, &map)).await?,
        };
        Ok(stored.metadata.resource_version.unwrap_or_default())
    }
}
