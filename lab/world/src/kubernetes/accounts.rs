//! Secrets of type `kubernetes.io/service-account-token`. A controller adds a token to each Secret
//! (`pkg/controller/serviceaccount`). A client that sends this token acts as the service account. The token
//! is not a JWT, because only this server reads it.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::{
    access::{Identity, secret_field},
    kinds::{SECRET, SERVICE_ACCOUNT},
    object::{self, Key, namespace, text},
    state::State,
};

const KIND: &str = "kubernetes.io/service-account-token";
const ACCOUNT: &str = "kubernetes.io/service-account.name";

/// Whether the Secret is of this type and has no token yet.
pub(super) fn lacks_token(secret: &Value) -> bool {
    secret["type"] == KIND && secret["data"]["token"].is_null()
}

fn account(secret: &Value) -> &str {
    secret["metadata"]["annotations"][ACCOUNT].as_str().unwrap_or_default()
}

impl State {
    /// Adds the token, the namespace and the CA to each Secret that lacks a token, if the Secret's service
    /// account exists.
    pub(super) fn fill_account_tokens(&mut self) {
        let waiting: Vec<Key> = self
            .store
            .all(&SECRET)
            .filter(|secret| lacks_token(secret))
            .filter(|secret| self.store.get(&SERVICE_ACCOUNT, namespace(secret), account(secret)).is_some())
            .map(|secret| (namespace(secret).to_owned(), object::name(secret).to_owned()))
            .collect();
        for key in waiting {
            let ca = STANDARD.encode(&self.spec.ca_pem);
            self.edit(&SECRET, &key, |secret| {
                let token = format!("account.{}.{}", account(secret), text(secret, "/metadata/uid"));
                secret["data"] = json!({
                    "token": STANDARD.encode(token),
                    "namespace": STANDARD.encode(&key.0),
                    "ca.crt": ca,
                });
            });
        }
    }

    /// The user name of the service account that the token belongs to.
    pub(super) fn account_of(&self, token: &str) -> Option<String> {
        let of_it = |secret: &&Value| {
            secret["type"] == KIND
                && !token.is_empty()
                && secret_field(secret, "token").as_deref() == Some(token)
        };
        let secret = self.store.all(&SECRET).map(|secret| &**secret).find(of_it)?;
        let (home, name) = (namespace(secret), account(secret));
        self.store.get(&SERVICE_ACCOUNT, home, name)?;
        Some(Identity::account_name(home, name))
    }
}
