//! What a client says, message by message. Nothing in here waits for a program: russh hears nothing else meanwhile.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use russh::keys::ssh_key;
use russh::server::{Auth, ChannelOpenHandle, Handler, Msg, PublicKeyOffer, Session, VerifiedPublicKey};
use russh::{Channel, ChannelId, ChannelOpenFailure, Disconnect, Pty, Sig};
use sandbox_protocol::SandboxId;
use sandbox_protocol::channel::{Program, Start, Terminal};
use sandbox_protocol::exec::ByteText;
use sandbox_protocol::ssh::PublicKey;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::backlog::{Backlog, NotTaken};
use crate::guest::{Ends, Guest, Inlet, Name, Word};
use crate::limits::{ENV_BYTES_MAX, ENV_MAX, LISTENERS_PER_CONNECTION_MAX};
use crate::listening::{self, Place, is_local};
use crate::outlet::{STDERR, Window};
use crate::ports::{AuditEvent, Barred, Doors, Room, Standing};
use crate::program::{self, Pending};
use crate::words::{User, is_taken, sent, size};
use crate::{sidecar, tunnel};

/// What there is as a subsystem.
const SFTP: &str = "sftp";

/// A client's side of a connection, from its first message on.
pub(crate) struct Client {
    doors: Arc<dyn Doors>,
    guests: Arc<Semaphore>,
    arriving: Option<Arriving>,
    entering: Option<Entering>,
    guest: Option<Arc<Guest>>,
    place: Option<OwnedSemaphorePermit>,
    pending: HashMap<ChannelId, Pending>,
    listening: HashMap<Place, CancellationToken>,
}

/// A connection before anybody was let in.
pub(crate) struct Arriving {
    pub(crate) number: u64,
    pub(crate) ends: Ends,
    pub(crate) backlog: Backlog,
    /// Cancelled once a key was proven, whatever comes of it.
    pub(crate) proven: CancellationToken,
    /// Who was let in.
    pub(crate) entered: oneshot::Sender<Arc<Guest>>,
}

/// What came of a proven key.
struct Entering {
    sandbox: SandboxId,
    key: String,
    outcome: Result<Box<dyn Room>, NotEntered>,
}

/// Why who has proven a key on record does not enter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum NotEntered {
    #[error("the key expired at block {0}")]
    Expired(u64),
    #[error("as many connections are open as may be; try again later")]
    Full,
    #[error(transparent)]
    Barred(#[from] Barred),
}

impl Client {
    /// Whoever enters takes one of the places of `guests`.
    pub(crate) fn new(doors: Arc<dyn Doors>, guests: Arc<Semaphore>, arriving: Arriving) -> Self {
        Self {
            doors,
            guests,
            arriving: Some(arriving),
            entering: None,
            guest: None,
            place: None,
            pending: HashMap::new(),
            listening: HashMap::new(),
        }
    }

    fn standing(&self, user: &User, key: &ssh_key::PublicKey) -> Option<(PublicKey, Standing)> {
        let key = PublicKey::from_wire(&key.to_bytes().ok()?).ok()?;
        let standing = self.doors.standing(user.sandbox, &key)?;
        Some((key, standing))
    }

    /// Lets in who has proven to have `key`, or finds out why not.
    async fn enter(&mut self, user: &User, key: &PublicKey, standing: Standing) -> Result<Box<dyn Room>, NotEntered> {
        if let Standing::Expired { at_block } = standing {
            return Err(NotEntered::Expired(at_block));
        }
        self.place = Some(Arc::clone(&self.guests).try_acquire_owned().map_err(|_| NotEntered::Full)?);
        Ok(self.doors.enter(user.sandbox, key, user.resume).await?)
    }

    fn inlet(&self, channel: ChannelId) -> Option<Inlet> {
        self.guest.as_ref()?.inlet(channel)
    }

    fn word(&self, channel: ChannelId, word: Word) {
        if self.pending.contains_key(&channel) {
            // There is no program yet, and the one to come is not meant.
            return;
        }
        // One that does not hear so many has more urgent matters; the next size counts anyway.
        if let Some(inlet) = self.inlet(channel)
            && inlet.words.try_send(word).is_err()
        {
            tracing::debug!(?word, "a word to a program is dropped");
        }
    }

    /// Serves a channel with the program that its client has named.
    fn start(&mut self, channel: ChannelId, program: Program, session: &mut Session) -> Result<(), russh::Error> {
        let (Some(guest), Some(mut pending)) = (self.guest.clone(), self.pending.remove(&channel)) else {
            return session.channel_failure(channel);
        };
        pending.start.program = program;
        guest.tasks.clone().spawn(program::serve(guest, pending));
        session.channel_success(channel)
    }

    /// Carries a channel to what `opening` opens, or says why not.
    async fn carry<S, F>(&self, opened: Opened, kind: &'static str, place: String, opening: F)
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + 'static,
        F: Future<Output = Result<S, ChannelOpenFailure>> + Send + 'static,
    {
        let Opened { channel, reply } = opened;
        let Some(guest) = self.guest.clone().filter(|guest| guest.has_room()) else {
            return reply.reject(ChannelOpenFailure::ResourceShortage).await;
        };
        let served = guest.admit(channel, Window::default());
        let tasks = guest.tasks.clone();
        tasks.spawn(async move {
            match opening.await {
                Ok(stream) => {
                    guest.opened(served.id, kind, place);
                    reply.accept().await;
                    tunnel::serve(guest, served, stream).await;
                }
                Err(reason) => {
                    tracing::debug!(?reason, kind, place, "a channel is not opened");
                    guest.forget(served.id);
                    reply.reject(reason).await;
                }
            }
        });
    }

    async fn listen(&mut self, place: Place) -> Option<u16> {
        let guest = self.guest.clone()?;
        if self.listening.len() >= LISTENERS_PER_CONNECTION_MAX || self.listening.contains_key(&place) {
            return None;
        }
        let stop = guest.left.child_token();
        let begun = listening::begin(&guest, place.clone(), stop.clone()).await;
        let port = begun.map_err(|error| tracing::debug!(%error, ?place, "not listened at")).ok()?;
        let place = match place {
            Place::Port(address, _) => Place::Port(address, port),
            other => other,
        };
        self.listening.insert(place, stop);
        Some(port)
    }

    fn stop_listening(&mut self, place: &Place) -> bool {
        self.listening.remove(place).map(|stop| stop.cancel()).is_some()
    }

    fn came(&self, channel: ChannelId, bytes: &[u8], session: &mut Session) -> Result<(), russh::Error> {
        let (Some(guest), Some(inlet)) = (&self.guest, self.inlet(channel)) else { return Ok(()) };
        guest.room.touch();
        match inlet.intake.came(bytes) {
            Ok(()) => Ok(()),
            Err(overrun @ NotTaken::Overrun { .. }) => {
                session.disconnect(Disconnect::ProtocolError, &overrun.to_string(), "")
            }
            Err(hoarded @ NotTaken::Hoarded) => {
                session.extended_data(channel, STDERR, Bytes::from(format!("sandbox: {hoarded}\r\n")))?;
                session.close(channel)?;
                inlet.intake.close();
                guest.forget(channel);
                Ok(())
            }
        }
    }
}

/// A channel that waits to be opened.
struct Opened {
    channel: Channel<Msg>,
    reply: ChannelOpenHandle,
}

impl Drop for Client {
    fn drop(&mut self) {
        if let Some(guest) = &self.guest {
            guest.left.cancel();
        }
    }
}

impl Handler for Client {
    type Error = russh::Error;

    async fn auth_publickey_offered(&mut self, user: &str, offer: PublicKeyOffer<'_>) -> Result<Auth, russh::Error> {
        let known = User::parse(user).and_then(|user| self.standing(&user, offer.public_key));
        Ok(if known.is_some() { Auth::Accept } else { Auth::reject() })
    }

    /// The key that signed decides, not one that was offered before. Who has proven a key on record is told why it opens
    /// nothing, and for that has to be let in as far as the door: see [`auth_succeeded`](Self::auth_succeeded).
    async fn auth_publickey(&mut self, user: &str, key: VerifiedPublicKey<'_>) -> Result<Auth, russh::Error> {
        let Some(user) = User::parse(user) else { return Ok(Auth::reject()) };
        let Some((key, standing)) = self.standing(&user, key.public_key) else { return Ok(Auth::reject()) };
        if let Some(arriving) = &self.arriving {
            arriving.proven.cancel();
        }
        let outcome = self.enter(&user, &key, standing).await;
        self.entering = Some(Entering { sandbox: user.sandbox, key: key.fingerprint(), outcome });
        Ok(Auth::Accept)
    }

    async fn auth_succeeded(&mut self, session: &mut Session) -> Result<(), russh::Error> {
        let (Some(entering), Some(arriving)) = (self.entering.take(), self.arriving.take()) else {
            return Err(russh::Error::Inconsistent);
        };
        let Entering { sandbox, key, outcome } = entering;
        let Arriving { number, ends, backlog, entered, .. } = arriving;
        let name = Name { number, ends, sandbox, key };
        let room = match outcome {
            Ok(room) => room,
            Err(reason) => {
                let reason = reason.to_string();
                self.doors.note(name.entry(AuditEvent::Barred { reason: reason.clone() }));
                return session.disconnect(Disconnect::ByApplication, &reason, "");
            }
        };
        let client = String::from_utf8_lossy(session.remote_sshid()).into_owned();
        let guest = Arc::new(Guest::new(name, room, session.handle(), backlog, Arc::clone(&self.doors)));
        guest.note(AuditEvent::Entered { client });
        self.guest = Some(Arc::clone(&guest));
        // Where nobody looks after the connection any more, it ends.
        entered.send(guest).map_err(|_| russh::Error::Disconnect)
    }

    async fn channel_open_session(
        &mut self,
        channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), russh::Error> {
        let Some(guest) = self.guest.clone().filter(|guest| guest.has_room()) else {
            reply.reject(ChannelOpenFailure::ResourceShortage).await;
            return Ok(());
        };
        let served = guest.admit(channel, Window::default());
        let start = Start { program: Program::Shell, terminal: None, env: BTreeMap::new() };
        let dialling = async move { sidecar::program(&*guest.room).await };
        let dialled = AbortOnDropHandle::new(tokio::spawn(dialling));
        self.pending.insert(served.id, Pending { served, dialled, start, agent: false });
        reply.accept().await;
        Ok(())
    }

    async fn channel_open_direct_tcpip(
        &mut self,
        channel: Channel<Msg>,
        host: &str,
        port: u32,
        _originator: &str,
        _originator_port: u32,
        reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), russh::Error> {
        let Ok(port) = u16::try_from(port) else {
            reply.reject(ChannelOpenFailure::ConnectFailed).await;
            return Ok(());
        };
        let (host, place) = (host.to_owned(), format!("{host}:{port}"));
        let Some(guest) = self.guest.clone() else { return Ok(()) };
        let opened = Opened { channel, reply };
        if is_local(&host) {
            let opening = async move { sidecar::port(&*guest.room, port).await.map_err(|error| not_opened(&error)) };
            self.carry(opened, "port", place, opening).await;
        } else {
            let opening = async move { guest.room.outside(&host, port).await.map_err(|error| not_reached(&error)) };
            self.carry(opened, "outside", place, opening).await;
        }
        Ok(())
    }

    async fn channel_open_direct_streamlocal(
        &mut self,
        channel: Channel<Msg>,
        path: &str,
        reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), russh::Error> {
        let Some(guest) = self.guest.clone() else { return Ok(()) };
        let (path, place) = (path.to_owned(), path.to_owned());
        let opening = async move { sidecar::unix(&*guest.room, &path).await.map_err(|error| not_opened(&error)) };
        self.carry(Opened { channel, reply }, "socket", place, opening).await;
        Ok(())
    }

    async fn channel_open_confirmation(
        &mut self,
        id: ChannelId,
        _packet_bytes_max: u32,
        window: u32,
        _session: &mut Session,
    ) -> Result<(), russh::Error> {
        if let Some(guest) = &self.guest {
            guest.confirmed(id, window);
        }
        Ok(())
    }

    async fn channel_close(&mut self, channel: ChannelId, _session: &mut Session) -> Result<(), russh::Error> {
        self.pending.remove(&channel);
        if let Some(guest) = &self.guest {
            guest.forget(channel);
        }
        Ok(())
    }

    async fn channel_eof(&mut self, channel: ChannelId, _session: &mut Session) -> Result<(), russh::Error> {
        if let Some(inlet) = self.inlet(channel) {
            inlet.intake.end();
        }
        Ok(())
    }

    async fn data(&mut self, channel: ChannelId, bytes: &[u8], session: &mut Session) -> Result<(), russh::Error> {
        self.came(channel, bytes, session)
    }

    /// A client has no second stream to a program.
    async fn extended_data(
        &mut self,
        _channel: ChannelId,
        _code: u32,
        _bytes: &[u8],
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        session.disconnect(Disconnect::ProtocolError, "no program takes a second stream", "")
    }

    fn adjust_window(&mut self, channel: ChannelId, granted: u32) -> u32 {
        self.inlet(channel).map_or(granted, |inlet| inlet.intake.widened(granted))
    }

    async fn window_adjusted(&mut self, channel: ChannelId, size: u32, _: &mut Session) -> Result<(), russh::Error> {
        if let Some(inlet) = self.inlet(channel) {
            inlet.window.widened(size);
        }
        Ok(())
    }

    async fn pty_request(
        &mut self,
        channel: ChannelId,
        term: &str,
        cols: u32,
        rows: u32,
        width_px: u32,
        height_px: u32,
        modes: &[(Pty, u32)],
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        let Some(pending) = self.pending.get_mut(&channel) else { return session.channel_failure(channel) };
        let modes = modes.iter().map(|(mode, value)| (*mode as u8, *value)).collect();
        let size = size(cols, rows, width_px, height_px);
        pending.start.terminal = Some(Terminal { term: term.to_owned(), size, modes });
        session.channel_success(channel)
    }

    async fn x11_request(
        &mut self,
        channel: ChannelId,
        _single: bool,
        _protocol: &str,
        _cookie: &str,
        _screen: u32,
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        session.channel_failure(channel)
    }

    async fn env_request(
        &mut self,
        channel: ChannelId,
        name: &str,
        value: &str,
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        let Some(pending) = self.pending.get_mut(&channel) else { return session.channel_failure(channel) };
        let fits = name.len() + value.len() <= ENV_BYTES_MAX && !value.contains('\0');
        if !is_taken(name) || !fits || pending.start.env.len() >= ENV_MAX {
            return session.channel_failure(channel);
        }
        pending.start.env.insert(name.to_owned(), value.to_owned());
        session.channel_success(channel)
    }

    async fn shell_request(&mut self, channel: ChannelId, session: &mut Session) -> Result<(), russh::Error> {
        self.start(channel, Program::Shell, session)
    }

    async fn exec_request(
        &mut self,
        channel: ChannelId,
        command: &[u8],
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        self.start(channel, Program::Command { command: ByteText(command.to_vec()) }, session)
    }

    async fn subsystem_request(
        &mut self,
        channel: ChannelId,
        name: &str,
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        if name == SFTP { self.start(channel, Program::Sftp, session) } else { session.channel_failure(channel) }
    }

    async fn window_change_request(
        &mut self,
        channel: ChannelId,
        cols: u32,
        rows: u32,
        width_px: u32,
        height_px: u32,
        _session: &mut Session,
    ) -> Result<(), russh::Error> {
        let size = size(cols, rows, width_px, height_px);
        match self.pending.get_mut(&channel).and_then(|pending| pending.start.terminal.as_mut()) {
            Some(terminal) => terminal.size = size,
            None => self.word(channel, Word::Resize(size)),
        }
        Ok(())
    }

    async fn agent_request(&mut self, channel: ChannelId, _session: &mut Session) -> Result<bool, russh::Error> {
        Ok(self.pending.get_mut(&channel).map(|pending| pending.agent = true).is_some())
    }

    async fn signal(&mut self, channel: ChannelId, signal: Sig, _session: &mut Session) -> Result<(), russh::Error> {
        if let Some(signal) = sent(&signal) {
            self.word(channel, Word::Signal(signal));
        }
        Ok(())
    }

    async fn tcpip_forward(
        &mut self,
        address: &str,
        port: &mut u32,
        _session: &mut Session,
    ) -> Result<bool, russh::Error> {
        let Some(wanted) = u16::try_from(*port).ok().filter(|_| is_local(address)) else { return Ok(false) };
        let Some(bound) = self.listen(Place::Port(address.to_owned(), wanted)).await else { return Ok(false) };
        *port = u32::from(bound);
        Ok(true)
    }

    async fn cancel_tcpip_forward(&mut self, address: &str, port: u32, _: &mut Session) -> Result<bool, russh::Error> {
        let port = u16::try_from(port).unwrap_or_default();
        Ok(self.stop_listening(&Place::Port(address.to_owned(), port)))
    }

    async fn streamlocal_forward(&mut self, path: &str, _session: &mut Session) -> Result<bool, russh::Error> {
        Ok(self.listen(Place::Path(path.to_owned())).await.is_some())
    }

    async fn cancel_streamlocal_forward(&mut self, path: &str, _: &mut Session) -> Result<bool, russh::Error> {
        Ok(self.stop_listening(&Place::Path(path.to_owned())))
    }
}

fn not_opened(error: &sidecar::SidecarError) -> ChannelOpenFailure {
    tracing::debug!(error = error as &dyn std::error::Error, "nothing is opened inside");
    ChannelOpenFailure::ConnectFailed
}

fn not_reached(error: &crate::ports::OutsideError) -> ChannelOpenFailure {
    match error {
        crate::ports::OutsideError::Forbidden => ChannelOpenFailure::AdministrativelyProhibited,
        crate::ports::OutsideError::Unreachable(_) => ChannelOpenFailure::ConnectFailed,
    }
}
