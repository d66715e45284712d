//! The Proxmox VE side: resource pool, roles, user, token, grants.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use secrecy::SecretString;

use super::discovered::Template;
use super::files::Places;
use super::prompts::Choice;
use super::{Arguments, Steps, kept, named};
use crate::cli::cluster::ClusterName;
use crate::cli::exit::Failure;
use crate::cli::live;
use files::ReadSecret;
use proxmox::{Client, Error, Granted, Settings};
use settings::SecretSource;

const COMMENT: &str = "pve-autoscaler";
const MACHINES: &str = "Pool.Audit VM.Allocate VM.Audit VM.PowerMgmt VM.Config.CPU VM.Config.Memory VM.Config.Disk \
                        VM.Config.Network VM.Config.Options";
const MAPPINGS: &str = "AutoscalerMappings";
const STORAGE: &str = "AutoscalerStorage";
const NETWORK: &str = "AutoscalerNetwork";
const GUESTS: &str = "AutoscalerGuests";

const CONNECT_LIMIT: Duration = Duration::from_secs(5);
const REQUEST_LIMIT: Duration = Duration::from_secs(35);

/// A client with the administrator's token, or one that uses `pvesh`, which needs no token.
pub(super) fn administrator(arguments: &Arguments) -> Result<Client, Failure> {
    // The CA file is read before anything is created, because setup copies it for the daemon at the end.
    let trust = live::authorities(&arguments.proxmox_ca)?;
    let (transport, token_id, secret) = if let Some(file) = &arguments.admin_token_file {
        let secret = SecretSource::File(file.clone()).read();
        let secret =
            secret.map_err(|error| Failure::Named("the administrator's token".to_owned(), error.into()))?;
        let transport = proxmox::connect(&trust, CONNECT_LIMIT, REQUEST_LIMIT)
            .map_err(|error| Failure::Named("`--proxmox-ca`".to_owned(), error))?;
        (transport, arguments.admin_token_id.clone(), secret)
    } else {
        let transport = proxmox::over_pvesh(pvesh(&arguments.pvesh)?, REQUEST_LIMIT);
        (transport, "root@pam".to_owned(), SecretString::default())
    };
    let settings = Settings {
        endpoints: vec![arguments.proxmox.trim_end_matches('/').to_owned()],
        token_id,
        agent_lane: 1,
        lifecycle_lane: 1,
        linked_clones: 1,
        full_clones: 1,
    };
    Client::new(transport, settings, &secret)
        .map_err(|error| Failure::Named("the administrator's token".to_owned(), error.into()))
}

/// Returns the path of the `pvesh` program. If only the program's name is given, `PATH` is searched.
fn pvesh(name: &Path) -> Result<PathBuf, Failure> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let named = name.components().count() > 1;
    let mut places = std::env::split_paths(&folders).map(|folder| folder.join(name));
    let found = if named { Some(name.to_owned()) } else { places.find(|place| place.is_file()) };
    found.filter(|place| place.is_file()).ok_or_else(|| {
        Failure::NotFound(format!(
            "`{}` was not found: run this as root on a Proxmox VE host, or give `--admin-token-file`",
            name.display()
        ))
    })
}

/// Creates what is missing. Returns the token's secret, if a token was created.
pub(super) async fn make(
    client: &Client,
    arguments: &Arguments,
    choice: &Choice,
    places: &Places,
    say: &Steps,
) -> Result<Option<SecretString>, Failure> {
    let (user, dry) = (&arguments.user, arguments.dry_run);
    let machines = format!("{MACHINES} {}", choice.agent_privilege);
    let mut roles = vec![
        ("AutoscalerMachines", machines.as_str()),
        ("AutoscalerTemplates", "VM.Clone VM.Audit"),
        (STORAGE, "Datastore.AllocateSpace Datastore.Audit"),
        (NETWORK, "SDN.Use"),
        ("AutoscalerHosts", "Sys.Audit"),
    ];
    if of_template(&choice.template).iter().any(|(_, role)| *role == MAPPINGS) {
        roles.push((MAPPINGS, "Mapping.Use"));
    }
    if ClusterName::of_folder(&arguments.folder).is_some() {
        roles.push((GUESTS, "VM.Audit"));
    }
    let there = client.roles().await.map_err(failed)?;
    for (role, privileges) in roles {
        let Some(has) = there.get(role) else {
            if !dry {
                client.create_role(role, privileges).await.map_err(failed)?;
            }
            say.made(&format!("role {role}: {privileges}"))?;
            continue;
        };
        // The role may have additional privileges, for settings that need them.
        let lacks: Vec<&str> = privileges.split_whitespace().filter(|one| !has.contains(*one)).collect();
        if lacks.is_empty() {
            kept(&format!("role {role}"))?;
            continue;
        }
        let lacks = lacks.join(" ");
        if !dry {
            client.extend_role(role, &lacks).await.map_err(failed)?;
        }
        say.made(&format!("missing privileges of role {role}: {lacks}"))?;
    }
    let pool = &arguments.resource_pool;
    if client.pool_names().await.map_err(failed)?.contains(pool) {
        kept(&format!("resource pool {pool}"))?;
    } else {
        if !dry {
            client.create_pool(pool, "machines of pve-autoscaler").await.map_err(failed)?;
        }
        say.made(&format!("resource pool {pool}"))?;
    }
    let known = client.users().await.map_err(failed)?.contains(user);
    if known {
        kept(&format!("user {user}"))?;
    } else {
        if !dry {
            client.create_user(user, COMMENT).await.map_err(failed)?;
        }
        say.made(&format!("user {user}, without a password"))?;
    }
    let secret = token(client, arguments, places, known, say).await?;
    grants(client, arguments, choice, say).await?;
    Ok(secret)
}

async fn token(
    client: &Client,
    arguments: &Arguments,
    places: &Places,
    user_is_there: bool,
    say: &Steps,
) -> Result<Option<SecretString>, Failure> {
    let (user, token) = (&arguments.user, &arguments.token);
    let names =
        if user_is_there { client.token_names(user).await.map_err(failed)? } else { BTreeSet::default() };
    if names.contains(token) {
        if !places.token_is_there() {
            return Err(Failure::NotFound(format!(
                "the token {user}!{token} exists, but its secret is not in {}: put it there, choose another `--token`, \
                 or remove it (`pveum user token remove {user} {token}`)",
                named(&places.token)
            )));
        }
        kept(&format!("token {user}!{token}"))?;
        return Ok(None);
    }
    // The folders are created before the token, because the token's secret would be lost if it could not be
    // saved.
    places.prepare(arguments.dry_run)?;
    let secret = if arguments.dry_run {
        None
    } else {
        Some(client.create_token(user, token, COMMENT).await.map_err(failed)?)
    };
    say.made(&format!("token {user}!{token}"))?;
    Ok(secret)
}

async fn grants(client: &Client, arguments: &Arguments, choice: &Choice, say: &Steps) -> Result<(), Failure> {
    let user = &arguments.user;
    let token = format!("{user}!{}", arguments.token);
    let there = client.granted().await.map_err(failed)?;
    let mut wanted = vec![
        (format!("/pool/{}", arguments.resource_pool), "AutoscalerMachines", true),
        (format!("/storage/{}", choice.storage), STORAGE, false),
        (format!("/sdn/zones/localnetwork/{}", choice.bridge), NETWORK, true),
        ("/".to_owned(), "AutoscalerHosts", true),
    ];
    if ClusterName::of_folder(&arguments.folder).is_some() {
        // This grant lets the daemon see how much room on the hosts is reserved for other clusters' machines.
        wanted.push(("/vms".to_owned(), GUESTS, true));
    }
    let versions = choice.versions.iter();
    wanted.extend(versions.map(|vmid| (format!("/vms/{vmid}"), "AutoscalerTemplates", false)));
    for (path, role) in of_template(&choice.template) {
        if !wanted.iter().any(|(known, ..)| *known == path) {
            wanted.push((path, role, role == NETWORK));
        }
    }
    for (path, role, propagates) in wanted {
        let has = |who: &String| {
            let one = Granted { path: path.clone(), who: who.clone(), role: role.to_owned(), propagates };
            there.contains(&one)
        };
        let what = format!("{role} on {path}");
        if has(user) && has(&token) {
            kept(&what)?;
            continue;
        }
        if !arguments.dry_run {
            client.grant(&path, role, user, &token, propagates).await.map_err(failed)?;
        }
        say.made(&what)?;
    }
    Ok(())
}

/// Returns the paths and roles that Proxmox VE requires for cloning the template, even if the machine uses
/// other devices later. If the template uses the host's physical CD-ROM drive, Sys.Console is needed as well,
/// and an administrator has to grant it.
fn of_template(template: &Template) -> Vec<(String, &'static str)> {
    let storages = template.storages.iter().map(|storage| (format!("/storage/{storage}"), STORAGE));
    let bridges = template.bridges.iter();
    let bridges = bridges.map(|bridge| (format!("/sdn/zones/localnetwork/{bridge}"), NETWORK));
    let role = |privilege: &str| match privilege {
        "Mapping.Use" => Some(MAPPINGS),
        "Datastore.AllocateSpace" => Some(STORAGE),
        _ => None,
    };
    let asked = template.asked.iter().filter_map(|one| Some((one.path.clone(), role(one.privilege)?)));
    storages.chain(bridges).chain(asked).collect()
}

fn failed(error: Error) -> Failure {
    Failure::Unreachable("Proxmox VE".to_owned(), error.into())
}
