//! Functions that read fields of Proxmox VE and Kubernetes objects.

use serde_json::Value;
use world::proxmox::VmView;

/// Whether a record's machine is kept warm and has not been asked to join.
pub fn is_kept(record: &Value) -> bool {
    record["intent"]["kind"] == "create" && !record["warm"].is_null()
}

/// The VMID in a record.
pub fn vmid(record: &Value) -> Option<u32> {
    record["slot"]["vmid"].as_u64()?.try_into().ok()
}

/// The VMID of the new VM in the body of a clone request.
pub fn newid(body: &[u8]) -> Option<u32> {
    let text = String::from_utf8_lossy(body);
    text.split('&').find_map(|pair| pair.strip_prefix("newid=")?.parse().ok())
}

/// `metadata.name`.
pub fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// Whether a Node is Ready.
pub fn is_ready(node: &Value) -> bool {
    let conditions = node["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|one| one["type"] == "Ready" && one["status"] == "True")
}

/// The SMBIOS uuid of a VM, in lower case.
pub fn uuid(vm: &VmView) -> Option<String> {
    let text = vm.config.get("smbios1")?;
    Some(text.split(',').find_map(|part| part.strip_prefix("uuid="))?.to_lowercase())
}
