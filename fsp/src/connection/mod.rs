//! One WebSocket with many executions.
//!
//! A task, the [`driver`], owns the socket and the [`book`] of executions. Handles tell it what they want over a bounded
//! queue; what comes for an execution goes to its [`feed`], from which its consumer takes it. Dropping all handles ends
//! the task and the connection.

mod book;
mod driver;
mod execution;
mod feed;

use std::sync::Arc;
use std::time::Duration;

use sandbox_protocol::fsp::{ClientMessage, Execute, Extension, Extensions, Load};
use tokio::sync::{mpsc, oneshot, watch};

use self::book::Entry;
pub use self::book::Place;
use self::driver::{Driver, Dropped};
pub use self::execution::{Control, Execution};
pub use self::feed::Event;
use self::feed::Feed;
use crate::error::FspError;
use crate::handshake::Endpoint;
use crate::limits::{COMMANDS_MAX, FEED_BYTES_MAX, PING_TIMEOUT_MS, TIMEOUT_SLACK_MS};

/// Whether a connection is of use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It is.
    Live,
    /// Its link broke and is being opened again.
    Reconnecting,
    /// It is not, and will not be.
    Closed,
}

/// An open connection. Copies are the same connection.
#[derive(Debug, Clone)]
pub struct Connection {
    commands: mpsc::Sender<Command>,
    dropped: Arc<Dropped>,
    state: watch::Receiver<State>,
    granted: Arc<Extensions>,
}

/// What the handles want of the driver.
#[derive(Debug)]
enum Command {
    /// Enter this execution in the book, and say this of it.
    Open { id: String, entry: Entry, opening: ClientMessage },
    /// Say this.
    Say(ClientMessage),
    /// Grant the sandbox what the consumer of this execution has taken.
    Grant(String),
    /// Ask whether it lives.
    Ping(oneshot::Sender<Load>),
}

impl Connection {
    /// Opens one, with retries.
    ///
    /// # Errors
    /// The sandbox refuses, or is out of reach after the last attempt.
    pub async fn open(endpoint: &Endpoint) -> Result<Self, FspError> {
        let (socket, granted) = match endpoint.attempt().await {
            Ok(open) => open,
            Err(error) => endpoint.again(error).await?,
        };
        let (commands, wanted) = mpsc::channel(COMMANDS_MAX);
        let (shown, state) = watch::channel(State::Live);
        let dropped = Arc::new(Dropped::default());
        let driver = Driver::new(endpoint.clone(), wanted, Arc::clone(&dropped), shown);
        // It ends when the last sender of commands is dropped.
        tokio::spawn(driver.run(socket, granted.clone()));
        Ok(Self { commands, dropped, state, granted: Arc::new(granted) })
    }

    /// What the sandbox granted.
    pub fn granted(&self) -> &Extensions {
        &self.granted
    }

    /// Whether it is of use now.
    pub fn state(&self) -> State {
        *self.state.borrow()
    }

    /// Waits until it is of no use any more.
    pub async fn closed(&self) {
        let mut state = self.state.clone();
        // The driver that would tell is gone, which is the same.
        state.wait_for(|state| *state == State::Closed).await.ok();
    }

    /// Asks whether the sandbox lives, and how busy it is.
    ///
    /// # Errors
    /// The connection broke, or no answer came in time.
    pub async fn ping(&self) -> Result<Load, FspError> {
        let (answer, load) = oneshot::channel();
        let asked = async {
            self.send(Command::Ping(answer)).await?;
            load.await.map_err(|_| FspError::Disconnected { source: None })
        };
        let limit = Duration::from_millis(PING_TIMEOUT_MS);
        tokio::time::timeout(limit, asked).await.unwrap_or(Err(FspError::Disconnected { source: None }))
    }

    /// Starts an execution. It is asked for once: should the link break, it is only looked for.
    ///
    /// # Errors
    /// It needs what was not granted, or the connection is closed. All else comes from the [`Execution`].
    pub async fn execute(&self, mut request: Execute) -> Result<Execution, FspError> {
        let extra = &request.extra;
        let needs = [
            (extra.cwd.is_some(), Extension::Cwd),
            (extra.stream_stdin, Extension::Stdin),
            (extra.detach, Extension::Replay),
        ];
        for (_, extension) in needs.into_iter().filter(|(needed, _)| *needed) {
            self.needs(extension)?;
        }
        request.extra.credit_bytes = self.credit();
        let limit_ms = request.limits.timeout_ms;
        self.start(request.id.clone(), Place::default(), Some(limit_ms), ClientMessage::Execute(Box::new(request)))
            .await
    }

    /// Takes up an execution that was started before, behind `place`. `limit_ms` is the time in which it must end.
    ///
    /// # Errors
    /// `replay` was not granted, or the connection is closed. All else comes from the [`Execution`]: one that the sandbox
    /// does not know ends with [`FspError::Server`] and `UNKNOWN_EXECUTION`.
    pub async fn attach(&self, id: &str, place: Place, limit_ms: Option<u64>) -> Result<Execution, FspError> {
        self.needs(Extension::Replay)?;
        let opening = ClientMessage::Attach { id: id.to_owned(), after_seq: place.seq, credit_bytes: self.credit() };
        self.start(id.to_owned(), place, limit_ms, opening).await
    }

    /// Ends an execution of this sandbox, whoever started it. Whether it is known is not told.
    ///
    /// # Errors
    /// The connection is closed.
    pub async fn cancel(&self, id: &str) -> Result<(), FspError> {
        self.send(Command::Say(ClientMessage::Cancel { id: id.to_owned() })).await
    }

    async fn start(
        &self,
        id: String,
        place: Place,
        limit_ms: Option<u64>,
        opening: ClientMessage,
    ) -> Result<Execution, FspError> {
        let feed = Arc::new(Feed::new(self.granted.has(Extension::Credit)));
        let deadline = limit_ms.map(|limit_ms| book::Deadline {
            at: tokio::time::Instant::now() + Duration::from_millis(limit_ms.saturating_add(TIMEOUT_SLACK_MS)),
            limit_ms,
        });
        let entry = Entry::new(Arc::clone(&feed), place, deadline);
        self.send(Command::Open { id: id.clone(), entry, opening }).await?;
        let control = Control::new(id, feed, self.commands.clone(), Arc::clone(&self.granted));
        Ok(Execution::new(control, Arc::clone(&self.dropped), place))
    }

    fn needs(&self, extension: Extension) -> Result<(), FspError> {
        if self.granted.has(extension) { Ok(()) } else { Err(FspError::NotGranted(extension)) }
    }

    fn credit(&self) -> Option<u64> {
        self.granted.has(Extension::Credit).then_some(FEED_BYTES_MAX)
    }

    async fn send(&self, command: Command) -> Result<(), FspError> {
        self.commands.send(command).await.map_err(|_| FspError::Disconnected { source: None })
    }
}
