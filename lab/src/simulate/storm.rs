//! Faults in calls: each call may fail in any way that is known for its API.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use serde_json::json;
use stage::{Arrival, Call, Observer, Side};
use world::proxmox::spec::VmSpec;
use world::{kubernetes, proxmox};

use super::checker::Checker;
use super::checker::objects::newid;
use super::hands::Hands;
use super::log::Log;
use super::world::World;

/// One in this many calls has a fault. The first number applies normally, the second during a storm.
const RARE: (u32, u32) = (120, 8);

/// For one in this many clones, another client takes the VMID at the last moment.
const FASTER: u8 = 40;

/// The connection between the daemon and the clusters. The checker sees each call first; then a fault may
/// be added to the call.
pub struct Storm {
    world: World,
    log: Log,
    checker: Checker,
    hands: Hands,
    inner: Mutex<Inner>,
}

struct Inner {
    random: Rng,
    /// The random number generator for other clients' actions at the time of a call.
    of_others: Rng,
    over: bool,
    storm: bool,
    met: u64,
}

impl Storm {
    /// Starts without a storm, so that few calls have faults.
    pub fn new(world: &World, log: &Log, checker: &Checker, hands: &Hands, random: Rng) -> Self {
        let of_others = Rng::with_seed(random.get_seed() ^ 0x07e5_0f77_0e1d);
        let inner = Mutex::new(Inner { random, of_others, over: false, storm: false, met: 0 });
        let (world, log, checker) = (world.clone(), log.clone(), checker.clone());
        Self { world, log, checker, hands: hands.clone(), inner }
    }

    /// Begins a storm, or ends it.
    pub fn blow(&self, storm: bool) {
        self.inner().storm = storm;
    }

    /// Stops adding faults to calls.
    pub fn end(&self) {
        self.inner().over = true;
    }

    /// The number of calls that have had a fault so far.
    pub fn met(&self) -> u64 {
        self.inner().met
    }

    fn inner(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The watched connection of one daemon.
struct Watched {
    storm: Arc<Storm>,
    who: String,
}

/// Returns an observer that passes the calls of this host's daemon to the checker and adds faults to them.
pub fn watched(storm: &Arc<Storm>, who: &str) -> Arc<dyn Observer> {
    Arc::new(Watched { storm: storm.clone(), who: who.to_owned() })
}

impl Observer for Watched {
    fn before(&self, call: Call<'_>) -> Arrival {
        self.storm.meets(&self.who, call)
    }
}

impl Storm {
    fn meets(&self, who: &str, call: Call<'_>) -> Arrival {
        self.checker.sees(who, call);
        let (met, mut random) = {
            let mut inner = self.inner();
            let odds = if inner.storm { RARE.1 } else { RARE.0 };
            let met = !inner.over && inner.random.u32(..odds) == 0;
            inner.met += u64::from(met);
            (met, inner.random.fork())
        };
        self.another_client_is_faster(&call, &mut random);
        let mut of_others = {
            let mut inner = self.inner();
            (self.world.rules.hindered && !inner.over).then(|| inner.of_others.fork())
        };
        if let Some(random) = &mut of_others {
            self.hands.may_meddle(&call, random);
        }
        if !met {
            self.checker.settings_or_clone_arrive(&call);
            return Arrival::Once;
        }
        if repeats(&call) && random.u8(..12) == 0 {
            self.log.say("fault", &format!("{} {} arrives twice", call.method, call.path));
            return Arrival::Twice;
        }
        let (method, path, times) = (call.method.to_owned(), call.path.to_owned(), 1);
        let what = match call.side {
            Side::Proxmox => {
                let effect = at_proxmox(&call, &mut random);
                if leaves_doubt(&effect) {
                    self.checker.lost(call);
                }
                let what = format!("{effect:?}");
                self.world.pve.inject(proxmox::Fault { method, path, times, effect });
                what
            }
            Side::Kubernetes => {
                let effect = at_kubernetes(&call, &mut random);
                if !matches!(effect, kubernetes::Effect::Delay(_) | kubernetes::Effect::WorkThenDelay(_)) {
                    self.checker.record_in_doubt(&call);
                }
                let what = match &effect {
                    kubernetes::Effect::Answer { status, .. } => format!("answer {status}"),
                    other => format!("{other:?}"),
                };
                self.world.kube.inject(kubernetes::Fault { method, path, times, effect });
                what
            }
        };
        self.log.say("fault", &format!("{} {} gets {what}", call.method, call.path));
        Arrival::Once
    }

    /// Another client takes the VMID while the clone request is in transit.
    fn another_client_is_faster(&self, call: &Call<'_>, random: &mut Rng) {
        let Some(vmid) = newid(call.body).filter(|_| call.path.ends_with("/clone")) else { return };
        if self.inner().over || !self.checker.may_be_taken(vmid) || random.u8(..FASTER) > 0 {
            return;
        }
        let host = call.path.split('/').nth(2).unwrap_or("pve1");
        let mut vm = VmSpec::machine(vmid, host, "faster");
        vm.pool = random.bool().then(|| "k8s-workers".to_owned());
        vm.running = random.bool();
        if self.world.pve.vm(vmid).is_none() && self.world.pve.create_by_hand(vm) {
            self.log.say("admin", &format!("creates VM {vmid} just before the daemon's clone begins"));
            self.checker.made_by_hand(vmid);
        }
    }
}

/// Whether a proxy between client and server may repeat the call. A proxy may repeat calls whose method is
/// safe to repeat, except for streams.
fn repeats(call: &Call<'_>) -> bool {
    match call.side {
        Side::Proxmox => call.method == "GET",
        Side::Kubernetes => {
            matches!(call.method, "GET" | "PUT" | "DELETE") && !call.query.contains("watch=true")
        }
    }
}

/// Whether the effect leaves the outcome of the call unknown.
fn leaves_doubt(effect: &proxmox::Effect) -> bool {
    match effect {
        proxmox::Effect::Answer { status, .. } => (596..=599).contains(status),
        proxmox::Effect::Delay(_) | proxmox::Effect::WorkThenDelay(_) => false,
        _ => true,
    }
}

fn at_proxmox(call: &Call<'_>, random: &mut Rng) -> proxmox::Effect {
    use proxmox::Effect;
    let answer = |status, reason: &str| {
        let body = if status == 401 || (595..=599).contains(&status) {
            String::new()
        } else {
            json!({ "data": null, "message": format!("{reason}\n") }).to_string()
        };
        Effect::Answer { status, reason: reason.to_owned(), body }
    };
    let vmid = call.path.split('/').nth(4).unwrap_or("0");
    let writes = call.method != "GET";
    let of_agent = call.path.contains("/agent/");
    match random.u8(..17) {
        0 | 1 => Effect::Delay(Duration::from_millis(random.u64(50..20_000))),
        2 => Effect::WorkThenDelay(Duration::from_millis(random.u64(50..20_000))),
        3 => Effect::Lose,
        4 => Effect::WorkThenLose,
        5 | 6 => Effect::WorkThenTimeOut,
        7 => answer(595, "No route to host"),
        8 => answer(595, "Connection refused"),
        9 => answer(596, "Connection timed out"),
        10 if writes => {
            answer(500, &format!("can't lock file '/var/lock/qemu-server/lock-{vmid}.conf' - got timeout"))
        }
        11 if writes => answer(500, "cfs-lock 'file-user_cfg' error: got lock request timeout"),
        10 => answer(596, "Broken pipe"),
        11 => answer(401, "authentication failure"),
        12 => answer(500, "unable to read tail (got 0 bytes)"),
        13 if writes => answer(500, "got no worker upid - start worker failed"),
        14 if of_agent => answer(500, &format!("VM {vmid} qga command 'guest-ping' failed - got timeout")),
        15 if of_agent => {
            answer(500, &format!("unable to connect to VM {vmid} qga socket - timeout after 31 retries"))
        }
        13 | 14 => answer(597, "Connection reset by peer"),
        _ => answer(503, "Service Unavailable"),
    }
}

fn at_kubernetes(call: &Call<'_>, random: &mut Rng) -> kubernetes::Effect {
    use kubernetes::Effect;
    let refusal = |code: u16, reason: &str, message: &str| Effect::Answer {
        status: code,
        body: json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message, "reason": reason, "code": code,
        }),
    };
    match random.u8(..13) {
        0 | 1 => Effect::Delay(Duration::from_millis(random.u64(50..10_000))),
        2 => Effect::WorkThenDelay(Duration::from_millis(random.u64(50..10_000))),
        3 => Effect::Lose,
        4 | 5 => Effect::WorkThenLose,
        6 => refusal(403, "Forbidden", "the authorizer is not ready"),
        7 if matches!(call.method, "PUT" | "PATCH") => refusal(
            409,
            "Conflict",
            "the object has been modified; please apply your changes to the latest version",
        ),
        8 if call.query.contains("resourceVersion") || call.query.contains("continue") => {
            refusal(410, "Expired", "too old resource version")
        }
        7 | 8 => refusal(429, "TooManyRequests", "too many requests, please try again later"),
        9 => refusal(500, "InternalError", "etcdserver: request timed out"),
        10 => refusal(503, "ServiceUnavailable", "the server is currently unable to handle the request"),
        11 => refusal(504, "Timeout", "request did not complete within the allotted timeout"),
        _ => refusal(401, "Unauthorized", "Unauthorized"),
    }
}
