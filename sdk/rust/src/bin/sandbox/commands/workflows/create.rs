//! `workflow create`.

use std::process::ExitCode;

use alloy::primitives::Address;
use sandbox_protocol::CallKey;
use sandbox_protocol::abi::WorkflowCreateResponse;
use sandbox_protocol::session::Scope;
use sandbox_protocol::workflow::{CronTrigger, Policy, SecretBody};
use sandbox_sdk::Account;
use sandbox_sdk::limits::HOOK_SECRET_WITHIN;
use sandbox_sdk::requests::WorkflowBuilder;
use serde::Serialize;

use super::{hooks, operator_of, words};
use crate::args::{SpecArgs, TriggerArgs, WorkflowCreateArgs};
use crate::commands::call::answer_of;
use crate::commands::sandboxes::{answered, decoded, read_text, sandbox_of};
use crate::commands::sessions::{Operator, session};
use crate::failure::Failure;
use crate::output::Output;
use crate::settings::Settings;

#[derive(Serialize)]
struct Created {
    /// Its id, as other commands take it.
    id: String,
    service: u64,
    workflow: u64,
    status: String,
    operator: Address,
    url: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hook: Option<SecretBody>,
}

pub(super) async fn create(
    args: WorkflowCreateArgs,
    settings: &Settings,
    output: &Output,
) -> Result<ExitCode, Failure> {
    let service = service_of(&args, settings)?;
    let request = builder(&args)?.build()?;
    let body = answered(service, request, (&args.pay, &args.answer), (settings, output)).await?;
    let answer = answer_of(&body)?;
    if let Some(failure) = Failure::of_answer(answer) {
        return Err(failure);
    }
    let response: WorkflowCreateResponse = decoded(answer)?;
    let workflow = CallKey { service, call: response.workflow_id };
    let account = settings.account().await?;
    let operator = operator_of(workflow, &account).await?;
    output.notice(&format!("fired by operator {} at {}", operator.0, words::line(&operator.1)));
    let hook = if args.trigger.webhook { hook(workflow, &operator, (settings, &account), output).await } else { None };
    let created = Created {
        id: workflow.to_string(),
        service,
        workflow: workflow.call,
        status: response.status,
        operator: operator.0,
        url: operator.1,
        hook,
    };
    output.result(&created.id, &created)?;
    Ok(ExitCode::SUCCESS)
}

/// Where its webhook is. The workflow stands without knowing it, so that a failure is told and no more.
async fn hook(
    workflow: CallKey,
    operator: &Operator,
    access: (&Settings, &Account),
    output: &Output,
) -> Option<SecretBody> {
    let asked = match session(operator, Scope::WorkflowsWrite, access).await {
        Ok(session) => session.hook_secret_within(workflow, HOOK_SECRET_WITHIN).await.map_err(Failure::from),
        Err(failure) => Err(failure),
    };
    match asked {
        Ok(hook) => {
            output.notice(&hooks::text(&hook));
            Some(hook)
        }
        Err(failure) => {
            let again = format!("see it with `sandbox workflow secret {workflow}`");
            output.notice(&format!("where its webhook is was not told: {failure}; {again}"));
            None
        }
    }
}

/// The one that is named, or the sandbox's.
fn service_of(args: &WorkflowCreateArgs, settings: &Settings) -> Result<u64, Failure> {
    match (args.service, args.sandbox) {
        (Some(service), Some(sandbox)) if sandbox.origin.service != service => {
            Err(Failure::usage(format!("sandbox {sandbox} is not of service {service}")))
        }
        (None, Some(sandbox)) => Ok(sandbox.origin.service),
        (service, _) => settings.service(service),
    }
}

fn builder(args: &WorkflowCreateArgs) -> Result<WorkflowBuilder, Failure> {
    let spec = SpecArgs { name: None, ..args.spec.clone() };
    let has_own = args.own_sandbox || spec != SpecArgs::default();
    let mut builder = match (&args.prompt, &args.file) {
        (Some(_), _) if args.sandbox.is_none() && !has_own => {
            return Err(Failure::usage("a prompt needs --sandbox, or --own-sandbox".into()));
        }
        (Some(prompt), _) => WorkflowBuilder::of_prompt(prompt),
        (None, Some(file)) => WorkflowBuilder::new(read_text(file)?),
        (None, None) => return Err(Failure::usage("a workflow needs a file, or --prompt".into())),
    };
    builder = match (args.sandbox, has_own) {
        (Some(_), true) => {
            let message = "runs work in the sandbox of --sandbox, so what one of their own is like cannot be said";
            return Err(Failure::usage(message.into()));
        }
        (Some(sandbox), false) => builder.sandbox(sandbox),
        (None, true) => builder.own_sandbox(sandbox_of(spec)?),
        (None, false) => builder,
    };
    if let Some(name) = &args.spec.name {
        builder = builder.name(name);
    }
    Ok(fired(builder, &args.trigger))
}

fn fired(builder: WorkflowBuilder, args: &TriggerArgs) -> WorkflowBuilder {
    let policy = Policy { overlap: args.overlap.into() };
    match (&args.cron, &args.event) {
        (Some(cron), _) => builder.cron(&CronTrigger {
            cron: cron.clone(),
            tz: args.tz.clone(),
            overlap: policy.overlap,
            catch_up: args.catch_up.into(),
            jitter_s: args.jitter,
        }),
        (None, Some(event)) => builder.event(event),
        (None, None) if args.webhook => builder.webhook(policy),
        (None, None) => builder.manual(policy),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use sandbox_protocol::abi::{WorkflowCreateRequest, decode};

    use super::*;
    use crate::args::{Args, Command, WorkflowCommand};

    fn args(words: &[&str]) -> WorkflowCreateArgs {
        let words = ["sandbox", "workflow", "create"].iter().chain(words);
        match Args::try_parse_from(words).unwrap().command {
            Command::Workflow(WorkflowCommand::Create(args)) => *args,
            other => panic!("{other:?}"),
        }
    }

    fn built(words: &[&str]) -> WorkflowCreateRequest {
        decode(&builder(&args(words)).unwrap().build().unwrap().inputs).unwrap()
    }

    #[test]
    fn options_say_what_fires_it_and_where_it_runs() {
        let request = built(&["--prompt", "tidy", "--sandbox", "sbx-1-2-0", "--name", "n", "--cron", "@daily"]);
        assert_eq!((request.name.as_str(), request.trigger_type.as_str()), ("n", "cron"));
        assert_eq!((request.trigger_config.as_str(), request.sandbox_config_json.as_str()), ("@daily", ""));
        assert!(request.workflow_json.contains("sbx-1-2-0"), "{}", request.workflow_json);
        let request = built(&["--prompt", "tidy", "--env", "A=1", "--webhook", "--overlap", "queue"]);
        assert_eq!(request.trigger_config, r#"{"overlap":"queue"}"#);
        assert!(request.sandbox_config_json.contains(r#""env_json":"{\"A\":\"1\"}""#), "{request:?}");
        assert_eq!(built(&["--prompt", "tidy", "--own-sandbox", "--manual"]).trigger_type, "manual");
        let event = r#"{"event":"sandbox.stopped"}"#;
        assert_eq!(built(&["--prompt", "tidy", "--own-sandbox", "--event", event]).trigger_config, event);
    }

    #[test]
    fn a_run_works_in_one_sandbox() {
        let refused = |words: &[&str]| builder(&args(words)).unwrap_err().to_string();
        assert_eq!(refused(&["--prompt", "tidy"]), "a prompt needs --sandbox, or --own-sandbox");
        let both = refused(&["--prompt", "tidy", "--sandbox", "sbx-1-2-0", "--cpu", "2"]);
        assert!(both.starts_with("runs work in the sandbox of --sandbox"), "{both}");
    }
}
