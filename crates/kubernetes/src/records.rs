//! Machine records, each of which is stored in a ConfigMap in the daemon's namespace. Creating a record
//! claims the machine's slot.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, ListParams, ObjectMeta, PostParams, Preconditions};
use runtime::boxed;
use thiserror::Error;

use super::cluster::Cluster;
use super::error::{Error, ErrorKind};
use super::{MANAGED_BY, MANAGED_BY_LABEL};
use model::machine::{Intent, Pinned};
use model::{PoolName, Record, Vmid};

/// The key of the record in the ConfigMap's data.
const KEY: &str = "record";
/// The label with the pool's name.
const POOL: &str = "pve-autoscaler/pool";
/// The label with the host on which a machine waits for dedicated CPUs.
const PINS_ON: &str = "pve-autoscaler/pins-on";
/// The label with the machine's id. The name of the ConfigMap does not contain the id, because the next
/// machine in the slot uses the same name.
const MACHINE: &str = "pve-autoscaler/machine";
/// The number of records in one page of a list.
const PAGE: u32 = 200;

/// A record as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versioned<T> {
    /// What is stored.
    pub record: T,
    /// The version that a change must be based on.
    pub resource_version: String,
    /// The uid of the ConfigMap that contains the record.
    pub uid: String,
}

/// A ConfigMap that is labeled as a record but contains no readable record. Its slot must not be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableRecord {
    /// The ConfigMap's name.
    pub name: String,
    /// The VMID, if the ConfigMap's name contains one.
    pub vmid: Option<Vmid>,
    /// Why the record is unreadable.
    pub reason: String,
}

/// All records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Records {
    /// Readable records, ordered by the names of their ConfigMaps.
    pub readable: Vec<Versioned<Record>>,
    /// Unreadable records.
    pub unreadable: Vec<UnreadableRecord>,
}

/// Why a record could not be written.
#[derive(Debug, Error)]
pub enum RecordError {
    /// Another machine occupies the slot.
    #[error("the slot of VMID {vmid} in pool `{pool}` is taken by another machine")]
    SlotTaken {
        /// The pool.
        pool: PoolName,
        /// The VMID.
        vmid: Vmid,
    },
    /// The record was changed, deleted or replaced by another machine's record since it was read.
    #[error("the record of `{name}` was changed by another client")]
    Changed {
        /// The machine's name.
        name: String,
    },
    /// The call failed.
    #[error("the record of `{name}` could not be written")]
    Kubernetes {
        /// The machine's name.
        name: String,
        /// How it failed.
        #[source]
        source: Error,
    },
}

impl Cluster {
    /// All records.
    ///
    /// # Errors
    /// Returns an error if the list cannot be read. An unreadable record is not an error; it is listed
    /// separately.
    #[boxed]
    pub async fn list_records(&self) -> Result<Records, Error> {
        let selector = format!("{MANAGED_BY_LABEL}={MANAGED_BY},{POOL}");
        let mut page = ListParams::default().labels(&selector).limit(PAGE);
        let mut records = Records::default();
        loop {
            let list = self.call("list the machine records", self.config_maps().list(&page)).await?;
            for map in list.items {
                match read(map) {
                    Ok(record) => records.readable.push(record),
                    Err(unreadable) => records.unreadable.push(unreadable),
                }
            }
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => return Ok(records),
            }
        }
    }

    /// The records of machines on this host that wait for dedicated CPUs. The list is always short, so it can
    /// be read often.
    ///
    /// # Errors
    /// Returns an error if the list cannot be read. Unreadable records are left out, so that no machine waits
    /// because of them.
    #[boxed]
    pub async fn awaiting_cpus(&self, host: &str) -> Result<Vec<Record>, Error> {
        let selector = format!("{MANAGED_BY_LABEL}={MANAGED_BY},{PINS_ON}={host}");
        let page = ListParams::default().labels(&selector).limit(PAGE);
        let list =
            self.call("list the machines that are waiting for CPUs", self.config_maps().list(&page)).await?;
        let records = list.items.into_iter().filter_map(|map| Some(read(map).ok()?.record));
        Ok(records.filter(|record| record.host == host && awaits_cpus(record)).collect())
    }

    /// Creates a machine's record, which claims its slot. Repeating the call for the same machine has no
    /// effect.
    ///
    /// # Errors
    /// Returns [`RecordError::SlotTaken`] if another machine occupies the slot, or another error if the call
    /// fails. If [`Error::outcome_unknown`] returns true for that error, the record may have been created.
    #[boxed]
    pub async fn create_record(&self, record: &Record) -> Result<Versioned<Record>, RecordError> {
        let failed = |source| RecordError::Kubernetes { name: record.name.clone(), source };
        let map = write(record, None).map_err(failed)?;
        let action = format!("create the record of machine `{}`", record.name);
        match self.call(action, self.config_maps().create(&PostParams::default(), &map)).await {
            Ok(stored) => Ok(versioned(record.clone(), stored.metadata)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let taken = || RecordError::SlotTaken { pool: record.pool.clone(), vmid: record.slot.vmid };
                let stored = self.record(&name(record)).await.map_err(failed)?.ok_or_else(taken)?;
                if stored.record.id == record.id { Ok(stored) } else { Err(taken()) }
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// Writes a changed record, but only if the stored record still has the version that the change is based
    /// on.
    ///
    /// A conflict is not an error if the same change is already stored, because then only the response to an
    /// earlier write was lost. If no other writer caused the conflict, it is reported as a failed call, which
    /// can be retried.
    ///
    /// # Errors
    /// Returns [`RecordError::Changed`] if another record or version is stored, or another error if the call
    /// fails.
    #[boxed]
    pub async fn update_record(&self, record: &mut Versioned<Record>) -> Result<(), RecordError> {
        let who = record.record.name.clone();
        let failed = |source| RecordError::Kubernetes { name: who.clone(), source };
        let map = write(&record.record, Some((&record.resource_version, &record.uid))).map_err(failed)?;
        let action = format!("write the record of machine `{who}`");
        let key = name(&record.record);
        match self.call(action, self.config_maps().replace(&key, &PostParams::default(), &map)).await {
            Ok(stored) => {
                record.resource_version = stored.metadata.resource_version.unwrap_or_default();
                Ok(())
            }
            Err(error) if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::NotFound) => {
                match self.record(&key).await.map_err(failed)? {
                    Some(stored) if stored.uid == record.uid && stored.record == record.record => {
                        record.resource_version = stored.resource_version;
                        Ok(())
                    }
                    // The record has not changed, so no other writer caused the conflict.
                    Some(stored)
                        if stored.uid == record.uid && stored.resource_version == record.resource_version =>
                    {
                        Err(failed(error))
                    }
                    _ => Err(RecordError::Changed { name: who }),
                }
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// Deletes a record, which frees its slot. Succeeds if the record is already gone.
    ///
    /// # Errors
    /// Returns [`RecordError::Changed`] if the stored record is newer or belongs to another machine, or
    /// another error if the call fails.
    #[boxed]
    pub async fn delete_record(&self, record: &Versioned<Record>) -> Result<(), RecordError> {
        let options = DeleteParams::default().preconditions(Preconditions {
            uid: Some(record.uid.clone()),
            resource_version: Some(record.resource_version.clone()),
        });
        let who = &record.record.name;
        let action = format!("delete the record of machine `{who}`");
        match self.call(action, self.config_maps().delete(&name(&record.record), &options)).await {
            Ok(_) => Ok(()),
            Err(error) => match error.kind() {
                ErrorKind::NotFound => Ok(()),
                ErrorKind::Conflict => Err(RecordError::Changed { name: who.clone() }),
                _ => Err(RecordError::Kubernetes { name: who.clone(), source: error }),
            },
        }
    }

    /// Reads a record by the name of its ConfigMap. Returns `None` if the record does not exist or is
    /// unreadable.
    async fn record(&self, name: &str) -> Result<Option<Versioned<Record>>, Error> {
        let found = self.call(format!("read the record `{name}`"), self.config_maps().get_opt(name)).await?;
        Ok(found.and_then(|map| read(map).ok()))
    }

    pub(super) fn config_maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }
}

/// The name of the ConfigMap that keeps a record.
pub fn name(record: &Record) -> String {
    format!("machine-{}-{}", record.pool, record.slot.vmid)
}

/// Returns the command with which an administrator deletes this machine's record. If another machine occupies
/// the slot by the time the command is run, the command does not match that machine's record.
pub fn command_to_drop(namespace: &str, record: &Record) -> String {
    format!("kubectl -n {namespace} delete configmap -l {MACHINE}={}", record.id)
}

fn awaits_cpus(record: &Record) -> bool {
    record.pinned == Some(Pinned::Awaited) && record.intent == Intent::Create
}

fn versioned(record: Record, meta: ObjectMeta) -> Versioned<Record> {
    Versioned {
        record,
        resource_version: meta.resource_version.unwrap_or_default(),
        uid: meta.uid.unwrap_or_default(),
    }
}

fn read(map: ConfigMap) -> Result<Versioned<Record>, UnreadableRecord> {
    let text = map.data.as_ref().and_then(|data| data.get(KEY));
    let name_of_map = map.metadata.name.clone().unwrap_or_default();
    let wrong = |reason: String| UnreadableRecord {
        vmid: name_of_map.rsplit_once('-').and_then(|(_, number)| number.parse().ok()),
        name: name_of_map.clone(),
        reason,
    };
    let text = text.ok_or_else(|| wrong(format!("it has no key `{KEY}`")))?;
    let record: Record = serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
    if name(&record) == name_of_map {
        Ok(versioned(record, map.metadata))
    } else {
        Err(wrong(format!("it contains the record of `{}`", name(&record))))
    }
}

fn write(record: &Record, stored: Option<(&str, &str)>) -> Result<ConfigMap, Error> {
    let text = serde_json::to_string(record).map_err(|source| Error::Malformed {
        action: "serialize a record".to_owned(),
        source: Box::new(source),
    })?;
    let mut labels = BTreeMap::from([
        (MANAGED_BY_LABEL.to_owned(), MANAGED_BY.to_owned()),
        (POOL.to_owned(), record.pool.to_string()),
        (MACHINE.to_owned(), record.id.to_string()),
    ]);
    if awaits_cpus(record) {
        labels.insert(PINS_ON.to_owned(), record.host.clone());
    }
    Ok(ConfigMap {
        metadata: ObjectMeta {
            name: Some(name(record)),
            labels: Some(labels),
            resource_version: stored.map(|(version, _)| version.to_owned()),
            uid: stored.map(|(_, uid)| uid.to_owned()),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([(KEY.to_owned(), text)])),
        ..ConfigMap::default()
    })
}
