//! Who a client is: users are roles with a password, of which a SCRAM verifier is kept, in the form that PostgreSQL has.
//!
//! A server without roles that listens on an address of this machine itself lets every client in.

use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use pgwire::api::auth::sasl::scram::{ScramSecret, gen_salted_password, random_nonce};
use pgwire::api::auth::{AuthSource, LoginInfo, Password};
use pgwire::error::{PgWireError, PgWireResult};
use weft::Database;

/// How often a password is hashed.
const ITERATIONS: usize = 4096;

/// Has the statements of a database make verifiers of the passwords of roles.
pub fn make_verifiers(database: &Database) {
    database.make_verifiers_by(verifier_of);
}

/// The verifier of a password, which may be one already.
fn verifier_of(password: &str) -> String {
    match parse(password).is_some() {
        true => password.to_owned(),
        false => verifier(password, &salt(&random_nonce(), &random_nonce())),
    }
}

/// `SCRAM-SHA-256$<iterations>:<salt>$<stored key>:<server key>`.
fn verifier(password: &str, salt: &[u8]) -> String {
    let salted = gen_salted_password(password, salt, ITERATIONS);
    let secret = ScramSecret::verifier_from_salted_password(salt.to_vec(), salted, ITERATIONS);
    match secret {
        ScramSecret::Verifier { salt, iterations, stored_key, server_key } => format!(
            "SCRAM-SHA-256${iterations}:{}${}:{}",
            STANDARD.encode(salt),
            STANDARD.encode(stored_key),
            STANDARD.encode(server_key)
        ),
        ScramSecret::SaltedPassword { .. } => String::new(),
    }
}

fn parse(verifier: &str) -> Option<ScramSecret> {
    let rest = verifier.strip_prefix("SCRAM-SHA-256$")?;
    let (head, keys) = rest.split_once('$')?;
    let (iterations, salt) = head.split_once(':')?;
    let (stored_key, server_key) = keys.split_once(':')?;
    let decode = |text: &str| STANDARD.decode(text).ok();
    let keys = (decode(stored_key)?, decode(server_key)?);
    if keys.0.len() != 32 || keys.1.len() != 32 {
        return None;
    }
    Some(ScramSecret::Verifier {
        salt: decode(salt)?,
        iterations: iterations.parse().ok()?,
        stored_key: keys.0,
        server_key: keys.1,
    })
}

/// What salts of users that there are not follow from, beside their names.
static NOBODY: LazyLock<String> = LazyLock::new(random_nonce);

/// A salt that follows from two texts, but tells neither.
fn salt(first: &str, second: &str) -> Vec<u8> {
    let mut salt = gen_salted_password(first, second.as_bytes(), 1);
    salt.truncate(16);
    salt
}

/// Iterations of a verifier up to which the server checks a password against it: a verifier that a client has made may demand any number.
const CHECKED_ITERATIONS_MAX: usize = 1_000_000;

/// True if a role has this password. The check takes thousands of hashes, also if there is no such role.
pub(crate) fn is_password(database: &Database, user: &str, password: &str) -> bool {
    let secret = database.role(user).and_then(|role| parse(role.verifier.as_deref()?));
    let (salt, iterations, expected) = match secret {
        Some(ScramSecret::Verifier { salt, iterations, stored_key, .. }) => {
            (salt, iterations, Some(stored_key))
        }
        _ => (salt(user, &NOBODY), ITERATIONS, None),
    };
    if !(1..=CHECKED_ITERATIONS_MAX).contains(&iterations) {
        return false;
    }
    let salted = gen_salted_password(password, &salt, iterations);
    let made = ScramSecret::verifier_from_salted_password(salt, salted, iterations);
    let ScramSecret::Verifier { stored_key, .. } = made else { return false };
    expected.is_some_and(|expected| {
        // All bytes are looked at, so that the time tells nothing.
        let differing = expected.iter().zip(&stored_key).fold(0, |bits, (a, b)| bits | (a ^ b));
        expected.len() == stored_key.len() && differing == 0
    })
}

/// The verifiers of a database.
pub(crate) struct Verifiers(pub(crate) Database);

impl std::fmt::Debug for Verifiers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Verifiers")
    }
}

#[async_trait]
impl AuthSource for Verifiers {
    async fn get_password(&self, login: &LoginInfo) -> PgWireResult<Password> {
        // Passwords themselves are not kept.
        Err(PgWireError::InvalidPassword(login.user().unwrap_or_default().to_owned()))
    }

    async fn get_scram_secret(&self, login: &LoginInfo) -> PgWireResult<(ScramSecret, Option<()>)> {
        let user = login.user().unwrap_or_default();
        let secret = self.0.role(user).and_then(|role| parse(role.verifier.as_deref()?));
        // A client does not learn whether there is a user: one that there is not has a password that none knows.
        let secret = secret.unwrap_or_else(|| ScramSecret::SaltedPassword {
            salt: salt(user, &NOBODY),
            salted_password: random_nonce().into_bytes(),
        });
        Ok((secret, None))
    }
}

/// The source of the verifiers of a database.
pub(crate) fn verifiers(database: &Database) -> Arc<Verifiers> {
    Arc::new(Verifiers(database.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_become_verifiers() {
        let made = verifier_of("secret");
        assert!(parse(&made).is_some());
        assert_ne!(made, verifier_of("secret"));
        // A verifier that PostgreSQL made is taken as it is.
        let kept = verifier("pencil", b"0123456789abcdef");
        assert_eq!(verifier_of(&kept), kept);
    }
}
