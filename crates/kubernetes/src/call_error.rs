//! Describes in this program's own words why a call failed. The client library's error messages repeat their
//! causes and contain debug output.

use std::error::Error as StdError;
use std::fmt;

use kube::client::AuthError;
use kube::core::Status;

use super::error::ErrorKind;
use runtime::fence::Fenced;

/// A call that failed, because the API server refused it, or because it did not reach the API server.
#[derive(Debug)]
pub struct CallError(Box<kube::Error>);

impl CallError {
    /// What kind of failure this is.
    pub fn kind(&self) -> ErrorKind {
        match &*self.0 {
            kube::Error::Api(status) => kind_of_status(status),
            kube::Error::Service(source) if source.is::<Fenced>() => ErrorKind::Fenced,
            _ if self.lost_connection().is_some() => ErrorKind::Unreachable,
            kube::Error::HyperError(_) | kube::Error::Service(_) | kube::Error::ReadEvents(_) => {
                ErrorKind::Unavailable
            }
            _ => ErrorKind::Other,
        }
    }

    /// The API server's answer, if there was one.
    pub(super) fn status(&self) -> Option<&Status> {
        match &*self.0 {
            kube::Error::Api(status) => Some(status),
            _ => None,
        }
    }

    /// The network or TLS error, if one caused the failure. An authentication plugin that cannot be started
    /// also causes an I/O error, but that says nothing about the connection to the API server.
    fn lost_connection(&self) -> Option<&(dyn StdError + 'static)> {
        let whole: &(dyn StdError + 'static) = &*self.0;
        let causes: Vec<_> = std::iter::successors(Some(whole), |error| (*error).source()).collect();
        let lost = causes.iter().any(|cause| cause.is::<std::io::Error>());
        let plugin = causes.iter().any(|cause| cause.is::<AuthError>());
        if lost && !plugin { causes.last().copied() } else { None }
    }
}

impl From<kube::Error> for CallError {
    fn from(error: kube::Error) -> Self {
        Self(Box::new(error))
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.lost_connection().is_some() {
            return f.write_str("no connection to the API server");
        }
        match &*self.0 {
            kube::Error::Api(status) if !status.message.is_empty() => f.write_str(&status.message),
            kube::Error::Api(status) => {
                write!(f, "the API server answered {} {}", status.code, status.reason)
            }
            kube::Error::Service(source) => fmt::Display::fmt(source, f),
            other => fmt::Display::fmt(other, f),
        }
    }
}

impl StdError for CallError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        if let Some(cause) = self.lost_connection() {
            return Some(cause);
        }
        match &*self.0 {
            kube::Error::Api(_) => None,
            kube::Error::Service(source) => source.source(),
            other => other.source(),
        }
    }
}

/// The kind of failure that the API server's answer indicates.
pub(super) fn kind_of_status(status: &Status) -> ErrorKind {
    match status.code {
        404 => ErrorKind::NotFound,
        401 => ErrorKind::Unauthorized,
        403 => ErrorKind::Forbidden,
        409 if status.reason == "AlreadyExists" => ErrorKind::AlreadyExists,
        409 => ErrorKind::Conflict,
        400 | 422 => ErrorKind::Invalid,
        410 => ErrorKind::Expired,
        429 => ErrorKind::TooManyRequests,
        500..=599 => ErrorKind::Unavailable,
        _ => ErrorKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use runtime::error_chain::chain;

    #[derive(Debug, thiserror::Error)]
    #[error("client error (Connect)")]
    struct Connect(#[source] std::io::Error);

    #[test]
    fn each_failure_is_described_once_and_without_debug_output() {
        let refused = std::io::Error::from_raw_os_error(111);
        let status = |message: &str| {
            let status = Status {
                code: 403,
                message: message.into(),
                reason: "Forbidden".into(),
                ..Status::default()
            };
            kube::Error::Api(Box::new(status))
        };
        let cases = [
            (
                kube::Error::Service(Box::new(Connect(refused))),
                ErrorKind::Unreachable,
                "no connection to the API server: Connection refused (os error 111)",
            ),
            (status("pods is forbidden"), ErrorKind::Forbidden, "pods is forbidden"),
            (status(""), ErrorKind::Forbidden, "the API server answered 403 Forbidden"),
            (
                kube::Error::Service(Box::new(AuthError::AuthExecStart(std::io::Error::from_raw_os_error(
                    2,
                )))),
                ErrorKind::Unavailable,
                "unable to run auth exec: No such file or directory (os error 2)",
            ),
        ];
        for (error, kind, text) in cases {
            let error = CallError::from(error);
            assert_eq!((error.kind(), chain(&error).as_str()), (kind, text));
        }
    }
}
