//! Runs one seed from beginning to end.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use tokio::time::Instant;
use tracing_subscriber::layer::SubscriberExt as _;
use world::kubernetes::spec::KubeSpec;
use world::proxmox::spec::ClusterSpec;

use super::admin::Admin;
use super::checker::Checker;
use super::checker::memory::Figures;
use super::databases::Databases;
use super::faults::Faults;
use super::hands::Hands;
use super::log::{Ear, Log};
use super::promises;
use super::storm::Storm;
use super::troupe::Troupe;
use super::workload::Workload;
use super::world::{K3S_TOKEN, World};

/// The length of a tick, and thus the interval between checks.
const TICK: Duration = Duration::from_millis(500);
/// The number of ticks between two checks of whether the cluster has settled.
const TICKS: u32 = 4;
/// Once there are no more faults, everything must reach its intended state within this time. It includes
/// back-offs, the time after which an unready node is removed, the time until an administrator reads a
/// report, and windows in which no node may be removed.
const SETTLES: Duration = Duration::from_hours(5);
/// How long a settled state must last.
const STAYS: Duration = Duration::from_mins(15);
/// The range of seconds between two faults, at the normal rate.
const FAULTS: std::ops::Range<u64> = 20..400;
/// The range of seconds between two administrator actions, at the normal rate.
const ACTS: std::ops::Range<u64> = 100..1500;
/// The range of seconds between two workload changes, at the normal rate.
const CHANGES: std::ops::Range<u64> = 15..600;
/// The range of seconds between two changes of the settings.
const RELOADS: std::ops::Range<u64> = 3600..28_800;

/// The result of a seed.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The promises that were broken.
    pub violations: Vec<String>,
    /// The log of the run.
    pub log: String,
    /// Counts of the daemon's actions.
    pub figures: Figures,
    /// Counts of calls, calls with a fault, other faults, daemon starts and leader changes, in this order.
    pub counts: [u64; 5],
    /// How long the cluster took to settle once there were no more faults.
    pub settled: Duration,
    /// The simulated time that passed.
    pub lived: Duration,
}

impl Outcome {
    /// Whether all promises were kept.
    pub fn is_fine(&self) -> bool {
        self.violations.is_empty()
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [calls, met, faults, runs, hand_overs] = self.counts;
        write!(
            f,
            "{} clones, {} VMs destroyed, {} evictions, {} machines grown, {} hosts switched off, {} \
                hosts woken, {} VMs replaced by hand, {calls} calls ({met} with faults), {faults} \
                faults, {runs} daemon runs, {hand_overs} leader changes, settled in {:.0} min: ",
            self.figures.clones,
            self.figures.destructions,
            self.figures.evictions,
            self.figures.growths,
            self.figures.sleeps,
            self.figures.wakes,
            self.figures.taken,
            self.settled.as_secs_f64() / 60.0,
        )?;
        if self.is_fine() {
            return f.write_str("fine");
        }
        let hours = self.lived.as_secs_f64() / 3600.0;
        write!(f, "FAILED after {hours:.1} h: {}", self.violations.join("; "))
    }
}

/// Runs one seed: this many hours with faults, and then without faults until the cluster has settled. Faults,
/// administrator actions and workload changes occur at `often` times their normal rate.
pub fn play(seed: u64, hours: u64, often: u64, hindered: bool, verbose: bool) -> Outcome {
    let built = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let failed = |what: String| Outcome {
        violations: vec![what],
        log: String::new(),
        figures: Figures::default(),
        counts: [0; 5],
        settled: Duration::ZERO,
        lived: Duration::ZERO,
    };
    match built {
        Ok(runtime) => runtime.block_on(async {
            let log = Log::new(verbose);
            let always_secret = vec![ClusterSpec::DEMO_SECRET, KubeSpec::DEMO_ADMIN_TOKEN, K3S_TOKEN];
            let ear = Ear { log: log.clone(), always_secret };
            let _listening = tracing::subscriber::set_default(tracing_subscriber::registry().with(ear));
            whole(seed, hours, often, hindered, log)
                .await
                .unwrap_or_else(|error| failed(format!("{error:#}")))
        }),
        Err(error) => failed(error.to_string()),
    }
}

/// The parts of one run.
struct Play {
    world: World,
    log: Log,
    checker: Checker,
    storm: Arc<Storm>,
    troupe: Troupe,
    faults: Faults,
    admin: Admin,
    workload: Workload,
    databases: Option<Databases>,
    random: Rng,
}

async fn whole(seed: u64, hours: u64, often: u64, hindered: bool, log: Log) -> anyhow::Result<Outcome> {
    let (mut random, begun) = (Rng::with_seed(seed), Instant::now());
    let world = World::of(seed, hindered)?;
    log.say("world", &format!("{:?}", world.pools));
    log.say("world", &format!("{:?}", world.rules));
    let checker = Checker::new(&world, &log, promises::ALL);
    let hands = Hands::new(&world, &log, &checker);
    let storm = Arc::new(Storm::new(&world, &log, &checker, &hands, random.fork()));
    let mut play = Play {
        troupe: Troupe::new(&world, &log, &checker, storm.clone(), random.fork()),
        faults: Faults::new(&world, &log, &checker, random.fork()),
        admin: Admin::new(&world, &log, &checker, &hands, random.fork()),
        workload: Workload::begin(&world.kube, &world.pools, random.fork())?,
        databases: Databases::begin(&world.kube, &world.pools, world.rules.volumes, Rng::with_seed(!seed))?,
        random,
        world,
        log,
        checker,
        storm,
    };
    play.troupe.start()?;
    play.live(Duration::from_secs(hours * 3600), often).await?;
    let mut settled = Duration::ZERO;
    if play.is_fine() {
        play.log.say("world", "no more faults from now on");
        play.faults.mend(&mut play.troupe, &play.storm, true);
        // Updates the checker's view now, because a daemon may act on the end of the faults before the next
        // tick.
        play.checker.look_at_places();
        settled = play.settle(false).await?;
    }
    if play.is_fine() {
        play.workload.end(&play.log);
        if let Some(databases) = &play.databases {
            databases.end();
        }
        settled = settled.max(play.settle(true).await?);
    }
    let hand_overs = play.checker.hand_overs();
    let counts = [play.troupe.calls(), play.storm.met(), play.faults.begun, play.troupe.runs, hand_overs];
    let violations = play.checker.violations();
    Ok(Outcome {
        violations,
        log: play.log.text(),
        figures: play.checker.figures(),
        counts,
        settled,
        lived: begun.elapsed(),
    })
}

impl Play {
    fn is_fine(&self) -> bool {
        self.checker.violations().is_empty()
    }

    /// Runs for this time with faults, administrator actions and workload changes at `often` times the normal
    /// rate.
    async fn live(&mut self, time: Duration, often: u64) -> anyhow::Result<()> {
        let begun = Instant::now();
        let after =
            |random: &mut Rng, of: std::ops::Range<u64>| Instant::now() + Duration::from_secs(random.u64(of));
        let soon =
            |random: &mut Rng, of: std::ops::Range<u64>| after(random, of.start / often..of.end / often);
        let (mut fault, mut act, mut change) =
            (soon(&mut self.random, FAULTS), soon(&mut self.random, ACTS), soon(&mut self.random, CHANGES));
        let mut reload = after(&mut self.random, RELOADS);
        while begun.elapsed() < time && self.is_fine() {
            self.tick(false).await?;
            let now = Instant::now();
            if now >= change {
                self.workload.step(&self.world.pools, &self.log)?;
                if let Some(databases) = &mut self.databases {
                    databases.step(&self.log);
                }
                change = soon(&mut self.random, CHANGES);
            }
            if now >= fault {
                self.faults.step(&mut self.troupe, &self.storm).await;
                fault = soon(&mut self.random, FAULTS);
            }
            if now >= act {
                self.admin.step();
                act = soon(&mut self.random, ACTS);
            }
            // Shows the checker the effects of the actions above without delay.
            self.checker.look_at_places();
            if now >= reload {
                self.troupe.reload()?;
                reload = after(&mut self.random, RELOADS);
            }
        }
        Ok(())
    }

    /// Waits until everything has reached its intended state and has stayed in it for long enough. Returns
    /// how long it took to reach that state.
    async fn settle(&mut self, idle: bool) -> anyhow::Result<Duration> {
        let begun = Instant::now();
        let mut fine_since: Option<Instant> = None;
        let mut ours = Vec::new();
        loop {
            for _ in 0..TICKS {
                self.tick(true).await?;
            }
            if !self.is_fine() {
                break;
            }
            let mut wrong = self.checker.unsettled(idle);
            if self.checker.leader().is_none() {
                wrong.push("no instance leads".to_owned());
            }
            let now_ours = self.checker.ours();
            if !wrong.is_empty() || now_ours != ours {
                fine_since = None;
            }
            ours = now_ours;
            if wrong.is_empty() {
                let since = *fine_since.get_or_insert_with(Instant::now);
                if since.elapsed() >= STAYS {
                    return Ok(since.duration_since(begun));
                }
            }
            if begun.elapsed() > SETTLES {
                let shown = self.troupe.status().map(|status| {
                    let machines =
                        status.machines.iter().map(|one| format!("{} {}: {}", one.name, one.phase, one.why));
                    let nodes =
                        status.nodes.iter().map(|one| format!("{} {}: {}", one.name, one.verdict, one.why));
                    let pods =
                        status.pods.iter().map(|one| format!("{} {}: {}", one.pod, one.verdict, one.why));
                    let hosts =
                        status.hosts.iter().map(|one| format!("{} {}: {}", one.name, one.power, one.why));
                    let all: Vec<String> = machines.chain(nodes).chain(pods).chain(hosts).collect();
                    format!("{all:?}; {:?}", status.problems)
                });
                self.checker.violated(&format!(
                    "the cluster has not settled: {}; the daemon's status: {}",
                    wrong.join("; "),
                    shown.unwrap_or_default()
                ));
                break;
            }
        }
        Ok(begun.elapsed())
    }

    async fn tick(&mut self, calm: bool) -> anyhow::Result<()> {
        tokio::time::sleep(TICK).await;
        self.troupe.tick()?;
        if self.troupe.fell {
            self.checker.violated("a daemon exited unexpectedly, or did not stop in time");
        }
        self.faults.mend(&mut self.troupe, &self.storm, false);
        self.admin.tick(calm);
        self.checker.tick();
        Ok(())
    }
}
