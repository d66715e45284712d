//! An administrator of the cluster, who creates and removes objects with kubectl. Frequent reads use plain
//! HTTPS.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::programs::Programs;

/// How long a read may take.
const LIMIT: Duration = Duration::from_secs(20);
/// How long a watch may last.
const WATCH: Duration = Duration::from_hours(1);

/// An administrator's access to a cluster.
#[derive(Clone, Debug)]
pub struct Admin {
    programs: Programs,
    kubeconfig: PathBuf,
    http: reqwest::Client,
    server: String,
    ca: String,
}

impl Admin {
    /// Reads a kubeconfig with embedded client certificates, as kubeadm writes it.
    pub(crate) fn new(programs: Programs, kubeconfig: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(kubeconfig).context("cannot read the kubeconfig")?;
        let config: Value = serde_saphyr::from_str(&text).context("cannot read the kubeconfig")?;
        let field = |pointer: &str| -> anyhow::Result<&str> {
            config
                .pointer(pointer)
                .and_then(Value::as_str)
                .with_context(|| format!("no {pointer} in the kubeconfig"))
        };
        let pem = |pointer: &str| -> anyhow::Result<Vec<u8>> { Ok(STANDARD.decode(field(pointer)?)?) };
        let ca = field("/clusters/0/cluster/certificate-authority-data")?.to_owned();
        let user =
            [pem("/users/0/user/client-certificate-data")?, pem("/users/0/user/client-key-data")?].concat();
        let http = reqwest::Client::builder()
            .tls_certs_only([reqwest::Certificate::from_pem(&STANDARD.decode(&ca)?)?])
            .identity(reqwest::Identity::from_pem(&user)?)
            .timeout(LIMIT)
            .no_proxy()
            .build()?;
        let server = field("/clusters/0/cluster/server")?.to_owned();
        Ok(Self { programs, kubeconfig: kubeconfig.to_owned(), http, server, ca })
    }

    /// Returns the body of the response to a GET request for this path.
    ///
    /// # Errors
    /// Returns an error if there is no response, or if its status is not 2xx.
    pub async fn text(&self, path: &str) -> anyhow::Result<String> {
        let response = self.http.get(format!("{}{path}", self.server)).send().await?;
        Ok(response.error_for_status()?.text().await?)
    }

    /// Returns the object or list at this path.
    ///
    /// # Errors
    /// Returns an error if there is no response, if its status is not 2xx, or if it is not JSON.
    pub async fn get(&self, path: &str) -> anyhow::Result<Value> {
        Ok(serde_json::from_str(&self.text(path).await?)?)
    }

    /// Returns the items of the list at this path.
    ///
    /// # Errors
    /// Returns the errors of [`get`](Self::get), or an error if the response is not a list.
    pub async fn list(&self, path: &str) -> anyhow::Result<Vec<Value>> {
        match self.get(path).await?["items"].take() {
            Value::Array(items) => Ok(items),
            _ => bail!("{path} is not a list"),
        }
    }

    /// Passes each event of a watch to `wanted`, until `wanted` returns `false`.
    ///
    /// # Errors
    /// Returns an error if the watch ends by itself or cannot be read.
    pub async fn watch(&self, path: &str, mut wanted: impl FnMut(Value) -> bool) -> anyhow::Result<()> {
        let request = self.http.get(format!("{}{path}", self.server)).timeout(WATCH);
        let mut response = request.send().await?.error_for_status()?;
        let mut line = Vec::new();
        while let Some(chunk) = response.chunk().await? {
            for byte in chunk {
                if byte != b'\n' {
                    line.push(byte);
                } else if !wanted(serde_json::from_slice(&std::mem::take(&mut line))?) {
                    return Ok(());
                }
            }
        }
        bail!("the watch on {path} has ended")
    }

    /// Runs kubectl with the given standard input. Returns its standard output.
    ///
    /// # Errors
    /// Returns an error with kubectl's message if kubectl fails.
    pub async fn kubectl(&self, arguments: &[&str], input: &str) -> anyhow::Result<String> {
        let kubeconfig = self.kubeconfig.display().to_string();
        let all = [&["--kubeconfig", &kubeconfig][..], arguments].concat();
        self.programs.run("kubectl", &all, input).await
    }

    /// Runs `kubectl apply` on one or more objects, given as JSON or YAML documents.
    ///
    /// # Errors
    /// Returns an error if an object is refused.
    pub async fn apply(&self, text: &str) -> anyhow::Result<()> {
        self.kubectl(&["apply", "-f", "-"], text).await.map(drop)
    }

    /// Creates a bootstrap token, and returns it as `id.secret`.
    ///
    /// # Errors
    /// Returns an error if kubeadm fails.
    pub async fn token(&self) -> anyhow::Result<String> {
        let kubeconfig = self.kubeconfig.display().to_string();
        let token =
            self.programs.run("kubeadm", &["token", "create", "--kubeconfig", &kubeconfig], "").await?;
        Ok(token.trim_end().to_owned())
    }

    /// Requests a token for a service account (TokenRequest), and returns a kubeconfig with this token.
    ///
    /// # Errors
    /// Returns an error if no token is issued.
    pub async fn kubeconfig_for(&self, namespace: &str, account: &str) -> anyhow::Result<String> {
        let token =
            self.kubectl(&["-n", namespace, "create", "token", account, "--duration=12h"], "").await?;
        Ok(format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: rig\n\
             clusters: [{{ name: rig, cluster: {{ server: \"{}\", certificate-authority-data: {} }} }}]\n\
             users: [{{ name: rig, user: {{ token: {} }} }}]\n\
             contexts: [{{ name: rig, context: {{ cluster: rig, user: rig }} }}]\n",
            self.server,
            self.ca,
            token.trim_end()
        ))
    }
}
