//! CSI drivers, their storage capacities, and the in-tree disks that they handle in place of Kubernetes' own
//! code.

use serde::{Deserialize, Serialize};

use super::selector::LabelSelector;

/// A CSIDriver, with the fields that kube-scheduler reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CsiDriver {
    /// Its name.
    pub name: String,
    /// `spec.storageCapacity`. If true, a volume is created for a node only if a [`StorageCapacity`] has room
    /// for it.
    pub storage_capacity: bool,
    /// `spec.preventPodSchedulingIfMissing`. If true, a pod with a volume of this driver is not scheduled to
    /// a node that lacks the driver.
    pub required_on_node: bool,
}

/// A CSIStorageCapacity: the storage space that certain nodes have for volumes of a class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorageCapacity {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The StorageClass.
    pub class: String,
    /// `nodeTopology`: selects the nodes. `None` matches no node, and an empty selector matches all nodes.
    pub nodes: Option<LabelSelector>,
    /// `capacity` in bytes.
    pub capacity: Option<i64>,
    /// `maximumVolumeSize` in bytes, which takes precedence over the capacity.
    pub maximum: Option<i64>,
}

impl StorageCapacity {
    /// Whether a volume of this many bytes can be created.
    pub fn holds(&self, bytes: i64) -> bool {
        self.maximum.or(self.capacity).is_some_and(|limit| limit >= bytes)
    }
}

/// The kinds of in-tree disks that a CSI driver handles in place of Kubernetes' own code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum InTreeKind {
    /// `awsElasticBlockStore`.
    AwsElasticBlockStore,
    /// `azureDisk`.
    AzureDisk,
    /// `cinder`.
    Cinder,
    /// `gcePersistentDisk`.
    GcePersistentDisk,
    /// `portworxVolume`.
    PortworxVolume,
}

impl InTreeKind {
    /// All kinds of in-tree disks that kube-scheduler converts. It does not convert Azure files or vSphere
    /// volumes.
    pub const ALL: [Self; 5] = [
        Self::AwsElasticBlockStore,
        Self::AzureDisk,
        Self::Cinder,
        Self::GcePersistentDisk,
        Self::PortworxVolume,
    ];

    /// The field of a volume's source that describes a disk of this kind.
    pub fn field(self) -> &'static str {
        match self {
            Self::AwsElasticBlockStore => "awsElasticBlockStore",
            Self::AzureDisk => "azureDisk",
            Self::Cinder => "cinder",
            Self::GcePersistentDisk => "gcePersistentDisk",
            Self::PortworxVolume => "portworxVolume",
        }
    }

    /// The kind of disk that this field of a volume's source describes.
    pub fn of_field(field: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.field() == field)
    }

    /// The field of the source that identifies the disk.
    pub fn identity_field(self) -> &'static str {
        match self {
            Self::AwsElasticBlockStore | Self::Cinder | Self::PortworxVolume => "volumeID",
            Self::AzureDisk => "diskURI",
            Self::GcePersistentDisk => "pdName",
        }
    }
}

/// An in-tree disk that a CSI driver handles in place of Kubernetes' own code.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct InTreeDisk {
    /// Its kind.
    pub kind: InTreeKind,
    /// What identifies it.
    pub identity: String,
    /// Whether this is an unmanaged Azure disk, which the driver does not support.
    pub unmanaged: bool,
}
