//! Determines to which machine a VM belongs. The daemon does nothing to a VM unless the VM's own
//! configuration has just proved that the VM belongs to the record.

use std::time::Duration;

use runtime::boxed;
use tokio::time::Instant;

use super::context::Context;
use super::promise::Promise;
use super::step_error::{BackoffTarget, StepError};
use super::warm_vm::{ONBOOT, with_host};
use model::Record;
use proxmox::marker::{Description, Marker};
use proxmox::{Client, Error, Kind, VmConfig};

/// How long a proof that a VM is ours is valid. After that, the proof is repeated before anything is done to
/// the VM.
const FRESH: Duration = Duration::from_secs(2);
/// The maximum number of times that the proof is requested if the answers are too slow. After the last
/// attempt, even a slow answer is accepted.
pub(super) const TRIES: u32 = 3;

/// The Kubernetes cluster that the records belong to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// The id of the Kubernetes cluster, from the configuration.
    pub cluster: String,
    /// The uid of the Kubernetes cluster, once it is known.
    pub kubernetes: Option<String>,
}

/// What the token can see at the VMID of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sight {
    /// The record's machine, proved by its mark or its SMBIOS uuid.
    Ours(Box<VmConfig>),
    /// An unmanaged VM.
    Foreign(String),
    /// A clone that is being created. Its owner is not known yet.
    BeingCloned,
    /// The remains of a VM whose destruction is running or was interrupted. The remaining configuration
    /// contains a lock, but does not identify the owner.
    BeingDestroyed,
    /// Nothing is visible: the host has no VM with this VMID, or the token cannot see it because it is in
    /// another pool.
    Absent,
}

impl Owner {
    /// Whether a mark belongs to another Kubernetes cluster.
    pub fn is_not(&self, marker: &Marker) -> bool {
        marker.cluster != self.cluster || marker.is_of_another(self.kubernetes.as_deref())
    }
}

/// The resources that a running VM uses on its host.
pub(super) fn promise(config: &VmConfig) -> Promise {
    Promise { cores: config.vcpus().unwrap_or(0), memory: config.memory().unwrap_or(0) }
}

/// Whether a machine's VM is running or is about to run, according to its `onboot` option. For a VM that is
/// kept stopped, `onboot` is off.
pub(super) fn starts(config: &VmConfig) -> bool {
    config.get(ONBOOT) == Some(with_host(true)) && !config.is_template()
}

/// The mark of a machine's VM, and the resources that the VM uses on its host. `None` if the VM has no mark,
/// is a template, or is kept stopped.
pub fn promise_of(config: &VmConfig) -> Option<(Marker, Promise)> {
    let Description::Ours(marker) = config.owner() else { return None };
    starts(config).then(|| (marker, promise(config)))
}

/// Finds out what has the record's VMID on the record's host.
///
/// # Errors
/// Returns an error if the VM could not be read. Such an error proves nothing about the VM's owner.
#[boxed]
pub async fn look(proxmox: &Client, owner: &Owner, record: &Record) -> Result<Sight, Error> {
    match proxmox.config(&record.host, record.slot.vmid).await {
        Ok(config) => Ok(judge(owner, record, config)),
        // A token that only has rights on a resource pool cannot access the clone until it is complete.
        Err(error) if matches!(error.kind, Kind::NotFound | Kind::Forbidden) => Ok(Sight::Absent),
        Err(error) => Err(error),
    }
}

/// Whether a VM with this configuration is the record's machine.
pub fn is_ours(owner: &Owner, record: &Record, config: &VmConfig) -> bool {
    matches!(judge(owner, record, config.clone()), Sight::Ours(_))
}

/// The VM's configuration, if the VM is still ours. The query is repeated if the answer was slow, because a
/// slow answer may be outdated.
pub(super) async fn ours(ctx: &Context, record: &Record) -> Result<VmConfig, StepError> {
    let mut tries = 0;
    loop {
        tries += 1;
        let asked = Instant::now();
        match look(&ctx.proxmox, &ctx.owner(), record).await? {
            Sight::Ours(_) if !is_fresh(asked) && tries < TRIES => {}
            Sight::Ours(config) => return Ok(*config),
            Sight::Foreign(what) => return Err(StepError::Foreign { vmid: record.slot.vmid, what }),
            Sight::BeingCloned | Sight::BeingDestroyed | Sight::Absent => {
                let what = "the VM has disappeared".to_owned();
                return Err(StepError::Failed { what, blame: BackoffTarget::Other });
            }
        }
    }
}

/// Proves again that the VM is ours, if the proof that was requested at `asked` is too old. The next call for
/// the VM must use the returned client: it has a reserved place in the host's queue, so that the call does
/// not have to wait.
pub(super) async fn still_ours(ctx: &Context, record: &Record, asked: Instant) -> Result<Client, StepError> {
    let placed = ctx.proxmox.in_line(&record.host).await;
    if !is_fresh(asked) {
        ours(ctx, record).await?;
    }
    Ok(placed)
}

/// Whether the answer to a query that was sent at `asked` is still recent enough to rely on.
pub(super) fn is_fresh(asked: Instant) -> bool {
    asked.elapsed() < FRESH
}

fn judge(owner: &Owner, record: &Record, config: VmConfig) -> Sight {
    // An administrator who makes a machine's VM a template wants to keep it. The VM no longer runs, and
    // destroying it would destroy the source of future clones.
    if config.is_template() {
        return Sight::Foreign("it was made a template".to_owned());
    }
    let same_uuid = record.smbios_uuid.is_some() && config.smbios_uuid() == record.smbios_uuid;
    match config.owner() {
        // If a record is copied to another cluster, its VM does not become that cluster's.
        Description::Ours(marker) if marker.is_of_another(owner.kubernetes.as_deref()) => {
            Sight::Foreign(format!(
                "it is machine {} of another Kubernetes cluster, whose id is `{}`",
                marker.machine, marker.cluster
            ))
        }
        Description::Ours(marker) if marker.machine == record.id && marker.cluster == owner.cluster => {
            Sight::Ours(Box::new(config))
        }
        // A mark without a uid still has the cluster's configured id, which decides here. Otherwise, a copy
        // of the record could give another cluster control of the VM.
        Description::Ours(marker) if marker.cluster != owner.cluster => {
            Sight::Foreign(format!("it is machine {} of cluster `{}`", marker.machine, marker.cluster))
        }
        // An administrator may have rewritten the notes. The uuid was recorded while the VM had its mark.
        _ if same_uuid => Sight::Ours(Box::new(config)),
        Description::Ours(marker) => {
            Sight::Foreign(format!("it is machine {} of cluster `{}`", marker.machine, marker.cluster))
        }
        Description::BeingCloned => Sight::BeingCloned,
        Description::BeingDestroyed => Sight::BeingDestroyed,
        Description::Foreign => Sight::Foreign(format!(
            "it is called `{}` and does not bear the machine's mark",
            config.get("name").unwrap_or("?")
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proxmox::marker::Marker;

    const UUID: &str = "8d7c0a6e-0000-4000-8000-000000000001";

    fn seen(notes: &str, kubernetes: Option<&str>) -> Sight {
        let record = Record { smbios_uuid: Some(UUID.to_owned()), ..Record::example() };
        let smbios = format!("uuid={UUID}");
        let options = [("smbios1", smbios.as_str()), ("description", notes)];
        let config = options.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let owner = Owner { cluster: "home".to_owned(), kubernetes: kubernetes.map(ToOwned::to_owned) };
        judge(&owner, &record, config)
    }

    fn mark(cluster: &str, kubernetes: Option<&str>) -> String {
        let marker = Marker {
            cluster: cluster.to_owned(),
            region: None,
            pool: "workers".into(),
            machine: Record::example().id,
            kubernetes: kubernetes.map(ToOwned::to_owned),
        };
        marker.describe("")
    }

    #[test]
    fn a_record_that_was_copied_into_another_cluster_does_not_make_its_vm_that_clusters() {
        let (one, other) = (Some("uid-1"), Some("uid-2"));
        for (notes, is_ours) in [
            (mark("home", one), true),
            (mark("home", None), true),
            ("notes that an administrator wrote".to_owned(), true),
            (mark("home", other), false),
            (mark("shop", other), false),
            // A mark without a cluster uid.
            (mark("shop", None), false),
        ] {
            assert_eq!(matches!(seen(&notes, one), Sight::Ours(_)), is_ours, "{notes}");
        }
    }
}
