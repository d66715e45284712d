//! `setup`: creates what the daemon needs in Proxmox VE and in Kubernetes, and a first configuration. It can
//! be run again: it creates only what is missing. With `--dry-run` it only prints the steps.

mod discovered;
mod draft;
mod files;
mod kubernetes;
mod prompts;
mod proxmox;

use std::path::{Path, PathBuf};

use clap::Args;

use super::cluster::{self, ClusterName};
use super::exit::Failure;
use super::neighbours::{self, Reserved};
use super::{check, input, live};
use prompts::Answers;
use settings::Needs;

const HELP: &str = r#"Administrators
  Setup needs an administrator on each side, once.
  Proxmox VE   root on any host, where setup uses pvesh. Elsewhere, root's token without privilege separation
               (`--admin-token-file`), created and removed as root on a host:
                 umask 077; pveum user token add root@pam setup --privsep 0 --output-format json |
                   sed 's/.*"value":"\([^"]*\)".*/\1/' > admin-token
                 pveum user token remove root@pam setup
  Kubernetes   a kubeconfig of a cluster administrator, e.g. /etc/kubernetes/admin.conf of a control plane node

Setup creates the resource pool, roles, user, token and grants in Proxmox VE, and the objects of rbac.yaml in Kubernetes. In its
folder, it writes config.toml and the credential files, which no other user can read. No secret is printed. Files that already exist
are kept. If there is a configuration, setup writes its proposal beside it. Users, tokens and pools that already exist are kept, roles
get the privileges that they lack, and the objects of rbac.yaml are updated. At the end, setup checks the result.

With `--cluster NAME`, setup adds a further Kubernetes cluster to the same host (docs/guides/several-clusters.md): by default the
folder is /etc/pve-autoscaler/clusters/NAME, the user autoscaler-NAME@pve and the resource pool kubernetes-NAME. The proposal contains
nothing that another cluster on this host already uses."#;

/// Arguments of `setup`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(super) struct Arguments {
    /// The address of any host of the Proxmox VE cluster
    #[arg(long, value_name = "URL", default_value = "https://127.0.0.1:8006")]
    proxmox: String,
    /// The certificate authority of Proxmox VE
    #[arg(long, value_name = "FILE", default_value = "/etc/pve/pve-root-ca.pem")]
    proxmox_ca: PathBuf,
    /// The ID of the administrator's token
    #[arg(long, value_name = "USER@REALM!NAME", default_value = "root@pam!setup")]
    admin_token_id: String,
    /// The file with the secret of the administrator's token (default: no token; setup runs `pvesh` as root)
    #[arg(long, value_name = "FILE")]
    admin_token_file: Option<PathBuf>,
    /// The `pvesh` program, which needs no token
    #[arg(long, value_name = "PROGRAM", default_value = "pvesh", conflicts_with = "admin_token_file")]
    pvesh: PathBuf,
    /// The administrator's kubeconfig
    #[arg(long, value_name = "FILE", default_value = "/etc/kubernetes/admin.conf")]
    admin_kubeconfig: PathBuf,
    /// The folder for the configuration and credentials
    #[arg(long, value_name = "FOLDER", default_value = "/etc/pve-autoscaler")]
    folder: PathBuf,
    /// The user to create in Proxmox VE
    #[arg(long, value_name = "USER@REALM", default_value = "autoscaler@pve")]
    user: String,
    /// The name of that user's token
    #[arg(long, value_name = "NAME", default_value = "agent")]
    token: String,
    /// The resource pool for the machines
    #[arg(long, value_name = "NAME", default_value = "kubernetes")]
    resource_pool: String,
    #[command(flatten)]
    answers: Answers,
    /// Show what would be done without doing it
    #[arg(long)]
    dry_run: bool,
}

pub(super) fn run(arguments: &Arguments) -> Result<u8, Failure> {
    let file = live::block_on(set_up(arguments))?;
    match file {
        Some(file) => {
            let status = check::whole(&file)?;
            let places = files::Places::of(&arguments.folder);
            // The check ran as root, which can read every file. The service's user may not be able to.
            if let Some(command) = places.opening() {
                input::text(&format!(
                    "\nthe packaged unit runs as a user that cannot read the configuration: run `{command}`\n"
                ))?;
            }
            if status == super::exit::SUCCESS && places.are_the_units() {
                let name = ClusterName::of_folder(&arguments.folder);
                let (unit, command) = (cluster::unit(name.as_ref()), cluster::command(name.as_ref()));
                // The package enables only the unit of the cluster without a name.
                let start = if name.is_some() { "enable --now" } else { "start" };
                input::text(&format!("\nnext: systemctl {start} {unit}; {command} status --watch\n"))?;
            }
            Ok(status)
        }
        None => Ok(super::exit::SUCCESS),
    }
}

/// Carries out the setup. Returns the configuration to check; `None` in a dry run.
async fn set_up(arguments: &Arguments) -> Result<Option<PathBuf>, Failure> {
    let admin = proxmox::administrator(arguments)?;
    let cluster = kubernetes::administrator(arguments).await?;
    let reserved = Reserved::by(&neighbours::read_beside(&arguments.folder.join("config.toml")));
    let found = discovered::look(&admin, &cluster).await?.without(&reserved);
    // An invalid configuration is treated as if it had no `[[template]]`.
    let configured = ::files::load(&arguments.folder.join("config.toml"), Needs::Plan).ok();
    let choice = prompts::choose(&arguments.answers, &found, configured.as_ref(), &admin).await?;
    let say = Steps { dry: arguments.dry_run };
    let folder = &arguments.folder;
    let places = files::Places::of(folder);
    let through =
        if arguments.admin_token_file.is_some() { "at" } else { "through pvesh; the daemon will use" };
    part(&format!("Proxmox VE {through} {}", arguments.proxmox))?;
    let secret = proxmox::make(&admin, arguments, &choice, &places, &say).await?;
    part(&format!("Kubernetes at {}", cluster.server()))?;
    let account = kubernetes::make(&cluster, &say).await?;
    part(&format!("{}", folder.display()))?;
    let text = draft::configuration(arguments, &choice, &places, &reserved);
    if arguments.dry_run {
        input::text(&format!("\n{text}"))?;
        return Ok(None);
    }
    let file = places.write(&arguments.proxmox_ca, secret, account, &cluster, &text, &say)?;
    Ok(Some(file))
}

/// Prints the steps.
struct Steps {
    dry: bool,
}

impl Steps {
    /// Reports something that was missing and was created.
    fn made(&self, what: &str) -> Result<(), Failure> {
        self.report("create", what)
    }

    fn changed(&self, what: &str) -> Result<(), Failure> {
        self.report("change", what)
    }

    fn report(&self, act: &str, what: &str) -> Result<(), Failure> {
        let word = if self.dry { format!("would {act}") } else { format!("{act}d") };
        input::text(&format!("  {word:<12}  {what}\n"))
    }
}

fn part(what: &str) -> Result<(), Failure> {
    input::text(&format!("{what}\n"))
}

/// Reports something that already exists.
fn kept(what: &str) -> Result<(), Failure> {
    input::text(&format!("  {:<12}  {what}\n", "kept"))
}

fn named(path: &Path) -> String {
    format!("`{}`", path.display())
}
