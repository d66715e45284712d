//! Converts Kubernetes objects to the model's plain data. Keeps only the data that decisions use.
//!
//! The conversion fills in the same defaults as the API server, so that a hand-written object has the same
//! meaning as a stored one. Each file converts one family of objects.

mod buffer;
mod devices;
mod gang;
mod node;
mod pod;
mod requests;
mod selector;
mod storage;
mod workload;

pub use buffer::{capacity_buffer, pod_template, provisioning_request};
pub use devices::{device_class, device_taint_rule, resource_claim, resource_slice};
pub use gang::pod_group;
pub use node::{csi_node, namespace, node};
pub use pod::{daemon_tolerations, pod, pod_of_daemon_set};
pub use storage::{attachment, claim, csi_driver, storage_capacity, storage_class, volume};
pub use workload::{
    budget, daemon_set, deployment, job, priority_class, replica_set, replication_controller, stateful_set,
};

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use thiserror::Error;

use model::quantity::{self, QuantityError};
use model::resources::Resources;
use model::selector::Labels;
use model::snapshot::KNOWN_ANNOTATIONS;

/// Why an object cannot be read.
#[derive(Debug, Error)]
pub enum ConvertError {
    /// A field's text is not a quantity.
    #[error("`{field}` is not a quantity")]
    Quantity {
        /// The field's path in the object.
        field: String,
        /// Why the text is not a quantity.
        #[source]
        source: QuantityError,
    },
    /// A field has a value that Kubernetes does not know.
    #[error("`{field}` has the unknown value `{value}`")]
    Word {
        /// The field's path in the object.
        field: String,
        /// The value.
        value: String,
    },
}

fn labels(map: Option<&BTreeMap<String, String>>) -> Labels {
    map.cloned().unwrap_or_default()
}

fn known_annotations(meta: &ObjectMeta) -> Labels {
    let Some(all) = &meta.annotations else { return Labels::new() };
    all.iter()
        .filter(|(key, _)| KNOWN_ANNOTATIONS.contains(&key.as_str()))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

fn time(time: Option<&Time>) -> Option<Timestamp> {
    time.map(|time| time.0)
}

fn text(text: Option<&String>) -> String {
    text.cloned().unwrap_or_default()
}

fn units(field: &str, quantity: &Quantity) -> Result<i64, ConvertError> {
    quantity::units(&quantity.0).map_err(|source| ConvertError::Quantity { field: field.to_owned(), source })
}

/// Like [`units`], for fields in which Kubernetes compares quantities exactly.
fn limited(field: &str, quantity: &Quantity) -> Result<i64, ConvertError> {
    quantity::limited(&quantity.0)
        .map_err(|source| ConvertError::Quantity { field: field.to_owned(), source })
}

/// Converts quantities, listed by resource name, to the model's units. Negative amounts become zero: the API
/// server refuses them (`ValidateResourceQuantityValue`), but a file may contain them. Large amounts are
/// clamped, so that subtracting used from offered amounts cannot overflow.
fn resources(field: &str, list: Option<&BTreeMap<String, Quantity>>) -> Result<Resources, ConvertError> {
    let mut sum = Resources::default();
    for (name, amount) in list.into_iter().flatten() {
        let wrong = |source| ConvertError::Quantity { field: format!("{field}.{name}"), source };
        if name == "cpu" {
            sum.cpu_milli = quantity::milli(&amount.0).map_err(wrong)?.max(0);
            continue;
        }
        let value = quantity::units(&amount.0).map_err(wrong)?.max(0);
        match name.as_str() {
            "memory" => sum.memory = value,
            "ephemeral-storage" => sum.ephemeral_storage = value,
            "pods" => sum.pods = value,
            _ => {
                sum.other.insert(name.clone(), value);
            }
        }
    }
    Ok(sum)
}
