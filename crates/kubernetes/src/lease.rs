//! The Lease that makes one instance the leader.
//!
//! A Lease is not a lock: its holder only knows that no other instance held it a moment ago. Therefore, every
//! write is also conditional. To judge whether another holder's lease has expired, this instance measures how
//! long it has seen the lease unchanged, as client-go does. It never compares its own clock with the
//! holder's.
//!
//! An instance that was killed and restarted takes over its own lease immediately, because the lease still
//! names it as the holder. If two running instances have the same name, an annotation distinguishes them, and
//! the instance that started first gives way.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease as Object, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use runtime::boxed;
use tokio::time::Instant;

use super::cluster::Cluster;
use super::error::{Error, ErrorKind};

const NAME: &str = "pve-autoscaler";
/// The annotation that distinguishes the runs of an instance.
const RUN: &str = "pve-autoscaler/run";
/// The maximum number of attempts to release the lease if writes conflict.
const ATTEMPTS: u32 = 3;

/// The result of requesting the lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// This instance holds the lease.
    Held {
        /// The time of the request, by the monotonic clock. Other instances measure the lease's duration from
        /// a later time.
        since: Instant,
    },
    /// Another instance holds the lease.
    Other {
        /// The holder.
        holder: String,
        /// The time from which the lease may be taken over if it stays unchanged; `None` if unknown.
        free_at: Option<Instant>,
    },
}

/// A client with which this instance claims, renews and releases the lease.
#[derive(Debug)]
pub struct Lease {
    cluster: Cluster,
    identity: Arc<str>,
    run: Arc<str>,
    /// The lease as this instance last wrote it. It allows a renewal with a single call.
    held: Option<Object>,
    /// The `resourceVersion` of another instance's lease, and when this instance first saw that version.
    seen: Option<(String, Instant)>,
    /// Whether the lease was read in this run. If the first read shows a holder with this instance's name,
    /// that holder is an earlier run, which has ended. If a later read shows one, that holder is another
    /// running instance.
    looked: bool,
}

impl Lease {
    /// Creates the lease client of an instance. `identity` must be unique among the instances, and must stay
    /// the same after a restart. `run` must differ between runs.
    pub fn new(cluster: Cluster, identity: &str, run: &str) -> Self {
        Self { cluster, identity: identity.into(), run: run.into(), held: None, seen: None, looked: false }
    }

    /// Acquires or renews the lease if possible. Other instances may acquire the lease after they have seen
    /// it unchanged for `duration` (whole seconds), so call this several times within that period.
    ///
    /// # Errors
    /// Returns an error if the call fails. If this instance held the lease before the call, it still holds it
    /// until the lease expires.
    #[boxed]
    pub async fn claim(&mut self, duration: Duration) -> Result<Claim, Error> {
        // `held` is kept until a response arrives. If the caller stops waiting, the next call renews the
        // lease in the same way.
        if let Some(held) = self.held.clone() {
            let asked = Instant::now();
            match self.write(Some(&held), duration).await {
                Ok(()) => return Ok(Claim::Held { since: asked }),
                // Another client wrote the lease, or the response to this instance's last write was lost:
                // read the lease.
                Err(error) if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::NotFound) => {
                    self.held = None;
                }
                Err(error) => return Err(error),
            }
        }
        // The lease's duration is measured from before the call, because other instances see the renewal
        // later.
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
            // The lease was deleted, but its holder does not notice until its next renewal.
            return Ok(Claim::Other { holder: "another instance".to_owned(), free_at: Some(free_at) });
        }
        match self.write(found.as_ref(), duration).await {
            Ok(()) => Ok(Claim::Held { since: asked }),
            // Another instance was faster; the next call shows which one.
            Err(error) if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::AlreadyExists) => {
                Ok(Claim::Other { holder: "another instance".to_owned(), free_at: None })
            }
            Err(error) => Err(error),
        }
    }

    /// Releases the lease, so that another instance can acquire it immediately. Does nothing if this run does
    /// not hold the lease.
    ///
    /// # Errors
    /// Returns an error if the call fails. The lease then expires by itself.
    #[boxed]
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
            let written = self.cluster.call("release the lease", leases.replace(NAME, &options, &found));
            match written.await.map(|_| ()) {
                // A renewal that was still in progress changed the lease first.
                Err(error) if error.kind() == ErrorKind::Conflict => {}
                outcome => return outcome,
            }
        }
        Ok(())
    }

    /// The time at which this instance will have seen the lease unchanged for the holder's duration, or for
    /// `duration` if that is longer.
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

    /// Writes the lease with this instance as its holder. `found` is the version to replace, if any.
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
        // The API server maintains the managed fields, so there is no need to send them back.
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

    /// Whether this run holds the lease: its holder is this instance, and the annotation names this run.
    fn is_this_run(&self, found: &Object) -> bool {
        let run = found.metadata.annotations.as_ref().and_then(|all| all.get(RUN));
        holder(found) == &*self.identity && run.is_some_and(|run| **run == *self.run)
    }

    /// Returns the API for leases, with a client that does not wait if a response contains `Retry-After`. An
    /// attempt that waits would look like a missing response, and the caller tries again soon anyway.
    fn leases(&self) -> Api<Object> {
        Api::namespaced(self.cluster.bare.clone(), &self.cluster.namespace)
    }
}

fn holder(found: &Object) -> &str {
    found.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}
