//! What can be asked for at the local socket besides the status: one line of JSON each way.

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};

/// What an operator asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Order {
    /// Begin nothing new.
    Pause {
        /// Why; may be empty.
        reason: String,
    },
    /// Go on.
    Resume,
    /// Try what is left alone after failures again.
    Retry {
        /// A host or a pool; `None`: all of them.
        name: Option<String>,
    },
    /// Drain this node and destroy its machine.
    Retire {
        /// The Node's name.
        node: String,
        /// Why; may be empty.
        reason: String,
    },
    /// Keep this node, whatever it is used for.
    Pin {
        /// The Node's name.
        node: String,
        /// Why; may be empty.
        #[serde(default)]
        reason: String,
    },
    /// Treat this node as any other again.
    Unpin {
        /// The Node's name.
        node: String,
    },
    /// Read the machines' records again: a command has written one.
    Reread,
}

/// Who carries orders out.
pub trait Orders: Send + Sync {
    /// Carries an order out; what hinders it comes back in words.
    fn follow(&self, order: Order) -> BoxFuture<'_, Result<(), String>>;
}

/// What a client that connects wants.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Request {
    /// The status, which a client gets too that says nothing.
    Status,
    /// Something to be done.
    Order(Order),
}

/// What came of an order.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Answer {
    /// It is done.
    Done,
    /// It is not, and why.
    Refused(String),
}

/// Members of the socket's group may look; only root and the daemon's own user may give orders.
pub(super) fn may_order(peer: Option<u32>, owner: u32) -> bool {
    peer.is_some_and(|peer| peer == 0 || peer == owner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_root_and_the_daemons_user_give_orders() {
        for (peer, owner, may) in
            [(Some(0), 990, true), (Some(990), 990, true), (Some(1000), 990, false), (None, 990, false)]
        {
            assert_eq!(may_order(peer, owner), may, "{peer:?} {owner}");
        }
    }
}
