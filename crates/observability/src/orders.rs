//! Orders that clients send over the local socket. An order and its answer are each one line of JSON.

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};

/// An operator's order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Order {
    /// Start nothing new.
    Pause {
        /// The reason; may be empty.
        reason: String,
    },
    /// Resume.
    Resume,
    /// End back-offs after failures.
    Retry {
        /// The host or pool; `None` for all of them.
        name: Option<String>,
    },
    /// Drain this node and destroy its machine.
    Retire {
        /// The Node's name.
        node: String,
        /// The reason; may be empty.
        reason: String,
    },
    /// Keep this node, even if it is unneeded.
    Pin {
        /// The Node's name.
        node: String,
        /// The reason; may be empty.
        #[serde(default)]
        reason: String,
    },
    /// Undo a pin: this node may be removed.
    Unpin {
        /// The Node's name.
        node: String,
    },
    /// Read the machines' records again, because a command has written a record.
    Reread,
}

/// Carries out orders.
pub trait Orders: Send + Sync {
    /// Carries out an order. If this fails, returns the reason in words.
    fn follow(&self, order: Order) -> BoxFuture<'_, Result<(), String>>;
}

/// A client's request.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Request {
    /// Return the status. A client that sends no request also receives the status.
    Status,
    /// An order.
    Order(Order),
}

/// The answer to an order.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Answer {
    /// The order was carried out.
    Done,
    /// The order was refused, with the reason.
    Refused(String),
}

/// Whether a client may give orders. Only root and the daemon's own user may; members of the socket's group
/// may only read the status.
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
