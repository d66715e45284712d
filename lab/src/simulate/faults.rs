//! Faults of hosts, guests and networks. Most faults last for a random time.

use std::time::Duration;

use fastrand::Rng;
use pve_autoscaler::observability::Order;
use serde_json::json;
use tokio::time::Instant;
use world::guest::GuestFaults;
use world::proxmox::TaskFault;

use super::checker::Checker;
use super::drawn::standing;
use super::hindrances;
use super::hindrances::Hindrance;
use super::log::Log;
use super::storm::Storm;
use super::troupe::Troupe;
use super::world::World;

/// How long the daemon may take to carry out an order to resume before an administrator resumes it by hand.
const RESUMES: Duration = Duration::from_mins(1);

/// A fault that is in progress and will end.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Ends {
    ProxmoxAway,
    KubernetesAway,
    Quorum,
    Host(String),
    Maintenance(String),
    Storage(String),
    Full(String),
    Kubelet(String),
    Stall,
    Guests(u32),
    NeverReady,
    NodesNeverReady,
    Storm,
    Rights,
    Paused,
    PausedByHand,
    Hindrance(Hindrance),
}

/// The faults of one run.
pub struct Faults {
    world: World,
    log: Log,
    checker: Checker,
    random: Rng,
    /// The random number generator for interference from outside.
    hinders: Rng,
    going_on: Vec<(Instant, Ends)>,
    /// The number of faults that have begun.
    pub begun: u64,
}

impl Faults {
    /// Starts without faults.
    pub fn new(world: &World, log: &Log, checker: &Checker, random: Rng) -> Self {
        let hinders = Rng::with_seed(random.get_seed() ^ 0x41de_0f77_0e1d);
        let (world, log, checker) = (world.clone(), log.clone(), checker.clone());
        Self { world, log, checker, random, hinders, going_on: Vec::new(), begun: 0 }
    }

    /// Begins a fault.
    pub async fn step(&mut self, troupe: &mut Troupe, storm: &Storm) {
        self.begun += 1;
        if self.world.rules.hindered {
            self.be_hindered(troupe).await;
        }
        let World { pve, kube, .. } = self.world.clone();
        match self.random.u8(..38) {
            0 => self.begin("Proxmox VE is unreachable", 10..300, Ends::ProxmoxAway, || pve.set_away(true)),
            1 => self.begin("Kubernetes is away", 10..300, Ends::KubernetesAway, || kube.set_away(true)),
            2 => {
                pve.set_quorum(false);
                self.begin("the cluster has no quorum", 20..300, Ends::Quorum, || {});
            }
            3 | 4 => {
                // Only one host at a time loses its power: if two of three hosts are off, the quorum is lost
                // too, which is a separate fault.
                if let Some(host) = self.host()
                    && !self.going_on.iter().any(|(_, ends)| matches!(ends, Ends::Host(_)))
                {
                    let what = format!("{host} loses power");
                    self.begin(&what, 20..900, Ends::Host(host.clone()), || pve.power_off_host(&host));
                }
            }
            5 => {
                if let Some(host) = self.host() {
                    let what = format!("{host} is in maintenance");
                    self.begin(&what, 60..900, Ends::Maintenance(host.clone()), || {
                        pve.set_maintenance(&host, true);
                    });
                }
            }
            6 => {
                let storage = if self.random.bool() { "shared" } else { "local-lvm" };
                let what = format!("volumes on {storage} cannot be freed");
                self.begin(&what, 30..400, Ends::Storage(storage.into()), || {
                    pve.set_storage_busy(storage, true);
                });
            }
            7 | 8 => {
                if let Some(node) = self.node() {
                    let what = format!("the kubelet on {node} is silent");
                    self.begin(&what, 10..900, Ends::Kubelet(node.clone()), || {
                        kube.set_kubelet_silent(&node, true);
                    });
                }
            }
            9 | 10 => self.begin("watches stall", 1..40, Ends::Stall, || troupe.stall(true)),
            11 => {
                self.log.say("fault", "the API server discards the history of all objects");
                kube.expire_resource_versions();
            }
            12 => self.guests(),
            13 => self.begin("pods do not become ready", 20..200, Ends::NeverReady, || {
                kube.set_pods_never_ready(true);
            }),
            14 | 15 => self.begin("faults hit many API calls", 20..300, Ends::Storm, || storm.blow(true)),
            16..=19 => self.worker(),
            20 => self.agent(),
            21 => self.begin(
                "the token has no rights on the machines' resource pool",
                10..120,
                Ends::Rights,
                || {
                    rights(&pve, false);
                },
            ),
            22 => troupe.stop().await,
            23 => troupe.kill(),
            24..=27 => troupe.kill_soon(),
            28..=30 => troupe.cut_off(),
            31 | 32 => troupe.set_clock(),
            33 | 34 => self.begin("new nodes do not become ready", 60..900, Ends::NodesNeverReady, || {
                kube.set_nodes_never_ready(true);
            }),
            35 | 36 => {
                let storage = if self.random.bool() { "shared" } else { "local-lvm" };
                let what = format!("{storage} is full");
                self.begin(&what, 60..900, Ends::Full(storage.into()), || {
                    pve.set_storage_full(storage, true);
                });
            }
            _ => self.begin("everything is paused", 60..1200, Ends::Paused, || {
                troupe.order(Order::Pause { reason: "the simulation pauses the daemon".to_owned() });
            }),
        }
    }

    fn begin(&mut self, what: &str, seconds: std::ops::Range<u64>, ends: Ends, begin: impl FnOnce()) {
        if self.going_on.iter().any(|(_, going_on)| *going_on == ends) {
            return;
        }
        let seconds = self.random.u64(seconds);
        self.log.say("fault", &format!("{what}, for {seconds} s"));
        begin();
        self.going_on.push((Instant::now() + Duration::from_secs(seconds), ends));
    }

    /// Sometimes starts interference from outside.
    async fn be_hindered(&mut self, troupe: &mut Troupe) {
        match self.hinders.u8(..12) {
            0 | 1 => self.hinder(),
            2 => self.stand_still().await,
            4 => troupe.stand_still(standing::draw(&mut self.hinders)),
            3 => {
                let what = hindrances::volume_not_seen(&mut self.hinders, &self.world);
                self.log.say("fault", &what);
            }
            _ => {}
        }
    }

    /// Begins interference from outside.
    fn hinder(&mut self) {
        let Some((what, seconds)) = Hindrance::draw(&mut self.hinders, &self.world) else { return };
        let is_like = |ends: &Ends| matches!(ends, Ends::Hindrance(other) if what.is_like(other));
        if self.going_on.iter().any(|(_, ends)| is_like(ends)) {
            return;
        }
        let seconds = self.hinders.u64(seconds);
        self.log.say("fault", &format!("{}, for {seconds} s", what.words()));
        what.begin(&self.world, &self.checker);
        self.going_on.push((Instant::now() + Duration::from_secs(seconds), Ends::Hindrance(what)));
    }

    /// Freezes all instances while the clocks continue to run.
    async fn stand_still(&mut self) {
        let time = standing::draw(&mut self.hinders);
        self.log.say("fault", &format!("all daemon instances are frozen for {} s", time.as_secs()));
        tokio::time::advance(time).await;
        self.checker.all_stood_still(time);
    }

    fn host(&mut self) -> Option<String> {
        self.world.hosts.get(self.random.usize(..self.world.hosts.len())).cloned()
    }

    fn node(&mut self) -> Option<String> {
        let nodes = self.world.kube.list("Node");
        let of_pools =
            nodes.iter().filter(|node| node["metadata"]["labels"]["pve-autoscaler/pool"].is_string());
        let names: Vec<String> =
            of_pools.filter_map(|node| Some(node["metadata"]["name"].as_str()?.to_owned())).collect();
        (!names.is_empty()).then(|| names.get(self.random.usize(..names.len())).cloned()).flatten()
    }

    /// Makes the existing and future clones of one template boot with faults.
    fn guests(&mut self) {
        let template = self.random.u32(9000..=9003);
        let faults = match self.random.u8(..8) {
            0 => GuestFaults { agent_never: true, ..GuestFaults::default() },
            1 => GuestFaults { agent_late: Duration::from_secs(90), ..GuestFaults::default() },
            2 => GuestFaults { degraded: true, ..GuestFaults::default() },
            3 => GuestFaults { starting_for: Duration::from_secs(200), ..GuestFaults::default() },
            4 => {
                GuestFaults { join_fails: Some("connection reset by peer".into()), ..GuestFaults::default() }
            }
            5 => GuestFaults { join_hangs: true, ..GuestFaults::default() },
            6 => GuestFaults { maintenance: true, ..GuestFaults::default() },
            _ => GuestFaults { ignores_shutdown: true, ..GuestFaults::default() },
        };
        // In about a third of the cases, guests also fail to detect hot-plugged resources.
        let faults = GuestFaults { deaf_to_plugs: self.begun.is_multiple_of(3), ..faults };
        let what = format!("clones of template {template} boot with {faults:?}");
        let pve = self.world.pve.clone();
        self.begin(&what, 60..900, Ends::Guests(template), || pve.set_guest_faults(template, faults));
    }

    fn worker(&mut self) {
        let kinds =
            ["qmclone", "qmconfig", "resize", "qmstart", "qmstop", "qmshutdown", "qmdestroy", "qmsuspend"];
        let kind = kinds.get(self.random.usize(..kinds.len())).copied().unwrap_or("qmclone");
        let fault = match self.random.u8(..8) {
            0 => TaskFault::Fails("can't lock file '/var/lock/qemu-server/lock.conf' - got timeout".into()),
            1 => TaskFault::Fails("cfs-lock 'storage-shared' error: got lock request timeout".into()),
            2 => TaskFault::Fails("start failed: QEMU exited with code 1".into()),
            3 => TaskFault::Warns("something is not right".into()),
            4 => TaskFault::FailsLate("cfs-lock 'file-user_cfg' error: got lock request timeout".into()),
            5 => TaskFault::Dies(Duration::from_millis(self.random.u64(0..500))),
            6 => TaskFault::Fails("storage 'old' does not exist".into()),
            _ => TaskFault::Forgotten,
        };
        self.log.say("fault", &format!("the next {kind} task has the fault {fault:?}"));
        self.world.pve.inject_task(kind, fault);
    }

    fn agent(&mut self) {
        let running: Vec<u32> =
            (self.world.pve.vmids().into_iter()).filter(|vmid| self.world.pool_of(*vmid).is_some()).collect();
        if running.is_empty() {
            return;
        }
        let (at, seconds) = (self.random.usize(..running.len()), self.random.u64(5..200));
        if let Some(vmid) = running.get(at) {
            self.log.say("fault", &format!("the guest agent of VM {vmid} is silent for {seconds} s"));
            self.world.pve.silence_agent(*vmid, Duration::from_secs(seconds));
        }
    }

    /// Ends all faults whose time is over. If `everything` is set, ends all faults.
    pub fn mend(&mut self, troupe: &mut Troupe, storm: &Storm, everything: bool) {
        let now = Instant::now();
        if !everything && self.going_on.iter().all(|(until, _)| *until > now) {
            return;
        }
        let (over, going_on) = std::mem::take(&mut self.going_on)
            .into_iter()
            .partition(|(until, _)| everything || *until <= now);
        self.going_on = going_on;
        let over: Vec<(Instant, Ends)> = over;
        let World { pve, kube, .. } = &self.world.clone();
        for (_, ends) in over {
            self.log.say("fault", &format!("{ends:?} is over"));
            match ends {
                Ends::ProxmoxAway => pve.set_away(false),
                Ends::KubernetesAway => kube.set_away(false),
                Ends::Quorum => pve.set_quorum(true),
                Ends::Host(host) => pve.power_on_host(&host),
                Ends::Maintenance(host) => pve.set_maintenance(&host, false),
                Ends::Storage(storage) => pve.set_storage_busy(&storage, false),
                Ends::Full(storage) => pve.set_storage_full(&storage, false),
                Ends::Kubelet(node) => kube.set_kubelet_silent(&node, false),
                Ends::Stall => troupe.stall(false),
                Ends::Guests(template) => pve.set_guest_faults(template, GuestFaults::default()),
                Ends::NeverReady => kube.set_pods_never_ready(false),
                Ends::NodesNeverReady => kube.set_nodes_never_ready(false),
                Ends::Storm => storm.blow(false),
                Ends::Rights => rights(pve, true),
                Ends::Paused => {
                    troupe.order(Order::Resume);
                    self.going_on.push((now + RESUMES, Ends::PausedByHand));
                }
                Ends::PausedByHand => self.resume(),
                Ends::Hindrance(what) => what.end(&self.world, &self.checker),
            }
        }
        if everything {
            pve.forget_faults();
            storm.end();
            troupe.mend();
            self.going_on.clear();
            self.resume();
        }
    }

    /// Turns the pause switch off by hand.
    fn resume(&self) {
        let nothing = json!({ "data": { "paused": null } });
        self.world.kube.patch_by_hand("ConfigMap", "pve-autoscaler", "autoscaler-state", &nothing);
    }
}

/// Revokes the token's rights over the machines' resource pool, or restores them.
fn rights(pve: &world::proxmox::Pve, there: bool) {
    const POOL: (&str, &str) = ("/pool/k8s-workers", "/pool/k8s-workers-not");
    let (from, to) = if there { (POOL.1, POOL.0) } else { (POOL.0, POOL.1) };
    pve.change_access(|access| {
        for grant in access.grants.iter_mut().filter(|grant| grant.path == from) {
            to.clone_into(&mut grant.path);
        }
    });
}
