//! A simulated administrator: deletes, moves, renames and locks VMs, creates VMs in the slots of machines,
//! and carries out the commands in the daemon's reports word for word.

use std::time::Duration;

use fastrand::Rng;
use serde_json::json;
use tokio::time::Instant;
use world::proxmox::spec::VmSpec;

use super::checker::Checker;
use super::checker::objects::name;
use super::drawn::{devices, seeds};
use super::hands::{Deed, Hands};
use super::log::Log;
use super::world::World;

/// How many seconds pass until the administrator reads a report and carries out its command.
const READS: std::ops::Range<u64> = 30..200;

/// The time between two attempts to evict the remaining pods from a node that is drained by hand.
const EVICTS: Duration = Duration::from_secs(5);

/// The administrator of one run.
pub struct Admin {
    world: World,
    log: Log,
    checker: Checker,
    random: Rng,
    hands: Hands,
    /// The random numbers for actions that run as Proxmox VE tasks or are undone later.
    deeds: Rng,
    /// Locks and cordons that will be removed again.
    held: Vec<(Instant, Held)>,
    to_do: Vec<(Instant, String)>,
    /// The time of the next attempt to evict pods from drained nodes.
    evicts: Instant,
    /// VMs that the administrator created.
    made: Vec<u32>,
}

#[derive(Clone, Debug)]
enum Held {
    Lock(u32),
    Cordon(String),
    Drain(String),
}

impl Admin {
    /// Creates an administrator who has not done anything yet.
    pub fn new(world: &World, log: &Log, checker: &Checker, hands: &Hands, random: Rng) -> Self {
        let (world, log, checker) = (world.clone(), log.clone(), checker.clone());
        Self {
            world,
            log,
            checker,
            deeds: Rng::with_seed(random.get_seed() ^ 0xdeed_0f77_0e1d),
            hands: hands.clone(),
            random,
            held: Vec::new(),
            to_do: Vec::new(),
            evicts: Instant::now(),
            made: Vec::new(),
        }
    }

    fn say(&self, what: &str) {
        self.log.say("admin", what);
    }

    /// Performs one random action.
    pub fn step(&mut self) {
        let pve = self.world.pve.clone();
        let act = self.random.u8(..16);
        if act <= 1 {
            return self.make_foreigner();
        }
        if act == 15 {
            return self.remove_foreigner();
        }
        let ours: Vec<u32> = self.checker.ours();
        if ours.is_empty() {
            return;
        }
        if self.world.rules.hindered && self.deeds.u8(..3) == 0 {
            return self.do_a_deed(&ours);
        }
        let Some(vmid) = ours.get(self.random.usize(..ours.len())).copied() else { return };
        let Some(vm) = pve.vm(vmid) else { return };
        let locked = vm.config.contains_key("lock") || pve.is_worked_on(vmid);
        let until = Instant::now() + Duration::from_secs(self.random.u64(20..900));
        match act {
            2 if !locked => {
                self.say(&format!("deletes VM {vmid}"));
                self.checker.deleted_by_hand(vmid);
                pve.delete_by_hand(vmid);
            }
            3 | 14 if !locked && !self.checker.is_asked_about(vmid) && self.checker.may_be_taken(vmid) => {
                self.say(&format!("deletes VM {vmid} and creates another VM with the same VMID"));
                self.checker.deleted_by_hand(vmid);
                pve.delete_by_hand(vmid);
                let mut taken = VmSpec::machine(vmid, &vm.node, "taken");
                self.choose_pool(&mut taken);
                if self.create(taken) {
                    self.checker.taken_over(vmid);
                }
            }
            4 | 5 if !locked => {
                let host = self.world.hosts.get(self.random.usize(..self.world.hosts.len())).cloned();
                let host =
                    host.filter(|host| *host != vm.node && pve.is_online(host) && pve.is_online(&vm.node));
                // Proxmox VE refuses to migrate a VM that has a local image, that runs with a host device, or
                // whose device does not exist on the target host.
                let devices = self.world.rules.devices;
                let stays = |host: &String| {
                    seeds::is_bound(&vm) || (devices::has_one(&vm) && (vm.running || devices.on(host) == 0))
                };
                if let Some(host) = host.filter(|host| !stays(host)) {
                    self.say(&format!("moves VM {vmid} to {host}"));
                    pve.migrate_by_hand(vmid, &host);
                }
            }
            6 => {
                self.say(&format!("renames VM {vmid}"));
                pve.set_config_by_hand(vmid, "name", Some("renamed"));
            }
            7 if !locked => {
                self.say(&format!("locks VM {vmid}"));
                pve.set_config_by_hand(vmid, "lock", Some("backup"));
                self.held.push((until, Held::Lock(vmid)));
            }
            // Until a cloned VM has been checked, its notes are the only proof of its owner. Without this
            // proof, the daemon must not touch the VM, so the notes of such a VM are not rewritten.
            8 if !locked && self.checker.is_known_by_uuid(vmid) => {
                self.say(&format!("rewrites the notes of VM {vmid}"));
                pve.set_config_by_hand(vmid, "description", Some("do not touch, belongs to the cluster"));
            }
            9 => {
                self.say(&format!("stops VM {vmid} without a shutdown"));
                pve.stop_by_hand(vmid);
            }
            10 => {
                if let Some(node) = self.checker.node_of(vmid) {
                    self.say(&format!("deletes Node {node}"));
                    self.checker.node_deleted_by_hand(&node);
                    self.world.kube.remove("Node", "", &node);
                }
            }
            11 => {
                if let Some(node) = self.checker.node_of(vmid) {
                    self.say(&format!("cordons Node {node}"));
                    self.cordon(&node, true);
                    self.held.push((until, Held::Cordon(node)));
                }
            }
            12 => {
                if let Some(node) = self.checker.node_of(vmid) {
                    self.say(&format!("drains Node {node}"));
                    self.cordon(&node, true);
                    self.held.push((until, Held::Drain(node)));
                }
            }
            13 if !locked => {
                self.say(&format!("starts VM {vmid}, or finds it running"));
                self.checker.started_by_hand(vmid);
                pve.start_by_hand(vmid);
            }
            _ => {}
        }
    }

    /// Performs one of the actions that run as Proxmox VE tasks or are undone later.
    fn do_a_deed(&mut self, ours: &[u32]) {
        let deed = Deed::ALL[self.deeds.usize(..Deed::ALL.len())];
        if let Some(vmid) = ours.get(self.deeds.usize(..ours.len())) {
            self.hands.does(deed, *vmid, &mut self.deeds, "");
        }
    }

    fn make_foreigner(&mut self) {
        let at = self.random.usize(..self.world.pools.len());
        let Some(pool) = self.world.pools.get(at).cloned() else { return };
        let vmid = self.random.u32(pool.vmids.clone());
        let free = self.world.pve.vm(vmid).is_none() && !self.checker.is_asked_about(vmid);
        if free && self.checker.may_be_taken(vmid) {
            let mut vm = VmSpec::machine(vmid, "pve3", "visitor");
            vm.running = self.random.bool();
            // A running VM prevents its host from being switched off. So most VMs that the administrator
            // creates are put on `pve1`, which is never switched off.
            if self.world.rules.power.is_some() && !vmid.is_multiple_of(4) {
                "pve1".clone_into(&mut vm.node);
            }
            self.say(&format!("creates VM {vmid}"));
            self.choose_pool(&mut vm);
            devices::give(&mut vm, self.world.rules.devices);
            if self.create(vm) {
                self.checker.made_by_hand(vmid);
            }
        }
    }

    fn remove_foreigner(&mut self) {
        if self.made.is_empty() {
            return;
        }
        let vmid = self.made.swap_remove(self.random.usize(..self.made.len()));
        self.say(&format!("removes VM {vmid}, which it created earlier"));
        self.checker.removed_by_hand(vmid);
        let seed = self.world.pve.vm(vmid).as_ref().and_then(seeds::of_machine);
        self.world.pve.delete_by_hand(vmid);
        // If the VM has a machine's seed image, the image is removed too.
        if let Some(volume) = seed {
            self.world.pve.free_by_hand(&volume);
        }
    }

    /// Puts the VM either into the machines' resource pool or into no pool. The token has all rights over VMs
    /// in the machines' resource pool.
    fn choose_pool(&mut self, vm: &mut VmSpec) {
        vm.pool = self.random.bool().then(|| "k8s-workers".to_owned());
    }

    fn create(&mut self, vm: VmSpec) -> bool {
        let vmid = vm.vmid;
        let made = self.world.pve.create_by_hand(vm);
        if made {
            self.made.push(vmid);
        }
        made
    }

    /// Continues drains like `kubectl drain --ignore-daemonsets`: an eviction that a budget forbids is tried
    /// again.
    fn evict(&mut self, now: Instant) {
        if now < self.evicts {
            return;
        }
        self.evicts = now + EVICTS;
        for (_, held) in &self.held {
            let Held::Drain(node) = held else { continue };
            for pod in self.checker.serving(node) {
                self.world.kube.evict_by_hand("default", &pod);
            }
        }
    }

    fn cordon(&self, node: &str, closed: bool) {
        let value = if closed { json!(true) } else { json!(null) };
        self.world.kube.patch_by_hand("Node", "", node, &json!({ "spec": { "unschedulable": value } }));
    }

    /// Removes expired locks and cordons, and carries out the commands of reports that are due.
    pub fn tick(&mut self, everything: bool) {
        let now = Instant::now();
        for command in self.log.commands() {
            let later = now + Duration::from_secs(self.random.u64(READS));
            if !self.to_do.iter().any(|(_, waiting)| *waiting == command) {
                self.to_do.push((later, command));
            }
        }
        self.evict(now);
        self.hands.tick(everything);
        self.made.extend(self.hands.kept());
        let (over, held) =
            std::mem::take(&mut self.held).into_iter().partition(|(until, _)| everything || *until <= now);
        self.held = held;
        let over: Vec<(Instant, Held)> = over;
        for (_, held) in over {
            match held {
                Held::Lock(vmid) => {
                    self.say(&format!("unlocks VM {vmid}"));
                    let ours = self
                        .world
                        .pve
                        .vm(vmid)
                        .is_some_and(|vm| vm.config.get("lock").is_some_and(|lock| lock == "backup"));
                    if ours {
                        self.world.pve.set_config_by_hand(vmid, "lock", None);
                    }
                }
                Held::Cordon(node) | Held::Drain(node) => {
                    self.say(&format!("uncordons Node {node}"));
                    self.cordon(&node, false);
                }
            }
        }
        let (due, to_do) = std::mem::take(&mut self.to_do).into_iter().partition(|(at, _)| *at <= now);
        self.to_do = to_do;
        let due: Vec<(Instant, String)> = due;
        for (_, command) in due {
            self.say(&format!("carries out: {command}"));
            self.carry_out(&command);
        }
    }

    /// Carries out the command of a report, which has the form `on HOST: COMMAND && COMMAND; then …:
    /// COMMAND`.
    fn carry_out(&self, report: &str) {
        let report = match report.split_once("; or, if it is an unmanaged VM: ") {
            // The lock shows whose VM it is: an interrupted clone or destroy task of the daemon leaves a VM
            // with such a lock behind.
            Some((half_made, foreign)) => {
                let vmid = half_made.split_whitespace().find_map(|word| word.parse::<u32>().ok());
                let Some(vmid) = vmid else { return };
                let vm = self.world.pve.vm(vmid);
                let lock = vm.and_then(|vm| vm.config.get("lock").cloned());
                match lock.as_deref() {
                    Some("clone" | "destroyed") => half_made,
                    _ if self.checker.foreigners().contains(&vmid) => foreign,
                    // Nothing is left to fix: the task has completed, or the VM is gone.
                    _ => return,
                }
            }
            None => report,
        };
        let steps = report.split("; ").flat_map(|step| {
            let commands = step.split_once(": ").map_or(step, |(_, commands)| commands);
            commands.split(" && ")
        });
        for command in steps {
            let words: Vec<&str> = command.split_whitespace().collect();
            match words.as_slice() {
                ["qm", "unlock", vmid] => {
                    if let Ok(vmid) = vmid.parse() {
                        self.world.pve.set_config_by_hand(vmid, "lock", None);
                    }
                }
                ["qm", "set", vmid, "--protection", "0"] => {
                    if let Ok(vmid) = vmid.parse() {
                        self.checker.is_protected(vmid, false);
                        self.world.pve.set_config_by_hand(vmid, "protection", None);
                    }
                }
                ["qm", "destroy", vmid, options @ ..] => {
                    if let Ok(vmid) = vmid.parse() {
                        self.checker.deleted_by_hand(vmid);
                        self.world.pve.delete_by_hand(vmid);
                        if options.contains(&"--destroy-unreferenced-disks") {
                            for disk in self.world.pve.volumes_of(vmid) {
                                self.world.pve.free_by_hand(&disk);
                            }
                        }
                    }
                }
                ["pvesm", "free", volume] => {
                    let pve = &self.world.pve;
                    let has_it = |vmid: u32| pve.vm(vmid).as_ref().and_then(seeds::of_machine);
                    // An administrator would see that a VM still uses this volume, and would not remove the
                    // volume.
                    if !pve.vmids().into_iter().filter_map(has_it).any(|one| one == *volume) {
                        pve.free_by_hand(volume);
                    }
                }
                ["pvesm", "list", storage, "--vmid", vmid] => self.free_what_is_listed(storage, vmid),
                ["kubectl", "-n", namespace, "delete", "configmap", "-l", label] => {
                    self.drop_records(namespace, label.trim_end_matches('`'));
                }
                ["kubeadm", "token", "delete", id, ..] => {
                    let name = format!("bootstrap-token-{}", id.trim_end_matches('`'));
                    self.world.kube.remove("Secret", "kube-system", &name);
                }
                _ => self.checker.violated(&format!(
                    "an administrator cannot carry out `{command}` from the report `{report}`"
                )),
            }
        }
    }

    fn free_what_is_listed(&self, storage: &str, vmid: &str) {
        let disks = vmid.parse().map(|vmid| self.world.pve.volumes_of(vmid)).unwrap_or_default();
        for disk in disks.iter().filter(|disk| disk.split(':').next() == Some(storage)) {
            self.world.pve.free_by_hand(disk);
        }
    }

    fn drop_records(&self, namespace: &str, label: &str) {
        let (key, value) = label.split_once('=').unwrap_or((label, ""));
        for map in self.world.kube.list("ConfigMap") {
            let meta = &map["metadata"];
            if meta["namespace"] == namespace && meta["labels"][key] == value {
                self.world.kube.remove("ConfigMap", namespace, name(&map));
            }
        }
    }
}
