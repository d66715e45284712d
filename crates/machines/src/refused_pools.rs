//! Pools whose machines were refused for a right that is missing: no other machine of such a pool is made
//! until the right is there, the pool's settings are others, or it was long ago.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use model::PoolName;
use model::Vmid;
use tokio::time::Instant;

use super::context::Context;
use proxmox::{Client, Error, MissingRight, TagRules};
use settings::Pool;

/// After this time it is tried again whatever is known: not everything that makes a call succeed can be
/// asked.
const SLOW_LOOK: Duration = Duration::from_mins(15);

/// What was refused, by pool. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Refusals(Arc<Mutex<BTreeMap<PoolName, Refusal>>>);

#[derive(Clone, Debug)]
struct Refusal {
    right: MissingRight,
    words: String,
    settings: Settings,
    /// The rules for tags as they were known then: a refusal shows that they were not all.
    rules: Option<TagRules>,
    at: Instant,
}

/// What of a pool's settings its calls depend on.
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

    /// Why no machine of the pool is made, with the way out.
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

    /// Forgets what no longer stands in the way.
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
                    "machines of the pool are made again"
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

/// The right that a machine of the pool was refused for, with the path on which it is to be granted. Nothing
/// if the token has it there: then the VM was taken out of the machines' pool.
pub(super) async fn missing(ctx: &Context, vmid: Vmid, text: &str) -> Option<MissingRight> {
    let right = match MissingRight::read(text)? {
        MissingRight::Privileges { path, any } if path == format!("/vms/{vmid}") => {
            let pool = ctx.config.proxmox.as_ref().and_then(|table| table.resource_pool.as_ref());
            let path = pool.map_or(path, |pool| format!("/pool/{pool}"));
            MissingRight::Privileges { path, any }
        }
        right => right,
    };
    // If it cannot be asked, what Proxmox VE said counts.
    let granted = is_granted(&ctx.proxmox, &right, None).await.unwrap_or(false);
    (!granted).then_some(right)
}
