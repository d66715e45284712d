//! The instances of the daemon, on a random number of hosts, with at most one instance on each host at a
//! time. They are started, stopped, killed right after a call, and cut off from one or both APIs for a while,
//! and their clocks are set wrong.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use jiff::{SignedDuration, Timestamp};
use pve_autoscaler::kubernetes::Entropy;
use pve_autoscaler::observability::{Order, Orders, Status};
use pve_autoscaler::runtime::clock::{Clock, TokioClock};
use pve_autoscaler::settings::Config;
use stage::{Actor, Cast, Side, Stall, Wire};
use tokio::sync::watch;
use tokio::time::Instant;

use super::checker::Checker;
use super::drawn::settings::DISKS;
use super::log::Log;
use super::storm::{Storm, watched};
use super::world;
use super::world::World;

/// The largest clock error, in seconds.
const WRONG: i64 = 900;

/// All instances of the daemon.
pub struct Troupe {
    world: World,
    log: Log,
    checker: Checker,
    random: Rng,
    calls: Arc<AtomicU64>,
    storm: Arc<Storm>,
    config: watch::Sender<Arc<Config>>,
    disks: BTreeMap<&'static str, u32>,
    seats: Vec<Seat>,
    /// How many times a daemon was started.
    pub runs: u64,
    /// Whether a daemon ended without being asked to.
    pub fell: bool,
}

/// A host with a daemon.
struct Seat {
    host: String,
    clock: Wrong,
    stall: Stall,
    on_stage: Option<Actor>,
    /// When the daemon will be started again, if it is not running.
    pause: Option<Instant>,
    /// The APIs from which the host is cut off, and until when.
    held: Vec<(Instant, Side)>,
    /// When the host's freeze ends.
    still: Option<Instant>,
}

/// A clock that can be set wrong.
#[derive(Clone)]
struct Wrong {
    right: TokioClock,
    seconds: Arc<AtomicI64>,
}

impl Clock for Wrong {
    fn now(&self) -> Timestamp {
        let by = SignedDuration::from_secs(self.seconds.load(Ordering::SeqCst));
        self.right.now().saturating_add(by).unwrap_or(Timestamp::MAX)
    }
}

impl Seat {
    fn free(&mut self, over: impl Fn(Instant) -> bool) {
        if self.still.is_some_and(&over) {
            self.go_on();
        }
        let (ends, held) = std::mem::take(&mut self.held).into_iter().partition(|(until, _)| over(*until));
        self.held = held;
        let ends: Vec<(Instant, Side)> = ends;
        for (_, side) in ends {
            if let Some(actor) = self.on_stage.as_ref().filter(|_| self.held.iter().all(|one| one.1 != side))
                && self.still.is_none()
            {
                actor.wire.hold(side, false);
            }
        }
    }

    fn go_on(&mut self) {
        self.still = None;
        self.stall.set(false);
        if let Some(actor) = &self.on_stage {
            actor.stand_still(false);
            for (_, side) in &self.held {
                actor.wire.hold(*side, true);
            }
        }
    }
}

impl Troupe {
    /// Creates a random number of hosts. No daemon runs yet.
    pub fn new(world: &World, log: &Log, checker: &Checker, storm: Arc<Storm>, mut random: Rng) -> Self {
        let number = random.usize(1..=world.hosts.len());
        let seat = |host: &String| Seat {
            host: host.clone(),
            clock: Wrong { right: world.clock, seconds: Arc::default() },
            stall: Stall::default(),
            on_stage: None,
            pause: None,
            held: Vec::new(),
            still: None,
        };
        Self {
            config: watch::Sender::new(world.config.clone()),
            disks: world.pools.iter().map(|pool| (pool.name, DISKS[0])).collect(),
            seats: world.hosts.iter().take(number).map(seat).collect(),
            world: world.clone(),
            log: log.clone(),
            checker: checker.clone(),
            random,
            calls: Arc::default(),
            storm,
            runs: 0,
            fell: false,
        }
    }

    /// Starts a daemon on every host.
    ///
    /// # Errors
    /// Returns an error if the Proxmox VE client rejects its settings, which is a bug in the simulation.
    pub fn start(&mut self) -> anyhow::Result<()> {
        (0..self.seats.len()).try_for_each(|at| self.start_at(at))
    }

    fn start_at(&mut self, at: usize) -> anyhow::Result<()> {
        let Some(seat) = self.seats.get_mut(at) else { return Ok(()) };
        self.runs += 1;
        self.checker.run_begins();
        (seat.pause, seat.held, seat.still) = (None, Vec::new(), None);
        self.log.say("daemon", &format!("run {} begins on {}", self.runs, seat.host));
        let wire = Wire::counting(self.calls.clone())
            .observed(watched(&self.storm, &seat.host))
            .stalling(seat.stall.clone());
        let cast = Cast {
            pve: self.world.pve.clone(),
            regions: Vec::new(),
            kube: self.world.kube.clone(),
            clock: Arc::new(seat.clock.clone()),
            config: self.config.subscribe(),
            probes: self.runs.is_multiple_of(2),
            helpers: stage::Helpers::default(),
            seed: self.random.u64(..),
            instance: seat.host.clone(),
            entropy: Some(entropy(self.random.u64(..))),
        };
        seat.on_stage = Some(Actor::start(cast, wire)?);
        Ok(())
    }

    /// The index of one of the instances, most often of the leader.
    fn pick(&mut self) -> usize {
        let leads = self.checker.leader();
        let leader = self.seats.iter().position(|seat| Some(&seat.host) == leads.as_ref());
        let any = self.random.usize(..self.seats.len());
        leader.filter(|_| self.random.u8(..3) > 0).unwrap_or(any)
    }

    /// Kills a daemon right after one of its next calls was carried out, so that the answer is lost.
    pub fn kill_soon(&mut self) {
        let (at, within) = (self.pick(), self.random.u64(1..60));
        if let Some((seat, actor)) = self.seats.get(at).and_then(|seat| Some((seat, seat.on_stage.as_ref()?)))
        {
            let host = &seat.host;
            self.log.say("fault", &format!("the daemon on {host} will be killed after {within} more calls"));
            actor.wire.cut_after(self.calls.load(Ordering::SeqCst) + within);
        }
    }

    /// Kills a daemon now.
    pub fn kill(&mut self) {
        let at = self.pick();
        self.kill_at(at);
    }

    fn kill_at(&mut self, at: usize) {
        if let Some(actor) = self.seats.get_mut(at).and_then(|seat| seat.on_stage.take()) {
            actor.kill();
            self.away(at, "killed");
        }
    }

    /// Stops a daemon as systemd does.
    pub async fn stop(&mut self) {
        let at = self.pick();
        // A frozen host does not deliver signals.
        if let Some(seat) = self.seats.get_mut(at).filter(|seat| seat.still.is_some()) {
            seat.go_on();
        }
        if let Some(actor) = self.seats.get_mut(at).and_then(|seat| seat.on_stage.take()) {
            self.fell |= !actor.stop().await;
            self.away(at, "stopped");
        }
    }

    fn away(&mut self, at: usize, what: &str) {
        let seconds =
            if self.random.u8(..10) == 0 { self.random.u64(60..600) } else { self.random.u64(1..30) };
        if let Some(seat) = self.seats.get_mut(at) {
            self.log.say(
                "fault",
                &format!("the daemon on {} is {what} and restarts after {seconds} s", seat.host),
            );
            seat.pause = Some(Instant::now() + Duration::from_secs(seconds));
        }
    }

    /// Cuts a daemon off from one or both APIs for a while. Its calls during that time arrive late, unless
    /// the daemon has stopped waiting for them.
    pub fn cut_off(&mut self) {
        let (at, seconds) = (self.pick(), self.random.u64(1..90));
        let sides: &[Side] = match self.random.u8(..4) {
            0 => &[Side::Proxmox],
            1 | 2 => &[Side::Kubernetes],
            _ => &[Side::Proxmox, Side::Kubernetes],
        };
        let Some(seat) = self.seats.get_mut(at) else { return };
        let Some(actor) = &seat.on_stage else { return };
        self.log
            .say("fault", &format!("the daemon on {} is cut off from {sides:?} for {seconds} s", seat.host));
        for side in sides {
            actor.wire.hold(*side, true);
            seat.held.push((Instant::now() + Duration::from_secs(seconds), *side));
        }
    }

    /// Freezes the host of one of the daemons for this time while its clock continues to run.
    pub fn stand_still(&mut self, time: Duration) {
        let at = self.pick();
        let Some(seat) = self.seats.get_mut(at) else { return };
        let Some(actor) = seat.on_stage.as_ref().filter(|_| seat.still.is_none()) else { return };
        self.log.say("fault", &format!("{} is frozen for {} s", seat.host, time.as_secs()));
        actor.stand_still(true);
        seat.stall.set(true);
        seat.still = Some(Instant::now() + time);
    }

    /// Sets a daemon's clock to a wrong time, or corrects it.
    pub fn set_clock(&mut self) {
        let at = self.random.usize(..self.seats.len());
        let wrong = if self.random.bool() { self.random.i64(-WRONG..WRONG) } else { 0 };
        if let Some(seat) = self.seats.get(at) {
            self.log.say("fault", &format!("the clock of {} is off by {wrong} s", seat.host));
            seat.clock.seconds.store(wrong, Ordering::SeqCst);
        }
    }

    /// An administrator changes the disk size of a pool, and all daemons reload the settings.
    ///
    /// # Errors
    /// Returns an error if the settings are rejected, which is a bug in the simulation.
    pub fn reload(&mut self) -> anyhow::Result<()> {
        let at = self.random.usize(..self.world.pools.len());
        let gib = DISKS.get(self.random.usize(..DISKS.len())).copied();
        let (Some(pool), Some(gib)) = (self.world.pools.get(at).map(|pool| pool.name), gib) else {
            return Ok(());
        };
        self.log.say("admin", &format!("changes the disk size of pool {pool} to {gib} GiB"));
        self.disks.insert(pool, gib);
        self.checker.disks_change(pool, gib);
        self.config.send_replace(Arc::new(world::parse(&self.world.settings.with(&self.disks))?));
        Ok(())
    }

    /// Sends an order to pause or resume through one of the daemons, without waiting for the result.
    pub fn order(&mut self, order: Order) {
        let at = self.random.usize(..self.seats.len());
        if let Some(actor) = self.seats.get(at).and_then(|seat| seat.on_stage.as_ref()) {
            let switch = actor.switch.clone();
            // A missing answer says nothing about the outcome, so the checker reads the switch itself.
            tokio::spawn(async move { switch.follow(order).await.is_ok() });
        }
    }

    /// Starts the daemons whose restart is due, and kills those whose connections have been cut.
    ///
    /// # Errors
    /// Returns the errors of [`Self::start`].
    pub fn tick(&mut self) -> anyhow::Result<()> {
        let now = Instant::now();
        for at in 0..self.seats.len() {
            let Some(seat) = self.seats.get_mut(at) else { continue };
            seat.free(|until| until <= now);
            self.fell |= seat.on_stage.as_ref().is_some_and(Actor::has_ended);
            let (cut, due) = (
                seat.on_stage.as_ref().is_some_and(|actor| actor.wire.is_cut()),
                seat.pause.is_some_and(|until| now >= until),
            );
            if cut {
                self.kill_at(at);
            } else if due {
                self.start_at(at)?;
            }
        }
        Ok(())
    }

    /// Reconnects all daemons, and corrects all clocks.
    pub fn mend(&mut self) {
        for seat in &mut self.seats {
            seat.free(|_| true);
            seat.clock.seconds.store(0, Ordering::SeqCst);
        }
    }

    /// Stalls the watch streams of one or all hosts, or lets all of them continue.
    pub fn stall(&mut self, still: bool) {
        let all = !still || self.random.bool();
        let at = self.pick();
        for (_, seat) in self.seats.iter().enumerate().filter(|(number, _)| all || *number == at) {
            seat.stall.set(still);
        }
    }

    /// The status of the leader, or of another daemon if the leader is not running.
    pub fn status(&self) -> Option<Status> {
        let leads = self.checker.leader();
        let leader = self.seats.iter().find(|seat| Some(&seat.host) == leads.as_ref());
        let any = || self.seats.iter().find_map(|seat| seat.on_stage.as_ref());
        let actor = leader.and_then(|seat| seat.on_stage.as_ref()).or_else(any);
        actor.map(|actor| actor.board.status())
    }

    /// The number of calls in all runs so far.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }
}

fn entropy(seed: u64) -> Entropy {
    let random = Mutex::new(Rng::with_seed(seed));
    Arc::new(move |bytes: &mut [u8]| {
        random.lock().unwrap_or_else(PoisonError::into_inner).fill(bytes);
        Ok(())
    })
}
