//! Bootstrap tokens: one for each machine, short-lived, and valid only for joining the cluster.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use kube::Resource;
use kube::api::{DeleteParams, ObjectMeta, PostParams, Request};
use kube::core::request::Error as RequestError;
use runtime::boxed;
use secrecy::{ExposeSecret, SecretString};

use super::cluster::{Cluster, Entropy};
use super::error::{Error, ErrorKind};
use super::{MANAGED_BY, MANAGED_BY_LABEL};

/// The Secret type of bootstrap tokens.
const KIND: &str = "bootstrap.kubernetes.io/token";
/// The group to which kubeadm grants the rights that a joining node needs.
const GROUP: &str = "system:bootstrappers:kubeadm:default-node-token";
/// The characters of an id or secret (`BootstrapTokenPattern`: `[a-z0-9]{6}.[a-z0-9]{16}`).
const LETTERS: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";

/// A bootstrap token.
#[derive(Clone, Debug)]
pub struct BootstrapToken {
    /// The public part of the token: six letters or digits.
    pub id: String,
    /// The secret part of the token: sixteen letters or digits.
    pub secret: SecretString,
    /// When it expires.
    pub expires: Timestamp,
}

impl BootstrapToken {
    /// The token in the form `id.secret`, which kubeadm expects.
    pub fn joined(&self) -> SecretString {
        format!("{}.{}", self.id, self.secret.expose_secret()).into()
    }
}

impl Cluster {
    /// Generates a token without creating it in the cluster, so that its id can be recorded before
    /// [`Cluster::create_token`] creates it.
    ///
    /// # Errors
    /// Returns an error if no random bytes are available.
    pub fn draw_token(&self, ttl: Duration) -> Result<BootstrapToken, Error> {
        let ttl = SignedDuration::try_from(ttl).unwrap_or(SignedDuration::MAX);
        let expires = self.latest_now().saturating_add(ttl).unwrap_or(Timestamp::MAX);
        Ok(BootstrapToken {
            id: random(&self.entropy, 6)?,
            secret: random(&self.entropy, 16)?.into(),
            expires,
        })
    }

    /// Creates a token for authentication and for signing cluster-info. The description should name the
    /// machine.
    ///
    /// The token can be used once [`Cluster::wait_for_signature`] has found its signature.
    ///
    /// # Errors
    /// Returns an error if the call fails. [`ErrorKind::AlreadyExists`] means that another token has this id,
    /// or that an earlier call whose outcome is unknown created this token.
    #[boxed]
    pub async fn create_token(&self, token: &BootstrapToken, description: &str) -> Result<(), Error> {
        self.ask_of_secrets("create a bootstrap token", create(token, description)).await
    }

    /// Deletes a token by its id, which a machine's record contains. Succeeds if the token is already gone.
    ///
    /// The daemon cannot read Secrets, so it cannot check the token first. Only the admission policy in
    /// `packaging/rbac.yaml` prevents this call from deleting anything but a bootstrap token with the
    /// daemon's label.
    ///
    /// # Errors
    /// Returns an error if the id is malformed, or the call fails.
    #[boxed]
    pub async fn delete_token(&self, id: &str) -> Result<(), Error> {
        let action = "delete a bootstrap token";
        if id.len() != 6 || !id.bytes().all(|letter| LETTERS.contains(&letter)) {
            let reason = format!("`{id}` is not a bootstrap token id");
            return Err(Error::Unusable { action: action.to_owned(), reason });
        }
        match self.ask_of_secrets(action, delete(id)).await {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Makes a call whose response contains a Secret, and discards the response unread. kube's typed calls
    /// would log the contents of a Secret that they cannot parse.
    async fn ask_of_secrets(
        &self,
        action: &str,
        request: Result<http::Request<Vec<u8>>, RequestError>,
    ) -> Result<(), Error> {
        let request = request.map_err(kube::Error::BuildRequest);
        self.call(action, async { self.client.request_text(request?).await }).await?;
        Ok(())
    }
}

fn secrets() -> Request {
    Request::new(Secret::url_path(&(), Some("kube-system")))
}

fn create(token: &BootstrapToken, description: &str) -> Result<http::Request<Vec<u8>>, RequestError> {
    let body = serde_json::to_vec(&written(token, description)).map_err(RequestError::SerializeBody)?;
    secrets().create(&PostParams::default(), body)
}

fn delete(id: &str) -> Result<http::Request<Vec<u8>>, RequestError> {
    secrets().delete(&secret_name(id), &DeleteParams::default())
}

fn secret_name(id: &str) -> String {
    format!("bootstrap-token-{id}")
}

fn written(token: &BootstrapToken, description: &str) -> Secret {
    let expires = token.expires.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let data = [
        ("token-id", token.id.as_str()),
        ("token-secret", token.secret.expose_secret()),
        ("description", description),
        ("expiration", &expires),
        ("usage-bootstrap-authentication", "true"),
        ("usage-bootstrap-signing", "true"),
        ("auth-extra-groups", GROUP),
    ];
    Secret {
        metadata: ObjectMeta {
            name: Some(secret_name(&token.id)),
            namespace: Some("kube-system".to_owned()),
            labels: Some(BTreeMap::from([(MANAGED_BY_LABEL.to_owned(), MANAGED_BY.to_owned())])),
            ..ObjectMeta::default()
        },
        type_: Some(KIND.to_owned()),
        string_data: Some(data.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()),
        ..Secret::default()
    }
}

/// Returns random letters and digits, each equally likely: bytes of 252 and above are discarded.
fn random(entropy: &Entropy, length: usize) -> Result<String, Error> {
    let mut text = String::with_capacity(length);
    // 252 of 256 byte values are usable, so a working random source needs only one or two attempts.
    for _ in 0..64 {
        let mut bytes = [0; 32];
        entropy(&mut bytes).map_err(Error::Entropy)?;
        let useful =
            bytes.iter().filter(|byte| **byte < 252).map(|byte| LETTERS[usize::from(byte % 36)] as char);
        text.extend(useful.take(length - text.len()));
        if text.len() == length {
            return Ok(text);
        }
    }
    Err(Error::Entropy(super::EntropyError))
}
