//! A booted VM becomes a Node: what runs inside the guest, and what it is given.
//!
//! `kubeadm join`, an agent of K3s, or a command of the operator's; if the template joins by itself, nothing
//! is run at all.
//!
//! What a guest gets is text: the script, its standard input, and what its end means. Who runs it, and how
//! long it may take, is decided in `machines`. `ssh` and `ssh_keys` are the only places that name russh's
//! types: if tokens are not made through the Kubernetes API, a control plane node is asked for them.

mod growth;
pub mod iso;
mod join;
mod k3s;
mod masking;
mod outcome;
mod script;
mod ssh;
mod ssh_error;
mod ssh_keys;

pub use growth::{TOO_FEW_CPUS, can_grow, take_up};
pub use join::{JoinFacts, configuration};
pub use k3s::{K3sFacts, configuration as k3s_configuration};
pub use outcome::{JoinEnd, read};
pub use script::{GuestCommand, WaitForBoot, command};
pub use ssh::{SshToken, TokenHost};
pub use ssh_error::{CommandEnd, KeyFault, SshError};
