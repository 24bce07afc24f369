//! The inspection of a flow: its start in order, the hosts in it, the library's opinion, and the
//! verdict.

use std::sync::Arc;

use thalweg_packet::checksum::{ChecksumStatus, verify};
use thalweg_packet::wire::header_len::IPV6;
use thalweg_packet::wire::ip_proto::TCP;
use thalweg_packet::wire::tcp_flags::{ACK, SYN};
use thalweg_packet::{FiveTuple, Headers, Layer, Nanoseconds};

use super::application::{Action, Seen, Undecided};
use super::flows::{Flow, FlowId};
use super::ndpi::{Inspection, Library};
use super::report::line;
use super::rules::Policy;
use super::stream::Arrival;
use super::watch::{Offer, Segment, Step};

/// When the starts of connections hold this many bytes, those with more than [`SMALL`] are given
/// up.
pub(super) const MOST_MEMORY: usize = 64 << 20;
const SMALL: usize = 4096;

/// A packet with its headers.
#[derive(Clone, Copy)]
pub(super) struct Packet<'a> {
    bytes: &'a [u8],
    pub(super) headers: &'a Headers,
    pub(super) segment: Option<Segment<'a>>,
    /// Whether it is a super-packet, whose transport checksum is unspecified.
    is_super: bool,
}

impl<'a> Packet<'a> {
    pub(super) fn new(
        bytes: &'a [u8],
        headers: &'a Headers,
        tuple: &FiveTuple,
        is_super: bool,
    ) -> Self {
        let is_tcp = tuple.protocol == TCP && headers.layer == Layer::Transport;
        let [l4, payload, end] = [headers.l4, headers.payload, headers.end].map(usize::from);
        let segment = is_tcp.then(|| Segment::new(bytes, l4, payload, end)).flatten();
        Self { bytes, headers, segment, is_super }
    }

    /// From the IP header on.
    fn ip(&self) -> &'a [u8] {
        self.bytes.get(self.headers.l3 as usize..self.headers.end as usize).unwrap_or(&[])
    }

    fn is_damaged(&self) -> bool {
        let status = verify(self.bytes, self.headers);
        !self.is_super && matches!(status, ChecksumStatus::BadHeader | ChecksumStatus::BadTransport)
    }

    /// Writes the packet with another sequence number and payload to `out`, from the IP header on.
    /// The checksums are not corrected.
    fn rebuild(&self, sequence: u32, payload: &[u8], out: &mut Vec<u8>) {
        let [l3, l4, end] =
            [self.headers.l3, self.headers.l4, self.headers.payload].map(usize::from);
        out.clear();
        out.extend(self.bytes.get(l3..end).unwrap_or(&[]));
        out.extend(payload);
        let length = out.len();
        let mut write = |at: usize, bytes: &[u8]| {
            if let Some(field) = out.get_mut(at..at + bytes.len()) {
                field.copy_from_slice(bytes);
            }
        };
        if self.headers.is_ipv4() {
            write(2, &(length as u16).to_be_bytes());
        } else {
            write(4, &((length - IPV6.min(length)) as u16).to_be_bytes());
        }
        write(l4 - l3 + 4, &sequence.to_be_bytes());
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Figures {
    pub(super) inspected: u64,
    pub(super) decided: u64,
    pub(super) guessed: u64,
    pub(super) unknown: u64,
    pub(super) damaged: u64,
    pub(super) contradicting: u64,
    pub(super) beyond: u64,
    pub(super) lost: u64,
}

/// The inspection of packets, and what it needs.
pub(super) struct Inspector {
    pub(super) policy: Arc<Policy>,
    pub(super) library: Library,
    names_hosts: bool,
    /// The most packets that are inspected: of TCP flows, and of others.
    packets: [u64; 2],
    /// Whether flows are reported, and the lines about them.
    pub(super) tells: bool,
    pub(super) lines: Vec<u8>,
    /// The numbers of HTTP and TLS, and of their category.
    protocols: [Seen; 2],
    /// A packet for the library; reused.
    rebuilt: Vec<u8>,
    /// Bytes that the starts of connections hold.
    memory: usize,
    pub(super) figures: Figures,
}

impl Inspector {
    pub(super) fn new(
        policy: Arc<Policy>,
        library: Library,
        packets: [u64; 2],
        tells: bool,
    ) -> Self {
        let names = &policy.names;
        let category = names.find_category("Web").unwrap_or(0);
        let protocols = ["HTTP", "TLS"].map(|name| Seen {
            application: names.find_application(name).unwrap_or(0),
            category,
            ..Seen::default()
        });
        Self {
            names_hosts: policy.names_hosts(),
            policy,
            library,
            packets,
            tells,
            lines: Vec::new(),
            protocols,
            rebuilt: Vec::new(),
            memory: 0,
            figures: Figures::default(),
        }
    }

    /// A new flow, of which nothing is known.
    pub(super) fn begin(&self, tuple: FiveTuple, now: Nanoseconds) -> Flow {
        let undecided = self.policy.undecided;
        Flow {
            action: if undecided == Undecided::Block { Action::Block } else { Action::Allow },
            holds: undecided == Undecided::Hold,
            // Without memory the flow is never recognised.
            inspection: Inspection::new(),
            watch: (tuple.protocol == TCP).then(Box::default),
            ..Flow::new(tuple, now)
        }
    }

    /// Ends the inspection of a flow that is removed, and reports it if it is undecided.
    pub(super) fn end(&mut self, (vlan, _): FlowId, mut flow: Flow) {
        self.unwatch(&mut flow);
        if let Some(inspection) = flow.inspection.take()
            && self.tells
        {
            flow.hosts = flow.all_hosts(Some(&inspection));
            flow.seen = self.library.give_up(inspection);
            line(&self.policy.names, vlan, &flow, false, &mut self.lines);
        }
    }

    /// Forgets the start of a flow.
    pub(super) fn unwatch(&mut self, flow: &mut Flow) {
        self.memory -= flow.watch.take().map_or(0, |watch| watch.memory());
    }

    /// Whether a packet opens a new connection between the ends of a flow.
    pub(super) fn reopens(&self, flow: &mut Flow, packet: &Packet<'_>) -> bool {
        let Some(segment) = packet.segment.filter(|segment| segment.has(SYN | ACK)) else {
            return false;
        };
        let numbers = Some((segment.acknowledgment, segment.sequence));
        if flow.opened == numbers || self.policy.checksums && packet.is_damaged() {
            return false;
        }
        let reopens = flow.opened.is_some();
        flow.opened = numbers;
        reopens
    }

    /// Inspects a packet from one side of a flow.
    pub(super) fn packet(
        &mut self,
        vlan: u16,
        flow: &mut Flow,
        from: usize,
        packet: &Packet<'_>,
    ) -> Option<Arrival> {
        let mut step = Step::default();
        if let Some(watch) = &mut flow.watch
            && let Some(segment) = &packet.segment
        {
            let is_damaged = || packet.is_damaged();
            if self.policy.checksums && !watch.believes(from, segment, is_damaged) {
                self.figures.damaged += 1;
                step.offer = Offer::Nothing;
            } else {
                step = self.watch(flow, from, segment);
            }
        }
        if flow.inspection.is_some() && !step.is_refused() {
            self.look(vlan, flow, packet, step.offer);
        }
        self.keep_watch(flow);
        step.arrival
    }

    /// Adds a segment to the start of its connection.
    fn watch(&mut self, flow: &mut Flow, from: usize, segment: &Segment<'_>) -> Step {
        let mut hosts = Vec::new();
        let Some(watch) = &mut flow.watch else { return Step::default() };
        let before = watch.memory();
        let mut step = watch.add(from, segment, &mut |host| hosts.push(host));
        self.memory = self.memory - before + watch.memory();
        self.figures.lost += u64::from(step.lost);
        match step.arrival {
            Some(Arrival::Contradicting) => self.figures.contradicting += 1,
            Some(Arrival::NoRoom) if watch.must_repeat(from) => self.figures.beyond += 1,
            Some(Arrival::NoRoom) => step.arrival = None,
            _ => {}
        }
        if flow.inspection.is_none()
            && !hosts.is_empty()
            && let Some((Action::Block, rule)) = self.policy.verdict(Some(flow.seen), &hosts, false)
            && flow.action != Action::Block
        {
            (flow.action, flow.rule) = (Action::Block, rule);
        }
        hosts.into_iter().for_each(|host| flow.add_host(host));
        step
    }

    /// Forgets the start of a flow when it is not needed, or when there is no memory for it.
    fn keep_watch(&mut self, flow: &mut Flow) {
        let Some(watch) = &flow.watch else { return };
        let decided = flow.inspection.is_none();
        if decided && (!self.names_hosts || watch.is_over()) {
            self.unwatch(flow);
        } else if self.memory > MOST_MEMORY && watch.memory() > SMALL {
            self.figures.lost += 1;
            self.unwatch(flow);
        }
    }

    /// Lets the library look at what it is offered of an undecided flow; judges the flow.
    fn look(&mut self, vlan: u16, flow: &mut Flow, packet: &Packet<'_>, offer: Offer) {
        self.figures.inspected += 1;
        flow.inspected += 1;
        self.offer(flow, packet, offer);
        let Some(inspection) = &flow.inspection else { return };
        let pending = flow.watch.as_ref().is_some_and(|watch| watch.is_pending());
        let protocol = flow.watch.as_ref().and_then(|watch| watch.protocol());
        if !pending && protocol.is_none() && flow.hosts.is_empty() {
            flow.hosts.extend(inspection.host_name());
        }
        let most = self.packets[usize::from(flow.tuple.protocol != TCP)];
        let enough = flow.inspected > most || flow.seen.failed;
        let known = flow.seen.application != 0;
        let decided = !pending && (enough || known && !flow.seen.more);
        let mut seen = match protocol {
            Some(protocol) if !known => self.protocols[protocol as usize],
            _ => flow.seen,
        };
        if decided
            && let Some(inspection) = flow.inspection.take()
            && seen.application == 0
        {
            seen = self.library.give_up(inspection);
        }
        let judged = (decided || seen.application != 0).then_some(seen);
        if let Some((action, rule)) = self.policy.verdict(judged, &flow.hosts, pending) {
            (flow.action, flow.rule, flow.holds) = (action, rule, false);
        }
        if decided {
            flow.seen = seen;
            self.decided(vlan, flow);
        }
    }

    /// Offers the library a packet, or what takes its place.
    fn offer(&mut self, flow: &mut Flow, packet: &Packet<'_>, offer: Offer) {
        let bytes = match offer {
            Offer::Nothing => return,
            Offer::Packet => packet.ip(),
            Offer::Bytes(sequence, payload) => {
                packet.rebuild(sequence, &payload, &mut self.rebuilt);
                &self.rebuilt
            }
            Offer::Afresh(sequence, payload) => {
                packet.rebuild(sequence, &payload, &mut self.rebuilt);
                if let Some(inspection) = Inspection::new() {
                    flow.inspection = Some(inspection);
                    flow.inspected = 1;
                }
                &self.rebuilt
            }
        };
        if let Some(inspection) = &mut flow.inspection {
            flow.seen = self.library.packet(inspection, bytes, flow.last.0 / 1_000_000);
        }
    }

    fn decided(&mut self, vlan: u16, flow: &Flow) {
        self.figures.decided += 1;
        self.figures.guessed += u64::from(flow.seen.guessed);
        self.figures.unknown += u64::from(flow.seen.application == 0);
        if self.tells {
            line(&self.policy.names, vlan, flow, false, &mut self.lines);
        }
    }
}
