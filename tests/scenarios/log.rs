//! Records the calls of one daemon.

use std::sync::{Arc, Mutex};

use jiff::Timestamp;
use pve_autoscaler::runtime::clock::{Clock, TokioClock};
use stage::{Arrival, Call, Observer, Side};

/// A call that has arrived.
#[derive(Clone, Debug)]
pub struct Arrived {
    pub at: Timestamp,
    pub side: Side,
    /// Method and path.
    pub what: String,
}

impl Arrived {
    /// Whether the call may have changed something other than the holder of the lease.
    pub fn is_write(&self) -> bool {
        !self.what.starts_with("GET ") && !self.what.contains("/leases")
    }
}

/// The recorded calls of one daemon. All clones of a log share them.
#[derive(Clone)]
pub struct Log {
    arrived: Arc<Mutex<Vec<Arrived>>>,
    clock: TokioClock,
}

impl Log {
    pub fn new(clock: TokioClock) -> Self {
        Self { arrived: Arc::default(), clock }
    }

    /// The calls that have arrived, oldest first.
    pub fn arrived(&self) -> Vec<Arrived> {
        self.arrived.lock().unwrap().clone()
    }

    /// The write calls that arrived after this time.
    pub fn writes_after(&self, time: Timestamp) -> Vec<Arrived> {
        self.arrived().into_iter().filter(|one| one.at > time && one.is_write()).collect()
    }
}

impl Observer for Log {
    fn before(&self, call: Call<'_>) -> Arrival {
        let what = format!("{} {}", call.method, call.path);
        self.arrived.lock().unwrap().push(Arrived { at: self.clock.now(), side: call.side, what });
        Arrival::Once
    }
}
