//! Machines that are not VMs. A management controller switches each machine on and off. After booting, the
//! machine's kubelet registers a Node under the machine's own name.

use std::time::Duration;

use http::StatusCode;
use jiff::Timestamp;

use super::{
    Kube,
    spec::NodeSpec,
    state::{State, Work},
};

/// A bare-metal machine, which is off at first.
#[derive(Clone, Debug)]
pub struct MetalSpec {
    /// The Node that its kubelet registers.
    pub node: NodeSpec,
    /// The time from switching the machine on until its kubelet starts.
    pub boot: Duration,
    /// The time from a shutdown request until the machine is off. `None` if its operating system ignores the
    /// request.
    pub shutdown: Option<Duration>,
    /// Whether its kubelet starts.
    pub joins: bool,
    /// The uuid that its controller reports, if any.
    pub uuid: Option<String>,
    /// Whether its controller answers.
    pub answers: bool,
    /// The number of upcoming resets that the controller refuses because it is busy.
    pub refuses: u32,
    /// Whether its controller refuses a shutdown request while a shutdown is under way.
    pub refuses_repeats: bool,
}

impl MetalSpec {
    /// Returns a worker with this many CPUs and this much memory in GiB. It takes two minutes to boot.
    pub fn worker(name: &str, cpus: u32, memory_gib: u64) -> Self {
        let node = NodeSpec::worker(name, cpus, memory_gib);
        let uuid = Some(node.system_uuid.clone());
        let (boot, shutdown) = (Duration::from_mins(2), Some(Duration::from_secs(20)));
        let (refuses, refuses_repeats) = (0, false);
        Self { node, boot, shutdown, joins: true, uuid, answers: true, refuses, refuses_repeats }
    }
}

/// A reset that was requested from a machine's controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reset {
    /// When.
    pub time: Timestamp,
    /// The machine.
    pub machine: String,
    /// `ResetType`.
    pub what: String,
    /// The number of pods on the machine's Node when the reset was requested, not counting those of
    /// DaemonSets.
    pub pods: usize,
}

/// The current state of a machine.
#[derive(Debug)]
pub(super) struct Metal {
    spec: MetalSpec,
    on: bool,
    going_down: bool,
}

impl Kube {
    /// Adds a machine, which is off.
    pub fn add_metal(&self, spec: MetalSpec) {
        self.state().metal.insert(spec.node.name.clone(), Metal { spec, on: false, going_down: false });
    }

    /// Changes how a machine behaves from now on.
    pub fn change_metal(&self, name: &str, change: impl FnOnce(&mut MetalSpec)) {
        if let Some(metal) = self.state().metal.get_mut(name) {
            change(&mut metal.spec);
        }
    }

    /// Whether a machine is on. `None` if it does not exist.
    pub fn metal_is_on(&self, name: &str) -> Option<bool> {
        self.state().metal.get(name).map(|metal| metal.on)
    }

    /// Whether the machine exists.
    pub(crate) fn has_metal(&self, name: &str) -> bool {
        self.state().metal.contains_key(name)
    }

    /// Whether the machine's controller does not answer.
    pub(crate) fn metal_is_silent(&self, name: &str) -> bool {
        self.state().metal.get(name).is_some_and(|metal| !metal.spec.answers)
    }

    /// The uuid that the machine's controller reports, if any.
    pub(crate) fn metal_uuid(&self, name: &str) -> Option<String> {
        self.state().metal.get(name)?.spec.uuid.clone()
    }

    /// The resets that were requested from all controllers.
    pub fn resets(&self) -> Vec<Reset> {
        self.state().resets.clone()
    }

    /// Resets a machine, as its power button or its controller does.
    pub fn reset_metal(&self, name: &str, what: &str) {
        let mut state = self.state();
        match what {
            "On" => state.switch_on(name),
            "ForceOff" => state.cut_power(name),
            _ => state.shut_down(name),
        }
    }

    /// Requests a reset from the machine's controller. If the controller refuses, its status code is
    /// returned.
    pub(crate) fn ask_metal(&self, name: &str, what: &str) -> Result<(), StatusCode> {
        {
            let mut state = self.state();
            if let Some(metal) = state.metal.get_mut(name) {
                metal.take(what)?;
            }
            let pods = state.workload_pods_on(name);
            let (time, machine) = (state.now(), name.to_owned());
            state.resets.push(Reset { time, machine, what: what.to_owned(), pods });
        }
        self.reset_metal(name, what);
        Ok(())
    }
}

impl Metal {
    /// Checks that the controller accepts a reset now.
    fn take(&mut self, what: &str) -> Result<(), StatusCode> {
        if self.spec.refuses > 0 {
            self.spec.refuses -= 1;
            return Err(StatusCode::SERVICE_UNAVAILABLE);
        }
        let repeated = self.going_down && what == "GracefulShutdown";
        if repeated && self.spec.refuses_repeats { Err(StatusCode::CONFLICT) } else { Ok(()) }
    }
}

impl State {
    fn workload_pods_on(&self, node: &str) -> usize {
        let of_daemons = |key: &super::object::Key| {
            let pod = self.store.get(&super::kinds::POD, &key.0, &key.1);
            pod.is_some_and(|pod| pod["metadata"]["ownerReferences"][0]["kind"] == "DaemonSet")
        };
        self.pods.on(node).iter().filter(|key| !of_daemons(key)).count()
    }

    fn switch_on(&mut self, name: &str) {
        let Some(metal) = self.metal.get_mut(name).filter(|metal| !metal.on) else { return };
        (metal.on, metal.going_down) = (true, false);
        let boot = metal.spec.boot;
        self.wake(Work::Power(name.into()), boot);
    }

    fn shut_down(&mut self, name: &str) {
        let Some(metal) = self.metal.get_mut(name).filter(|metal| metal.on) else { return };
        let Some(takes) = metal.spec.shutdown.filter(|_| !metal.going_down) else { return };
        metal.going_down = true;
        self.forget(&Work::Power(name.into()));
        self.wake(Work::Power(name.into()), takes);
    }

    fn cut_power(&mut self, name: &str) {
        let Some(metal) = self.metal.get_mut(name) else { return };
        (metal.on, metal.going_down) = (false, false);
        if let Some(kubelet) = self.kubelets.get_mut(name) {
            kubelet.alive = false;
        }
        for work in [Work::Power, Work::Register, Work::Beat, Work::NodeReady] {
            self.forget(&work(name.into()));
        }
    }

    /// Completes the boot or the shutdown of a machine.
    pub(super) fn follow_power(&mut self, name: &str) {
        let Some(metal) = self.metal.get(name) else { return };
        if metal.going_down {
            return self.cut_power(name);
        }
        if !metal.on || !metal.spec.joins {
            return;
        }
        let node = metal.spec.node.clone();
        if !self.kubelets.contains_key(name) {
            self.add_kubelet(node, 110);
        }
        let boot_id = self.new_uid();
        if let Some(kubelet) = self.kubelets.get_mut(name) {
            (kubelet.alive, kubelet.boot_id) = (true, boot_id);
        }
        let delay = self.spec.timings.kubelet_restart;
        self.wake(Work::Register(name.into()), delay);
    }
}
