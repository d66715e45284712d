//! Errors from calls to Kubernetes, classified by what a caller can do about them.

use std::time::Duration;

use kube::core::Status;
use thiserror::Error;

use super::call_error::CallError;

/// A call to Kubernetes that failed.
#[derive(Debug, Error)]
pub enum Error {
    /// The kubeconfig cannot be used.
    #[error("the kubeconfig cannot be used")]
    Kubeconfig(#[source] kube::config::KubeconfigError),
    /// What the kubeconfig lacks, in one sentence.
    #[error("{0}")]
    KubeconfigLacks(String),
    /// No client can be created from the settings, e.g. because a certificate is malformed.
    #[error("no client can be created from the kubeconfig")]
    Client(#[source] Box<kube::Error>),
    /// The API server refused the call, or could not be reached.
    #[error("cannot {action}")]
    Call {
        /// The attempted action, as an infinitive.
        action: String,
        /// The API server's answer, or the reason why there was none.
        #[source]
        source: CallError,
    },
    /// There was no answer within the limit. A write may still have been carried out.
    #[error("cannot {action}: no answer within {} s", limit.as_secs_f64())]
    Timeout {
        /// The attempted action, as an infinitive.
        action: String,
        /// How long the caller waited.
        limit: Duration,
    },
    /// Other clients changed the object during each attempt to change it.
    #[error("cannot {action}: other clients changed the object during each of {attempts} attempts")]
    Contended {
        /// The attempted action, as an infinitive.
        action: String,
        /// The number of attempts.
        attempts: u32,
    },
    /// A setting, an argument or an answer cannot be used.
    #[error("cannot {action}: {reason}")]
    Unusable {
        /// The attempted action, as an infinitive.
        action: String,
        /// Why it cannot be used.
        reason: String,
    },
    /// The answer contains text that cannot be parsed.
    #[error("cannot {action}: the content is malformed")]
    Malformed {
        /// The attempted action, as an infinitive.
        action: String,
        /// What is wrong with the text.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The system returned no random bytes.
    #[error("cannot generate a bootstrap token")]
    Entropy(#[source] super::EntropyError),
}

/// The kind of failure that an [`enum@Error`] represents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ErrorKind {
    /// 404: the object, or the kind, does not exist.
    NotFound,
    /// 401: the credentials are not accepted.
    Unauthorized,
    /// 403: a right is missing. A restarting API server briefly gives this answer to every client.
    Forbidden,
    /// 409, reason `AlreadyExists`.
    AlreadyExists,
    /// 409: the object is not in the state for which the write was intended.
    Conflict,
    /// 400 or 422: the request is invalid.
    Invalid,
    /// 410: the requested resource version is too old.
    Expired,
    /// 429: a disruption budget refuses the eviction, or there are too many requests.
    TooManyRequests,
    /// The connection could not be established, or it broke. A later call may succeed.
    Unreachable,
    /// 5xx: a later call may succeed.
    Unavailable,
    /// There was no answer in time.
    Timeout,
    /// This instance does not lead, or no longer leads: the write was not sent.
    Fenced,
    /// A setting, an argument or an answer cannot be used.
    Unusable,
    /// Anything else.
    Other,
}

model::codes!(
    ErrorKind {
        NotFound => "NotFound",
        Unauthorized => "Unauthorized",
        Forbidden => "Forbidden",
        AlreadyExists => "AlreadyExists",
        Conflict => "Conflict",
        Invalid => "Invalid",
        Expired => "Expired",
        TooManyRequests => "TooManyRequests",
        Unreachable => "Unreachable",
        Unavailable => "Unavailable",
        Timeout => "Timeout",
        Fenced => "Fenced",
        Unusable => "Unusable",
        Other => "Other",
    }
);

impl Error {
    /// What kind of failure this is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Call { source, .. } => source.kind(),
            Self::Timeout { .. } => ErrorKind::Timeout,
            Self::Contended { .. } => ErrorKind::Conflict,
            Self::Kubeconfig(_)
            | Self::KubeconfigLacks(_)
            | Self::Client(_)
            | Self::Unusable { .. }
            | Self::Malformed { .. } => ErrorKind::Unusable,
            Self::Entropy(_) => ErrorKind::Other,
        }
    }

    /// Whether the API server has answered, and would answer the same call in the same way. A different call
    /// may succeed.
    pub fn is_refusal(&self) -> bool {
        use ErrorKind::{AlreadyExists, Conflict, Forbidden, Invalid, NotFound};
        matches!(self.kind(), NotFound | Forbidden | AlreadyExists | Conflict | Invalid)
    }

    /// Whether the API server has answered and accepts the client's credentials. Even so, it may refuse a
    /// call to another namespace.
    pub fn was_answered(&self) -> bool {
        self.status().is_some() && self.kind() != ErrorKind::Unauthorized
    }

    /// Whether a write that failed in this way may have been carried out nevertheless.
    pub fn outcome_unknown(&self) -> bool {
        matches!(self.kind(), ErrorKind::Timeout | ErrorKind::Unreachable | ErrorKind::Unavailable)
    }

    /// The API server's answer, if there was one.
    pub(super) fn status(&self) -> Option<&Status> {
        match self {
            Self::Call { source, .. } => source.status(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(code: u16, reason: &str) -> Error {
        let status = Status { code, reason: reason.to_owned(), ..Status::default() };
        Error::Call { action: "try".to_owned(), source: kube::Error::Api(Box::new(status)).into() }
    }

    #[test]
    fn each_answer_has_its_kind() {
        let cases = [
            (404, "NotFound", ErrorKind::NotFound),
            (403, "Forbidden", ErrorKind::Forbidden),
            (401, "Unauthorized", ErrorKind::Unauthorized),
            (409, "AlreadyExists", ErrorKind::AlreadyExists),
            (409, "Conflict", ErrorKind::Conflict),
            (422, "Invalid", ErrorKind::Invalid),
            (410, "Expired", ErrorKind::Expired),
            (429, "TooManyRequests", ErrorKind::TooManyRequests),
            (504, "Timeout", ErrorKind::Unavailable),
            (500, "", ErrorKind::Unavailable),
        ];
        for (code, reason, expected) in cases {
            assert_eq!(answer(code, reason).kind(), expected, "{code} {reason}");
        }
    }

    #[test]
    fn an_answer_lost_on_the_way_leaves_the_outcome_open() {
        let late = Error::Timeout { action: "write".to_owned(), limit: Duration::from_secs(1) };
        assert!(late.outcome_unknown());
        assert!(!answer(409, "Conflict").outcome_unknown());
    }
}
