//! What several hosts are asked in one look: one that hangs is waited for once, and keeps none of the others from being asked.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use crate::proxmox::{Client, Error, Kind};

/// So long an answer is waited for that takes milliseconds from a host that is well.
const ANSWER: Duration = Duration::from_secs(3);
/// What a host was not asked until then is left for the next look.
const ALL: Duration = Duration::from_secs(8);

/// Asks each host for its things: one after the other, and all hosts at once. One that does not answer is asked for nothing more;
/// what it was not asked for fails alike.
pub(crate) async fn hosts<K, T, F>(
    wanted: BTreeMap<String, Vec<K>>,
    ask: impl Fn(String, K) -> F,
) -> Vec<(String, K, Result<T, Error>)>
where
    K: Copy,
    F: Future<Output = Result<T, Error>>,
{
    let all = wanted.into_iter().map(|(host, things)| one(host, things, &ask));
    futures::future::join_all(all).await.into_iter().flatten().collect()
}

/// Those of these hosts whose own API answers.
pub(crate) async fn answering<'a>(
    proxmox: &Client,
    names: impl Iterator<Item = &'a str>,
) -> BTreeSet<String> {
    let wanted = names.map(|name| (name.to_owned(), vec![()])).collect();
    let ask = |host: String, ()| async move { proxmox.host_answers(&host).await };
    let answers = hosts(wanted, ask).await.into_iter();
    answers.filter(|(.., answer)| answer.is_ok()).map(|(host, ..)| host).collect()
}

async fn one<K, T, F>(
    host: String,
    things: Vec<K>,
    ask: &impl Fn(String, K) -> F,
) -> Vec<(String, K, Result<T, Error>)>
where
    K: Copy,
    F: Future<Output = Result<T, Error>>,
{
    let until = Instant::now() + ALL;
    let mut silent: Option<Error> = None;
    let mut answers = Vec::new();
    for thing in things {
        let answer = match &silent {
            Some(error) => Err(error.clone()),
            None => in_time(&host, until, ask(host.clone(), thing)).await,
        };
        if let Err(error) = &answer
            && matches!(error.kind, Kind::HostUnreachable | Kind::OutcomeUnknown)
        {
            silent = Some(error.clone());
        }
        answers.push((host.clone(), thing, answer));
    }
    answers
}

/// An answer that has to come soon, and until then.
async fn in_time<T>(
    whose: &str,
    until: Instant,
    answer: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let limit = until.saturating_duration_since(Instant::now()).min(ANSWER);
    tokio::time::timeout(limit, answer).await.unwrap_or_else(|_| {
        Err(Error {
            kind: Kind::HostUnreachable,
            call: format!("for {whose}"),
            status: 0,
            text: format!("nothing came within {} s", ANSWER.as_secs()),
        })
    })
}

/// An answer that has to come soon.
pub(super) async fn soon<T>(whose: &str, answer: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    in_time(whose, Instant::now() + ANSWER, answer).await
}
