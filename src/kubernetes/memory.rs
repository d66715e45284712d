//! What the daemon remembers between rounds, and the switch that stops everything, in one ConfigMap of its own namespace.
//!
//! Who leads writes the one, whoever is told to the other: each write keeps what it does not mean to change, and is based on
//! the version that it was read in.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ObjectMeta, PostParams};

use super::cluster::Cluster;
use super::error::{Error, ErrorKind};
use super::{MANAGED_BY, MANAGED_BY_LABEL};
use crate::model::Pause;
use crate::model::snapshot::Memory;

const NAME: &str = "autoscaler-state";
const KEY: &str = "state";
/// The key of the switch: whatever it holds, it is on.
const PAUSED: &str = "paused";
/// How often the switch is tried to be turned while the daemon writes what it remembers.
const ATTEMPTS: u32 = 5;

/// The version of what is stored, which the next write must be based on, and what that write has to keep.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryVersion {
    resource_version: String,
    paused: Option<String>,
}

impl Cluster {
    /// What was remembered, with the version that [`Cluster::store_memory`] needs; nothing where nothing was stored yet.
    ///
    /// # Errors
    /// The call failed, or what is stored cannot be read.
    pub async fn load_memory(&self) -> Result<(Memory, Option<MemoryVersion>), Error> {
        let action = "read what was remembered";
        let Some(map) = self.call(action, self.config_maps().get_opt(NAME)).await? else {
            return Ok((Memory::default(), None));
        };
        let version = Some(version(&map));
        let Some(text) = map.data.as_ref().and_then(|data| data.get(KEY)) else {
            return Ok((Memory::default(), version));
        };
        let memory = serde_json::from_str(text)
            .map_err(|source| Error::Malformed { action: action.to_owned(), source: Box::new(source) })?;
        Ok((memory, version))
    }

    /// The version alone, for overwriting something that cannot be read.
    ///
    /// # Errors
    /// The call failed.
    pub async fn memory_version(&self) -> Result<Option<MemoryVersion>, Error> {
        let found = self.call("read what was remembered", self.config_maps().get_opt(NAME)).await?;
        Ok(found.as_ref().map(version))
    }

    /// Stores what is to be remembered over the given version (`None`: there must be none yet) and returns the new one.
    ///
    /// # Errors
    /// [`super::ErrorKind::Conflict`] or [`super::ErrorKind::AlreadyExists`] where somebody else stored something
    /// meanwhile; else the call failed.
    pub async fn store_memory(
        &self,
        memory: &Memory,
        version: Option<&MemoryVersion>,
    ) -> Result<MemoryVersion, Error> {
        let action = "store what is to be remembered";
        let text = serde_json::to_string(memory)
            .map_err(|source| Error::Malformed { action: action.to_owned(), source: Box::new(source) })?;
        let mut data = BTreeMap::from([(KEY.to_owned(), text)]);
        let paused = version.and_then(|version| version.paused.clone());
        data.extend(paused.map(|paused| (PAUSED.to_owned(), paused)));
        self.write(action, data, version.map(|version| version.resource_version.clone())).await
    }

    /// Whether everything is stopped. A value that cannot be read is taken for a reason.
    ///
    /// # Errors
    /// The call failed.
    pub async fn pause(&self) -> Result<Option<Pause>, Error> {
        let found = self.call("read the switch `paused`", self.config_maps().get_opt(NAME)).await?;
        let text = found.and_then(|map| map.data).and_then(|mut data| data.remove(PAUSED));
        Ok(text.map(|text| {
            let by_hand = |_| Pause { reason: text.trim().to_owned(), ..Pause::default() };
            serde_json::from_str(&text).unwrap_or_else(by_hand)
        }))
    }

    /// Turns the switch. The operator's word: no lease is asked for.
    ///
    /// # Errors
    /// The call failed, or others got in the way again and again.
    pub async fn set_pause(&self, pause: Option<&Pause>) -> Result<(), Error> {
        let action = "turn the switch `paused`";
        let text = pause.map(serde_json::to_string).transpose();
        let text =
            text.map_err(|source| Error::Malformed { action: action.to_owned(), source: Box::new(source) })?;
        for _ in 0..ATTEMPTS {
            let found = self.call(action, self.config_maps().get_opt(NAME)).await?;
            let resource_version = found.as_ref().and_then(|map| map.metadata.resource_version.clone());
            let mut data = found.and_then(|map| map.data).unwrap_or_default();
            let before = match &text {
                Some(text) => data.insert(PAUSED.to_owned(), text.clone()),
                None => data.remove(PAUSED),
            };
            if before == text {
                return Ok(());
            }
            match self.write(action, data, resource_version).await {
                Err(error) if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::AlreadyExists) => {}
                outcome => return outcome.map(|_| ()),
            }
        }
        Err(Error::Contended { action: action.to_owned(), attempts: ATTEMPTS })
    }

    async fn write(
        &self,
        action: &str,
        data: BTreeMap<String, String>,
        resource_version: Option<String>,
    ) -> Result<MemoryVersion, Error> {
        let map = ConfigMap {
            metadata: ObjectMeta {
                name: Some(NAME.to_owned()),
                labels: Some(BTreeMap::from([(MANAGED_BY_LABEL.to_owned(), MANAGED_BY.to_owned())])),
                resource_version,
                ..ObjectMeta::default()
            },
            data: Some(data),
            ..ConfigMap::default()
        };
        let (maps, options) = (self.config_maps(), PostParams::default());
        let stored = match map.metadata.resource_version {
            Some(_) => self.call(action, maps.replace(NAME, &options, &map)).await?,
            None => self.call(action, maps.create(&options, &map)).await?,
        };
        let paused = map.data.and_then(|mut data| data.remove(PAUSED));
        Ok(MemoryVersion { resource_version: stored.metadata.resource_version.unwrap_or_default(), paused })
    }
}

fn version(map: &ConfigMap) -> MemoryVersion {
    MemoryVersion {
        resource_version: map.metadata.resource_version.clone().unwrap_or_default(),
        paused: map.data.as_ref().and_then(|data| data.get(PAUSED)).cloned(),
    }
}
