//! A new release on an operator's host: what lives goes on living, what is made is of the new one.

use alloy::primitives::B256;
use anyhow::{Context, Result};
use sandbox_tests::engine::{IMAGE, docker, docker_text};
use serde_json::Value;

use crate::world::{World, shown};

/// A name for images that no other test uses.
struct Name(String);

impl Name {
    /// The present image under a name of its own.
    fn new() -> Result<Self> {
        let name = Self(format!("agent-sandbox-upgrade:{:x}", B256::random()));
        docker_text(&["tag", IMAGE, &name.0])?;
        Ok(name)
    }

    /// Gives the name to another image, as a release does.
    fn release(&self) -> Result<()> {
        let container = docker_text(&["create", IMAGE])?;
        let made = docker_text(&["commit", "--change", "LABEL release=next", &container, &self.0]);
        docker_text(&["rm", &container])?;
        made.map(drop)
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        if let Err(error) = docker(&["image", "rm", "--force", &self.0]) {
            eprintln!("clean-up: {error:#}");
        }
    }
}

impl World {
    /// The digest of the image that the sandbox runs, by the receipt of a command in it.
    async fn image_of(&self, sandbox: &str) -> Result<String> {
        let ran = self.customer.json(&["run", sandbox, "--", "true"]).await?;
        let digest = find(&ran, "imageDigest").or_else(|| find(&ran, "image_digest"));
        Ok(digest.with_context(|| format!("no digest in {ran}"))?.to_owned())
    }
}

/// The first text under this key, however deep.
fn find<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    match value {
        Value::Object(fields) => {
            fields.get(key).and_then(Value::as_str).or_else(|| fields.values().find_map(|value| find(value, key)))
        }
        Value::Array(items) => items.iter().find_map(|value| find(value, key)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sandboxes_outlive_a_new_image_and_new_ones_are_of_it() -> Result<()> {
    let name = Name::new()?;
    let mut world = World::with(|node| node.set("SANDBOX_IMAGE", &name.0)).await?;
    let old = world.create().await?;
    assert!(world.customer.exec(&old, "echo kept > file").await?.status.success());
    let before = world.image_of(&old).await?;
    name.release()?;
    world.node.stop().await?;
    world.node.start().await?;

    let new = world.create().await?;
    assert_ne!(world.image_of(&new).await?, before);
    assert_eq!(world.image_of(&old).await?, before);
    world.customer.text(&["stop", &old]).await?;
    world.customer.text(&["resume", &old]).await?;
    let (_, kept, _) = shown(&world.customer.exec(&old, "cat file").await?);
    assert_eq!(kept, "kept\n");
    assert_eq!(world.image_of(&old).await?, before, "also when it was started again");
    for sandbox in [old, new] {
        world.customer.text(&["rm", &sandbox]).await?;
    }
    Ok(())
}
