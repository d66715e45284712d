//! Calls that change access rights: roles, users, tokens, grants, and new pools.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{
    ApiCall, Pve,
    answer::{Answer, Refusal},
    spec::{Grant, TokenSpec},
    state::State,
};

impl Pve {
    pub(super) fn roles(&self) -> Answer {
        let state = self.state();
        let rows = state.access.roles.iter();
        rows.map(|(id, privileges)| json!({ "roleid": id, "privs": privileges.join(","), "special": 0 }))
            .collect::<Value>()
            .into()
    }

    /// Takes the lock of the file that contains users, roles, pools and grants. Without quorum, no task gets
    /// this lock.
    pub(super) async fn user_cfg(&self, what: &str) -> Result<(), Refusal> {
        let quorate = self.state().quorate();
        if quorate {
            return Ok(());
        }
        tokio::time::sleep(std::time::Duration::from_secs(10)).await;
        Err(Refusal::failed(format!("{what} failed: cfs-lock 'file-user_cfg' error: no quorum!")))
    }

    pub(super) async fn change_role(&self, call: &ApiCall, new: bool) -> Result<Answer, Refusal> {
        call.who.need(&self.state(), "/access", &["Sys.Modify"])?;
        self.user_cfg(if new { "create role" } else { "update role" }).await?;
        let mut state = self.state();
        let given = if new { call.params.text("roleid") } else { call.path.get("roleid").cloned() };
        let id = given.unwrap_or_default();
        match (new, state.access.roles.contains_key(&id)) {
            (true, true) => {
                return Err(Refusal::failed(format!("create role failed: role '{id}' already exists")));
            }
            (false, false) => {
                return Err(Refusal::failed(format!("update role failed: role '{id}' does not exist")));
            }
            _ => {}
        }
        let privileges = call.params.words("privs");
        let known = known(&state);
        if let Some(wrong) = privileges.iter().find(|one| !known.contains(one.as_str())) {
            return Err(Refusal::parameter("privs", format!("invalid privilege '{wrong}'")));
        }
        let role = state.access.roles.entry(id).or_default();
        if !call.params.flag("append") {
            role.clear();
        }
        // Privileges form a set, so a privilege that is appended twice appears only once.
        let lacks: Vec<String> = privileges.into_iter().filter(|one| !role.contains(one)).collect();
        role.extend(lacks);
        Ok(Value::Null.into())
    }

    pub(super) async fn create_pool(&self, call: &ApiCall) -> Result<Answer, Refusal> {
        let id = call.params.text("poolid").unwrap_or_default();
        call.who.need(&self.state(), &format!("/pool/{id}"), &["Pool.Allocate"])?;
        self.user_cfg("create pool").await?;
        let mut state = self.state();
        if state.pools.contains_key(&id) {
            return Err(Refusal::failed(format!("create pool failed: pool '{id}' already exists")));
        }
        let comment = call.params.text("comment").unwrap_or_default();
        state.pools.entry(id).or_default().comment = comment;
        Ok(Value::Null.into())
    }

    /// Lists all users if the caller may see them, otherwise only the caller. A token is not a user, so a
    /// token that may not see all users receives an empty list.
    pub(super) fn users(&self, call: &ApiCall) -> Answer {
        let state = self.state();
        let all = call.who.has(&state, "/access/groups", "User.Modify")
            || call.who.has(&state, "/access/groups", "Sys.Audit");
        let shown = users(&state).into_iter().filter(|user| all || *user == call.who.token);
        shown.map(|user| json!({ "userid": user, "enable": 1, "expire": 0 })).collect::<Value>().into()
    }

    pub(super) async fn create_user(&self, call: &ApiCall) -> Result<Answer, Refusal> {
        let user = call.params.text("userid").unwrap_or_default();
        let realm = user.rsplit('@').next().unwrap_or_default();
        call.who.need(&self.state(), &format!("/access/realm/{realm}"), &["Realm.AllocateUser"])?;
        call.who.need(&self.state(), "/access/groups", &["User.Modify"])?;
        self.user_cfg("create user").await?;
        let mut state = self.state();
        if !["pve", "pam"].contains(&realm) || !user.contains('@') {
            return Err(Refusal::failed(format!("create user failed: domain '{realm}' does not exist")));
        }
        if !users(&state).contains(&user) {
            state.access.users.insert(user);
            return Ok(Value::Null.into());
        }
        Err(Refusal::failed(format!("create user failed: user '{user}' already exists")))
    }

    pub(super) fn tokens(&self, call: &ApiCall) -> Result<Answer, Refusal> {
        let state = self.state();
        let user = modifiable(&state, call)?;
        let mine = state.access.tokens.iter().filter_map(|token| {
            let (of, name) = token.id.split_once('!')?;
            (of == user).then(|| json!({ "tokenid": name, "expire": 0, "privsep": u8::from(token.privsep) }))
        });
        Ok(mine.collect::<Value>().into())
    }

    pub(super) async fn create_token(&self, call: &ApiCall) -> Result<Answer, Refusal> {
        let user = modifiable(&self.state(), call)?;
        self.user_cfg("generating token").await?;
        let mut state = self.state();
        let id = format!("{user}!{}", call.path.get("tokenid").map_or("", String::as_str));
        if state.access.tokens.iter().any(|token| token.id == id) {
            return Err(Refusal::parameter("tokenid", "Token already exists."));
        }
        let number = || fastrand::u64(..);
        let (a, b) = (number(), number());
        let secret = format!(
            "{:08x}-{:04x}-4{:03x}-a{:03x}-{:012x}",
            a >> 32,
            a & 0xffff,
            (a >> 16) & 0xfff,
            b >> 52,
            b & 0xffff_ffff_ffff
        );
        let privsep = call.params.text("privsep").is_none_or(|value| value != "0");
        let token = TokenSpec { id: id.clone(), secret: secret.clone(), privsep, enabled: true };
        state.access.tokens.push(token);
        let info = json!({ "privsep": u8::from(privsep).to_string() });
        Ok(json!({ "full-tokenid": id, "info": info, "value": secret }).into())
    }

    pub(super) fn grants(&self, call: &ApiCall) -> Answer {
        let state = self.state();
        let shown = state
            .access
            .grants
            .iter()
            .filter(|grant| call.who.has(&state, &grant.path, "Permissions.Modify"));
        let rows = shown.map(|grant| {
            let kind = if grant.who.contains('!') { "token" } else { "user" };
            json!({ "path": grant.path, "ugid": grant.who, "roleid": grant.role, "type": kind,
                    "propagate": u8::from(grant.propagate) })
        });
        rows.collect::<Value>().into()
    }

    pub(super) async fn change_grants(&self, call: &ApiCall) -> Result<Answer, Refusal> {
        let path = call.params.text("path").unwrap_or_default();
        call.who.need(&self.state(), &path, &["Permissions.Modify"])?;
        self.user_cfg("ACL update").await?;
        let mut state = self.state();
        let propagate = call.params.text("propagate").is_none_or(|value| value != "0");
        let roles = call.params.words("roles");
        if let Some(role) = roles.iter().find(|role| !state.access.roles.contains_key(*role)) {
            return Err(Refusal::failed(format!("ACL update failed: role '{role}' does not exist")));
        }
        let (users_given, tokens) = (call.params.words("users"), call.params.words("tokens"));
        let there = users(&state);
        if let Some(user) = users_given.iter().find(|user| !there.contains(*user)) {
            return Err(Refusal::failed(format!("ACL update failed: user '{user}' does not exist")));
        }
        if let Some(token) = tokens.iter().find(|id| !state.access.tokens.iter().any(|one| one.id == **id)) {
            return Err(Refusal::failed(format!("ACL update failed: no such token '{token}'")));
        }
        for who in users_given.iter().chain(&tokens) {
            for role in &roles {
                let grants = &mut state.access.grants;
                grants.retain(|one| !(one.path == path && one.who == *who && one.role == *role));
                if !call.params.flag("delete") {
                    grants.push(Grant {
                        path: path.clone(),
                        who: who.clone(),
                        role: role.clone(),
                        propagate,
                    });
                }
            }
        }
        Ok(Value::Null.into())
    }
}

/// All users: `root@pam`, users that were created, and users with tokens.
fn users(state: &State) -> BTreeSet<String> {
    let of_tokens = state.access.tokens.iter().filter_map(|token| token.id.split('!').next());
    let mut users: BTreeSet<String> = of_tokens.map(ToOwned::to_owned).collect();
    users.insert("root@pam".to_owned());
    users.extend(state.access.users.iter().cloned());
    users
}

/// Returns the user in the path, if the caller is that user or may modify users. A token is not considered to
/// be its user.
fn modifiable(state: &State, call: &ApiCall) -> Result<String, Refusal> {
    let user = call.path.get("userid").cloned().unwrap_or_default();
    if call.who.token != user && !call.who.has(state, "/access/groups", "User.Modify") {
        return Err(Refusal::Forbidden("Permission check failed".to_owned()));
    }
    if users(state).contains(&user) {
        Ok(user)
    } else {
        Err(Refusal::failed(format!("no such user ('{user}')")))
    }
}

/// The privileges that exist in the release.
fn known(state: &State) -> BTreeSet<&'static str> {
    const ALWAYS: &str = "Datastore.Allocate Datastore.AllocateSpace Datastore.AllocateTemplate Datastore.Audit Group.Allocate \
        Mapping.Audit Mapping.Modify Mapping.Use Permissions.Modify Pool.Allocate Pool.Audit Realm.Allocate Realm.AllocateUser \
        SDN.Allocate SDN.Audit SDN.Use Sys.AccessNetwork Sys.Audit Sys.Console Sys.Incoming Sys.Modify Sys.PowerMgmt Sys.Syslog \
        User.Modify VM.Allocate VM.Audit VM.Backup VM.Clone VM.Config.CDROM VM.Config.CPU VM.Config.Cloudinit VM.Config.Disk \
        VM.Config.HWType VM.Config.Memory VM.Config.Network VM.Config.Options VM.Console VM.Migrate VM.PowerMgmt VM.Snapshot \
        VM.Snapshot.Rollback";
    const NINE: &str = "VM.GuestAgent.Audit VM.GuestAgent.FileRead VM.GuestAgent.FileSystemMgmt VM.GuestAgent.FileWrite \
        VM.GuestAgent.Unrestricted VM.Replicate";
    let of_release = if state.is_release_8() { "VM.Monitor" } else { NINE };
    ALWAYS.split_whitespace().chain(of_release.split_whitespace()).collect()
}
