//! `template`: creates the templates that the configuration describes, and replaces those whose settings have
//! changed.

use std::path::PathBuf;

use clap::Args;

use super::exit::{FINDINGS, Failure, SUCCESS, UNREACHABLE, chain};
use super::{input, live};
use crate::templates::{self, Step, Stop};
use proxmox::{Client, ClusterResources, Error};
use settings::{Config, SecretSource, Template};

const HELP: &str = "\
For each [[template]], a host downloads the image and checks it, imports it as the disk of a new VM, and turns that VM into a
template with the name that pools use. Existing templates are kept. The command also finishes the work of an interrupted run.

If the settings of a [[template]] have changed
  a new VM takes over the template's name, and pools create their machines from this VM from then on; with `drift` in [replace],
    the nodes of the old template are replaced one by one
  the old VM is renamed to NAME-VERSION-1, and the next run destroys it, unless it still has linked clones

The image must contain containerd 2.0 or newer: the kubelet of Kubernetes 1.38 does not start with an older one. Proxmox VE imports
the image unchanged; to check, run `containerd --version` in the image (docs/guides/template.md).

This command needs more privileges than the daemon: give it a token of its own (docs/reference/permissions.md has the role).";

/// Arguments of `template`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(super) struct Arguments {
    /// The templates (default: all of them)
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    config: input::ConfigFile,
    /// Only templates of this region
    #[arg(long, value_name = "REGION")]
    region: Option<String>,
    /// A token that may create templates (default: the daemon's)
    #[arg(long, value_name = "USER@REALM!NAME", requires = "token_file")]
    token_id: Option<String>,
    /// The file with that token's secret
    #[arg(long, value_name = "FILE", requires = "token_id")]
    token_file: Option<PathBuf>,
    /// Show what would be done without doing it
    #[arg(long)]
    dry_run: bool,
    /// Replace the templates even if nothing has changed
    #[arg(long)]
    force: bool,
}

pub(super) fn run(arguments: &Arguments) -> Result<u8, Failure> {
    let mut config = arguments.config.load()?;
    let known = |name: &String| config.templates.iter().any(|template| template.name == *name);
    if let Some(unknown) = arguments.names.iter().find(|name| !known(name)) {
        return Err(Failure::NotFound(format!("the configuration describes no template `{unknown}`")));
    }
    if config.templates.is_empty() {
        return Err(Failure::NotFound("the configuration has no `[[template]]` table".to_owned()));
    }
    if let (Some(id), Some(file)) = (&arguments.token_id, &arguments.token_file) {
        if !config.also.is_empty() && arguments.region.is_none() {
            let why =
                "`--token-id` names a token of one cluster: select that cluster with `--region`".to_owned();
            return Err(Failure::NotFound(why));
        }
        for cluster in config.proxmox.iter_mut().chain(&mut config.also) {
            cluster.token_id.clone_from(id);
            cluster.token = SecretSource::File(file.clone());
        }
    }
    if let Some(region) = arguments.region.as_ref()
        && config.clusters().all(|cluster| cluster.region.as_ref() != Some(region))
    {
        return Err(Failure::NotFound(format!("the configuration has no region `{region}`")));
    }
    live::block_on(async {
        let mut status = SUCCESS;
        for cluster in config.clusters() {
            let alone = config.alone(config.prefix(cluster.region.as_deref()));
            let meant: Vec<&Template> = alone.templates.iter().filter(|one| arguments.means(one)).collect();
            if meant.is_empty() {
                continue;
            }
            let client = live::proxmox(&alone)?;
            for template in meant {
                status = status.max(one(&client, &alone, template, arguments).await?);
            }
        }
        if config.proxmox.is_none() {
            return Err(Failure::Lacking("proxmox"));
        }
        Ok(status)
    })
}

impl Arguments {
    fn means(&self, template: &Template) -> bool {
        let here = self.region.is_none() || self.region == template.region;
        here && (self.names.is_empty() || self.names.contains(&template.name))
    }
}

fn unreachable(error: Error) -> Failure {
    Failure::Unreachable("Proxmox VE".to_owned(), error.into())
}

/// Checks one template, and carries out the steps that it needs.
async fn one(
    client: &Client,
    config: &Config,
    template: &Template,
    arguments: &Arguments,
) -> Result<u8, Failure> {
    let version = templates::version(template);
    input::text(&format!("template {}, version {version}\n", template.name))?;
    let seen = client.resources().await.map_err(unreachable)?;
    let Some(steps) = steps(client, config, template, &seen, arguments.force).await? else {
        return Ok(FINDINGS);
    };
    let (places, _) = templates::places(template, &seen);
    let mut status = SUCCESS;
    if steps.iter().any(|step| !matches!(step, Step::Keep(..) | Step::Blocked(..))) {
        for (path, lacks) in templates::missing(client, template, &places).await.map_err(unreachable)? {
            line("error", &format!("the token lacks {} on {path}", lacks.join(", ")))?;
            status = UNREACHABLE;
        }
    }
    for step in &steps {
        match step {
            Step::Blocked(what, help) => {
                line("error", what)?;
                line("", &format!("help: {help}"))?;
                status = status.max(FINDINGS);
            }
            Step::Keep(vmid, host) => line("kept", &format!("VM {vmid} on {host}"))?,
            _ if arguments.dry_run => line("would", &step_text(step))?,
            // After an error, e.g. a missing privilege, no further step is started.
            _ if status != SUCCESS => {}
            _ => status = status.max(done(client, template, step).await?),
        }
    }
    Ok(status)
}

/// Returns the steps to take. If no host can store the template, prints a message and returns `None`.
async fn steps(
    client: &Client,
    config: &Config,
    template: &Template,
    seen: &ClusterResources,
    force: bool,
) -> Result<Option<Vec<Step>>, Failure> {
    let (places, left_out) = templates::places(template, seen);
    for host in left_out {
        line("warning", &format!("{host} is offline: its templates are not changed"))?;
    }
    if places.is_empty() {
        line(
            "error",
            &format!("no online host has a storage `{}` that the token can see", template.storage),
        )?;
        return Ok(None);
    }
    let found = templates::look(client, &config.cluster, template, seen).await.map_err(unreachable)?;
    Ok(Some(templates::steps(template, &config.cluster, &places, &found, force)))
}

/// Carries out one step and reports the result.
async fn done(client: &Client, template: &Template, step: &Step) -> Result<u8, Failure> {
    let mut failure = None;
    let mut say = |what: String| {
        if let Err(error) = line("", &what) {
            failure.get_or_insert(error);
        }
    };
    let outcome = templates::make(client, template, step, &mut say).await;
    if let Some(failure) = failure {
        return Err(failure);
    }
    match outcome {
        Ok(()) => {
            // The step itself has already reported whether it destroyed or kept the VM.
            if !matches!(step, Step::Destroy(..)) {
                line("done", &step_text(step))?;
            }
            Ok(SUCCESS)
        }
        Err(stop) => {
            line("error", &format!("{}: {}", step_text(step), chain(&stop)))?;
            Ok(if matches!(stop, Stop::Proxmox(_) | Stop::Wait(_)) { UNREACHABLE } else { FINDINGS })
        }
    }
}

fn step_text(step: &Step) -> String {
    match step {
        Step::Keep(vmid, host) => format!("keep VM {vmid} on {host}"),
        Step::Make(host, mark) => format!("create {} on {host}", mark.aside()),
        Step::Finish(vmid, host, mark) => format!("finish {} (VM {vmid} on {host})", mark.aside()),
        Step::Serve(vmid, host, mark) => {
            format!("rename VM {vmid} on {host} to {}", mark.template)
        }
        Step::Aside(vmid, host, mark) => format!("rename VM {vmid} on {host} to {}", mark.aside()),
        Step::Destroy(vmid, host, mark) => {
            format!("destroy {} (VM {vmid} on {host}) if no clone needs it", mark.aside())
        }
        Step::Blocked(what, _) => what.clone(),
    }
}

fn line(word: &str, what: &str) -> Result<(), Failure> {
    input::text(&format!("  {word:<8}{what}\n"))
}
