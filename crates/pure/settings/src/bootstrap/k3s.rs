//! What a K3s agent needs to join its server.

use toml::Spanned;

use super::super::secret::{self, SecretSource};
use super::super::values::Checker;
use super::Written;

/// How a K3s agent joins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct K3s {
    /// The `host:port` at which nodes reach the K3s server, or the load balancer in front of several servers.
    pub server: String,
    /// The agent token (`/var/lib/rancher/k3s/server/agent-token` on a server), or the server token.
    pub token: SecretSource,
}

impl Written {
    pub(super) fn k3s(&self, table: &Spanned<()>, checker: &mut Checker) -> Option<K3s> {
        let (file, credential) = (self.server_token_file.as_ref(), self.server_token_credential.as_ref());
        let token = secret::source(checker, table, "server_token", file, credential);
        if self.api_server.is_none() {
            let help = "set the address at which nodes reach the K3s server, e.g. `api_server = \"10.10.10.2:6443\"`";
            let title = "`api_server` is missing".to_owned();
            checker.wrong(title, table.span(), "needed for `method = \"k3s\"`", help);
        }
        Some(K3s { server: self.api_server.as_ref()?.get_ref().clone(), token: token? })
    }
}
