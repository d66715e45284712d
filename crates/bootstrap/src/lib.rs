//! Turns a booted VM into a Node: the commands that run inside the guest, and their input.
//!
//! The guest runs `kubeadm join`, a K3s agent, or an operator's command. If the template's clones join by
//! themselves, no join command is run.
//!
//! For the guest, this crate only produces the script and its standard input, and interprets the script's
//! exit status. `machines` runs the script and sets the time limits. If tokens are not created through the
//! Kubernetes API, a control plane node creates them over SSH. Only `ssh` and `ssh_keys` use russh's types.

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
