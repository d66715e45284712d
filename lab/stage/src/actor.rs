//! One run of the daemon, from its start until it stops or is killed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use pve_autoscaler::daemon::{self, Controllers, Deps, Renewal, Switch};
use pve_autoscaler::kubernetes::{Cluster, Entropy};
use pve_autoscaler::machines::{NoProbe, Probe};
use pve_autoscaler::observability::Board;
use pve_autoscaler::proxmox::redfish::{Client, Settings};
use pve_autoscaler::runtime::clock::SharedClock;
use pve_autoscaler::settings::Config;
use secrecy::SecretString;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use world::kubernetes::Kube;
use world::proxmox::Pve;
use world::redfish;

use crate::helpers::{HelperDoor, Helpers};
use crate::wire::{Side, Wire};

/// How long a daemon may take to stop.
const FAREWELL: Duration = Duration::from_mins(1);

/// The values with which a daemon is started.
#[derive(Clone)]
pub struct Cast {
    /// Proxmox VE.
    pub pve: Pve,
    /// Other Proxmox VE clusters, by region name.
    pub regions: Vec<(String, Pve)>,
    /// Kubernetes.
    pub kube: Kube,
    /// The wall-clock time of the daemon's host.
    pub clock: SharedClock,
    /// The settings.
    pub config: watch::Receiver<Arc<Config>>,
    /// Whether the daemon can detect through the network that a guest has booted.
    pub probes: bool,
    /// The helpers that give machines dedicated CPUs.
    pub helpers: Helpers,
    /// The seed for the daemon's random names, ids and jitter.
    pub seed: u64,
    /// The name of this instance.
    pub instance: String,
    /// The source of the random bytes in tokens; by default, the operating system.
    pub entropy: Option<Entropy>,
}

impl std::fmt::Debug for Cast {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cast").field("instance", &self.instance).finish_non_exhaustive()
    }
}

/// One run of the daemon.
#[derive(Debug)]
pub struct Actor {
    /// The state that the daemon publishes.
    pub board: Board,
    /// Its wires.
    pub wire: Wire,
    /// Carries out an operator's orders, such as `pause`.
    pub switch: Switch,
    still: watch::Sender<bool>,
    cancel: CancellationToken,
    running: JoinHandle<()>,
}

impl Actor {
    /// Starts the daemon. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// Returns an error if the Proxmox VE client refuses its settings.
    pub fn start(cast: Cast, wire: Wire) -> Result<Self, http::Error> {
        let (board, cancel) = (Board::default(), CancellationToken::new());
        board.introduce(&cast.instance, "active", cast.clock.now());
        let kubernetes: Cluster = wire.kubernetes(&cast.kube).with_clock(cast.clock.clone());
        let controllers = controllers(wire.clone(), cast.pve.clone(), cast.kube.clone());
        let all =
            std::iter::once(&cast.pve).chain(cast.regions.iter().map(|(_, pve)| pve)).cloned().collect();
        let mut regions = BTreeMap::new();
        for (name, pve) in &cast.regions {
            regions.insert(name.clone(), wire.proxmox(pve)?);
        }
        let helper = HelperDoor {
            helpers: cast.helpers,
            host: cast.instance.clone(),
            pve: cast.pve.clone(),
            config: cast.config.clone(),
        };
        let deps = Deps {
            controllers,
            helper: Arc::new(helper),
            config: cast.config,
            proxmox: wire.proxmox(&cast.pve)?,
            regions,
            kubernetes: match cast.entropy {
                Some(entropy) => kubernetes.with_entropy(entropy),
                None => kubernetes,
            },
            renewal: Renewal::Shared,
            clock: cast.clock,
            probe: if cast.probes { Arc::new(Network(all)) } else { Arc::new(NoProbe) },
            seed: cast.seed,
            instance: cast.instance,
            board: board.clone(),
        };
        let switch = Switch::new(deps.kubernetes.clone(), deps.clock.clone(), &deps.instance, board.clone());
        let still = watch::Sender::new(false);
        let running = tokio::spawn(unless_still(daemon::run(deps, cancel.clone()), still.subscribe()));
        Ok(Self { board, wire, switch, still, cancel, running })
    }

    /// Freezes the daemon's host, or lets it continue. While the host is frozen, there are no rounds and the
    /// lease is not renewed, no order is carried out, and nothing is sent or received. Operations in progress
    /// on individual machines notice the freeze only at their next call.
    pub fn stand_still(&self, still: bool) {
        self.wire.hold(Side::Proxmox, still);
        self.wire.hold(Side::Kubernetes, still);
        self.still.send_replace(still);
    }

    /// Stops the daemon as SIGTERM does. Returns whether it stopped in time and without a panic.
    pub async fn stop(self) -> bool {
        self.cancel.cancel();
        matches!(tokio::time::timeout(FAREWELL, self.running).await, Ok(Ok(())))
    }

    /// Kills the daemon as SIGKILL does. Work in progress is cut off.
    pub fn kill(self) {
        self.wire.cut();
        self.running.abort();
        self.cancel.cancel();
    }

    /// Whether the daemon has ended. It should never end by itself.
    pub fn has_ended(&self) -> bool {
        self.running.is_finished()
    }
}

/// Runs a future, except while `still` is set.
async fn unless_still(run: impl Future<Output = ()>, mut still: watch::Receiver<bool>) {
    let mut run = std::pin::pin!(run);
    loop {
        tokio::select! {
            biased;
            Ok(_) = still.wait_for(|still| *still) => {}
            () = &mut run => return,
        }
        if still.wait_for(|still| !*still).await.is_err() {
            return run.await;
        }
    }
}

/// The management controllers, each at `https://HOST`. Their password is not read from the configuration.
fn controllers(wire: Wire, pve: Pve, kube: Kube) -> Controllers {
    Arc::new(move |settings| {
        let name = settings.endpoint.trim_start_matches("https://");
        let transport = wire.controller(&pve, &kube, name);
        let reached = Settings {
            endpoint: settings.endpoint.clone(),
            system: settings.system.clone(),
            user: settings.user.clone(),
            timeout: settings.timeout,
        };
        Client::new(transport, reached, &SecretString::from(redfish::USER.1))
            .map_err(|error| error.to_string())
    })
}

/// A probe that detects booted guests through the embedded network of each Proxmox VE cluster.
struct Network(Vec<Pve>);

impl Probe for Network {
    fn booted(&self, address: std::net::IpAddr) -> BoxFuture<'_, Option<bool>> {
        let address = address.to_string();
        let open = self.0.iter().any(|pve| pve.guest_tcp_open(&address));
        Box::pin(async move { Some(open) })
    }
}
