//! Roles, resource pools, users, tokens and grants. The setup uses these calls to create whatever is missing.

use std::collections::{BTreeMap, BTreeSet};

use http::Method;
use runtime::boxed;
use secrecy::SecretString;
use serde_json::Value;

use super::answer::{flag_of, text_of};
use super::client::{Client, Lane, encode};
use super::error::Error;

/// A role that is granted to a user, token or group on a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Granted {
    /// The path, e.g. `/pool/kubernetes`.
    pub path: String,
    /// Who has the role: `user@realm`, `user@realm!token`, or the name of a group.
    pub who: String,
    /// The role's name.
    pub role: String,
    /// Whether the grant also applies to all subpaths.
    pub propagates: bool,
}

impl Client {
    /// The roles with their privileges.
    #[boxed]
    pub async fn roles(&self) -> Result<BTreeMap<String, BTreeSet<String>>, Error> {
        let rows = self.rows("/access/roles").await?;
        let words = |row: &Value| {
            let privileges = text_of(row, "privs").unwrap_or_default();
            privileges.split([',', ' ', ';']).filter(|one| !one.is_empty()).map(ToOwned::to_owned).collect()
        };
        Ok(rows.iter().filter_map(|row| Some((text_of(row, "roleid")?, words(row)))).collect())
    }

    /// Creates a role. Needs `Sys.Modify` on `/access`.
    #[boxed]
    pub async fn create_role(&self, role: &str, privileges: &str) -> Result<(), Error> {
        let form = [("roleid", role.to_owned()), ("privs", privileges.to_owned())];
        self.post(Lane::Free, "/access/roles", &form).await.map(|_| ())
    }

    /// Adds these privileges to a role. Needs `Sys.Modify` on `/access`.
    #[boxed]
    pub async fn extend_role(&self, role: &str, privileges: &str) -> Result<(), Error> {
        let path = format!("/access/roles/{}", encode(role));
        let form = [("privs", privileges.to_owned()), ("append", "1".to_owned())];
        self.call(Method::PUT, Lane::Free, &path, &form).await.map(|_| ())
    }

    /// The resource pools.
    #[boxed]
    pub async fn pool_names(&self) -> Result<BTreeSet<String>, Error> {
        self.names("/pools", "poolid").await
    }

    /// Creates a resource pool. Needs `Pool.Allocate` on the pool.
    #[boxed]
    pub async fn create_pool(&self, pool: &str, comment: &str) -> Result<(), Error> {
        let form = [("poolid", pool.to_owned()), ("comment", comment.to_owned())];
        self.post(Lane::Free, "/pools", &form).await.map(|_| ())
    }

    /// The users that the caller can see.
    #[boxed]
    pub async fn users(&self) -> Result<BTreeSet<String>, Error> {
        self.names("/access/users", "userid").await
    }

    /// Creates a user without a password, so that no one can log in as this user. Needs `User.Modify` and
    /// `Realm.AllocateUser`.
    #[boxed]
    pub async fn create_user(&self, user: &str, comment: &str) -> Result<(), Error> {
        let form = [("userid", user.to_owned()), ("comment", comment.to_owned())];
        self.post(Lane::Free, "/access/users", &form).await.map(|_| ())
    }

    /// The names of a user's tokens.
    #[boxed]
    pub async fn token_names(&self, user: &str) -> Result<BTreeSet<String>, Error> {
        self.names(&format!("/access/users/{}/token", encode(user)), "tokenid").await
    }

    /// Creates a token with separate privileges (`privsep`), and returns its secret. Proxmox VE never shows
    /// the secret again.
    #[boxed]
    pub async fn create_token(&self, user: &str, token: &str, comment: &str) -> Result<SecretString, Error> {
        let path = format!("/access/users/{}/token/{}", encode(user), encode(token));
        let form = [("privsep", "1".to_owned()), ("comment", comment.to_owned())];
        let data = self.post(Lane::Free, &path, &form).await?;
        let value = text_of(&data, "value").filter(|value| !value.is_empty());
        value
            .map(SecretString::from)
            .ok_or_else(|| Error::malformed("POST token", "the answer contains no secret"))
    }

    /// The grants that the caller can see.
    #[boxed]
    pub async fn granted(&self) -> Result<BTreeSet<Granted>, Error> {
        let rows = self.rows("/access/acl").await?;
        Ok(rows
            .iter()
            .filter_map(|row| {
                Some(Granted {
                    path: text_of(row, "path")?,
                    who: text_of(row, "ugid")?,
                    role: text_of(row, "roleid")?,
                    propagates: flag_of(row, "propagate"),
                })
            })
            .collect())
    }

    /// Grants a role on a path to a user and to one of the user's tokens. Both need the role, because a token
    /// only has the rights that its user has too. Needs `Permissions.Modify` on the path.
    #[boxed]
    pub async fn grant(
        &self,
        path: &str,
        role: &str,
        user: &str,
        token: &str,
        propagates: bool,
    ) -> Result<(), Error> {
        let form = [
            ("path", path.to_owned()),
            ("roles", role.to_owned()),
            ("users", user.to_owned()),
            ("tokens", token.to_owned()),
            ("propagate", u8::from(propagates).to_string()),
        ];
        self.call(Method::PUT, Lane::Free, "/access/acl", &form).await.map(|_| ())
    }

    async fn names(&self, path: &str, field: &str) -> Result<BTreeSet<String>, Error> {
        Ok(self.rows(path).await?.iter().filter_map(|row| text_of(row, field)).collect())
    }

    async fn rows(&self, path: &str) -> Result<Vec<Value>, Error> {
        match self.get(Lane::Free, path, &[]).await? {
            Value::Array(rows) => Ok(rows),
            _ => Err(Error::malformed(&format!("GET {path}"), "no list")),
        }
    }
}
