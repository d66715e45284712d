//! The Lease that makes one instance the active one.
//!
//! A Lease is advice, no fence: who holds it knows that nobody else thought so a moment ago. Every write is conditional
//! all the same. Whether another holder's claim has run out is judged by how long we have seen it unchanged, never by
//! comparing clocks (as client-go does).

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease as Object, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use tokio::time::Instant;

use super::cluster::Cluster;
use super::error::{Error, ErrorKind};

const NAME: &str = "pve-autoscaler";

/// What came of asking for the lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// It is ours until then, by the monotonic clock, unless it is renewed.
    Held {
        /// Nothing may be written after this.
        until: Instant,
    },
    /// Somebody else has it.
    Other {
        /// Who.
        holder: String,
    },
}

/// Our side of the lease.
#[derive(Debug)]
pub struct Lease {
    cluster: Cluster,
    identity: Arc<str>,
    duration: Duration,
    /// What somebody else's lease looked like, and when we first saw it so.
    seen: Option<(String, Instant)>,
}

impl Lease {
    /// A lease of whole seconds that others may take once it was not renewed for `duration`. The identity must differ
    /// from that of every other instance, and from our own before a restart.
    pub fn new(cluster: Cluster, identity: &str, duration: Duration) -> Self {
        Self { cluster, identity: identity.into(), duration, seen: None }
    }

    /// Takes or renews the lease if that is possible now. To be called several times within the duration.
    ///
    /// # Errors
    /// The call failed. What was held is still held until its end.
    pub async fn claim(&mut self) -> Result<Claim, Error> {
        // Counted from before the call: others see the renewal later than that.
        let asked = Instant::now();
        let action = "read the lease";
        let Some(found) = self.cluster.call(action, self.leases().get_opt(NAME)).await? else {
            let outcome = self
                .cluster
                .call("create the lease", self.leases().create(&PostParams::default(), &self.ours(None)))
                .await;
            return self.settle(asked, outcome);
        };
        let holder = found.spec.as_ref().and_then(|spec| spec.holder_identity.clone()).unwrap_or_default();
        if holder != *self.identity && !holder.is_empty() && !self.run_out(&found, asked) {
            return Ok(Claim::Other { holder });
        }
        let ours = self.ours(Some(&found));
        let outcome = self
            .cluster
            .call("renew the lease", self.leases().replace(NAME, &PostParams::default(), &ours))
            .await;
        self.settle(asked, outcome)
    }

    /// Gives the lease up, so that another instance need not wait. Does nothing where it is not ours.
    ///
    /// # Errors
    /// The call failed; the lease runs out by itself.
    pub async fn release(&mut self) -> Result<(), Error> {
        let Some(mut found) = self.cluster.call("read the lease", self.leases().get_opt(NAME)).await? else {
            return Ok(());
        };
        let Some(spec) = found.spec.as_mut() else { return Ok(()) };
        if spec.holder_identity.as_deref() != Some(&*self.identity) {
            return Ok(());
        }
        spec.holder_identity = Some(String::new());
        spec.lease_duration_seconds = Some(1);
        spec.renew_time = Some(MicroTime(self.cluster.clock.now()));
        match self
            .cluster
            .call("give up the lease", self.leases().replace(NAME, &PostParams::default(), &found))
            .await
        {
            Err(error) if error.kind() != ErrorKind::Conflict => Err(error),
            _ => Ok(()),
        }
    }

    /// Whether the lease has been as it is for as long as its holder asked for, as far as we have seen.
    fn run_out(&mut self, found: &Object, now: Instant) -> bool {
        let version = found.metadata.resource_version.clone().unwrap_or_default();
        let seconds = found.spec.as_ref().and_then(|spec| spec.lease_duration_seconds).unwrap_or_default();
        let lasts = u64::try_from(seconds).map_or(self.duration, Duration::from_secs).max(self.duration);
        match &self.seen {
            Some((seen, since)) if *seen == version => now.duration_since(*since) > lasts,
            _ => {
                self.seen = Some((version, now));
                false
            }
        }
    }

    fn settle(&mut self, asked: Instant, outcome: Result<Object, Error>) -> Result<Claim, Error> {
        match outcome {
            Ok(_) => {
                self.seen = None;
                Ok(Claim::Held { until: asked + self.duration })
            }
            // Somebody else was faster; who, the next call tells.
            Err(error) if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::AlreadyExists) => {
                Ok(Claim::Other { holder: "another instance".to_owned() })
            }
            Err(error) => Err(error),
        }
    }

    fn ours(&self, found: Option<&Object>) -> Object {
        let now = MicroTime(self.cluster.clock.now());
        let old = found.and_then(|found| found.spec.as_ref());
        let renewed = old.is_some_and(|spec| spec.holder_identity.as_deref() == Some(&*self.identity));
        let transitions = old.and_then(|spec| spec.lease_transitions).unwrap_or_default();
        Object {
            metadata: found.map_or_else(
                || ObjectMeta { name: Some(NAME.to_owned()), ..ObjectMeta::default() },
                |found| found.metadata.clone(),
            ),
            spec: Some(LeaseSpec {
                holder_identity: Some(self.identity.to_string()),
                lease_duration_seconds: Some(i32::try_from(self.duration.as_secs()).unwrap_or(i32::MAX)),
                acquire_time: old
                    .filter(|_| renewed)
                    .and_then(|spec| spec.acquire_time.clone())
                    .or(Some(now.clone())),
                renew_time: Some(now),
                lease_transitions: Some(if renewed || old.is_none() { transitions } else { transitions + 1 }),
                ..LeaseSpec::default()
            }),
        }
    }

    fn leases(&self) -> Api<Object> {
        Api::namespaced(self.cluster.client.clone(), &self.cluster.namespace)
    }
}
