//! Disks of VMs that are no more: told in the log when they are left behind, for what is found at the end tells nothing of how it came.

use std::collections::BTreeSet;

use super::checker::Checker;

impl Checker {
    /// Tells of disks that neither a VM nor the record of one stands for any more.
    pub(super) fn look_at_disks(&self) {
        let alone = self.world.pve.volumes_without_vm();
        let ours = |vmid| self.world.pool_of(vmid).is_some() && self.record(vmid).is_none();
        let left: BTreeSet<String> =
            alone.into_iter().filter(|(vmid, _)| ours(*vmid)).map(|(_, volume)| volume).collect();
        let before = std::mem::replace(&mut self.inner().disks_left, left.clone());
        for volume in left.difference(&before) {
            self.log.say("disk", &format!("{volume} is left behind"));
        }
    }
}
