//! The Lease that makes one instance the active one.
//!
//! A Lease is advice, no lock: its holder knows that no other instance thought so a moment ago. Every write
//! is conditional all the same. Whether another holder's claim has run out is judged by how long we have seen
//! it unchanged, never by comparing clocks (as client-go does).
//!
//! An instance that was killed takes its own lease over at once when it is back, since it is known by its
//! name. The mark of the run, an annotation, is what tells two living instances of one name apart: the first
//! gives way to the second.

use std::collections::BTreeMap;
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
/// The annotation that tells one run of an instance from the next.
const RUN: &str = "pve-autoscaler/run";
/// How often it is tried to give the lease up while something gets in the way.
const ATTEMPTS: u32 = 3;

/// What came of asking for the lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// It is ours.
    Held {
        /// When it was asked for, by the monotonic clock: others count from later than that.
        since: Instant,
    },
    /// Another instance has it.
    Other {
        /// Who.
        holder: String,
        /// When it may be taken if it stays as it is, as far as is known.
        free_at: Option<Instant>,
    },
}

/// Our side of the lease.
#[derive(Debug)]
pub struct Lease {
    cluster: Cluster,
    identity: Arc<str>,
    run: Arc<str>,
    /// The lease as we have written it: it is renewed with one call.
    held: Option<Object>,
    /// What another instance's lease looked like, and when we first saw it so.
    seen: Option<(String, Instant)>,
    /// The instance that had our name before this run is dead; one that has it since is another.
    looked: bool,
}

impl Lease {
    /// The lease for an instance of this name, which must differ from that of every other instance and be the
    /// same after a restart. `run` must differ from run to run.
    pub fn new(cluster: Cluster, identity: &str, run: &str) -> Self {
        Self { cluster, identity: identity.into(), run: run.into(), held: None, seen: None, looked: false }
    }

    /// Takes or renews the lease if that is possible now: others may take it once they have seen it unchanged
    /// for `duration`, in whole seconds. To be called several times within that time.
    ///
    /// # Errors
    /// The call failed. What was held is still held until its end.
    pub async fn claim(&mut self, duration: Duration) -> Result<Claim, Error> {
        // It stays until an answer has come: the caller may not wait for that, and then it is renewed in the
        // same way.
        if let Some(held) = self.held.clone() {
            let asked = Instant::now();
            match self.write(Some(&held), duration).await {
                Ok(()) => return Ok(Claim::Held { since: asked }),
                // Another client wrote it, or the answer to our last write was lost: it has to be read.
                Err(error) if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::NotFound) => {
                    self.held = None;
                }
                Err(error) => return Err(error),
            }
        }
        // Counted from before the call: others see the renewal later than that.
        let asked = Instant::now();
        let found = self.cluster.call("read the lease", self.leases().get_opt(NAME)).await?;
        let first = !std::mem::replace(&mut self.looked, true);
        if let Some(found) = &found {
            let holder = holder(found);
            let ours = *holder == *self.identity && (first || self.is_this_run(found));
            if !ours && !holder.is_empty() {
                let free_at = self.free_at(found, asked, duration);
                if asked <= free_at {
                    return Ok(Claim::Other { holder: holder.to_owned(), free_at: Some(free_at) });
                }
            }
        } else if let Some(free_at) = self.seen.as_ref().map(|(_, since)| *since + duration)
            && asked <= free_at
        {
            // It was deleted, and its holder goes on until its next renewal.
            return Ok(Claim::Other { holder: "another instance".to_owned(), free_at: Some(free_at) });
        }
        match self.write(found.as_ref(), duration).await {
            Ok(()) => Ok(Claim::Held { since: asked }),
            // Another instance was faster; which one, the next call tells.
            Err(error) if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::AlreadyExists) => {
                Ok(Claim::Other { holder: "another instance".to_owned(), free_at: None })
            }
            Err(error) => Err(error),
        }
    }

    /// Gives the lease up, so that another instance need not wait. Does nothing if it is not ours.
    ///
    /// # Errors
    /// The call failed; the lease runs out by itself.
    pub async fn release(&mut self) -> Result<(), Error> {
        self.held = None;
        let (leases, options) = (self.leases(), PostParams::default());
        for _ in 0..ATTEMPTS {
            let found = self.cluster.call("read the lease", leases.get_opt(NAME)).await?;
            let Some(mut found) = found.filter(|found| self.is_this_run(found)) else { return Ok(()) };
            let Some(spec) = found.spec.as_mut() else { return Ok(()) };
            spec.holder_identity = Some(String::new());
            spec.lease_duration_seconds = Some(1);
            spec.renew_time = Some(MicroTime(self.cluster.clock.now()));
            let written = self.cluster.call("give up the lease", leases.replace(NAME, &options, &found));
            match written.await.map(|_| ()) {
                // A renewal that was under way came first.
                Err(error) if error.kind() == ErrorKind::Conflict => {}
                outcome => return outcome,
            }
        }
        Ok(())
    }

    /// When the lease has been as it is for as long as its holder asked for, as far as we have seen.
    fn free_at(&mut self, found: &Object, now: Instant, duration: Duration) -> Instant {
        let version = found.metadata.resource_version.clone().unwrap_or_default();
        let seconds = found.spec.as_ref().and_then(|spec| spec.lease_duration_seconds).unwrap_or_default();
        let lasts = u64::try_from(seconds).map_or(duration, Duration::from_secs).max(duration);
        match &self.seen {
            Some((seen, since)) if *seen == version => *since + lasts,
            _ => {
                self.seen = Some((version, now));
                now + lasts
            }
        }
    }

    /// Writes the lease as ours over the one that was found.
    async fn write(&mut self, found: Option<&Object>, duration: Duration) -> Result<(), Error> {
        let (leases, options) = (self.leases(), PostParams::default());
        let ours = self.ours(found, duration);
        let written = match found {
            Some(_) => self.cluster.call("renew the lease", leases.replace(NAME, &options, &ours)).await?,
            None => self.cluster.call("create the lease", leases.create(&options, &ours)).await?,
        };
        self.seen = None;
        self.held = Some(written);
        Ok(())
    }

    fn ours(&self, found: Option<&Object>, duration: Duration) -> Object {
        let now = MicroTime(self.cluster.clock.now());
        let old = found.and_then(|found| found.spec.as_ref());
        let renewed = found.is_some_and(|found| self.is_this_run(found));
        let transitions = old.and_then(|spec| spec.lease_transitions).unwrap_or_default();
        let mut metadata = found.map_or_else(
            || ObjectMeta { name: Some(NAME.to_owned()), ..ObjectMeta::default() },
            |found| found.metadata.clone(),
        );
        metadata.annotations.get_or_insert_with(BTreeMap::new).insert(RUN.to_owned(), self.run.to_string());
        // The server keeps these, and would have to be sent them back for nothing.
        metadata.managed_fields = None;
        Object {
            metadata,
            spec: Some(LeaseSpec {
                holder_identity: Some(self.identity.to_string()),
                lease_duration_seconds: Some(i32::try_from(duration.as_secs()).unwrap_or(i32::MAX)),
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

    /// Whether it was this very run that wrote the lease last, and as its own.
    fn is_this_run(&self, found: &Object) -> bool {
        let run = found.metadata.annotations.as_ref().and_then(|all| all.get(RUN));
        holder(found) == &*self.identity && run.is_some_and(|run| **run == *self.run)
    }

    /// Without patience: if the API server asks to wait, a try that waited would be taken for silence. Who
    /// asks tries again soon.
    fn leases(&self) -> Api<Object> {
        Api::namespaced(self.cluster.bare.clone(), &self.cluster.namespace)
    }
}

fn holder(found: &Object) -> &str {
    found.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}
