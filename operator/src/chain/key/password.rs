//! The password of an encrypted key: from a file, or asked of the person at the terminal. Overwritten when dropped.

use std::io::IsTerminal as _;

use zeroize::Zeroizing;

use super::KeyError;
use crate::config::KeystoreConfig;

/// The password that opens the key.
pub(super) fn given(keystore: &KeystoreConfig) -> Result<Zeroizing<String>, KeyError> {
    match from_file(keystore)? {
        Some(password) => Ok(password),
        None => ask("Password of the operator's key: "),
    }
}

/// A new password: as [`given`], and asked for twice.
pub(super) fn chosen(keystore: &KeystoreConfig) -> Result<Zeroizing<String>, KeyError> {
    let password = match from_file(keystore)? {
        Some(password) => password,
        None => {
            let password = ask("New password of the operator's key: ")?;
            if ask("Once more: ")? != password {
                return Err(KeyError::Mistyped);
            }
            password
        }
    };
    if password.is_empty() { Err(KeyError::EmptyPassword) } else { Ok(password) }
}

/// The first line of the file: editors end it with a newline that is no part of the password.
fn from_file(keystore: &KeystoreConfig) -> Result<Option<Zeroizing<String>>, KeyError> {
    let Some(path) = &keystore.password_file else { return Ok(None) };
    let text = super::text_of(path)?;
    Ok(Some(Zeroizing::new(text.lines().next().unwrap_or_default().to_owned())))
}

fn ask(prompt: &str) -> Result<Zeroizing<String>, KeyError> {
    if !std::io::stdin().is_terminal() {
        return Err(KeyError::NoPassword);
    }
    rpassword::prompt_password(prompt).map(Zeroizing::new).map_err(KeyError::Prompt)
}
