//! The options for creating a VM without a template. The other options are set later.

use std::collections::BTreeMap;

use super::context::Context;
use super::desired_vm_config;
use model::Record;
use model::machine::STORED_ON;
use proxmox::{Error, Upid, VmConfig};
use settings::{Bootstrap, Pool};

/// Requests the VM. The VM's description contains the mark from the moment the VM becomes visible.
///
/// # Errors
/// Returns [`proxmox::Kind::Exists`] if the VMID is taken, as for a clone.
pub(super) async fn send(
    ctx: &Context,
    record: &Record,
    pool: &Pool,
    description: String,
) -> Result<Upid, Error> {
    let agent = ctx.config.bootstrap_of(pool).is_none_or(Bootstrap::needs_agent);
    let options = options(record, pool, description, agent);
    let resource_pool = ctx.config.proxmox.as_ref().and_then(|proxmox| proxmox.resource_pool.as_deref());
    ctx.proxmox.create_vm(&record.host, record.slot.vmid, &options, resource_pool).await
}

/// The options that the VM is created with: its name, mark and size, the disk, the network device and the
/// boot order. The other settings are applied afterwards, as for a clone.
fn options(record: &Record, pool: &Pool, description: String, agent: bool) -> BTreeMap<String, String> {
    let mut options = BTreeMap::from([
        ("name".to_owned(), record.name.clone()),
        ("description".to_owned(), description),
        ("cores".to_owned(), record.cores.to_string()),
        ("memory".to_owned(), (record.memory >> 20).to_string()),
        ("ostype".to_owned(), "l26".to_owned()),
        ("agent".to_owned(), format!("enabled={}", u8::from(agent))),
    ]);
    let device = pool.devices.first();
    options.extend(device.and_then(|device| desired_vm_config::network(0, device, &VmConfig::default())));
    // The network comes first in the boot order, because the new disk is empty.
    let mut order = "order=net0".to_owned();
    let storage = record.made_of.get(STORED_ON).or_else(|| pool.storages.first());
    if let (Some(disk), Some(storage)) = (&pool.disk, storage) {
        order.extend([";", disk.device.as_str()]);
        options.insert(disk.device.clone(), format!("{storage}:{},backup=0,discard=on", disk.bytes >> 30));
    }
    options.insert("boot".to_owned(), order);
    options
}
