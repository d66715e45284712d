//! The data that the daemon remembers between rounds (its memory), and operators' orders to the leader. Both
//! are stored in one ConfigMap in the daemon's namespace.
//!
//! The leader writes the memory. The instance that receives an order writes the order. Each write keeps
//! the rest of the ConfigMap, and is based on the version that was read.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ObjectMeta, PostParams};
use runtime::boxed;

use super::cluster::Cluster;
use super::error::{Error, ErrorKind};
use super::{MANAGED_BY, MANAGED_BY_LABEL};
use model::snapshot::Memory;
use model::{Pause, Retry};

const NAME: &str = "autoscaler-state";
const KEY: &str = "state";
/// The key of the pause switch. The switch is on if the key exists, whatever its value.
const PAUSED: &str = "paused";
/// The key of the operators' retry orders, and the maximum number of stored orders. Further orders are
/// refused.
const RETRY: (&str, usize) = ("retry", 50);
/// The maximum number of attempts to write an operator's order if the daemon writes its memory at the same
/// time.
const ATTEMPTS: u32 = 5;

/// The version of the stored data, on which the next write must be based, and the data that this write must
/// preserve.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryVersion {
    resource_version: String,
    /// Operators' orders.
    others: BTreeMap<String, String>,
}

impl Cluster {
    /// The stored memory, with the version that [`Cluster::store_memory`] needs; empty if nothing was stored
    /// yet.
    ///
    /// # Errors
    /// Returns an error if the call fails, or the stored data cannot be read.
    #[boxed]
    pub async fn load_memory(&self) -> Result<(Memory, Option<MemoryVersion>), Error> {
        let action = "read the stored state";
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

    /// Returns only the version, so that unreadable data can be overwritten.
    ///
    /// # Errors
    /// Returns an error if the call fails.
    #[boxed]
    pub async fn memory_version(&self) -> Result<Option<MemoryVersion>, Error> {
        let found = self.call("read the stored state", self.config_maps().get_opt(NAME)).await?;
        Ok(found.as_ref().map(version))
    }

    /// Replaces the memory that has the given version, and returns the new version. If the given version is
    /// `None`, the memory is created, which fails if there already is one. If the ConfigMap would be too
    /// large, the largest parts are left out. Back-offs, and the count that limits removals, are always
    /// stored.
    ///
    /// # Errors
    /// Returns [`super::ErrorKind::Conflict`] or [`super::ErrorKind::AlreadyExists`] if another client has
    /// written in the meantime, or another error if the call fails.
    #[boxed]
    pub async fn store_memory(
        &self,
        memory: &Memory,
        version: Option<&MemoryVersion>,
    ) -> Result<MemoryVersion, Error> {
        match self.store_text(memory, version).await {
            Err(error) if error.kind() == ErrorKind::Invalid => {
                let least = without_the_largest(memory);
                let stored = self.store_text(&least, version).await?;
                tracing::warn!(
                    config_map = NAME,
                    %error,
                    "the API server refused the full state; stored the state without past decisions and \
                        without the devices of the pools' nodes"
                );
                Ok(stored)
            }
            outcome => outcome,
        }
    }

    async fn store_text(
        &self,
        memory: &Memory,
        version: Option<&MemoryVersion>,
    ) -> Result<MemoryVersion, Error> {
        let action = "store the state";
        let mut data = BTreeMap::from([(KEY.to_owned(), json(action, memory)?)]);
        data.extend(version.map(|version| version.others.clone()).unwrap_or_default());
        self.write(action, data, version.map(|version| version.resource_version.clone())).await
    }

    /// The pause, if the pause switch is on. A value that cannot be parsed is used as the reason for the
    /// pause.
    ///
    /// # Errors
    /// Returns an error if the call fails.
    #[boxed]
    pub async fn pause(&self) -> Result<Option<Pause>, Error> {
        Ok(self.orders().await?.0)
    }

    /// The pause, if the pause switch is on, and whether a retry order is stored.
    ///
    /// # Errors
    /// Returns an error if the call fails.
    #[boxed]
    pub async fn orders(&self) -> Result<(Option<Pause>, bool), Error> {
        let found = self.call("read the `paused` switch", self.config_maps().get_opt(NAME)).await?;
        let mut data = found.and_then(|map| map.data).unwrap_or_default();
        let pause = data.remove(PAUSED).map(|text| {
            let by_hand = |_| Pause { reason: text.trim().to_owned(), ..Pause::default() };
            serde_json::from_str(&text).unwrap_or_else(by_hand)
        });
        Ok((pause, data.contains_key(RETRY.0)))
    }

    /// Turns the pause switch on or off. This is an operator's order, so the instance that writes it need not
    /// hold the lease.
    ///
    /// # Errors
    /// Returns an error if the call fails, or other clients' writes keep conflicting.
    #[boxed]
    pub async fn set_pause(&self, pause: Option<&Pause>) -> Result<(), Error> {
        let action = "set the `paused` switch";
        let text = pause.map(|pause| json(action, pause)).transpose()?;
        self.edit(action, |data| {
            let before = match &text {
                Some(text) => data.insert(PAUSED.to_owned(), text.clone()),
                None => data.remove(PAUSED),
            };
            Ok(before != text)
        })
        .await
    }

    /// Stores an operator's order to retry something, which the leader carries out. The instance that writes
    /// the order need not hold the lease. An order that is already stored is not stored again.
    ///
    /// # Errors
    /// Returns an error if the call fails, other clients' writes keep conflicting, or too many orders are
    /// stored already.
    #[boxed]
    pub async fn ask_retry(&self, retry: &Retry) -> Result<(), Error> {
        let action = "store the retry order";
        self.edit(action, |data| {
            let mut all = retries(data.get(RETRY.0));
            if all.contains(retry) {
                return Ok(false);
            }
            if all.len() >= RETRY.1 {
                let reason =
                    format!("the leader has not fetched the last {} orders yet; try again later", all.len());
                return Err(Error::Unusable { action: action.to_owned(), reason });
            }
            all.push(retry.clone());
            data.insert(RETRY.0.to_owned(), json(action, &all)?);
            Ok(true)
        })
        .await
    }

    /// Removes the stored retry orders, and returns them.
    ///
    /// # Errors
    /// Returns an error if the call fails, or other clients' writes keep conflicting.
    #[boxed]
    pub async fn take_retries(&self) -> Result<Vec<Retry>, Error> {
        let mut taken = Vec::new();
        self.edit("fetch the retry orders", |data| {
            let text = data.remove(RETRY.0);
            taken = retries(text.as_ref());
            Ok(text.is_some())
        })
        .await?;
        Ok(taken)
    }

    /// Changes the stored data, and retries on conflicts. If `change` returns false, nothing is written.
    async fn edit(
        &self,
        action: &str,
        mut change: impl FnMut(&mut BTreeMap<String, String>) -> Result<bool, Error>,
    ) -> Result<(), Error> {
        for _ in 0..ATTEMPTS {
            let found = self.call(action, self.config_maps().get_opt(NAME)).await?;
            let resource_version = found.as_ref().and_then(|map| map.metadata.resource_version.clone());
            let mut data = found.and_then(|map| map.data).unwrap_or_default();
            if !change(&mut data)? {
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
        Ok(MemoryVersion {
            resource_version: stored.metadata.resource_version.unwrap_or_default(),
            others: others(map.data.as_ref()),
        })
    }
}

/// The memory without its largest parts: devices, which the daemon learns again, and past decisions, which do
/// not affect new ones.
fn without_the_largest(memory: &Memory) -> Memory {
    let mut memory = memory.clone();
    memory.decisions.clear();
    for pool in memory.pools.values_mut() {
        pool.device_slices.clear();
        pool.declared_devices.clear();
    }
    memory
}

/// All stored data except the daemon's memory.
fn others(data: Option<&BTreeMap<String, String>>) -> BTreeMap<String, String> {
    let mut others = data.cloned().unwrap_or_default();
    others.remove(KEY);
    others
}

fn json(action: &str, value: &impl serde::Serialize) -> Result<String, Error> {
    serde_json::to_string(value)
        .map_err(|source| Error::Malformed { action: action.to_owned(), source: Box::new(source) })
}

/// The stored retry orders. A value written by hand is the name of the host or pool to retry. An empty value
/// means all hosts and pools.
fn retries(text: Option<&String>) -> Vec<Retry> {
    let by_hand = |text: &str| {
        let name = Some(text.trim().to_owned()).filter(|name| !name.is_empty());
        vec![Retry { name, ..Retry::default() }]
    };
    text.map(|text| serde_json::from_str(text).unwrap_or_else(|_| by_hand(text))).unwrap_or_default()
}

fn version(map: &ConfigMap) -> MemoryVersion {
    MemoryVersion {
        resource_version: map.metadata.resource_version.clone().unwrap_or_default(),
        others: others(map.data.as_ref()),
    }
}
