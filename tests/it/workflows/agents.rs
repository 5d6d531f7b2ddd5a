//! Steps that language models do, and what they hand on.

use anyhow::{Result, ensure};
use scripted_provider::{Reply, Script};
use serde_json::json;

use super::{create, ended, found, step, trigger};
use crate::agents::Studio;

#[tokio::test(flavor = "multi_thread")]
async fn prompts_and_tasks_are_steps_that_know_of_others_and_go_on_with_a_session() -> Result<()> {
    let write = json!({"path": "answer.txt", "content": "42"}).to_string();
    let replies = [Reply::call("c1", "write_file", write), Reply::text("written"), Reply::text("it was 42")];
    let studio = Studio::new(Script::queue(replies)).await?;
    let (world, sandbox) = (&studio.world, studio.world.create().await?);
    let body = json!({"sandbox_id": sandbox, "steps": [
        step("ask", "echo what is six times seven", &[]),
        {"id": "work", "kind": "task", "needs": ["ask"], "artifacts": ["answer.txt"],
            "with": {"prompt": "write down ${{ steps.ask.outputs.stdout }}"}},
        {"id": "recall", "kind": "prompt", "needs": ["work"],
            "with": {"prompt": "what was it?", "session_id": "${{ steps.work.outputs.session_id }}"}},
        step("check", "cat answer.txt", &["recall"]),
    ]});
    let workflow = create(world, &body, &[]).await?;
    let number = trigger(&world.customer, &workflow).await?;
    let run = ended(&world.customer, &workflow, number).await?;
    assert_eq!(run["status"], "succeeded", "{run}");
    assert_eq!(found(&run, "work")?["outputs"]["result"], "written");
    assert_eq!(found(&run, "recall")?["outputs"]["result"], "it was 42");
    assert_eq!(found(&run, "check")?["outputs"]["stdout"], "42");
    let told: Vec<String> = studio.provider.requests().iter().map(|request| request.body.to_string()).collect();
    ensure!(told[0].contains("write down what is six times seven"), "{}", told[0]);
    ensure!(told[2].contains("six times seven") && told[2].contains("what was it?"), "{}", told[2]);
    let link = found(&run, "work")?["artifacts"][0].as_str().unwrap_or_default();
    ensure!(link.contains(&sandbox) && link.contains("answer.txt"), "{link}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn moves_that_a_step_found_are_argued_about_and_the_best_goes_on_to_the_next() -> Result<()> {
    let studio = Studio::new(Script::negotiation()).await?;
    let (world, sandbox) = (&studio.world, studio.world.create().await?);
    let moves = r#"printf '[{"move_id":"m1","content":"Buy."},{"move_id":"m2","content":"Sell."}]'"#;
    let body = json!({"sandbox_id": sandbox, "steps": [
        step("find", moves, &[]),
        {"id": "argue", "kind": "negotiation", "needs": ["find"], "with": {"context": {
            "ticker": "ACME", "max_rounds": 1, "moves": "${{ steps.find.outputs.json }}"}}},
        {"id": "tell", "kind": "exec", "needs": ["argue"], "with": {
            "command": "echo \"$BEST\"", "env": {"BEST": "${{ steps.argue.outputs.json.policy_scores[0].move_id }}"}}},
    ]});
    let workflow = create(world, &body, &[]).await?;
    let number = trigger(&world.customer, &workflow).await?;
    let run = ended(&world.customer, &workflow, number).await?;
    assert_eq!(run["status"], "succeeded", "{run}");
    assert_eq!(found(&run, "tell")?["outputs"]["stdout"], "m1\n", "{run}");
    assert_eq!(studio.provider.calls(), 14, "two moves of one round");
    Ok(())
}
