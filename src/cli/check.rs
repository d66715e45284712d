//! `check`: is the configuration right, do both clusters answer, and may we do what we need to?

use clap::Args;
use serde::Serialize;

use super::Output;
use super::exit::{Failure, SUCCESS, UNREACHABLE, USAGE, chain};
use super::input::{self, ConfigFile};
use super::live;
use crate::config::{self, Config, Finding, Needs, Report};
use crate::kubernetes::Right;

/// What a machine's whole life needs of Proxmox VE 9 (measured on 9.2.11); on 8 the agent's privilege has another name.
const PRIVILEGES: [&str; 12] = [
    "Datastore.AllocateSpace",
    "SDN.Use",
    "VM.Allocate",
    "VM.Audit",
    "VM.Clone",
    "VM.Config.CPU",
    "VM.Config.Disk",
    "VM.Config.Memory",
    "VM.Config.Network",
    "VM.Config.Options",
    "VM.GuestAgent.Unrestricted",
    "VM.PowerMgmt",
];

/// Arguments of `check`.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    config: ConfigFile,
    /// Only look at the configuration
    #[arg(long)]
    offline: bool,
    /// How to print
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

/// One line of the answer.
#[derive(Debug, Serialize)]
struct Line {
    what: String,
    ok: bool,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    help: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<Place>,
}

/// A place in the configuration, counted from 1 on.
#[derive(Debug, Serialize)]
struct Place {
    line: usize,
    column: usize,
}

impl Line {
    fn good(what: impl Into<String>, message: impl Into<String>) -> Self {
        Self { what: what.into(), ok: true, message: message.into(), help: None, at: None }
    }

    fn bad(what: impl Into<String>, message: impl Into<String>, help: Option<&str>) -> Self {
        Self {
            what: what.into(),
            ok: false,
            message: message.into(),
            help: help.map(ToOwned::to_owned),
            at: None,
        }
    }

    fn finding(path: &str, finding: &Finding, report: &Report) -> Self {
        let at = report.position(finding).map(|(line, column)| Place { line, column });
        Self { at, ..Self::bad(format!("config {path}"), &finding.title, finding.help.as_deref()) }
    }
}

pub(super) fn run(arguments: &Arguments) -> Result<u8, Failure> {
    let path = arguments.config.config.display().to_string();
    let config = match config::load(&arguments.config.config, Needs::Plan) {
        Ok(config) => config,
        Err(report) if arguments.output == Output::Json => {
            let lines: Vec<_> =
                report.findings().iter().map(|one| Line::finding(&path, one, &report)).collect();
            input::json(&serde_json::json!({"lines": lines}))?;
            return Ok(USAGE);
        }
        Err(report) => return Err(Failure::Configuration(report)),
    };
    let mut lines = vec![Line::good(format!("config {path}"), summary(&config))];
    let mut status = SUCCESS;
    if !arguments.offline {
        live::block_on(async {
            status = status.max(proxmox(&config, &mut lines).await);
            status = status.max(kubernetes(&config, &mut lines).await);
            Ok(())
        })?;
    }
    match arguments.output {
        Output::Json => input::json(&serde_json::json!({"lines": lines}))?,
        Output::Text => input::text(&render(&lines))?,
    }
    Ok(status)
}

fn summary(config: &Config) -> String {
    let (least, most) =
        config.pools.iter().fold((0, 0), |(least, most), pool| (least + pool.min, most + pool.max));
    let pools = config.pools.len();
    let plural = if pools == 1 { "" } else { "s" };
    format!("{pools} pool{plural}, {least} to {most} nodes")
}

async fn proxmox(config: &Config, lines: &mut Vec<Line>) -> u8 {
    let Some(settings) = &config.proxmox else { return SUCCESS };
    let what = format!("proxmox {}", settings.endpoints.join(", "));
    let client = match live::proxmox(config) {
        Ok(client) => client,
        Err(failure) => return failed(&what, &failure, lines),
    };
    let version = client.version().await;
    let seen = client.resources().await;
    match (&version, &seen) {
        (Ok(version), Ok(seen)) => {
            lines.push(Line::good(&what, format!("PVE {version}, {} hosts", seen.hosts.len())));
        }
        (Err(error), _) | (_, Err(error)) => {
            lines.push(Line::bad(&what, chain(error), None));
            return UNREACHABLE;
        }
    }
    let what = format!("  token {}", settings.token_id);
    match client.privileges().await {
        Err(error) => {
            lines.push(Line::bad(what, chain(&error), None));
            UNREACHABLE
        }
        Ok(has) => {
            let missing: Vec<_> = PRIVILEGES
                .into_iter()
                .filter(|one| !has.contains(*one))
                .filter(|one| *one != "VM.GuestAgent.Unrestricted" || !has.contains("VM.Monitor"))
                .collect();
            if missing.is_empty() {
                let count = PRIVILEGES.len();
                lines.push(Line::good(what, format!("{count} of {count} privileges")));
                return SUCCESS;
            }
            let help = "give the roles to both the user and the token: a token has no more than its user";
            lines.push(Line::bad(what, format!("lacks {}", missing.join(", ")), Some(help)));
            UNREACHABLE
        }
    }
}

async fn kubernetes(config: &Config, lines: &mut Vec<Line>) -> u8 {
    if config.kubernetes.is_none() {
        return SUCCESS;
    }
    let cluster = match live::kubernetes(config).await {
        Ok(cluster) => cluster,
        Err(failure) => return failed("kubernetes", &failure, lines),
    };
    let what = format!("kubernetes {}", cluster.server());
    match cluster.version().await {
        Ok(version) => lines.push(Line::good(what, version)),
        Err(error) => {
            lines.push(Line::bad(what, chain(&error), None));
            return UNREACHABLE;
        }
    }
    match cluster.rights().await {
        Err(error) => {
            lines.push(Line::bad("  rights", chain(&error), None));
            UNREACHABLE
        }
        Ok(rights) => {
            let missing: Vec<_> = rights.iter().filter(|right| !right.granted).map(Right::words).collect();
            if missing.is_empty() {
                lines.push(Line::good("  rights", format!("{0} of {0}", rights.len())));
                return SUCCESS;
            }
            let help = "packaging/rbac.yaml has all of them";
            lines.push(Line::bad("  rights", format!("may not {}", missing.join(", ")), Some(help)));
            UNREACHABLE
        }
    }
}

fn failed(what: &str, failure: &Failure, lines: &mut Vec<Line>) -> u8 {
    lines.push(Line::bad(what, failure.words(), None));
    failure.status()
}

fn render(lines: &[Line]) -> String {
    let width = lines.iter().map(|line| line.what.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for line in lines {
        let verdict = if line.ok { "ok   " } else { "error" };
        text.push_str(format!("{:width$}   {verdict}   {}\n", line.what, line.message).trim_end());
        text.push('\n');
        if let Some(help) = &line.help {
            text.extend(["  help: ", help, "\n"]);
        }
    }
    let errors = lines.iter().filter(|line| !line.ok).count();
    if errors > 0 {
        let plural = if errors == 1 { "" } else { "s" };
        text.extend(["\n", &errors.to_string(), " error", plural, "\n"]);
    }
    text
}
