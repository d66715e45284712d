//! Nodes that are marked as permanently off (`node.kubernetes.io/out-of-service`). The pod garbage collector
//! removes those pods of such a Node that are being deleted. The attach/detach controller detaches the Node's
//! volumes without waiting for an unmount.

use std::time::Duration;

use serde_json::Value;

use super::{
    kinds::{NODE, POD},
    object::{self, list},
    state::{State, Work},
};

/// The taint's key; its effect is `NoExecute`.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
/// The interval at which the pod garbage collector runs.
const PERIOD: Duration = Duration::from_secs(20);

impl State {
    /// Keeps checking a Node while it is out of service.
    pub(super) fn watch_service(&mut self, name: &str) {
        let Some(node) = self.store.get(&NODE, "", name) else { return };
        let work = Work::OutOfService(name.into());
        if is_out(&node) {
            self.wake(work, PERIOD);
        } else {
            self.forget(&work);
        }
    }

    /// Removes the Node's pods that are being deleted, then detaches the Node's volumes. Removes and detaches
    /// nothing while the Node is Ready and has pods that are being deleted.
    pub(super) fn let_go(&mut self, name: &str) {
        let Some(node) = self.store.get(&NODE, "", name).filter(|node| is_out(node)) else { return };
        let ready = object::holds(&node, "Ready");
        let leaving: Vec<_> = (self.pods.on(name).into_iter())
            .filter(|key| {
                self.store.get(&POD, &key.0, &key.1).is_some_and(|pod| object::is_terminating(&pod))
            })
            .collect();
        if ready && !leaving.is_empty() {
            return self.watch_service(name);
        }
        for key in leaving {
            self.finish_pod(&key);
        }
        self.let_volumes_go(name);
        self.watch_service(name);
    }
}

fn is_out(node: &Value) -> bool {
    list(node, "/spec/taints").iter().any(|taint| taint["key"] == OUT_OF_SERVICE)
}
