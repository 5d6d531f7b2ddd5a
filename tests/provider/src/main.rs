//! `scripted-provider`: the provider as a program, for tests, benches and demonstrations that are other processes.
//!
//! It prints its URL in one line and serves until it is ended. `GET /requests` tells what it was asked.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use scripted_provider::{Place, Provider, Script, ScriptFile};

#[derive(Debug, Parser)]
#[command(about = "A model provider with scripted replies", version)]
struct Arguments {
    /// Port of 127.0.0.1; any free one if 0.
    #[arg(long, default_value_t = 0, conflicts_with = "socket")]
    port: u16,
    /// A Unix socket instead of a port.
    #[arg(long)]
    socket: Option<PathBuf>,
    /// `echo`, `negotiation`, or a JSON file.
    #[arg(long, default_value = "echo")]
    script: String,
    /// Time before the first byte of every reply, besides what the script says.
    #[arg(long, default_value_t = 0)]
    delay_ms: u64,
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let place = arguments.socket.map_or(Place::Port(arguments.port), Place::Socket);
    let delay = Duration::from_millis(arguments.delay_ms);
    let provider = Provider::start_at(place, script(&arguments.script)?, delay).await.context("cannot listen")?;
    let mut out = std::io::stdout();
    writeln!(out, "{}", provider.url())?;
    out.flush()?;
    provider.serve().await;
    bail!("the server has ended")
}

fn script(name: &str) -> Result<Script> {
    Ok(match name {
        "echo" => Script::echo(),
        "negotiation" => Script::negotiation(),
        path => {
            let json = std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
            let file: ScriptFile = serde_json::from_str(&json).with_context(|| format!("{path} is no script"))?;
            file.into()
        }
    })
}
