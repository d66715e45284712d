//! A machine's bootstrap token, which is created and deleted either through the Kubernetes API or over SSH,
//! as configured.

use std::time::Duration;

use super::context::{Context, Ticket};
use super::machine_handle::MachineHandle;
use super::step_error::{StepError, retry_until};
use bootstrap::TokenHost;
use kubernetes::ErrorKind;
use settings::{Bootstrap, Kubeadm, TokenSource};

/// The time limit for one operation over SSH. A failed operation is retried until the caller's limit.
const SSH: Duration = Duration::from_secs(30);
/// How long to retry the deletion of a token over SSH. The token expires by itself, and nothing waits for its
/// deletion.
const FAREWELL: Duration = Duration::from_mins(1);

/// The maximum number of random token ids to try. Several taken ids in a row are not a coincidence, so more
/// tries would not help.
const ATTEMPTS: u32 = 3;

/// Creates a token and writes its id to the machine's record. If the token is created through the API, its id
/// is recorded before the token is created, so that no token is forgotten. If the token is created over SSH,
/// a lost answer may leave an unrecorded token. The secret of such a token is lost, and the token expires
/// soon.
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
                // The token exists because the previous call succeeded, although its answer was lost.
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

/// Deletes every token that was created for the machine.
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

/// Deletes the token with this id. A token that no longer exists is not an error.
///
/// If tokens are created over SSH, the API server may refuse the deletion: the daemon need not have access to
/// Secrets, and the shipped admission policy lets it delete only tokens that it created through the API. Then
/// the token is deleted over SSH. If that fails too, a warning is logged, and the token expires by itself.
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
            // The admission policy refuses the deletion because the daemon did not create the token through
            // the API: it was created over SSH, before the configuration was changed.
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
            tracing::debug!(%error, "deleting a bootstrap token over SSH, because Kubernetes does not answer");
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
        "a bootstrap token could not be deleted and stays valid until it expires: run `kubeadm token delete \
         {id}`"
    );
}
