//! `template`: makes the templates that the configuration describes, and replaces them if the description has
//! changed.

use std::path::PathBuf;

use clap::Args;

use super::exit::{FINDINGS, Failure, SUCCESS, UNREACHABLE, chain};
use super::{input, live};
use crate::templates::{self, Step, Stop};
use proxmox::{Client, ClusterResources, Error};
use settings::{Config, SecretSource, Template};

const HELP: &str = "\
For each [[template]] a host downloads the image and checks it, imports it as the disk of a new VM, and turns that into a
template with the name that pools use. What is there already stays. What an interrupted run has left is finished.

If the description has changed
  a new VM takes the name over; pools make their machines of it from then on, and with `drift` in [replace] nodes of the
    old one are replaced one by one
  the old VM is called NAME-VERSION-1, and the run after this one destroys it, unless linked clones of it live on

The image brings the container runtime: containerd 2.0 or newer, because no kubelet of Kubernetes 1.38 starts with an older one.
Proxmox VE imports the image as it is; `containerd --version` in it tells (docs/guides/template.md).

It needs more than the daemon does: give it a token of its own (docs/reference/permissions.md has its role).";

/// Arguments of `template`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(super) struct Arguments {
    /// The templates; without a name all of them
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    config: input::ConfigFile,
    /// Only those of this region
    #[arg(long, value_name = "REGION")]
    region: Option<String>,
    /// The token that may make templates; without it the daemon's
    #[arg(long, value_name = "USER@REALM!NAME", requires = "token_file")]
    token_id: Option<String>,
    /// The file with that token's secret
    #[arg(long, value_name = "FILE", requires = "token_id")]
    token_file: Option<PathBuf>,
    /// Say what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// Replace them even if nothing has changed
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
        return Err(Failure::NotFound("the configuration has no table `[[template]]`".to_owned()));
    }
    if let (Some(id), Some(file)) = (&arguments.token_id, &arguments.token_file) {
        if !config.also.is_empty() && arguments.region.is_none() {
            let why = "`--token-id` is one cluster's token: say with `--region` which one's".to_owned();
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

/// Looks at one template, and does what is to be done.
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
            // Without its privileges nothing is begun.
            _ if status != SUCCESS => {}
            _ => status = status.max(done(client, template, step).await?),
        }
    }
    Ok(status)
}

/// What is to be done; nothing if there is no host for it, which is said.
async fn steps(
    client: &Client,
    config: &Config,
    template: &Template,
    seen: &ClusterResources,
    force: bool,
) -> Result<Option<Vec<Step>>, Failure> {
    let (places, left_out) = templates::places(template, seen);
    for host in left_out {
        line("warning", &format!("{host} is offline: what is there stays as it is"))?;
    }
    if places.is_empty() {
        line(
            "error",
            &format!("no host that is online has a storage `{}` that the token may see", template.storage),
        )?;
        return Ok(None);
    }
    let found = templates::look(client, &config.cluster, template, seen).await.map_err(unreachable)?;
    Ok(Some(templates::steps(template, &config.cluster, &places, &found, force)))
}

/// Does one step; says how it went.
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
            // Of what could not be destroyed it was said that it stays.
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
        Step::Make(host, mark) => format!("make {} on {host}", mark.aside()),
        Step::Finish(vmid, host, mark) => format!("finish {} (VM {vmid} on {host})", mark.aside()),
        Step::Serve(vmid, host, mark) => {
            format!("call VM {vmid} on {host} {}", mark.template)
        }
        Step::Aside(vmid, host, mark) => format!("call VM {vmid} on {host} {}", mark.aside()),
        Step::Destroy(vmid, host, mark) => {
            format!("destroy {} (VM {vmid} on {host}) if no clone needs it", mark.aside())
        }
        Step::Blocked(what, _) => what.clone(),
    }
}

fn line(word: &str, what: &str) -> Result<(), Failure> {
    input::text(&format!("  {word:<8}{what}\n"))
}
