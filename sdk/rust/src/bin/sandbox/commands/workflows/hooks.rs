//! `workflow secret`: where a webhook is, and how one signs for it.

use std::process::ExitCode;

use sandbox_protocol::CallKey;
use sandbox_protocol::session::Scope;
use sandbox_protocol::workflow::SecretBody;
use sandbox_sdk::workflows::signed_curl;

use super::session_of;
use crate::failure::Failure;
use crate::output::Output;
use crate::settings::Settings;

pub(super) async fn secret(
    workflow: CallKey,
    replace: bool,
    settings: &Settings,
    output: &Output,
) -> Result<ExitCode, Failure> {
    let session = session_of(workflow, Scope::WorkflowsWrite, settings).await?;
    let hook =
        if replace { session.replace_hook_secret(workflow).await? } else { session.hook_secret(workflow).await? };
    output.result(&text(&hook), &hook)?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn text(hook: &SecretBody) -> String {
    // An operator chose both, and people paste the line.
    let clean = |text: &str| text.chars().filter(|letter| !letter.is_control()).collect::<String>();
    let (url, secret) = (clean(&hook.url), clean(&hook.secret));
    let clean = SecretBody { url: url.clone(), secret: secret.clone() };
    format!("webhook  {url}\nsecret   {secret}\n\n{}", signed_curl(&clean, "{}"))
}
