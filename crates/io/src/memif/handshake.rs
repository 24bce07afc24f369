//! Agreeing on shared memory: what each side answers to a message, without its socket.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use thalweg_packet::Pool;

use super::Fault;
use super::endpoint::Endpoint;
use super::message::{AddRing, ETHERNET, Hello, Init, Message, VERSION};
use super::region::Region;
use super::ring::Ring;
use super::settings::{MAX_QUEUES, MAX_RING_SIZE, MemifSettings};
use super::shared::{Bell, Channel, Measures, POOL_REGION, Shared};

/// The most regions of a client.
const MAX_REGIONS: u16 = 256;
/// The name that peers receive.
const NAME: &str = concat!("Thalweg ", env!("CARGO_PKG_VERSION"));

/// What is answered to a message.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) reply: Option<Outgoing>,
    /// The peer is connected: what is shared with it.
    pub(super) shared: Option<Shared>,
}

/// A message, and the descriptor that goes with it.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) message: Message,
    with: Option<Attachment>,
}

#[derive(Debug)]
enum Attachment {
    Region(Arc<Region>),
    /// The memory of a pool.
    Memory(Arc<Pool>),
    Bell(Arc<Bell>),
}

impl Outgoing {
    /// The descriptor.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.with.as_ref().and_then(|with| match with {
            Attachment::Region(region) => Some(region.file()),
            Attachment::Memory(pool) => pool.memory().file(),
            Attachment::Bell(bell) => Some(bell.as_fd()),
        })
    }
}

impl From<Message> for Outgoing {
    fn from(message: Message) -> Self {
        Self { message, with: None }
    }
}

impl From<Message> for Answer {
    fn from(message: Message) -> Self {
        Self { reply: Some(message.into()), shared: None }
    }
}

fn unexpected(message: &Message) -> Fault {
    Fault::new(format!("{} out of turn", message.name()))
}

/// A server's side.
#[derive(Debug, Default)]
pub(super) struct ServerSide {
    endpoint: Option<Arc<Endpoint>>,
    regions: Vec<Arc<Region>>,
    /// Rings to this end, and from it, by their indexes.
    rings: [Vec<Option<(Ring, Bell)>>; 2],
}

impl ServerSide {
    /// What a server says first.
    pub(super) fn hello() -> Message {
        Message::Hello(Hello {
            name: NAME.into(),
            versions: VERSION..=VERSION,
            last_region: MAX_REGIONS - 1,
            last_rings: [MAX_QUEUES - 1; 2],
            ring_size: MAX_RING_SIZE,
        })
    }

    /// The end that the client has chosen.
    pub(super) fn endpoint(&self) -> Option<&Arc<Endpoint>> {
        self.endpoint.as_ref()
    }

    /// Answers a message. `find` finds the end with an identifier, if it is free.
    pub(super) fn answer(
        &mut self,
        message: Message,
        with: Option<OwnedFd>,
        find: impl FnOnce(u32) -> Result<Arc<Endpoint>, Fault>,
    ) -> Result<Answer, Fault> {
        let Some(endpoint) = &self.endpoint else {
            let Message::Init(init) = message else { return Err(unexpected(&message)) };
            let endpoint = find(init.id)?;
            check(&init, &endpoint.settings)?;
            self.endpoint = Some(endpoint);
            return Ok(Message::Ack.into());
        };
        let settings = &endpoint.settings;
        match message {
            Message::AddRegion { index, size } => {
                let file = with.ok_or(Fault::new("a region without its file"))?;
                if index >= MAX_REGIONS || usize::from(index) != self.regions.len() {
                    return Err(Fault::new(format!("region {index} out of order")));
                }
                self.regions.push(Arc::new(Region::of_peer(file, size)?));
                Ok(Message::Ack.into())
            }
            Message::AddRing(ring) => {
                let bell = with.ok_or(Fault::new("a ring without its eventfd"))?;
                let place = ring_of(&mut self.rings, ring, settings)?;
                let region = self.regions.get(usize::from(ring.region));
                let what = || Fault::new(format!("a ring in region {}, not there", ring.region));
                let region = region.ok_or_else(what)?;
                let of_peer = Ring::of_peer(region.clone(), ring.offset, ring.size)?;
                *place = Some((of_peer, Bell::of_peer(bell)?));
                Ok(Message::Ack.into())
            }
            Message::Connect(_) => {
                let shared = self.connect()?;
                let reply = Some(Message::Connected(NAME.into()).into());
                Ok(Answer { reply, shared: Some(shared) })
            }
            Message::Ack => Ok(Answer::default()),
            other => Err(unexpected(&other)),
        }
    }

    /// Takes over all rings; they are to be complete.
    fn connect(&mut self) -> Result<Shared, Fault> {
        let regions: Arc<[_]> = std::mem::take(&mut self.regions).into();
        let [receive, transmit] = std::mem::take(&mut self.rings).map(|rings| {
            let channel =
                |ring: Option<_>| ring.map(|(r, b)| Channel::of_peer(r, b, regions.clone()));
            rings.into_iter().map(channel).collect::<Option<Vec<_>>>()
        });
        let missing = || Fault::new("it connects without all of its rings");
        let (receive, transmit) = (receive.ok_or_else(missing)?, transmit.ok_or_else(missing)?);
        if receive.is_empty() && transmit.is_empty() {
            return Err(missing());
        }
        Ok(Shared { receive, transmit })
    }
}

/// The place of a new ring.
fn ring_of<'a>(
    rings: &'a mut [Vec<Option<(Ring, Bell)>>; 2],
    ring: AddRing,
    settings: &MemifSettings,
) -> Result<&'a mut Option<(Ring, Bell)>, Fault> {
    let AddRing { to_server, index, size, private, .. } = ring;
    if index >= settings.queues {
        let what = format!("ring {index}, but there are 'queues = {}'", settings.queues);
        return Err(Fault::new(what));
    }
    if size > settings.ring_size {
        let most = settings.ring_size;
        return Err(Fault::new(format!(
            "a ring of 2^{size} descriptors, but 'ring_size = {most}'"
        )));
    }
    if private != 0 {
        return Err(Fault::new("a ring with private metadata"));
    }
    let rings = &mut rings[usize::from(!to_server)];
    let index = usize::from(index);
    if rings.len() <= index {
        rings.resize_with(index + 1, || None);
    }
    let place = &mut rings[index];
    if place.is_some() { Err(Fault::new(format!("ring {index} twice"))) } else { Ok(place) }
}

/// Checks what a client wants.
fn check(init: &Init, settings: &MemifSettings) -> Result<(), Fault> {
    if init.version != VERSION {
        return Err(Fault::new(format!("version {:#x}; expected {VERSION:#x}", init.version)));
    }
    if init.mode != ETHERNET {
        return Err(Fault::new(format!("mode {}; expected 0, Ethernet", init.mode)));
    }
    if !settings.secret.is_none() && !settings.secret.is(&init.secret) {
        return Err(Fault::new("a wrong secret"));
    }
    Ok(())
}

/// A client's side.
#[derive(Debug)]
pub(super) struct ClientSide {
    endpoint: Arc<Endpoint>,
    /// What is sent after each acknowledgement.
    outgoing: VecDeque<Outgoing>,
    shared: Option<Shared>,
}

impl ClientSide {
    pub(super) fn new(endpoint: Arc<Endpoint>) -> Self {
        Self { endpoint, outgoing: VecDeque::new(), shared: None }
    }

    /// The end that connects.
    pub(super) fn endpoint(&self) -> &Arc<Endpoint> {
        &self.endpoint
    }

    /// Answers a message.
    pub(super) fn answer(&mut self, message: Message) -> Result<Answer, Fault> {
        match message {
            Message::Hello(hello) if self.shared.is_none() => {
                self.prepare(&hello)?;
                Ok(Answer { reply: self.outgoing.pop_front(), shared: None })
            }
            Message::Ack if self.shared.is_some() => {
                Ok(Answer { reply: self.outgoing.pop_front(), shared: None })
            }
            Message::Connected(_) if self.outgoing.is_empty() => match self.shared.take() {
                Some(shared) => {
                    shared.receive.iter().for_each(Channel::offer_all);
                    Ok(Answer { reply: None, shared: Some(shared) })
                }
                None => Err(Fault::new("a connection twice")),
            },
            other => Err(unexpected(&other)),
        }
    }

    /// Makes the memory, and the messages that tell of it.
    fn prepare(&mut self, hello: &Hello) -> Result<(), Fault> {
        if !hello.versions.contains(&VERSION) {
            return Err(Fault::new(format!(
                "versions {:x?}; expected {VERSION:#x}",
                hello.versions
            )));
        }
        let settings = &self.endpoint.settings;
        let [receive, transmit] =
            hello.last_rings.map(|last| settings.queues.min(last.saturating_add(1)));
        let ring_size = settings.ring_size.min(hello.ring_size);
        let pool = self.endpoint.pool.as_ref();
        if pool.is_some() && hello.last_region < POOL_REGION {
            return Err(Fault::new("one region at most; expected two, for 'zero_copy'"));
        }
        let buffer_size = if pool.is_some() { 0 } else { settings.buffer_size };
        let measures = Measures { transmit, receive, ring_size, buffer_size };
        let (shared, region) = Shared::create(measures, pool)
            .map_err(|e| Fault::new(format!("no memory for {} bytes: {e}", measures.len())))?;
        let init = Init {
            version: VERSION,
            id: settings.id,
            mode: ETHERNET,
            secret: settings.secret.0,
            name: NAME.into(),
        };
        self.outgoing.push_back(Message::Init(init).into());
        let region = (region.len(), Attachment::Region(region));
        let memory = pool.map(|pool| (pool.memory().len(), Attachment::Memory(pool.clone())));
        for (index, (size, with)) in (0..).zip([region].into_iter().chain(memory)) {
            let message = Message::AddRegion { index, size: size as u64 };
            self.outgoing.push_back(Outgoing { message, with: Some(with) });
        }
        for (to_server, channels) in [(true, &shared.transmit), (false, &shared.receive)] {
            for (index, channel) in (0..).zip(channels) {
                let (offset, size) = (channel.ring.offset() as u32, channel.ring.size());
                let ring = AddRing { to_server, index, region: 0, offset, size, private: 0 };
                let with = Some(Attachment::Bell(channel.bell.clone()));
                self.outgoing.push_back(Outgoing { message: Message::AddRing(ring), with });
            }
        }
        self.outgoing.push_back(Message::Connect(NAME.into()).into());
        self.shared = Some(shared);
        Ok(())
    }
}
