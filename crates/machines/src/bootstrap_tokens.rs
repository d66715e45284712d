//! A machine's bootstrap token: made and deleted where the configuration says.

use std::time::Duration;

use super::context::{Context, Ticket};
use super::machine_handle::MachineHandle;
use super::step_error::{StepError, retry_until};
use bootstrap::TokenHost;
use kubernetes::ErrorKind;
use settings::{Bootstrap, Kubeadm, TokenSource};

/// The most that one operation over SSH may take; it is tried again until the caller's limit.
const SSH: Duration = Duration::from_secs(30);
/// How long a control plane node is asked to delete a token, at most. It expires by itself, and nothing waits
/// for that.
const FAREWELL: Duration = Duration::from_mins(1);

/// How many ids are tried; two that are taken in a row do not happen by chance.
const ATTEMPTS: u32 = 3;

/// A fresh token, its id in the machine's record. Made through the API it is recorded before it exists, so
/// that none is forgotten; over SSH a token may be left whose answer was lost: its secret is lost, and it
/// expires soon.
pub(super) async fn mint(
    ctx: &Context,
    machine: &mut MachineHandle,
    settings: &Kubeadm,
    limit: Duration,
) -> Result<Ticket, StepError> {
    let description = format!("pve-autoscaler: machine {}", machine.record().name);
    match &settings.token {
        TokenSource::Api => through_api(ctx, machine, settings, &description, limit).await,
        TokenSource::Ssh(ssh) => {
            let host = TokenHost::new(ssh.clone(), SSH.min(limit));
            let ttl = settings.token_ttl;
            let token = retry_until!(limit, machine.seed(), {
                ctx.kubernetes.may_write().await?;
                Ok(host.mint(ttl, &description).await?)
            });
            let token = token.await?;
            let id = token.id.clone();
            machine.change(ctx, |record| record.token_id = Some(id)).await?;
            Ok(Ticket { token: token.token, id: token.id })
        }
    }
}

async fn through_api(
    ctx: &Context,
    machine: &mut MachineHandle,
    settings: &Kubeadm,
    description: &str,
    limit: Duration,
) -> Result<Ticket, StepError> {
    let mut attempt = 1;
    loop {
        let token = ctx.kubernetes.draw_token(settings.token_ttl)?;
        let id = token.id.clone();
        machine.change(ctx, |record| record.token_id = Some(id)).await?;
        let mut unknown = false;
        let made = retry_until!(limit, machine.seed(), {
            match ctx.kubernetes.create_token(&token, description).await {
                // The answer of the call before was lost.
                Err(error) if unknown && error.kind() == ErrorKind::AlreadyExists => Ok(()),
                made => {
                    unknown |= made.as_ref().is_err_and(kubernetes::Error::outcome_unknown);
                    Ok(made?)
                }
            }
        });
        match made.await {
            Ok(()) => return Ok(Ticket { token: token.joined(), id: token.id }),
            Err(StepError::Kubernetes(error))
                if error.kind() == ErrorKind::AlreadyExists && attempt < ATTEMPTS =>
            {
                attempt += 1;
            }
            Err(trouble) => return Err(trouble),
        }
    }
}

/// Deletes every token that was minted for the machine.
pub(super) async fn delete_all(
    ctx: &Context,
    machine: &MachineHandle,
    limit: Duration,
) -> Result<(), StepError> {
    for id in machine.record().tokens() {
        delete(ctx, machine, id, limit).await?;
    }
    Ok(())
}

/// Deletes a token by the id in the machine's record. One that is gone already is no error.
///
/// Who has tokens made over SSH need not grant us any right to Secrets, and the admission policy that is
/// shipped lets us delete only what we have made ourselves: then the control plane node is asked. If it
/// cannot be, the token ends by itself, and the machine lives on.
pub(super) async fn delete(
    ctx: &Context,
    machine: &MachineHandle,
    id: &str,
    limit: Duration,
) -> Result<(), StepError> {
    let pool = ctx.config.pools.iter().find(|pool| pool.name == machine.record().pool);
    let bootstrap = pool.and_then(|pool| ctx.config.bootstrap_of(pool)).or(ctx.config.bootstrap.as_ref());
    let Some(ssh) = bootstrap.and_then(Bootstrap::ssh) else {
        let deleted = retry_until!(limit, machine.seed(), Ok(ctx.kubernetes.delete_token(id).await?)).await;
        return match deleted {
            // The policy does not take it for ours: it was made over SSH, before the configuration was
            // changed.
            Err(StepError::Kubernetes(error)) if error.kind() == ErrorKind::Invalid => {
                left(machine, id, &StepError::Kubernetes(error));
                Ok(())
            }
            deleted => deleted,
        };
    };
    match ctx.kubernetes.delete_token(id).await {
        Ok(()) => return Ok(()),
        Err(error) if matches!(error.kind(), ErrorKind::Forbidden | ErrorKind::Invalid) => {}
        Err(error) => {
            tracing::debug!(%error, "a bootstrap token is deleted over SSH, because Kubernetes does not answer");
        }
    }
    let limit = limit.min(FAREWELL);
    let host = TokenHost::new(ssh.clone(), SSH.min(limit));
    let asked: Result<(), StepError> = retry_until!(limit, machine.seed(), {
        ctx.kubernetes.may_write().await?;
        Ok(host.delete(id).await?)
    })
    .await;
    if let Err(trouble) = asked {
        left(machine, id, &trouble);
    }
    Ok(())
}

fn left(machine: &MachineHandle, id: &str, trouble: &StepError) {
    tracing::warn!(
        machine = %machine.record().name,
        error = %trouble,
        "a bootstrap token could not be deleted and lives until its end: run `kubeadm token delete {id}`"
    );
}
