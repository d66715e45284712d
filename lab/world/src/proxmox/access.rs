//! Authentication and privileges: API tokens, privilege separation, and the roles of the most specific path.

use std::collections::BTreeMap;

use super::{answer::Refusal, spec::AccessSpec, state::State};

/// The token or user that sent a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// `user@realm`.
    pub user: String,
    /// `user@realm!token`.
    pub token: String,
    privsep: bool,
}

impl Identity {
    /// A user who is logged in without a token, such as `root@pam`.
    pub(super) fn person(user: &str) -> Self {
        Self { user: user.to_owned(), token: user.to_owned(), privsep: false }
    }
}

/// Finds the token that an `Authorization` header names.
pub fn authenticate(access: &AccessSpec, header: Option<&str>) -> Result<Identity, Refusal> {
    let credential = header
        .and_then(|header| header.strip_prefix("PVEAPIToken"))
        .and_then(|rest| rest.strip_prefix(['=', ' ']))
        .ok_or(Refusal::Unauthenticated("No ticket"))?;
    let credential = percent_encoding::percent_decode_str(credential).decode_utf8_lossy();
    let (id, secret) =
        credential.split_once('=').ok_or(Refusal::Unauthenticated("Authentication failed!"))?;
    let token = access.tokens.iter().find(|token| token.id == id && token.secret == secret && token.enabled);
    let token = token.ok_or(Refusal::Unauthenticated("Authentication failed!"))?;
    let user = token.id.split('!').next().unwrap_or_default().to_owned();
    Ok(Identity { user, token: token.id.clone(), privsep: token.privsep })
}

impl Identity {
    /// The system itself.
    pub fn root() -> Self {
        Self { user: "root@pam".to_owned(), token: "root@pam".to_owned(), privsep: false }
    }

    fn is_root(&self) -> bool {
        self.user == "root@pam" && !self.privsep
    }

    /// Whether this identity has a privilege at a path.
    pub fn has(&self, state: &State, path: &str, privilege: &str) -> bool {
        if self.is_root() {
            return true;
        }
        let held = |who: &str| holds(state, who, path, privilege);
        held(&self.user) && (!self.privsep || held(&self.token))
    }

    /// All privileges at a path, and whether paths below inherit them, for `/access/permissions`.
    pub fn all(&self, state: &State, path: &str) -> BTreeMap<String, bool> {
        if self.is_root() {
            return state
                .access
                .roles
                .values()
                .flatten()
                .map(|privilege| (privilege.clone(), true))
                .collect();
        }
        let mut held = privileges(state, &self.user, path);
        if self.privsep {
            let token = privileges(state, &self.token, path);
            held.retain(|privilege, _| token.contains_key(privilege));
        }
        held
    }

    /// Refuses a call with the real server's error text, unless the identity has one of the privileges at the
    /// path.
    pub fn need(&self, state: &State, path: &str, any_of: &[&str]) -> Result<(), Refusal> {
        if any_of.iter().any(|privilege| self.has(state, path, privilege)) {
            return Ok(());
        }
        Err(Refusal::privilege(path, &any_of.join("|")))
    }

    /// Refuses a call unless the identity has the privileges that the simulated Proxmox VE release requires
    /// for guest agent calls.
    pub fn need_agent(&self, state: &State, vmid: u32, any_of: &[&str]) -> Result<(), Refusal> {
        let path = format!("/vms/{vmid}");
        if state.is_release_8() {
            self.need(state, &path, &["VM.Monitor"])
        } else {
            self.need(state, &path, any_of)
        }
    }
}

/// Whether `privileges` would contain this privilege. To be fast enough for a check on every call, this
/// function does not build the whole map.
fn holds(state: &State, who: &str, path: &str, privilege: &str) -> bool {
    let access = &state.access;
    let at = |path: &str| roles(access, who, path).any(|(role, _)| gives(access, role, privilege));
    at(path) || pool_path(state, path).is_some_and(|pool| at(&pool))
}

fn gives(access: &AccessSpec, role: &str, privilege: &str) -> bool {
    access.roles.get(role).is_some_and(|all| all.iter().any(|one| one == privilege))
}

/// Returns the privileges at a path. The roles of the most specific path replace inherited ones. For a VM
/// in a pool, the privileges on the pool are added.
fn privileges(state: &State, who: &str, path: &str) -> BTreeMap<String, bool> {
    let mut found = path_privileges(&state.access, who, path);
    if let Some(pool) = pool_path(state, path) {
        for (privilege, goes_on) in path_privileges(&state.access, who, &pool) {
            *found.entry(privilege).or_default() |= goes_on;
        }
    }
    found
}

/// Returns the path of the pool that contains the VM with this path.
fn pool_path(state: &State, path: &str) -> Option<String> {
    let vmid = path.strip_prefix("/vms/")?.parse().ok()?;
    Some(format!("/pool/{}", state.pool_of(vmid)?))
}

fn path_privileges(access: &AccessSpec, who: &str, path: &str) -> BTreeMap<String, bool> {
    let mut found = BTreeMap::new();
    for (role, goes_on) in roles(access, who, path) {
        for privilege in access.roles.get(role).into_iter().flatten() {
            *found.entry(privilege.clone()).or_default() |= goes_on;
        }
    }
    found
}

/// The roles of the most specific path that has any, and whether paths below inherit them.
fn roles<'a>(
    access: &'a AccessSpec,
    who: &'a str,
    path: &'a str,
) -> impl Iterator<Item = (&'a str, bool)> + 'a {
    let ends = path.match_indices('/').map(|(at, _)| at).skip(1).chain([path.len()]);
    let levels = std::iter::once("/").chain(ends.map(|end| &path[..end])).filter(|level| !level.is_empty());
    let here = move |level: &'a str| {
        let grants = access.grants.iter().filter(move |grant| {
            grant.path == level && grant.who == who && (grant.propagate || level == path)
        });
        grants.map(|grant| (grant.role.as_str(), grant.propagate))
    };
    let most_specific = levels.filter(|level| here(level).next().is_some()).last();
    most_specific.into_iter().flat_map(here)
}
