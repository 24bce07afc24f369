//! A control channel that is open.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Fault;
use super::endpoint::Endpoint;
use super::handshake::{Answer, ClientSide, Outgoing, ServerSide};
use super::message::Message;
use super::shared::Shared;
use super::socket::{ControlSocket, Heard};

/// The longest time in which a peer agrees.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest time in which a peer lets go of frames after a connection.
const LETTING_GO: Duration = Duration::from_millis(500);
/// The messages that are read at a time, so that other peers have their turn.
const MESSAGES: usize = 64;

/// An open control channel, and how far both sides have agreed.
pub(super) struct Session {
    socket: ControlSocket,
    side: Side,
    begun: Instant,
    is_connected: bool,
}

enum Side {
    Server(Box<ServerSide>),
    Client(ClientSide),
}

impl Session {
    /// A client has come: says hello.
    pub(super) fn with_client(socket: ControlSocket) -> Result<Self, Fault> {
        let session = Self::new(socket, Side::Server(Box::default()));
        session.send(&ServerSide::hello().into())?;
        Ok(session)
    }

    /// The server of an end was reached.
    pub(super) fn with_server(socket: ControlSocket, endpoint: Arc<Endpoint>) -> Self {
        Self::new(socket, Side::Client(ClientSide::new(endpoint)))
    }

    fn new(socket: ControlSocket, side: Side) -> Self {
        Self { socket, side, begun: Instant::now(), is_connected: false }
    }

    /// The end that it is of, once that is known.
    pub(super) fn endpoint(&self) -> Option<&Arc<Endpoint>> {
        match &self.side {
            Side::Server(server) => server.endpoint(),
            Side::Client(client) => Some(client.endpoint()),
        }
    }

    /// Whether it is of this end.
    pub(super) fn is_of(&self, endpoint: &Arc<Endpoint>) -> bool {
        self.endpoint().is_some_and(|of| Arc::ptr_eq(of, endpoint))
    }

    /// Whether both sides have agreed.
    pub(super) fn is_connected(&self) -> bool {
        self.is_connected
    }

    /// When both sides have to have agreed.
    pub(super) fn deadline(&self) -> Option<Instant> {
        (!self.is_connected).then(|| self.begun + PATIENCE)
    }

    /// Reads what the peer has sent, and answers; `find` finds the end that a client chooses.
    ///
    /// # Errors
    /// Why the session ends.
    pub(super) fn go_on(
        &mut self,
        find: impl Fn(u32) -> Result<Arc<Endpoint>, Fault>,
    ) -> Result<(), Fault> {
        for _ in 0..MESSAGES {
            let (message, with) = match self.socket.hear()? {
                Heard::Message(Message::Disconnect(reason), _) => {
                    let quoted = if reason.is_empty() { "no reason".into() } else { reason };
                    return Err(Fault::new(format!("the peer ended it ({quoted})")));
                }
                Heard::Message(message, with) => (message, with),
                Heard::Nothing => break,
                Heard::Ended => return Err(Fault::new("the peer has gone")),
            };
            let Answer { reply, shared } = match &mut self.side {
                Side::Server(server) => server.answer(message, with, &find)?,
                Side::Client(client) => client.answer(message)?,
            };
            // The peer writes into the memory once it has the reply, and we look at it then.
            if let Some(reply) = reply {
                self.send(&reply)?;
            }
            if let (Some(shared), Some(endpoint)) = (shared, self.endpoint()) {
                endpoint.set(Some(shared));
                self.is_connected = true;
            }
        }
        match self.deadline() {
            Some(deadline) if Instant::now() >= deadline => {
                Err(Fault::new("the peer did not agree in time"))
            }
            _ => Ok(()),
        }
    }

    fn send(&self, outgoing: &Outgoing) -> Result<(), Fault> {
        let sent = self.socket.send(&outgoing.message, outgoing.descriptor());
        sent.map_err(|e| Fault::new(format!("the peer does not listen: {e}")))
    }

    /// Ends it, and sends the peer the reason. If the peer has frames of the pool, it is given time to
    /// let go of them.
    pub(super) fn end(self, why: &Fault) -> Option<Farewell> {
        let _ = self.socket.send(&Message::Disconnect(why.to_string()), None);
        let endpoint = self.endpoint().filter(|_| self.is_connected)?;
        let shared = endpoint.set(None).filter(|shared| shared.lends())?;
        Some(Farewell { socket: self.socket, until: Instant::now() + LETTING_GO, _shared: shared })
    }
}

/// A connection that has ended, whose peer may still have frames of the pool: they return to the pool
/// with it.
pub(super) struct Farewell {
    socket: ControlSocket,
    until: Instant,
    _shared: Arc<Shared>,
}

impl Farewell {
    /// Whether the peer has closed the connection too, or had enough time for it.
    pub(super) fn is_over(&self) -> bool {
        // What it sends before that has no effect any more.
        let has_closed = (0..MESSAGES).any(|_| matches!(self.socket.hear(), Ok(Heard::Ended)));
        has_closed || Instant::now() >= self.until
    }

    /// When it is over in any case.
    pub(super) fn until(&self) -> Instant {
        self.until
    }
}

impl AsFd for Farewell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsFd for Session {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
