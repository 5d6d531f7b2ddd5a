//! Commands on the operator's key. Only its address is ever printed.

use std::io::Read as _;
use std::path::PathBuf;

use clap::Subcommand;
use sandbox_process::source::Source;
use serde_json::json;
use zeroize::Zeroizing;

use super::{CommandError, Output};
use crate::chain::key::{self, Kept, KeyError};
use crate::config;

/// What can be done to it.
#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// Puts a private key, in hex, into the keystore at KEYSTORE_URI: encrypted where KEYSTORE_PASSWORD_FILE is set.
    Import {
        /// File with the key; standard input without it.
        file: Option<PathBuf>,
    },
    /// Makes a key in an encrypted keystore at KEYSTORE_URI.
    New,
    /// Puts a password on the plaintext key at KEYSTORE_URI.
    Encrypt,
    /// Prints the address of the key.
    Show,
}

/// Carries one out.
pub(super) fn work(command: KeyCommand, source: &impl Source, output: &Output) -> Result<(), CommandError> {
    let keystore = config::read_keystore(source)?;
    let key = match command {
        KeyCommand::Show => key::load(&keystore)?,
        KeyCommand::New => key::create(&keystore)?,
        KeyCommand::Encrypt => key::encrypt(&keystore)?,
        KeyCommand::Import { file: Some(file) } => key::import(&keystore, &key::text_of(&file)?)?,
        KeyCommand::Import { file: None } => key::import(&keystore, &from_input()?)?,
    };
    let encrypted = key::kept(&keystore)? == Some(Kept::Encrypted);
    let address = key.address();
    output.say(&address.to_string(), &json!({ "address": address.to_string(), "encrypted": encrypted }))
}

fn from_input() -> Result<Zeroizing<String>, KeyError> {
    let mut text = Zeroizing::new(String::new());
    let read = std::io::stdin().read_to_string(&mut text);
    read.map_err(|source| KeyError::File { path: "/dev/stdin".into(), source })?;
    Ok(text)
}
