//! Commands on the operator's key. Only its address is ever printed.

use std::io::Read as _;
use std::path::PathBuf;

use clap::Subcommand;
use sandbox_process::source::Source;
use serde_json::json;
use zeroize::Zeroizing;

use super::{CommandError, Output};
use crate::chain::key::{self, Former, Kept, KeyError, SealKeys};
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
    /// Prints the key that customers seal fields to.
    ShowSeal,
    /// Puts a new key in its place; the former one still opens for 7 days. `operator update` publishes the new one.
    RotateSeal {
        /// The former keys open nothing any more, also what customers have sent already.
        #[arg(long)]
        drop_former: bool,
    },
}

/// Carries one out.
pub(super) fn work(command: KeyCommand, source: &impl Source, output: &Output) -> Result<(), CommandError> {
    let keystore = config::read_keystore(source)?;
    let key = match command {
        KeyCommand::ShowSeal => return show_seal(&SealKeys::of(&keystore, &key::load(&keystore)?), output),
        KeyCommand::RotateSeal { drop_former } => {
            let keys = SealKeys::of(&keystore, &key::load(&keystore)?);
            keys.rotate(if drop_former { Former::IsDropped } else { Former::Opens })?;
            return show_seal(&keys, output);
        }
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

fn show_seal(keys: &SealKeys, output: &Output) -> Result<(), CommandError> {
    let (public, generations) = (keys.current()?.public(), keys.generations()?);
    let line = format!("{public} (generation {}, {} former open)", generations.current, keys.opening()?.len() - 1);
    output.say(&line, &json!({ "seal_key": public, "current": generations.current, "retired": generations.retired }))
}

fn from_input() -> Result<Zeroizing<String>, KeyError> {
    let mut text = Zeroizing::new(String::new());
    let read = std::io::stdin().read_to_string(&mut text);
    read.map_err(|source| KeyError::File { path: "/dev/stdin".into(), source })?;
    Ok(text)
}
