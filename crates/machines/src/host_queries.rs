//! Queries several hosts at once. A hanging host costs only one timeout, and does not delay queries to the
//! others.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use proxmox::{Client, Error, Kind};

/// How long to wait for an answer. A healthy host answers within milliseconds.
const ANSWER: Duration = Duration::from_secs(3);
/// The time for all queries to one host. Queries that are unanswered by then are left for the next round of
/// queries.
const ALL: Duration = Duration::from_secs(8);

/// Queries all hosts in parallel. Each host receives its queries one after the other. If a host does not
/// answer, it receives no more queries, and its remaining queries fail with the same error.
pub(crate) async fn hosts<K, T, F>(
    wanted: BTreeMap<String, Vec<K>>,
    ask: impl Fn(String, K) -> F,
) -> Vec<(String, K, Result<T, Error>)>
where
    K: Copy,
    F: Future<Output = Result<T, Error>>,
{
    let late = |host: &str| Err(silence(host, ALL));
    let answers = in_time(wanted, ask).await.into_iter();
    let told = |(host, thing, answer): (String, K, Option<Result<T, Error>>)| {
        let answer = answer.unwrap_or_else(|| late(&host));
        (host, thing, answer)
    };
    answers.map(told).collect()
}

/// Like `hosts`, but returns `None` for queries that were left out for lack of time, although the host
/// answers.
pub async fn in_time<K, T, F>(
    wanted: BTreeMap<String, Vec<K>>,
    ask: impl Fn(String, K) -> F,
) -> Vec<(String, K, Option<Result<T, Error>>)>
where
    K: Copy,
    F: Future<Output = Result<T, Error>>,
{
    let all = wanted.into_iter().map(|(host, things)| one(host, things, &ask));
    futures::future::join_all(all).await.into_iter().flatten().collect()
}

/// The given hosts whose own API answers.
pub async fn answering<'a>(proxmox: &Client, names: impl Iterator<Item = &'a str>) -> BTreeSet<String> {
    let wanted = names.map(|name| (name.to_owned(), vec![()])).collect();
    let ask = |host: String, ()| async move { proxmox.host_answers(&host).await };
    let answers = hosts(wanted, ask).await.into_iter();
    answers.filter(|(.., answer)| answer.is_ok()).map(|(host, ..)| host).collect()
}

async fn one<K, T, F>(
    host: String,
    things: Vec<K>,
    ask: &impl Fn(String, K) -> F,
) -> Vec<(String, K, Option<Result<T, Error>>)>
where
    K: Copy,
    F: Future<Output = Result<T, Error>>,
{
    let until = Instant::now() + ALL;
    let mut silent: Option<Error> = None;
    let mut answers = Vec::new();
    for thing in things {
        let answer = match &silent {
            Some(error) => Some(Err(error.clone())),
            None => within(&host, until, ask(host.clone(), thing)).await,
        };
        if let Some(Err(error)) = &answer
            && matches!(error.kind, Kind::HostUnreachable | Kind::OutcomeUnknown)
        {
            silent = Some(error.clone());
        }
        answers.push((host.clone(), thing, answer));
    }
    answers
}

/// Waits for an answer, for at most [`ANSWER`]. If `until` comes earlier, waits only until then, and returns
/// `None` if there is no answer.
async fn within<T>(
    host: &str,
    until: Instant,
    answer: impl Future<Output = Result<T, Error>>,
) -> Option<Result<T, Error>> {
    let left = until.saturating_duration_since(Instant::now());
    if left >= ANSWER {
        return Some(soon(host, answer).await);
    }
    tokio::time::timeout(left, answer).await.ok()
}

/// Waits for an answer that should arrive soon. If it does not arrive, the host counts as unreachable.
pub(super) async fn soon<T>(whose: &str, answer: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    tokio::time::timeout(ANSWER, answer).await.unwrap_or_else(|_| Err(silence(whose, ANSWER)))
}

fn silence(whose: &str, limit: Duration) -> Error {
    Error {
        kind: Kind::HostUnreachable,
        call: format!("for {whose}"),
        status: None,
        text: format!("no answer within {} s", limit.as_secs()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_there_was_no_time_for_is_told_from_what_a_silent_host_was_asked_for() {
        let wanted =
            BTreeMap::from([("slow".to_owned(), vec![1_u64, 1, 1, 1, 1]), ("hung".to_owned(), vec![9, 1])]);
        let ask = |_, seconds| async move {
            tokio::time::sleep(Duration::from_secs(seconds * 2)).await;
            Ok(seconds)
        };
        let answers = in_time(wanted, ask).await;
        let all = |host: &str| -> Vec<Option<bool>> {
            let its = answers.iter().filter(|(of, ..)| of == host);
            its.map(|(.., answer)| answer.as_ref().map(Result::is_ok)).collect()
        };
        assert_eq!(all("slow"), [Some(true), Some(true), Some(true), Some(true), None]);
        assert_eq!(all("hung"), [Some(false), Some(false)]);
    }
}
