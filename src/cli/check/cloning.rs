//! The rights that a token needs to clone a template and configure the clone. Proxmox VE checks them for
//! every device and option of the template, even if the clone's device or option is replaced later.

use std::collections::BTreeSet;

use super::findings::Line;
use super::proxmox_view::Pve;
use super::template::{self, Need};
use machines::Usable;
use proxmox::{Drive, VmConfig};
use settings::{CloneKind, CloudInit, Pool};

/// The networks of the template that the token has no right to use, except those in `looked_at`, which
/// another check covers.
pub(super) async fn networks(
    pve: &Pve,
    usable: &Usable,
    vm: &VmConfig,
    looked_at: &BTreeSet<(String, Option<u16>)>,
) -> Vec<Line> {
    let mut wrong = Vec::new();
    for on in vm.bridges() {
        let vlans = on.vlans.into_iter().filter(|vlan| !looked_at.contains(&(on.bridge.to_owned(), *vlan)));
        let line = |line: Line| {
            let (lacks, device) = (&line.message, on.device);
            let message = format!(
                "{lacks}: to clone the template, Proxmox VE requires this right for the template's \
                    {device}, even if the clone uses a different network"
            );
            Line { message, ..line }
        };
        wrong.extend(unusable(pve, usable, on.bridge, vlans).await.into_iter().map(line));
    }
    wrong
}

/// The rights that cloning needs for everything in the template except its networks.
pub(super) fn needs(pve: &Pve, pool: &Pool, vm: &VmConfig) -> Vec<Need> {
    let mut needs: Vec<Need> = Vec::new();
    if pool.clone == CloneKind::Linked || pool.storages.is_empty() {
        for storage in vm.disks().map(Drive::storage).collect::<BTreeSet<_>>() {
            needs.push((format!("/storage/{storage}"), vec!["Datastore.AllocateSpace", "Datastore.Audit"]));
        }
    }
    if pool.cloud_init != CloudInit::Drive && vm.cloudinit_drive().is_some() {
        // Replacing or removing the drive requires the same rights as adding one.
        needs.push((pve.machines_path(), vec!["VM.Config.Cloudinit", "VM.Config.CDROM"]));
    }
    let asked = vm.asked_when_cloned(&pve.version);
    needs.extend(asked.into_iter().map(|one| (one.path, vec![one.privilege])));
    needs
}

/// The paths of a bridge and its VLANs on which the token lacks SDN.Use. If there are many VLANs, only the
/// first ones are checked.
async fn unusable(
    pve: &Pve,
    usable: &Usable,
    bridge: &str,
    vlans: impl Iterator<Item = Option<u16>>,
) -> Vec<Line> {
    const MOST: usize = 4;
    // An SDN network (VNet) is listed only if the token has the right to use it.
    let listed = pve.bridges(&usable.host).await;
    if listed.is_ok_and(|all| all.iter().any(|one| one.name == bridge && one.vnet)) {
        return Vec::new();
    }
    let zone = format!("/sdn/zones/localnetwork/{bridge}");
    let path = |vlan: Option<u16>| vlan.map_or_else(|| zone.clone(), |vlan| format!("{zone}/{vlan}"));
    let needs = vlans.take(MOST).map(|vlan| -> Need { (path(vlan), vec!["SDN.Use"]) });
    template::lacking(pve, needs.collect()).await
}
