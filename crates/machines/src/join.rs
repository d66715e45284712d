//! The join: the input for the guest, the script that runs in the guest, and the resulting Node.

use std::collections::BTreeMap;
use std::time::Duration;

use secrecy::SecretString;
use tokio::time::Instant;

use super::boot::Boot;
use super::cluster_facts::ClusterFacts;
use super::context::{Context, Ticket};
use super::machine_handle::MachineHandle;
use super::step_error::{BackoffTarget, StepError, retry_until};
use super::{bootstrap_tokens, guest, node, self_join};
use bootstrap::{GuestCommand, JoinEnd, JoinFacts, K3sFacts, WaitForBoot};
use files::ReadSecret;
use model::Record;
use model::machine::Phase;
use proxmox::Kind;
use settings::{Bootstrap, BootstrapMethod, Command, K3s, Kubeadm, MachineFacts, Pool, SecretSource};

/// The assumed time for the rest of the boot and the join, until that time has been measured. The first check
/// comes after this time.
const JOIN: Duration = Duration::from_secs(15);
/// How many tokens of earlier runs are kept for a join that may still be running. The oldest ones are kept,
/// because in the guest each join waits for the earlier ones.
const OLD_TOKENS: usize = 3;
/// The time that an agent call and its answer may take in addition to the limits that apply inside the guest.
const MARGIN: Duration = Duration::from_secs(30);

/// The command to run in a guest.
struct Order {
    act: GuestCommand,
    input: Option<SecretString>,
}

/// Makes a booting guest join the cluster as a node, with the configured method.
pub(super) async fn run(
    ctx: &Context,
    machine: &mut MachineHandle,
    pool: &Pool,
    boot: Boot,
) -> Result<(), StepError> {
    let settings = settings(ctx, pool)?;
    let order = match &settings.method {
        BootstrapMethod::Kubeadm(kubeadm) => {
            // The token is created while the guest boots.
            let ticket = ticket(ctx, machine, kubeadm).await?;
            let facts = join_facts(ctx, machine, pool, kubeadm, &ticket).await?;
            let act = pool.kubelet.patch().map_or(GuestCommand::Kubeadm, GuestCommand::KubeadmWith);
            Order { act, input: Some(bootstrap::configuration(&facts)) }
        }
        BootstrapMethod::K3s(k3s) => agent_of_k3s(machine, pool, k3s)?,
        BootstrapMethod::Command(command) => ordered(ctx, machine, pool, command)?,
        BootstrapMethod::None => return self_join::run(ctx, machine).await,
    };
    machine.enter(ctx, Phase::Booting, "waiting for the guest agent");
    in_guest(ctx, machine, &order, settings.accept_degraded, boot).await
}

/// Waits until a guest that must not join yet has booted.
pub(super) async fn await_boot(
    ctx: &Context,
    machine: &mut MachineHandle,
    pool: &Pool,
    boot: Boot,
) -> Result<(), StepError> {
    machine.enter(ctx, Phase::Booting, "waiting for the guest agent");
    let accept_degraded = settings(ctx, pool)?.accept_degraded;
    in_guest(ctx, machine, &Order { act: GuestCommand::Wait, input: None }, accept_degraded, boot).await
}

fn agent_of_k3s(machine: &MachineHandle, pool: &Pool, settings: &K3s) -> Result<Order, StepError> {
    let token = settings.token.read();
    let record = machine.record();
    let facts = K3sFacts {
        name: record.name.clone(),
        server: settings.server.clone(),
        token: token.map_err(|error| StepError::pool(format!("the K3s token: {error}")))?,
        labels: node::wanted_labels(record, pool),
        taints: pool.taints.iter().chain(&pool.startup_taints).cloned().collect(),
        addresses: record.slot.node_ips().or_else(|| record.slot.address.map(|own| own.to_string())),
        kubelet_args: kubelet_args(record, pool),
        max_pods: pool.max_pods,
    };
    Ok(Order { act: GuestCommand::K3s, input: Some(bootstrap::k3s_configuration(&facts)) })
}

/// The command that runs the administrator's script with its placeholders filled in, and the script's
/// standard input.
fn ordered(
    ctx: &Context,
    machine: &MachineHandle,
    pool: &Pool,
    command: &Command,
) -> Result<Order, StepError> {
    let facts = MachineFacts::new(&ctx.config.cluster, machine.record(), pool);
    let wrong = |error: &dyn std::fmt::Display| StepError::pool(format!("`bootstrap.command`: {error}"));
    let script = facts.fill(&command.script).map_err(|error| wrong(&error))?;
    let input = command.input.as_ref().map(SecretSource::read).transpose();
    Ok(Order { act: GuestCommand::Command(script), input: input.map_err(|error| wrong(&error))? })
}

/// Creates a token, records it, and waits until it is signed. The secret of a token from an earlier run is
/// lost, but a join with that token may be under way in the guest and would never finish if the token were
/// deleted. So up to [`OLD_TOKENS`] earlier tokens are kept until the Node is ready.
async fn ticket(ctx: &Context, machine: &mut MachineHandle, settings: &Kubeadm) -> Result<Ticket, StepError> {
    let limit = ctx.config.limits.join;
    if let Some(old) = machine.record().token_id.clone() {
        if machine.record().old_token_ids.len() < OLD_TOKENS {
            machine.stored.record.old_token_ids.push(old);
        } else {
            bootstrap_tokens::delete(ctx, machine, &old, limit).await?;
        }
    }
    let ticket = bootstrap_tokens::mint(ctx, machine, settings, limit).await?;
    machine.say(ctx, "the VM was started; waiting until its bootstrap token is signed");
    ctx.kubernetes.wait_for_signature(&ticket.id, limit).await?;
    Ok(ticket)
}

/// Runs the script in the guest, and returns once the script has succeeded or the Node exists.
async fn in_guest(
    ctx: &Context,
    machine: &mut MachineHandle,
    order: &Order,
    accept_degraded: bool,
    mut boot: Boot,
) -> Result<(), StepError> {
    let limits = &ctx.config.limits;
    let record = machine.record().clone();
    let settle = WaitForBoot {
        settle: limits.system_running,
        join: limits.join,
        accept_degraded,
        clock: boot.old_clock.then(|| ctx.clock.now()),
    };
    let command = bootstrap::command(&record.id, &settle, &order.act);
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    let in_guest = limits.system_running + limits.join + MARGIN;
    loop {
        let pid = asked(ctx, &mut boot, &record, &command, order.input.as_ref()).await?;
        if order.act == GuestCommand::Wait {
            machine.say(ctx, "systemd is still starting");
        } else {
            machine.enter(ctx, Phase::Joining, &format!("systemd and {} are running", order.act.name()));
        }
        let watched = tokio::time::timeout(in_guest, watch(ctx, machine, order, pid)).await;
        let late =
            || StepError::Limit { what: "the join".to_owned(), limit: in_guest, blame: BackoffTarget::Pool };
        match watched.unwrap_or_else(|_| Err(late()))? {
            Some(JoinEnd::Joined { degraded }) => {
                if degraded {
                    tracing::warn!(machine = %record.name, "systemd in the guest came up degraded: run \
                        `systemctl --failed` in the guest, and fix the template");
                }
                return Ok(());
            }
            Some(JoinEnd::Failed(why)) => {
                ctx.cluster_facts.forget().await;
                return Err(StepError::pool(why));
            }
            // The script can safely run again, because it joins only once.
            Some(JoinEnd::Busy) | None => {
                tracing::debug!(machine = %record.name, "starting the join script again");
            }
        }
    }
}

/// Starts the script as soon as the agent answers.
async fn asked(
    ctx: &Context,
    boot: &mut Boot,
    record: &Record,
    command: &[&str],
    input: Option<&SecretString>,
) -> Result<i64, StepError> {
    let limit = ctx.config.limits.agent;
    let late = || StepError::Limit {
        what: "the guest agent's first answer".to_owned(),
        limit,
        blame: BackoffTarget::Pool,
    };
    let asking = async {
        loop {
            boot.wait(ctx, record).await;
            match guest::exec(ctx, record, command, input).await {
                Ok(pid) => {
                    boot.answered(ctx);
                    return Ok(pid);
                }
                Err(trouble) if guest::is_for_good(&trouble) => return Err(trouble),
                Err(error) => {
                    tracing::debug!(machine = %record.name, %error, "the guest agent does not answer yet");
                }
            }
        }
    };
    tokio::time::timeout(limit, asking).await.unwrap_or_else(|_| Err(late()))
}

/// Waits until the script ends or the Node registers. Returns `None` if the agent no longer knows the script.
async fn watch(
    ctx: &Context,
    machine: &MachineHandle,
    order: &Order,
    pid: i64,
) -> Result<Option<JoinEnd>, StepError> {
    let record = machine.record();
    let registered = async { node::until(ctx, || node::find(ctx, record)).await };
    let ended = async {
        let what = format!("join of {}", record.pool);
        let started = Instant::now();
        let mut looks = ctx.pace.watch(&what, JOIN);
        loop {
            let longest = ctx.config.limits.task_poll * 10;
            tokio::time::sleep(looks.pause(started.elapsed(), longest)).await;
            match ctx
                .proxmox
                .agent_exec_status(&record.host, record.slot.vmid, pid)
                .await
                .map_err(StepError::from)
            {
                Ok(status) if status.exited => {
                    ctx.pace.learn(&what, looks.took());
                    return Ok(Some(bootstrap::read(&order.act, order.input.as_ref(), &status)));
                }
                Ok(_) => {}
                Err(StepError::Proxmox(error)) if error.kind == Kind::NotFound => return Ok(None),
                Err(trouble) if guest::is_for_good(&trouble) => return Err(trouble),
                Err(error) => {
                    tracing::debug!(machine = %record.name, %error, "the join cannot be checked at the moment");
                }
            }
        }
    };
    tokio::select! {
        biased;
        _ = registered => Ok(Some(JoinEnd::Joined { degraded: false })),
        ended = ended => ended,
    }
}

fn settings<'c>(ctx: &'c Context, pool: &'c Pool) -> Result<&'c Bootstrap, StepError> {
    let none = || StepError::pool("the configuration has no `[bootstrap]` table for the machine's pool");
    ctx.config.bootstrap_of(pool).ok_or_else(none)
}

async fn join_facts(
    ctx: &Context,
    machine: &MachineHandle,
    pool: &Pool,
    settings: &Kubeadm,
    ticket: &Ticket,
) -> Result<JoinFacts, StepError> {
    let facts = retry_until!(
        ctx.config.limits.join,
        machine.seed(),
        Ok(ctx.cluster_facts.get(&ctx.kubernetes).await?)
    );
    let facts: ClusterFacts = facts.await?;
    let server = facts.info.server.trim_start_matches("https://").trim_end_matches('/').to_owned();
    let api_server = settings.api_server.clone().unwrap_or(server);
    let record = machine.record();
    Ok(JoinFacts {
        name: record.name.clone(),
        api_server,
        ca_hash: facts.info.ca_hash.clone(),
        token: ticket.token.clone(),
        minor: facts.minor,
        labels: node::wanted_labels(record, pool),
        taints: pool.taints.iter().chain(&pool.startup_taints).cloned().collect(),
        kubelet_args: kubelet_args_with_address(record, pool),
        max_pods: pool.max_pods,
        patched: pool.kubelet.patch().is_some(),
        ignore_preflight_errors: settings.ignore_preflight_errors.clone(),
    })
}

/// The kubelet arguments for kubeadm. If the machine has several addresses, `node-ip` is set to those of the
/// first network device, unless the pool sets `node-ip`.
fn kubelet_args_with_address(record: &Record, pool: &Pool) -> BTreeMap<String, String> {
    let mut arguments = kubelet_args(record, pool);
    if let Some(own) = record.slot.node_ips() {
        arguments.entry("node-ip".to_owned()).or_insert(own);
    }
    arguments
}

/// The pool's own arguments, and the provider ID, which the kubelet can only set when it first registers.
fn kubelet_args(record: &Record, pool: &Pool) -> BTreeMap<String, String> {
    let mut arguments = pool.kubelet_args.clone();
    let id = pool.provider_id_for(&record.host, &record.name, record.slot.vmid);
    arguments.extend(id.map(|id| ("provider-id".to_owned(), id)));
    arguments
}
