//! The Proxmox VE privileges that are needed to create a template.

use std::collections::BTreeSet;

use super::survey::Place;
use proxmox::{Client, Error};
use settings::Template;

const ON_TEMPLATES: [&str; 10] = [
    "VM.Allocate",
    "VM.Audit",
    "VM.Config.CDROM",
    "VM.Config.CPU",
    "VM.Config.Cloudinit",
    "VM.Config.Disk",
    "VM.Config.HWType",
    "VM.Config.Memory",
    "VM.Config.Network",
    "VM.Config.Options",
];

/// The privileges that the token lacks for creating this template, with their paths.
///
/// # Errors
/// Returns an error if the privileges cannot be read.
pub async fn missing(
    client: &Client,
    template: &Template,
    places: &[Place],
) -> Result<Vec<(String, Vec<&'static str>)>, Error> {
    let machines = template
        .resource_pool
        .as_ref()
        .map_or_else(|| format!("/vms/{}", template.vmids.start()), |pool| format!("/pool/{pool}"));
    let vlan = template.vlan.map(|vlan| format!("/{vlan}")).unwrap_or_default();
    let mut wanted: Vec<(String, &[&'static str])> = vec![
        (machines, &ON_TEMPLATES),
        (format!("/storage/{}", template.storage), &["Datastore.AllocateSpace", "Datastore.Audit"]),
        (format!("/storage/{}", template.image.storage), &["Datastore.AllocateTemplate", "Datastore.Audit"]),
        (format!("/sdn/zones/localnetwork/{}{vlan}", template.bridge), &["SDN.Use"]),
        ("/".to_owned(), &["Sys.Audit"]),
    ];
    let everywhere = client.privileges_on("/").await?;
    // Instead of Sys.AccessNetwork on each host, Proxmox VE also accepts Sys.Modify on `/`. Sys.Modify allows
    // far more, so it is never reported as missing.
    if !everywhere.contains("Sys.Modify") {
        let hosts: BTreeSet<&String> = places.iter().map(|place| &place.host).collect();
        wanted.extend(
            hosts.into_iter().map(|host| -> (String, &[&'static str]) {
                (format!("/nodes/{host}"), &["Sys.AccessNetwork"])
            }),
        );
    }
    let mut missing = Vec::new();
    for (path, privileges) in wanted {
        let has = client.privileges_on(&path).await?;
        let lacks: Vec<&'static str> = privileges.iter().copied().filter(|one| !has.contains(*one)).collect();
        if !lacks.is_empty() {
            missing.push((path, lacks));
        }
    }
    Ok(missing)
}
