//! Management controller errors, classified by what a caller can do about them.

use thiserror::Error;

/// The kind of an error, which determines what a caller can do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nothing was sent, so the request can be tried again.
    Unreachable,
    /// The request may have arrived. The power state has to be read before the request is repeated.
    OutcomeUnknown,
    /// The controller does not know the user, or the password is wrong.
    Unauthorized,
    /// The system does not exist.
    NotFound,
    /// The controller refuses the request, for now or permanently.
    Refused,
    /// The controller does not list this request as supported, so it was not sent.
    Unsupported,
    /// The answer does not follow Redfish.
    Malformed,
    /// This instance does not lead, so nothing was sent.
    Fenced,
}

/// A failed call. The error's text contains the call and the controller's text, but no credentials.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{call}: {text}")]
pub struct Error {
    /// The kind of the error, which determines what a caller can do about it.
    pub kind: Kind,
    call: String,
    text: String,
}

impl Error {
    /// An error for this call, with the controller's text.
    pub fn new(kind: Kind, call: &str, text: impl Into<String>) -> Self {
        Self { kind, call: call.to_owned(), text: text.into() }
    }

    /// Whether the reset itself may have been carried out. False if only the read before it failed.
    pub fn may_have_asked(&self) -> bool {
        self.kind == Kind::OutcomeUnknown && self.call.starts_with("POST")
    }
}
