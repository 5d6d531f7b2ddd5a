//! A provider of models that an operator offers to its sandboxes.

use anyhow::{Context, Result};
use scripted_provider::Provider;
use serde_json::json;

use crate::node::Node;

/// The operator's key at the provider: it is added outside of sandboxes.
pub const KEY: &str = "operators-own-s3cret";

/// Has `node` offer what is behind `provider`, from its next start on.
///
/// # Errors
/// The file that says so cannot be written.
pub fn offer(node: &mut Node, provider: &Provider) -> Result<()> {
    let service = json!([{
        "name": "model.internal",
        "url": provider.url(),
        "headers": {"authorization": format!("Bearer {KEY}")}
    }]);
    let file = node.dir().join("services.json");
    std::fs::write(&file, service.to_string()).context("cannot write the operator's services")?;
    node.set("HOST_SERVICES_FILE", file.display().to_string());
    node.set("MODEL_BASE_URL", "http://model.internal/v1");
    node.set("MODEL", "scripted");
    Ok(())
}
