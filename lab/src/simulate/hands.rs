//! Actions that administrators and other clients perform on machines' VMs. Each action has its own Proxmox VE
//! task. Some actions are undone after a while, and some happen just when the daemon is about to change the
//! VM.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use stage::{Call, Side};
use tokio::time::Instant;
use world::proxmox::{Touch, VmView};

use super::checker::Checker;
use super::checker::objects::is_ready;
use super::drawn::{devices, seeds};
use super::log::Log;
use super::world::World;

/// The Proxmox VE user who performs the actions of administrators and other clients.
const WHO: &str = "root@pam";
/// The machines' resource pool.
const POOL: &str = "k8s-workers";
/// One in this many calls that change a VM coincides with another client's action on that VM.
const AT_A_CALL: u32 = 160;
/// The delay between the call and the other client's action, in milliseconds.
const SOON: std::ops::Range<u64> = 0..4000;
/// How long Proxmox VE waits for the lock of a VM, and the interval at which it tries again.
const LOCK: (Duration, Duration) = (Duration::from_secs(10), Duration::from_millis(200));
/// The time after which reversible actions are undone, in seconds.
const LASTS: std::ops::Range<u64> = 20..900;
/// How long a VM stays outside its resource pool, in seconds. During this time, the token cannot see the VM.
const HIDDEN: std::ops::Range<u64> = 20..150;

/// An action on a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// The VM is destroyed.
    Destroy,
    /// The VM loses its power.
    Stop,
    /// The VM's reset button is pressed.
    Reset,
    /// The VM is rolled back to a snapshot.
    RollBack,
    /// The VM is renamed.
    Rename,
    /// The VM is moved to another host.
    Migrate,
    /// The VM is converted to a template, and belongs to an administrator from then on.
    Template,
    /// The VM is protected from removal for a while.
    Protect,
    /// The VM is removed from its resource pool for a while.
    LeavePool,
    /// HA manages the VM, for a while or permanently.
    Manage,
}

impl Deed {
    /// All actions.
    pub const ALL: [Self; 10] = [
        Self::Destroy,
        Self::Stop,
        Self::Reset,
        Self::RollBack,
        Self::Rename,
        Self::Migrate,
        Self::Template,
        Self::Protect,
        Self::LeavePool,
        Self::Manage,
    ];

    /// Whether this action is only possible if the VM is not locked.
    fn needs_no_lock(self) -> bool {
        matches!(self, Self::Destroy | Self::RollBack | Self::Migrate | Self::Template | Self::Manage)
    }
}

/// A change to a VM that will be undone.
#[derive(Clone, Copy, Debug)]
enum Held {
    Protected(u32),
    Outside(u32),
    Managed(u32),
}

/// Performs actions for all clients other than the daemon. Clones share their state.
#[derive(Clone)]
pub struct Hands {
    world: World,
    log: Log,
    checker: Checker,
    held: Arc<Mutex<Vec<(Instant, Held)>>>,
    /// VMs that now belong to an administrator, who must remove them.
    kept: Arc<Mutex<Vec<u32>>>,
}

impl Hands {
    /// Starts with no actions to undo.
    pub fn new(world: &World, log: &Log, checker: &Checker) -> Self {
        let (world, log, checker) = (world.clone(), log.clone(), checker.clone());
        Self { world, log, checker, held: Arc::default(), kept: Arc::default() }
    }

    fn held(&self) -> MutexGuard<'_, Vec<(Instant, Held)>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// VMs that were converted to templates since the last call.
    pub fn kept(&self) -> Vec<u32> {
        std::mem::take(&mut *self.kept.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Performs the action on the VM, if Proxmox VE currently allows it.
    pub fn does(&self, deed: Deed, vmid: u32, random: &mut Rng, when: &str) {
        let pve = &self.world.pve;
        let Some(vm) = pve.vm(vmid).filter(|_| !self.checker.is_foreign(vmid)) else { return };
        let locked = vm.config.contains_key("lock") || pve.is_worked_on(vmid);
        if (deed.needs_no_lock() && locked) || !pve.is_online(&vm.node) || !pve.is_quorate() {
            return;
        }
        let until = Instant::now() + Duration::from_secs(random.u64(LASTS));
        let managed = deed == Deed::Manage && vm.running && is_movable(&vm) && self.serves(vmid);
        let touch = self.touch(deed, vmid, &vm, random);
        if touch.is_none() && !managed {
            return;
        }
        self.log.say("admin", &format!("{deed:?} VM {vmid}{when}"));
        match deed {
            Deed::Destroy => self.checker.deleted_by_hand(vmid),
            Deed::Protect => {
                self.checker.is_protected(vmid, true);
                self.held().push((until, Held::Protected(vmid)));
            }
            Deed::LeavePool => {
                self.checker.is_outside(vmid, true);
                let until = Instant::now() + Duration::from_secs(random.u64(HIDDEN));
                self.held().push((until, Held::Outside(vmid)));
            }
            Deed::Manage => {
                // HA starts the VM whenever it is off.
                self.checker.started_by_hand(vmid);
                if random.bool() {
                    self.held().push((until, Held::Managed(vmid)));
                }
            }
            _ => {}
        }
        if deed == Deed::Template {
            // HA would otherwise move or start the template.
            pve.set_ha(vmid, false);
        }
        match touch {
            Some(touch) => pve.touch(vmid, WHO, &touch),
            None => pve.set_ha(vmid, true),
        }
        if deed == Deed::Template {
            self.checker.made_by_hand(vmid);
            self.kept.lock().unwrap_or_else(PoisonError::into_inner).push(vmid);
        }
    }

    /// Returns the Proxmox VE operation that performs the action. Returns `None` if the action is not
    /// possible, and for `Manage`, which is not such an operation.
    fn touch(&self, deed: Deed, vmid: u32, vm: &VmView, random: &mut Rng) -> Option<Touch> {
        let free = || !self.checker.is_asked_about(vmid) && self.checker.may_be_taken(vmid);
        let touch = match deed {
            Deed::Destroy if vm.config.get("protection").is_none_or(|text| text != "1") => Touch::Destroyed,
            Deed::Stop if vm.running => Touch::Stopped,
            Deed::Reset if vm.running => Touch::Reset,
            Deed::RollBack => Touch::RolledBack,
            Deed::Rename => Touch::Renamed("renamed".to_owned()),
            Deed::Migrate => Touch::Migrated(self.target(vm, random)?),
            Deed::Template if free() => Touch::Template,
            Deed::Protect => Touch::Protected,
            // The daemon cannot see a VM outside the resource pool, but while the VM's kubelet reports, the
            // daemon removes nothing that belongs to the machine.
            Deed::LeavePool if self.serves(vmid) => Touch::LeftPool,
            _ => return None,
        };
        Some(touch)
    }

    fn serves(&self, vmid: u32) -> bool {
        let node = self.checker.node_of(vmid).and_then(|name| self.world.kube.get("Node", "", &name));
        let known = self.checker.record(vmid).is_some_and(|record| record["nodeUid"].is_string());
        known && node.is_some_and(|node| is_ready(&node))
    }

    /// A host that the VM can be moved to.
    fn target(&self, vm: &VmView, random: &mut Rng) -> Option<String> {
        let (pve, hosts) = (&self.world.pve, &self.world.hosts);
        let host = hosts.get(random.usize(..hosts.len()))?;
        // Proxmox VE refuses to migrate a VM that has a local image, that runs with a host device, or whose
        // device does not exist on the target host.
        let devices = self.world.rules.devices;
        let stays = seeds::is_bound(vm) || (devices::has_one(vm) && (vm.running || devices.on(host) == 0));
        (*host != vm.node && pve.is_online(host) && !stays).then(|| host.clone())
    }

    /// Undoes the actions whose time is over. If `everything` is set, undoes all actions.
    pub fn tick(&self, everything: bool) {
        let now = Instant::now();
        let over: Vec<(Instant, Held)> =
            self.held().extract_if(.., |(until, _)| everything || *until <= now).collect();
        let pve = &self.world.pve;
        for (_, held) in over {
            let (Held::Protected(vmid) | Held::Outside(vmid) | Held::Managed(vmid)) = held;
            if pve.vm(vmid).is_none() || self.checker.is_foreign(vmid) {
                self.checker.is_protected(vmid, false);
                self.checker.is_outside(vmid, false);
                continue;
            }
            self.log.say("admin", &format!("{held:?} no longer"));
            match held {
                Held::Protected(vmid) => {
                    self.checker.is_protected(vmid, false);
                    pve.set_config_by_hand(vmid, "protection", None);
                }
                Held::Outside(vmid) => {
                    self.checker.is_outside(vmid, false);
                    if self.checker.record(vmid).is_some() {
                        pve.move_to_pool_by_hand(vmid, Some(POOL));
                    } else {
                        // The daemon has dropped the machine's record in the meantime and reported the VM, so
                        // an administrator removes it.
                        pve.touch(vmid, WHO, &Touch::Destroyed);
                    }
                }
                Held::Managed(vmid) => pve.set_ha(vmid, false),
            }
        }
    }

    /// Called when a call is about to change a VM. Occasionally makes another client act on the VM at about
    /// the same time.
    pub(super) fn may_meddle(&self, call: &Call<'_>, random: &mut Rng) {
        let parts: Vec<&str> = call.path.trim_start_matches('/').split('/').collect();
        let ("POST" | "PUT" | "DELETE", Side::Proxmox, ["nodes", _, "qemu", vmid, rest @ ..]) =
            (call.method, call.side, &*parts)
        else {
            return;
        };
        let Ok(vmid) = vmid.parse::<u32>() else { return };
        let ours = self.world.pool_of(vmid).is_some() && rest != ["clone"];
        if !ours || random.u32(..AT_A_CALL) > 0 {
            return;
        }
        let (hands, mut random) = (self.clone(), random.fork());
        let deed = Deed::ALL[random.usize(..Deed::ALL.len())];
        let when = format!(", while {} {} is in progress", call.method, rest.join("/"));
        let pause = Duration::from_millis(random.u64(SOON));
        tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            let until = Instant::now() + LOCK.0;
            while hands.world.pve.is_worked_on(vmid) && Instant::now() < until {
                tokio::time::sleep(LOCK.1).await;
            }
            hands.does(deed, vmid, &mut random, &when);
        });
    }
}

/// Whether the VM can run on every host.
fn is_movable(vm: &VmView) -> bool {
    let drive = |key: &str| ["scsi", "virtio", "sata", "ide"].iter().any(|bus| key.starts_with(bus));
    let mut drives = vm.config.iter().filter(|(key, _)| drive(key) && *key != "scsihw");
    !devices::has_one(vm) && drives.all(|(_, value)| value.starts_with("shared:"))
}
