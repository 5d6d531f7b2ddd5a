//! `port`: a port inside a sandbox, as one of this machine.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;

use sandbox_protocol::limits::TUNNELS_MAX;
use sandbox_protocol::session::Scope;
use sandbox_sdk::api::inside::Inside;
use serde::Serialize;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::sessions::inside;
use super::streams::Signals;
use crate::args::PortArgs;
use crate::failure::Failure;
use crate::output::{Output, harmless};
use crate::settings::Settings;

#[derive(Serialize)]
struct Listening {
    address: SocketAddr,
    port: u16,
}

pub(crate) async fn forward(args: PortArgs, settings: &Settings, output: &Output) -> Result<ExitCode, Failure> {
    let (here, there) = args.ports;
    let inside = inside(args.id, Scope::SandboxesPorts, settings).await?;
    let failed = |error: std::io::Error| Failure::local(format!("cannot listen at {}:{here}: {error}", args.bind));
    let listener = TcpListener::bind((args.bind, here)).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    output.result(&format!("{address} is port {there} of {}", args.id), &Listening { address, port: there })?;
    let mut signals = Signals::new()?;
    tokio::select! {
        error = serve(&listener, (inside, there)) => Err(failed(error)),
        _ = signals.next() => Ok(ExitCode::SUCCESS),
    }
}

/// Serves whoever connects, as many at a time as the sandbox takes, until nobody can any more.
async fn serve(listener: &TcpListener, (inside, port): (Inside, u16)) -> std::io::Error {
    let places = Arc::new(Semaphore::new(TUNNELS_MAX));
    let mut tunnels = JoinSet::new();
    loop {
        while tunnels.try_join_next().is_some() {}
        let place = Arc::clone(&places).acquire_owned().await;
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => return error,
        };
        let inside = inside.clone();
        tunnels.spawn(async move {
            carry(&inside, port, stream).await;
            drop(place);
        });
    }
}

async fn carry(inside: &Inside, port: u16, mut near: TcpStream) {
    match inside.connect(port).await {
        Ok(mut far) => {
            if let Err(error) = copy_bidirectional(&mut near, &mut far).await {
                tracing::debug!(%error, "a connection broke");
            }
        }
        Err(error) => eprintln!("sandbox: {}", harmless(&Failure::from(error).to_string())),
    }
}
