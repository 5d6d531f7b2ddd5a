//! What a customer seals: read by the operator it is for, in the call it is for, and by nobody from the chain.

use alloy::primitives::Bytes;
use alloy::sol_types::SolValue as _;
use anyhow::{Context, Result};
use sandbox_protocol::abi::{self, ExecRequest, SandboxCreateRequest};
use sandbox_protocol::{CallKey, Job};
use sandbox_sdk::Chain;
use sandbox_sdk::requests::JobRequest;
use sandbox_tests::ground::{CUSTOMER, Ground, OPERATOR, STRANGER};
use serde_json::Value;

use crate::world::{World, shown};

const SECRET: &str = "wolf-of-the-steppe";

/// The inputs of a call, as everybody reads them.
async fn inputs(chain: &Chain, service: u64, call: u64) -> Result<Bytes> {
    Ok(chain.submission(CallKey { service, call }).await?.context("no such call")?.inputs)
}

fn holds(inputs: &Bytes, text: &str) -> bool {
    inputs.windows(text.len()).any(|window| window == text.as_bytes())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sealed_environment_is_seen_inside_and_nowhere_else() -> Result<()> {
    let world = World::new().await?;
    let chain = world.ground.account(CUSTOMER).await?.chain().clone();
    let environment = format!("TOKEN={SECRET}");
    let sandbox = world.customer.create(world.service, &["--env", &environment]).await?;
    let output = world.customer.exec(&sandbox, "echo $TOKEN").await?;
    assert_eq!(shown(&output), (Some(0), format!("{SECRET}\n"), String::new()));
    let create = inputs(&chain, world.service, 0).await?;
    assert!(holds(&create, "sealed:v1:") && !holds(&create, SECRET) && !holds(&create, "TOKEN"));

    let run = async |more: &[&str]| {
        let args = [&["run", "--within", "60"], more, &[sandbox.as_str(), "--", "cat; echo -n $WORD"]].concat();
        world.customer.text(&args).await
    };
    let stdin = world.node.dir().join("stdin");
    std::fs::write(&stdin, "of the ")?;
    let stdin = stdin.display().to_string();
    let given = ["--stdin", &stdin, "--env", "WORD=steppe"];
    for (call, more, is_public) in
        [(2, &["--plain"][..], [true, true]), (3, &[], [true, false]), (4, &["--seal-all"], [false; 2])]
    {
        assert_eq!(run(&[more, &given].concat()).await?, "of the steppe", "{more:?}");
        let seen = inputs(&chain, world.service, call).await?;
        assert_eq!([holds(&seen, "of the "), holds(&seen, "steppe")], is_public, "{more:?}");
        assert_eq!(holds(&seen, "echo -n"), is_public[0], "{more:?}");
    }
    assert!(!world.node.log().contains(SECRET) && !world.node.log().contains("of the "));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_sealed_is_opened_in_no_call_but_its_senders() -> Result<()> {
    let world = World::new().await?;
    let sandbox = world.customer.create(world.service, &["--env", &format!("TOKEN={SECRET}")]).await?;
    let stranger = world.ground.account(STRANGER).await?;
    let copied = inputs(stranger.chain(), world.service, 0).await?;
    let client = world.ground.client(STRANGER)?;
    let own = client.service(&[Ground::address(OPERATOR)]).await?;

    let replayed = stranger.submit_job(own, JobRequest { job: Job::SandboxCreate, inputs: copied.clone() }).await?;
    let refused = refusal(&world, STRANGER, replayed.key).await?;
    assert_eq!(refused, ("sealed_elsewhere".into(), "env_json: sealed for another service".into()));

    // The very caller is refused as well, in another job and in another field.
    let env_json = abi::decode::<SandboxCreateRequest>(&copied)?.env_json;
    let customer = world.ground.account(CUSTOMER).await?;
    let exec = ExecRequest { sidecar_endpoint: sandbox.clone(), command: "env".into(), ..Default::default() };
    for (exec, expected) in [
        (ExecRequest { env_json: env_json.clone(), ..exec.clone() }, "env_json: sealed for another job"),
        (
            ExecRequest { stdin: env_json[..env_json.len() - 4].into(), ..exec.clone() },
            "stdin: it was changed after it was sealed",
        ),
        (ExecRequest { stdin: "sealed:v1:AAAA".into(), ..exec }, "stdin: malformed: no recipient, or too many"),
    ] {
        let request = JobRequest { job: Job::Exec, inputs: exec.abi_encode().into() };
        let submitted = customer.submit_job(world.service, request).await?;
        assert_eq!(refusal(&world, CUSTOMER, submitted.key).await?.1, expected);
    }
    assert!(!world.node.log().contains(SECRET));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rotated_key_opens_for_a_while_and_a_dropped_one_never() -> Result<()> {
    let world = World::new().await?;
    let create = async || world.customer.create(world.service, &["--env", "A=1"]).await;
    let operator = |args: &[&str]| -> Result<String> {
        let output = world.node.command(args)?.output()?;
        anyhow::ensure!(output.status.success(), "{:?}", shown(&output));
        Ok(String::from_utf8(output.stdout)?)
    };
    let published = async || -> Result<String> {
        let shown = world.customer.json(&["operators"]).await?;
        let mine = |view: &&Value| view["operator"] == serde_json::json!(Ground::address(OPERATOR));
        let view = shown.as_array().and_then(|all| all.iter().find(mine)).context("not listed")?;
        Ok(view["seal_key"].as_str().context("no key")?.to_owned())
    };
    let first = published().await?;
    assert!(operator(&["key", "show-seal"])?.starts_with(&first));

    operator(&["key", "rotate-seal"])?;
    assert_eq!(published().await?, first, "customers still seal to it");
    create().await?;
    operator(&["update"])?;
    assert_ne!(published().await?, first);
    create().await?;
    operator(&["key", "rotate-seal", "--drop-former"])?;
    let refused = create().await.expect_err("sealed to a key that was dropped").to_string();
    assert!(refused.contains("env_json: not sealed to a key of this operator"), "{refused}");
    operator(&["update"])?;
    create().await?;
    Ok(())
}

/// Code and message of a call that was the caller's mistake, as the caller is told them.
async fn refusal(world: &World, caller: usize, call: CallKey) -> Result<(String, String)> {
    let client = world.ground.client(caller)?;
    let shown = client.json(&["call", "show", "--wait", "--within", "60", &call.to_string()]).await?;
    let answer = &shown["answer"];
    assert_eq!(answer["outcome"], "caller", "{shown}");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Ok((text(&answer["failure"]), text(&answer["response_json"]["message"])))
}
