//! What went wrong with a management controller, and what can be done about it.

use thiserror::Error;

/// What can be done about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nothing was sent: it can be tried again.
    Unreachable,
    /// It may have arrived: the power has to be read before it is asked again.
    OutcomeUnknown,
    /// The controller does not know the user, or its password is another one.
    Unauthorized,
    /// There is no such system.
    NotFound,
    /// The controller refuses what was asked, for now or for good.
    Refused,
    /// The controller says that it does not take what was to be asked: nothing was.
    Unsupported,
    /// The answer is not what Redfish says.
    Malformed,
    /// This instance does not lead: nothing was sent.
    Fenced,
}

/// A failed call. Its text names the call and what the controller said, never a credential.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{call}: {text}")]
pub struct Error {
    /// What can be done about it.
    pub kind: Kind,
    call: String,
    text: String,
}

impl Error {
    /// One of this call, with what the controller said.
    pub fn new(kind: Kind, call: &str, text: impl Into<String>) -> Self {
        Self { kind, call: call.to_owned(), text: text.into() }
    }

    /// Whether what was to be asked may have been asked, and not only looked for.
    pub fn may_have_asked(&self) -> bool {
        self.kind == Kind::OutcomeUnknown && self.call.starts_with("POST")
    }
}
