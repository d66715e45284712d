//! Who is asking, and what they may do: API tokens, privilege separation, and the most specific path's roles.

use std::collections::BTreeMap;

use super::{answer::Refusal, spec::AccessSpec, state::State};

/// The token behind a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// `user@realm`.
    pub user: String,
    /// `user@realm!token`.
    pub token: String,
    privsep: bool,
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
        let held = |who: &str| privileges(state, who, path).contains_key(privilege);
        held(&self.user) && (!self.privsep || held(&self.token))
    }

    /// All privileges at a path, and whether they go on to paths below, for `/access/permissions`.
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

    /// Refuses with the text of the real server unless one of the privileges is held at the path.
    pub fn need(&self, state: &State, path: &str, any_of: &[&str]) -> Result<(), Refusal> {
        if any_of.iter().any(|privilege| self.has(state, path, privilege)) {
            return Ok(());
        }
        Err(Refusal::privilege(path, &any_of.join("|")))
    }

    /// The privileges for an agent call, by the release.
    pub fn need_agent(&self, state: &State, vmid: u32, any_of: &[&str]) -> Result<(), Refusal> {
        let path = format!("/vms/{vmid}");
        if state.is_release_8() {
            self.need(state, &path, &["VM.Monitor"])
        } else {
            self.need(state, &path, any_of)
        }
    }
}

/// The roles of the most specific path replace inherited ones; a pool's roles come on top for its members.
fn privileges(state: &State, who: &str, path: &str) -> BTreeMap<String, bool> {
    let mut found = path_privileges(&state.access, who, path);
    if let Some(vmid) = path.strip_prefix("/vms/").and_then(|id| id.parse().ok())
        && let Some(pool) = state.pool_of(vmid)
    {
        let of_pool = path_privileges(&state.access, who, &format!("/pool/{pool}"));
        for (privilege, goes_on) in of_pool {
            *found.entry(privilege).or_default() |= goes_on;
        }
    }
    found
}

fn path_privileges(access: &AccessSpec, who: &str, path: &str) -> BTreeMap<String, bool> {
    let mut roles: BTreeMap<&str, bool> = BTreeMap::new();
    let ends = path.match_indices('/').map(|(at, _)| at).skip(1).chain([path.len()]);
    for level in std::iter::once("/").chain(ends.map(|end| &path[..end])).filter(|level| !level.is_empty()) {
        let here: BTreeMap<&str, bool> = access
            .grants
            .iter()
            .filter(|grant| grant.path == level && grant.who == who && (grant.propagate || level == path))
            .map(|grant| (grant.role.as_str(), grant.propagate))
            .collect();
        if !here.is_empty() {
            roles = here;
        }
    }
    let mut found = BTreeMap::new();
    for (role, goes_on) in roles {
        for privilege in access.roles.get(role).into_iter().flatten() {
            *found.entry(privilege.clone()).or_default() |= goes_on;
        }
    }
    found
}
