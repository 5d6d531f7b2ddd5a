//! `login`, and the tokens that it leaves for the commands after it.

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use alloy::primitives::Address;
use sandbox_protocol::SandboxId;
use sandbox_protocol::session::{Scope, TokenBody};
use sandbox_sdk::Account;
use sandbox_sdk::api::inside::Inside;
use sandbox_sdk::api::{self, Session};
use sandbox_sdk::limits::TOKEN_LEFT_S_MIN;
use serde::Serialize;

use super::holdings::holder;
use crate::args::{LoginArgs, WhereArgs};
use crate::failure::Failure;
use crate::output::Output;
use crate::settings::Settings;

const FILE: &str = "tokens.json";

/// Tokens by account and operator, in a file that its user alone can read.
struct Kept {
    path: PathBuf,
    tokens: BTreeMap<String, TokenBody>,
}

#[derive(Serialize)]
struct SignedIn {
    operator: Address,
    url: String,
    token: String,
    scopes: Vec<Scope>,
    expires_at: u64,
}

/// An operator and the URL that it has registered.
pub(super) type Operator = (Address, String);

pub(crate) async fn login(args: LoginArgs, settings: &Settings, output: &Output) -> Result<ExitCode, Failure> {
    let account = settings.account().await?;
    let scopes = if args.scopes.is_empty() { Scope::ALL.to_vec() } else { args.scopes };
    let mut kept = Kept::load(settings.config_dir()?)?;
    let mut signed_in = Vec::new();
    for (operator, url) in operators(&args.place, settings, &account).await? {
        output.progress(&format!("signing in to operator {operator} at {url} as {}", account.address()));
        let session = api::sign_in(&account, (operator, &url), &scopes).await?;
        let TokenBody { id, scopes, expires_at, .. } = session.token().clone();
        kept.put(&account, operator, session.token().clone());
        signed_in.push(SignedIn { operator, url, token: id, scopes, expires_at });
    }
    kept.save()?;
    let line = |session: &SignedIn| format!("{} until unix time {}", session.operator, session.expires_at);
    let lines: Vec<_> = signed_in.iter().map(line).collect();
    output.result(&lines.join("\n"), &signed_in)?;
    Ok(ExitCode::SUCCESS)
}

/// The operators that are meant: one that is named, or all of the service.
pub(super) async fn operators(
    place: &WhereArgs,
    settings: &Settings,
    account: &Account,
) -> Result<Vec<Operator>, Failure> {
    let chain = account.chain();
    let named = match place.operator {
        Some(operator) => vec![operator],
        None => chain.operators(settings.service(place.service)?).await?,
    };
    let mut found = Vec::new();
    for operator in named {
        found.push((operator, chain.operator(operator).await?.apiUrl));
    }
    Ok(found)
}

/// A session that opens this: by a token that is kept, or by signing in.
pub(super) async fn session(
    (operator, url): &Operator,
    scope: Scope,
    (settings, account): (&Settings, &Account),
) -> Result<Session, Failure> {
    let mut kept = Kept::load(settings.config_dir()?)?;
    if let Some(token) = kept.get(account, *operator, scope) {
        let session = Session::new(*operator, url, token)?;
        match session.tokens().await {
            Err(error) if error.is_unauthorized() => {}
            Err(error) => return Err(error.into()),
            Ok(_) => return Ok(session),
        }
    }
    let session = api::sign_in(account, (*operator, url), &Scope::ALL).await?;
    kept.put(account, *operator, session.token().clone());
    kept.save()?;
    Ok(session)
}

/// The inside of a sandbox, at the operator that holds it.
pub(super) async fn inside(id: SandboxId, scope: Scope, settings: &Settings) -> Result<Inside, Failure> {
    let account = settings.account().await?;
    let operator = holder(id, &account).await?;
    Ok(session(&operator, scope, (settings, &account)).await?.inside(id))
}

impl Kept {
    fn load(dir: PathBuf) -> Result<Self, Failure> {
        let path = dir.join(FILE);
        let tokens = match fs::read(&path) {
            // One that cannot be read is replaced: its tokens are worth a signature each.
            Ok(text) => serde_json::from_slice(&text).unwrap_or_default(),
            Err(error) if error.kind() == ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(Failure::local(format!("cannot read {}: {error}", path.display()))),
        };
        Ok(Self { path, tokens })
    }

    fn get(&self, account: &Account, operator: Address, scope: Scope) -> Option<TokenBody> {
        let token = self.tokens.get(&name(account, operator))?;
        let lasts = token.expires_at >= now_s() + TOKEN_LEFT_S_MIN;
        (lasts && token.scopes.contains(&scope)).then(|| token.clone())
    }

    fn put(&mut self, account: &Account, operator: Address, token: TokenBody) {
        self.tokens.retain(|_, token| token.expires_at >= now_s());
        self.tokens.insert(name(account, operator), token);
    }

    /// Replaces the file whole, so that none ever is half of one.
    fn save(&self) -> Result<(), Failure> {
        let written = || {
            let dir = self.path.parent().unwrap_or_else(|| Path::new("."));
            fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
            let new = self.path.with_extension(format!("{}.new", std::process::id()));
            let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
            file.write_all(serde_json::json!(self.tokens).to_string().as_bytes())?;
            fs::rename(&new, &self.path)
        };
        written().map_err(|error| Failure::local(format!("cannot write {}: {error}", self.path.display())))
    }
}

/// Chain and core are part of it: one key may be a customer of many.
fn name(account: &Account, operator: Address) -> String {
    let deployment = account.deployment();
    format!("{}/{}/{}/{operator}", deployment.chain_id, deployment.core, account.address())
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
