//! `run`: the daemon.
//!
//! The daemon exits immediately if the configuration, a secret or the control socket cannot be used, because
//! waiting would not help. It keeps running if a cluster is unreachable. SIGTERM and SIGINT stop the daemon,
//! and a second signal stops it immediately. SIGHUP reloads the configuration.

mod journal;
mod logging;
mod reload;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use rustls::crypto::aws_lc_rs;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinHandle};
use tokio_util::sync::CancellationToken;

use super::exit::{Failure, SUCCESS};
use super::input::ConfigFile;
use super::live;
use super::neighbours;
use daemon::{Deps, Renewal, Switch};
use machines::{NoProbe, Probe, TcpProbe};
use observability::{Board, DEFAULT_SOCKET, Listener, Pages, Problem, SocketError, Supervisor};
use pinning::SocketDoor;
use proxmox::Client;
use runtime::clock::{SharedClock, SystemClock};
use settings::{Config, Mode, Needs};

/// Enough for a round and all other work at the same time. The lease has its own thread.
const THREADS: usize = 2;
/// How long the daemon may take to stop. Each machine's task ends the next time it waits, and continues from
/// the machine's record after the next start.
const STOP_LIMIT: Duration = Duration::from_secs(20);

const SIGNALS: &str = "\
Signals:
  SIGTERM, SIGINT  stop the daemon; work on machines continues at the next start; a second signal stops it immediately
  SIGHUP           reload the configuration; if it is wrong, the old one stays in force";

/// Arguments of `run`.
#[derive(Debug, Args)]
#[command(after_help = SIGNALS)]
pub(super) struct Arguments {
    #[command(flatten)]
    config: ConfigFile,
    /// The socket on which to listen for `status` and other commands
    #[arg(long, value_name = "PATH", default_value = DEFAULT_SOCKET)]
    socket: PathBuf,
    /// Log level: error, warn, info, debug or trace, or directives such as `info,kube=debug`
    #[arg(
        long,
        value_name = "LEVEL",
        env = "RUST_LOG",
        hide_env_values = true,
        default_value = "info",
        value_parser = logging::directives
    )]
    log_level: String,
}

pub(super) fn run(arguments: &Arguments) -> Result<u8, Failure> {
    let config = files::load(&arguments.config.config, Needs::Run).map_err(Failure::Configuration)?;
    logging::start(&arguments.log_level);
    // Fails if a TLS provider is already installed, which then stays in use.
    let _ = aws_lc_rs::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(THREADS).enable_all().build();
    let runtime = runtime.map_err(|error| Failure::System("start threads", error))?;
    let lease = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("lease")
        .enable_all()
        .build()
        .map_err(|error| Failure::System("start threads", error))?;
    let secrets = reload::Secrets::read(&config)?;
    let board = Board::default();
    let ended = renewal(&lease, &config, &board)
        .and_then(|renewal| runtime.block_on(serve(arguments, config, secrets, board, renewal)));
    // Do not wait for the threads: a name lookup blocks its thread until the resolver returns.
    runtime.shutdown_background();
    lease.shutdown_background();
    ended
}

/// A separate thread and separate connections for the lease, so that it is renewed in time even if the daemon
/// is busy.
fn renewal(lease: &Runtime, config: &Config, board: &Board) -> Result<Renewal, Failure> {
    let kubernetes = lease.block_on(live::kubernetes(config))?;
    let kubernetes = Box::new(kubernetes.with_observer(board.metrics().of_kubernetes()));
    Ok(Renewal::Apart { kubernetes, threads: lease.handle().clone() })
}

async fn serve(
    arguments: &Arguments,
    config: Config,
    secrets: reload::Secrets,
    board: Board,
    renewal: Renewal,
) -> Result<u8, Failure> {
    let mut signals = Signals::new().map_err(|error| Failure::System("listen for signals", error))?;
    let proxmox = live::proxmox(&config)?.with_observer(board.metrics().of_proxmox());
    let regions = regions(&config, &board)?;
    let kubernetes = live::kubernetes(&config).await?.with_observer(board.metrics().of_kubernetes());
    let listener = Listener::bind(&arguments.socket).await.map_err(refused)?;
    // This check comes after the daemon has begun to listen, so that two daemons that start together see each
    // other.
    neighbours::refuse_shared(&arguments.config.config, &config, &arguments.socket).await?;

    let clock: SharedClock = Arc::new(SystemClock);
    let instance = host_name();
    board.introduce(&instance, mode(&config), clock.now());
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        instance,
        mode = mode(&config),
        pools = config.pools.len(),
        kubernetes = kubernetes.server(),
        "pve-autoscaler starts"
    );
    let probe = probe(&config);
    let (settings, receiver) = watch::channel(Arc::new(config));
    let cancel = CancellationToken::new();
    let switch = Switch::new(kubernetes.clone(), clock.clone(), &instance, board.clone());
    let deps = Deps {
        config: receiver,
        proxmox,
        regions,
        kubernetes,
        renewal,
        clock: clock.clone(),
        probe,
        controllers: Arc::new(|settings| live::controller(settings).map_err(|failure| failure.words())),
        helper: Arc::new(SocketDoor::new(pinning::SOCKET)),
        seed: seed()?,
        instance,
        board: board.clone(),
    };
    let mut daemon = tokio::spawn(daemon::run(deps, cancel.clone()));
    let supervisor = Supervisor::from_environment(board.clone());
    let pages = Pages::new(board.clone(), settings.subscribe(), clock.clone());
    let ends = {
        let mut beside = pin!(async {
            let interval = || settings.borrow().scan_interval;
            let credentials = crate::cli::expiry::follow(&board, || settings.borrow().clone(), clock.clone());
            tokio::join!(listener.serve(&board, &switch), supervisor.run(interval), pages.run(), credentials);
            std::future::pending::<()>().await;
        });
        loop {
            tokio::select! {
                biased;
                heard = signals.next() => match heard {
                    Heard::End(signal) => break signal,
                    Heard::Reload => {
                        supervisor.reloading();
                        let machines = board.status().machines;
                        let places = (arguments.config.config.as_path(), arguments.socket.as_path());
                        match reload::reload(places, &settings, &secrets, &machines) {
                            Some(problem) => board.problem(&Problem::Configuration, &problem),
                            None => board.clear(&Problem::Configuration),
                        }
                        supervisor.reloaded();
                    }
                },
                ended = &mut daemon => {
                    over(ended)?;
                    let error = std::io::Error::other("the daemon's rounds have ended unexpectedly");
                    return Err(Failure::System("continue", error));
                }
                () = &mut beside => {}
            }
        }
    };
    supervisor.stopping();
    tracing::info!(signal = ends.name(), "stopping; unfinished work continues at the next start");
    cancel.cancel();
    end(daemon, &mut signals).await
}

/// Waits until the daemon has ended, the time limit has passed, or a second signal arrives.
async fn end(mut daemon: JoinHandle<()>, signals: &mut Signals) -> Result<u8, Failure> {
    tokio::select! {
        biased;
        ended = &mut daemon => over(ended),
        again = signals.end() => {
            tracing::warn!(signal = again.name(), "stopping immediately");
            Ok(again.status())
        }
        () = tokio::time::sleep(STOP_LIMIT) => {
            tracing::warn!("a task did not end in time and was abandoned; its work continues from the \
                record at the next start");
            Ok(SUCCESS)
        }
    }
}

/// Returns the exit status after the daemon's task has ended. A panic in the task is passed on, so that the
/// process ends and its supervisor restarts it.
fn over(ended: Result<(), JoinError>) -> Result<u8, Failure> {
    match ended.map_err(JoinError::try_into_panic) {
        Err(Ok(panic)) => std::panic::resume_unwind(panic),
        Ok(()) | Err(Err(_)) => Ok(SUCCESS),
    }
}

fn refused(error: SocketError) -> Failure {
    match error {
        SocketError::InUse { .. } => Failure::Running(error),
        other => Failure::Socket(other),
    }
}

/// Clients of the additional Proxmox VE clusters, by region name.
fn regions(config: &Config, board: &Board) -> Result<BTreeMap<String, Client>, Failure> {
    let mut regions = BTreeMap::new();
    for table in &config.also {
        let client = live::client(table)?.with_observer(board.metrics().of_proxmox());
        regions.insert(table.region.clone().unwrap_or_default(), client);
    }
    Ok(regions)
}

fn mode(config: &Config) -> &'static str {
    match config.mode {
        Mode::Active => "active",
        Mode::Observe => "observe",
    }
}

fn probe(config: &Config) -> Arc<dyn Probe> {
    match config.bootstrap.as_ref().and_then(|bootstrap| bootstrap.probe_port) {
        Some(port) => Arc::new(TcpProbe { port }),
        None => Arc::new(NoProbe),
    }
}

/// The host's name, which identifies this instance.
fn host_name() -> String {
    let name = nix::unistd::gethostname().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    if name.is_empty() { "pve-autoscaler".to_owned() } else { name }
}

/// A random seed, so that no two instances or starts generate the same names and ids.
fn seed() -> Result<u64, Failure> {
    let mut bytes = [0; 8];
    let filled = aws_lc_rs::default_provider().secure_random.fill(&mut bytes);
    let failed = || std::io::Error::other("the random number generator failed");
    filled.map_err(|_| Failure::System("get random bytes", failed()))?;
    Ok(u64::from_ne_bytes(bytes))
}

/// The signals that an operator or systemd sends.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

/// The action that a signal requests.
enum Heard {
    End(Ending),
    Reload,
}

/// The signal that ends the daemon.
#[derive(Clone, Copy)]
enum Ending {
    Terminate,
    Interrupt,
}

impl Ending {
    fn name(self) -> &'static str {
        match self {
            Self::Terminate => "SIGTERM",
            Self::Interrupt => "SIGINT",
        }
    }

    /// The status that a shell reports for a program killed by the signal.
    fn status(self) -> u8 {
        match self {
            Self::Terminate => 128 + 15,
            Self::Interrupt => 128 + 2,
        }
    }
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> Heard {
        tokio::select! {
            biased;
            Some(()) = self.terminate.recv() => Heard::End(Ending::Terminate),
            Some(()) = self.interrupt.recv() => Heard::End(Ending::Interrupt),
            Some(()) = self.hangup.recv() => Heard::Reload,
            else => std::future::pending().await,
        }
    }

    async fn end(&mut self) -> Ending {
        loop {
            if let Heard::End(ending) = self.next().await {
                return ending;
            }
        }
    }
}
