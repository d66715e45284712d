//! Pools whose machines were refused because of a missing right. No further machine of such a pool is created
//! until the right is granted, the pool's settings change, or some time has passed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use model::{PoolName, Vmid};
use runtime::boxed;
use tokio::time::Instant;

use super::context::Context;
use proxmox::{Client, Error, MissingRight, TagRules};
use settings::Pool;

/// After this time, a refused pool is tried again in any case, because not all preconditions of a call can be
/// queried.
const SLOW_LOOK: Duration = Duration::from_mins(15);

/// Refusals by pool. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Refusals(Arc<Mutex<BTreeMap<PoolName, Refusal>>>);

#[derive(Clone, Debug)]
struct Refusal {
    right: MissingRight,
    words: String,
    settings: Settings,
    /// The rules for tags that were known at the time of the refusal. A refused tag can only be allowed now
    /// if the rules have changed.
    rules: Option<TagRules>,
    at: Instant,
}

/// The settings of a pool that affect the API calls for its machines.
type Settings = (BTreeMap<String, String>, Vec<String>, String);

fn settings(pool: &Pool) -> Settings {
    (pool.made_of(), pool.tags.clone(), format!("{:?} {:?}", pool.template, pool.vmids))
}

impl Refusals {
    fn all(&self) -> std::sync::MutexGuard<'_, BTreeMap<PoolName, Refusal>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn is_empty(&self) -> bool {
        self.all().is_empty()
    }

    /// Returns the reason why no machines are created in the pool, and how to fix the problem. Returns `None`
    /// if the pool was not refused.
    pub fn of(&self, pool: &str) -> Option<String> {
        self.all().get(pool).map(|refusal| refusal.words.clone())
    }

    pub fn add(&self, pool: &Pool, right: MissingRight, rules: Option<TagRules>, token: &str) -> String {
        let (what, help) = right.words(token);
        let words = format!("{what}: {help}");
        let (settings, at) = (settings(pool), Instant::now());
        let refusal = Refusal { right, words: words.clone(), settings, rules, at };
        self.all().insert(pool.name.clone(), refusal);
        words
    }

    /// Drops refusals that are old or whose cause is gone.
    #[boxed]
    pub async fn look(&self, proxmox: &Client, pools: &[Pool], rules: Option<&TagRules>) {
        let known = self.all().clone();
        for (name, refusal) in known {
            let pool = pools.iter().find(|pool| pool.name == name);
            let same = pool.is_some_and(|pool| settings(pool) == refusal.settings);
            let rules = rules.filter(|rules| Some(*rules) != refusal.rules.as_ref());
            let stays = same
                && refusal.at.elapsed() < SLOW_LOOK
                && !is_granted(proxmox, &refusal.right, rules).await.unwrap_or(false);
            if !stays {
                tracing::info!(
                    pool = name.as_str(),
                    was = refusal.words,
                    "resuming the creation of machines in a pool"
                );
                self.all().remove(&name);
            }
        }
    }
}

async fn is_granted(proxmox: &Client, right: &MissingRight, rules: Option<&TagRules>) -> Result<bool, Error> {
    match right {
        MissingRight::Privileges { path, any } => {
            let has = proxmox.privileges_on(path).await?;
            Ok(any.iter().any(|one| has.contains(one)))
        }
        MissingRight::Tag(tag) => Ok(rules.is_some_and(|rules| rules.allow(tag))),
        MissingRight::ForRoot(_) => Ok(false),
    }
}

/// Returns the missing right for which a machine of the pool was refused, with the path on which to grant it.
/// Returns `None` if the error is not about a right, or if the token has the right on that path. If the token
/// has the right, the cause is that the VM was removed from the machines' resource pool.
pub(super) async fn missing(ctx: &Context, vmid: Vmid, text: &str) -> Option<MissingRight> {
    let right = match MissingRight::read(text)? {
        MissingRight::Privileges { path, any } if path == format!("/vms/{vmid}") => {
            let pool = ctx.config.proxmox.as_ref().and_then(|table| table.resource_pool.as_ref());
            let path = pool.map_or(path, |pool| format!("/pool/{pool}"));
            MissingRight::Privileges { path, any }
        }
        right => right,
    };
    // If the rights cannot be read, Proxmox VE's refusal is assumed to be correct.
    let granted = is_granted(&ctx.proxmox, &right, None).await.unwrap_or(false);
    (!granted).then_some(right)
}
