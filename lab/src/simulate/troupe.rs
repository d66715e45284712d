//! The daemon's runs, one after the other: started, killed at a call, ended, started again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fastrand::Rng;
use pve_autoscaler::config::Config;
use pve_autoscaler::kubernetes::Entropy;
use pve_autoscaler::observability::Status;
use stage::{Actor, Cast, Observer, Stall, Wire};
use tokio::sync::watch;
use tokio::time::Instant;

use super::log::Log;
use super::world::World;

/// Who plays the daemon.
pub struct Troupe {
    world: World,
    log: Log,
    random: Rng,
    calls: Arc<AtomicU64>,
    observer: Arc<dyn Observer>,
    stall: Stall,
    config: watch::Sender<Arc<Config>>,
    on_stage: Option<Actor>,
    /// Since when nobody plays, and until when.
    pause: Option<Instant>,
    /// Runs so far.
    pub runs: u64,
    /// Whether the daemon ended without being asked to.
    pub fell: bool,
}

impl Troupe {
    /// Nobody plays yet.
    pub fn new(world: &World, log: &Log, observer: Arc<dyn Observer>, random: Rng) -> Self {
        Self {
            config: watch::Sender::new(world.config.clone()),
            world: world.clone(),
            log: log.clone(),
            random,
            calls: Arc::default(),
            observer,
            stall: Stall::default(),
            on_stage: None,
            pause: None,
            runs: 0,
            fell: false,
        }
    }

    /// Starts the daemon.
    ///
    /// # Errors
    /// The client of Proxmox VE refuses its settings, which is a mistake here.
    pub fn start(&mut self) -> anyhow::Result<()> {
        self.runs += 1;
        self.pause = None;
        self.log.say("daemon", &format!("run {} begins", self.runs));
        let wire =
            Wire::counting(self.calls.clone()).observed(self.observer.clone()).stalling(self.stall.clone());
        let cast = Cast {
            pve: self.world.pve.clone(),
            kube: self.world.kube.clone(),
            clock: self.world.clock,
            config: self.config.subscribe(),
            probes: self.runs.is_multiple_of(2),
            seed: self.random.u64(..),
            instance: format!("pve{}", self.runs),
            entropy: Some(entropy(self.random.u64(..))),
        };
        self.on_stage = Some(Actor::start(cast, wire)?);
        Ok(())
    }

    /// Kills the daemon right after one of its next calls was carried out, its answer lost.
    pub fn kill_soon(&mut self) {
        let within = self.random.u64(1..60);
        if let Some(actor) = &self.on_stage {
            self.log.say("fault", &format!("the daemon will be killed at its call {within} from now on"));
            actor.wire.cut_after(self.calls.load(Ordering::SeqCst) + within);
        }
    }

    /// Kills the daemon now.
    pub fn kill(&mut self) {
        if let Some(actor) = self.on_stage.take() {
            actor.kill();
            self.away("the daemon is killed");
        }
    }

    /// Ends the daemon as systemd does.
    pub async fn stop(&mut self) {
        if let Some(actor) = self.on_stage.take() {
            self.fell |= !actor.stop().await;
            self.away("the daemon is stopped");
        }
    }

    fn away(&mut self, what: &str) {
        let seconds =
            if self.random.u8(..10) == 0 { self.random.u64(60..600) } else { self.random.u64(1..30) };
        self.log.say("fault", &format!("{what}, for {seconds} s"));
        self.pause = Some(Instant::now() + Duration::from_secs(seconds));
    }

    /// Sees to it that somebody plays when it is time.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn tick(&mut self) -> anyhow::Result<()> {
        if self.on_stage.as_ref().is_some_and(|actor| actor.wire.is_cut()) {
            self.kill();
        }
        self.fell |= self.on_stage.as_ref().is_some_and(Actor::has_ended);
        if self.pause.is_some_and(|until| Instant::now() >= until) {
            self.start()?;
        }
        Ok(())
    }

    /// Makes the streams of all watches stand still, or go on.
    pub fn stall(&self, still: bool) {
        self.stall.set(still);
    }

    /// What the daemon shows, where one plays.
    pub fn status(&self) -> Option<Status> {
        self.on_stage.as_ref().map(|actor| actor.board.status())
    }

    /// Calls of all runs so far.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }
}

fn entropy(seed: u64) -> Entropy {
    let random = std::sync::Mutex::new(Rng::with_seed(seed));
    Arc::new(move |bytes: &mut [u8]| {
        random.lock().unwrap_or_else(std::sync::PoisonError::into_inner).fill(bytes);
        Ok(())
    })
}
