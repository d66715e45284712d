//! What went wrong with a management controller, and what can be done about it.

use thiserror::Error;

/// What can be done about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nothing was sent: the request can be tried again.
    Unreachable,
    /// The request may have arrived: the power has to be read before it is repeated.
    OutcomeUnknown,
    /// The controller does not know the user, or the password is wrong.
    Unauthorized,
    /// There is no such system.
    NotFound,
    /// The controller refuses the request, for now or permanently.
    Refused,
    /// The controller reports that it does not support the request, which was not sent.
    Unsupported,
    /// The answer does not follow Redfish.
    Malformed,
    /// This instance does not lead: nothing was sent.
    Fenced,
}

/// A failed call. Its text contains the call and the controller's text, never a credential.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{call}: {text}")]
pub struct Error {
    /// What can be done about it.
    pub kind: Kind,
    call: String,
    text: String,
}

impl Error {
    /// An error of this call, with the controller's text.
    pub fn new(kind: Kind, call: &str, text: impl Into<String>) -> Self {
        Self { kind, call: call.to_owned(), text: text.into() }
    }

    /// Whether it is unknown if the request itself, and not only a read before it, was carried out.
    pub fn may_have_asked(&self) -> bool {
        self.kind == Kind::OutcomeUnknown && self.call.starts_with("POST")
    }
}
