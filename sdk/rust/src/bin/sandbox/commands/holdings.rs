//! `ls`, `show`, `events`: what operators tell who signed in.

use std::process::ExitCode;

use sandbox_protocol::SandboxId;
use sandbox_protocol::holdings::{EventsQuery, SandboxBody, SandboxesQuery};
use sandbox_protocol::session::Scope;
use sandbox_sdk::Account;
use sandbox_sdk::api::Heard;

use super::sessions::{Operator, operators, session};
use crate::args::{EventsArgs, ListArgs};
use crate::failure::{Exit, Failure};
use crate::output::Output;
use crate::settings::Settings;

pub(crate) async fn list(args: ListArgs, settings: &Settings, output: &Output) -> Result<ExitCode, Failure> {
    let account = settings.account().await?;
    let query = SandboxesQuery { phase: args.phase, label: args.label, ..SandboxesQuery::default() };
    let mut all = Vec::new();
    for operator in operators(&args.place, settings, &account).await? {
        let session = session(&operator, Scope::SandboxesRead, (settings, &account)).await?;
        all.extend(session.all_sandboxes(&query).await?);
    }
    if !args.all {
        all.retain(|sandbox| !["gone", "failed"].contains(&sandbox.phase.as_str()));
    }
    all.sort_by_key(|sandbox| sandbox.id);
    let lines: Vec<_> = all.iter().map(line).collect();
    output.result(&lines.join("\n"), &all)?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn show(id: SandboxId, settings: &Settings, output: &Output) -> Result<ExitCode, Failure> {
    let account = settings.account().await?;
    let holder = holder(id, &account).await?;
    let session = session(&holder, Scope::SandboxesRead, (settings, &account)).await?;
    let sandbox = session.sandbox(id).await?;
    output.result(&text(&sandbox, &holder), &sandbox)?;
    Ok(ExitCode::SUCCESS)
}

/// Events of one operator: of several there is no one order, and no one place to go on from.
pub(crate) async fn events(args: EventsArgs, settings: &Settings, output: &Output) -> Result<ExitCode, Failure> {
    let account = settings.account().await?;
    let found = match args.sandbox {
        Some(id) => vec![holder(id, &account).await?],
        None => operators(&args.place, settings, &account).await?,
    };
    let [operator] = found.as_slice() else {
        return Err(Failure::usage(format!("the service has {} operators; name one with --operator", found.len())));
    };
    let mut after = args.after.or((!args.follow).then_some(0));
    loop {
        let session = session(operator, Scope::EventsRead, (settings, &account)).await?;
        let mut events = session.events(EventsQuery { after, follow: args.follow }).await?;
        while let Some(heard) = events.next().await? {
            after = Some(id_of(&heard));
            if is_about(&heard, args.sandbox) {
                output.result(&sentence(&heard), &heard)?;
            }
        }
        if !args.follow {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

/// The operator that holds a sandbox, by the chain's word.
pub(super) async fn holder(id: SandboxId, account: &Account) -> Result<Operator, Failure> {
    let operator = account.chain().sandbox(id).await?.operator;
    if operator.is_zero() {
        let message = format!("there is no sandbox {id}");
        return Err(Failure { exit: Exit::Refused, code: "no_sandbox".into(), message, retryable: false });
    }
    Ok((operator, account.chain().operator(operator).await?.apiUrl))
}

const fn id_of(heard: &Heard) -> u64 {
    match heard {
        Heard::Sandbox(event) => event.seq,
        Heard::Gap(gap) => gap.until,
    }
}

fn is_about(heard: &Heard, sandbox: Option<SandboxId>) -> bool {
    match heard {
        Heard::Sandbox(event) => sandbox.is_none_or(|id| id == event.sandbox),
        Heard::Gap(_) => true,
    }
}

fn sentence(heard: &Heard) -> String {
    match heard {
        Heard::Sandbox(event) => {
            let reason = event.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
            format!("{} {} {}{reason}", event.seq, event.sandbox, event.phase)
        }
        Heard::Gap(gap) => format!("{} what happened since {} is not known any more", gap.until, gap.after),
    }
}

fn line(sandbox: &SandboxBody) -> String {
    let name = sandbox.name.as_ref().map(|name| format!("  {name}")).unwrap_or_default();
    format!("{}  {}{name}", sandbox.id, state(sandbox))
}

fn state(sandbox: &SandboxBody) -> String {
    match &sandbox.reason {
        Some(reason) => format!("{} ({reason})", sandbox.phase),
        None => sandbox.phase.clone(),
    }
}

fn text(sandbox: &SandboxBody, (operator, url): &Operator) -> String {
    let expires = sandbox.expires_at_block.map_or_else(|| "with its service".into(), |block| format!("block {block}"));
    let mut text = format!(
        "sandbox    {}\nstate      {}\noperator   {operator} at {url}\nimage      {}\nsize       {} cores, {} MB memory, {} GB disk\nends       {expires}",
        sandbox.id,
        state(sandbox),
        sandbox.image,
        sandbox.cpu_cores,
        sandbox.memory_mb,
        sandbox.disk_gb,
    );
    if let Some(name) = &sandbox.name {
        text.push_str(&format!("\nname       {name}"));
    }
    for (label, value) in &sandbox.labels {
        text.push_str(&format!("\nlabel      {label}={value}"));
    }
    if let (Some(runtime), Some(digest)) = (&sandbox.runtime, &sandbox.image_digest) {
        text.push_str(&format!("\nruntime    {runtime}\ndigest     {digest}"));
    }
    text
}
