//! The router as a network function: from checked packets to their next hops.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use thalweg_packet::wire::ip_proto;
use thalweg_packet::write::{decrement_ttl, set_ethernet};
use thalweg_packet::{BATCH, Batch, Decapsulate, DropReason, Lanes, field, symmetric_hash};

use super::check::{Checked, check, ip_length};
use super::config::Ports;
use super::device::Hops;
use super::kernel::{Follower, KernelNeighbors};
use super::resolve::{Resolved, Resolver};
use super::table::{Busy, HopId, Mac, NextHop, ReaderV6, RouteTable, RouterPort};
use thalweg_nf::device::OnDevice;
use thalweg_nf::toolkit::fragment::{Cutter, may_fragment};
use thalweg_nf::toolkit::icmp_error::{IcmpError, IcmpSender};
use thalweg_nf::toolkit::outer::see_outermost;
use thalweg_nf::{Context, NetworkFunction};

/// What a router reads: its tables, which change while packets pass, and its options.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) view: ArcSwap<View>,
    pub(super) ports: Ports,
    pub(super) icmp_rate: u32,
    /// The mark of the table that a device has of these routes, if one has.
    pub(super) mark: OnceLock<u32>,
}

impl Shared {
    pub(super) fn new(table: RouteTable, ports: Ports, icmp_rate: u32) -> Self {
        let view = View { table: Arc::new(table), neighbors: Arc::default() };
        Self { view: ArcSwap::from_pointee(view), ports, icmp_rate, mark: OnceLock::new() }
    }
}

/// The tables of a router. The routes change in place; another view takes the place of this one
/// for other neighbours.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub(super) table: Arc<RouteTable>,
    /// The neighbours that the kernel has resolved.
    pub(super) neighbors: Arc<KernelNeighbors>,
}

/// A router.
#[derive(Debug)]
pub(super) struct Router {
    pub(super) shared: Arc<Shared>,
    /// What packets use: the shared view as it was before the batch.
    pub(super) view: Arc<View>,
    reader_v6: ReaderV6,
    pub(super) icmp: IcmpSender,
    /// Requests to the router itself that were answered.
    pub(super) answered: u64,
    /// Packets that were fragmented.
    fragmented: u64,
    cutter: Cutter,
    pub(super) resolver: Resolver,
    /// Makes this router hash flows differently from others.
    seed: u32,
    /// Keeps the view up to date with the kernel, until it is dropped.
    follower: Option<Follower>,
}

/// The lanes to look up in one of the tables.
struct Wanted<A> {
    count: usize,
    lanes: [u8; BATCH],
    addresses: [A; BATCH],
    hops: [HopId; BATCH],
}

impl<A: Copy + Default> Wanted<A> {
    fn new() -> Self {
        let hops = [HopId::NO_ROUTE; BATCH];
        Self { count: 0, lanes: [0; BATCH], addresses: [A::default(); BATCH], hops }
    }

    #[inline]
    fn push(&mut self, lane: usize, address: A) {
        self.lanes[self.count] = lane as u8;
        self.addresses[self.count] = address;
        self.count += 1;
    }

    /// Takes the next hops that a device has found, if it has found those of all.
    fn take(&mut self, found: Option<&Hops>) -> bool {
        let Some(found) = found else { return false };
        let lanes = &self.lanes[..self.count];
        let mut hops = lanes.iter().zip(&mut self.hops);
        hops.all(|(lane, hop)| found[usize::from(*lane)].map(|known| *hop = known).is_some())
    }

    fn look_up(&mut self, lookup: impl FnOnce(&[A], &mut [HopId])) {
        lookup(&self.addresses[..self.count], &mut self.hops[..self.count]);
    }

    fn found(&self) -> impl Iterator<Item = (usize, A, HopId)> + '_ {
        (0..self.count).map(|i| (self.lanes[i].into(), self.addresses[i], self.hops[i]))
    }
}

impl NetworkFunction for Router {
    fn process(&mut self, batch: &mut Batch, lanes: Lanes, context: &mut Context<'_>) {
        self.take_up_view();
        self.route(batch, lanes, None, context);
    }

    /// A super-packet in a tunnel is as good as its segments: they have the same outermost header.
    fn takes_whole(&self, _batch: &Batch, _lane: usize) -> bool {
        true
    }

    fn on_device(&mut self) -> Option<&mut dyn OnDevice> {
        Some(self)
    }

    fn figures(&self) -> Vec<(&'static str, u64)> {
        let (v4, v6) = self.view.table.len();
        let neighbors = &self.resolver.neighbors;
        let mut figures = vec![
            ("routes_v4", v4 as u64),
            ("routes_v6", v6 as u64),
            ("icmp_sent", self.icmp.sent()),
            ("icmp_suppressed", self.icmp.suppressed()),
            ("answered", self.answered),
            ("fragmented", self.fragmented),
            ("neighbors", neighbors.len() as u64),
            ("neighbors_evicted", neighbors.evicted),
            ("neighbor_requests", self.resolver.requests),
            ("resumed", self.resolver.resumed),
        ];
        figures.extend(self.follower.iter().flat_map(Follower::figures));
        figures
    }
}

impl Router {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let view = shared.view.load_full();
        let seed = shared.ports.seed();
        let resolver = Resolver::new(shared.ports.iter().any(|(_, port)| port.resolve));
        Self {
            icmp: IcmpSender::new(shared.icmp_rate),
            reader_v6: view.table.reader_v6(),
            view,
            shared,
            answered: 0,
            fragmented: 0,
            cutter: Cutter::default(),
            resolver,
            seed,
            follower: None,
        }
    }

    /// A router whose routes `follower` keeps up to date.
    pub(super) fn following(shared: Arc<Shared>, follower: Follower) -> Self {
        Self { follower: Some(follower), ..Self::new(shared) }
    }

    /// Routes packets by the current view, of which a device may have `found` the next hops.
    pub(super) fn route(
        &mut self,
        batch: &mut Batch,
        lanes: Lanes,
        found: Option<&Hops>,
        context: &mut Context<'_>,
    ) {
        let view = self.view.clone();
        let lanes = lanes.and(batch.lanes());
        self.look_after_neighbors(batch, lanes, context);
        see_outermost(batch, lanes);
        let (mut v4, mut v6) = (Wanted::<u32>::new(), Wanted::<u128>::new());
        for lane in lanes {
            match check(batch, lane) {
                Ok(Checked::V4(address)) => v4.push(lane, address),
                Ok(Checked::V6(address)) => v6.push(lane, address),
                Ok(Checked::ArpRequest) => self.arp_request(batch, context, lane),
                Ok(Checked::ArpReply) => self.arp_reply(batch, context, lane),
                Ok(Checked::Solicitation) => self.solicitation(batch, context, lane),
                Ok(Checked::Advertisement) => self.advertisement(batch, context, lane),
                Err(reason) => context.drop(lane, reason),
            }
        }
        if !v4.take(found) {
            v4.look_up(|addresses, hops| view.table.lookup_v4(addresses, hops));
        }
        if !v6.take(found) {
            v6.look_up(|addresses, hops| self.reader_v6.lookup(addresses, hops));
        }
        for (lane, address, hop) in v4.found() {
            self.follow(batch, context, lane, IpAddr::V4(address.into()), view.table.hop(hop));
        }
        for (lane, address, hop) in v6.found() {
            self.follow(batch, context, lane, IpAddr::V6(address.into()), view.table.hop(hop));
        }
        if let Some(lane) = lanes.into_iter().next() {
            self.resume(batch, context, lane);
        }
    }

    /// Uses the newest view from now on.
    pub(super) fn take_up_view(&mut self) {
        let newest = self.shared.view.load();
        if Arc::ptr_eq(&newest, &self.view) {
            return;
        }
        if !Arc::ptr_eq(&newest.table, &self.view.table) {
            self.reader_v6 = newest.table.reader_v6();
        }
        self.view = Arc::clone(&newest);
        drop(newest);
        self.meet_neighbors();
    }

    /// Goes on with another table over the same ports; returns the old one.
    pub(super) fn renew(&mut self, shared: Arc<Shared>) -> Arc<Shared> {
        self.view = shared.view.load_full();
        self.reader_v6 = self.view.table.reader_v6();
        std::mem::replace(&mut self.shared, shared)
    }

    /// Sends the packet of `lane`, whose destination is `to`, to `hop`.
    fn follow(
        &mut self,
        batch: &mut Batch,
        context: &mut Context<'_>,
        lane: usize,
        to: IpAddr,
        hop: &NextHop,
    ) {
        let (hop, ways) = match hop {
            NextHop::Multipath(ways) => (ways.of(self.spread(batch, lane)), ways.all().len()),
            one => (one, 1),
        };
        if context.is_traced() {
            self.explain_route(context, lane, to, hop, ways);
        }
        match *hop {
            NextHop::Gateway { port, mac: Some(mac), .. } => {
                self.forward(batch, context, lane, port, mac);
            }
            NextHop::Gateway { port, address, mac: None } => {
                self.forward_to(batch, context, lane, port, address);
            }
            NextHop::Direct { port } => self.forward_to(batch, context, lane, port, to),
            NextHop::Local { port } => self.deliver(batch, context, lane, to, port),
            NextHop::Blackhole => context.drop(lane, DropReason::Unreachable),
            NextHop::Kernel => context.drop(lane, DropReason::Consumed),
            NextHop::HostUnreachable => {
                self.refuse(batch, context, lane, IcmpError::HostUnreachable);
            }
            NextHop::Prohibited => self.refuse(batch, context, lane, IcmpError::AdminProhibited),
            // A next hop of a multipath route is never multipath itself.
            NextHop::Unreachable | NextHop::Multipath(_) => {
                self.refuse(batch, context, lane, IcmpError::NetUnreachable);
            }
        }
    }

    /// Drops the packet of `lane` for lack of a way, and reports that to its sender.
    fn refuse(&mut self, batch: &Batch, context: &mut Context<'_>, lane: usize, kind: IcmpError) {
        self.tell_sender(batch, context, lane, kind, None);
        context.drop(lane, DropReason::Unreachable);
    }

    /// A hash that distinguishes the flow of a packet from others. It differs between routers, so
    /// that the next routers do not receive only flows that hash alike for them. All fragments of a
    /// packet belong to one flow.
    fn spread(&self, batch: &Batch, lane: usize) -> u32 {
        let hash = if batch.headers(lane).fragment {
            let mut key = batch.key(lane);
            key.set(field::TP_SRC, 0);
            key.set(field::TP_DST, 0);
            symmetric_hash(&key)
        } else {
            batch.flow_hash(lane)
        };
        // The finalizer of MurmurHash3.
        let hash = hash ^ self.seed;
        let hash = (hash ^ hash >> 16).wrapping_mul(0x85eb_ca6b);
        let hash = (hash ^ hash >> 13).wrapping_mul(0xc2b2_ae35);
        hash ^ hash >> 16
    }

    /// Forwards a packet in transit to `address` on the link of `port`, or lets it wait there.
    fn forward_to(
        &mut self,
        batch: &mut Batch,
        context: &mut Context<'_>,
        lane: usize,
        port: RouterPort,
        address: IpAddr,
    ) {
        match self.resolve(batch, context, lane, port, address) {
            Resolved::At(mac) => self.forward(batch, context, lane, port, mac),
            Resolved::Asked(address) => match self.one_hop_less(batch, context, lane, port) {
                Some(false) => self.wait(batch, context, lane, port, address),
                // A packet that has to be fragmented first does not wait.
                Some(true) => context.drop(lane, DropReason::Unresolved),
                None => {}
            },
            Resolved::Never => self.refuse(batch, context, lane, IcmpError::HostUnreachable),
        }
    }

    /// Forwards a packet in transit: decrements its TTL or hop limit and sends it out.
    fn forward(
        &mut self,
        batch: &mut Batch,
        context: &mut Context<'_>,
        lane: usize,
        port: RouterPort,
        mac: Mac,
    ) {
        let Some(long) = self.one_hop_less(batch, context, lane, port) else { return };
        self.leave_by(batch, context, lane, port, mac);
        if long {
            self.fragment(batch, context, lane, self.shared.ports.get(port).mtu);
        }
    }

    /// Decrements the TTL or hop limit of a packet that may leave by `port`. Returns whether it has
    /// to be fragmented, or `None` if it was dropped.
    #[inline(always)]
    fn one_hop_less(
        &mut self,
        batch: &mut Batch,
        context: &mut Context<'_>,
        lane: usize,
        port: RouterPort,
    ) -> Option<bool> {
        let ttl = batch.field(lane, field::NW_TTL);
        if ttl <= 1 {
            self.tell_sender(batch, context, lane, IcmpError::TimeExceeded, None);
            context.drop(lane, DropReason::TtlExpired);
            return None;
        }
        let mtu = self.shared.ports.get(port).mtu;
        let headers = *batch.headers(lane);
        let mut long = ip_length(batch.bytes(lane), &headers) > usize::from(mtu);
        let is_super = long && batch.is_super(lane);
        if is_super {
            long = !fits(batch, lane, mtu);
        }
        if long && (is_super || !may_fragment(batch, lane)) {
            self.tell_sender(batch, context, lane, IcmpError::TooBig { mtu }, None);
            context.drop(lane, DropReason::TooBig);
            return None;
        }
        decrement_ttl(batch.bytes_mut(lane), &headers);
        context.explain(lane, || format!("TTL or hop limit {ttl} -> {}", ttl - 1));
        Some(long)
    }

    /// Writes the MAC addresses, and chooses the output of `port`.
    pub(super) fn leave_by(
        &mut self,
        batch: &mut Batch,
        context: &mut Context<'_>,
        lane: usize,
        port: RouterPort,
        mac: Mac,
    ) {
        let port = self.shared.ports.get(port);
        let headers = *batch.headers(lane);
        set_ethernet(batch.bytes_mut(lane), &headers, mac, port.mac);
        batch.meta.out_port[lane] = port.output;
        batch.mark_changed(Lanes::one(lane));
        context.explain(lane, || {
            format!(
                "leaves from {} to {} by output '{}'",
                Hex(port.mac),
                Hex(mac),
                port.output_name
            )
        });
    }

    /// Fragments the packet of `lane`; drops it if there is no room for all fragments.
    fn fragment(&mut self, batch: &mut Batch, context: &mut Context<'_>, lane: usize, mtu: u16) {
        let Some(later) = self.cutter.cut(batch, context, lane, mtu) else {
            context.drop(lane, DropReason::PoolExhausted);
            return;
        };
        self.fragmented += 1;
        let count = 1 + later.len();
        context.explain(lane, || format!("split into {count} fragments, MTU {mtu}"));
    }

    /// Sends the ICMP error `kind` about the packet of `lane` to its sender, by
    /// the route there, from `source` or else the address of the port it leaves by.
    pub(super) fn tell_sender(
        &mut self,
        batch: &Batch,
        context: &mut Context<'_>,
        lane: usize,
        kind: IcmpError,
        source: Option<IpAddr>,
    ) {
        let sender = sender_of(batch, lane);
        let way = self.way_to(batch, context, lane, sender);
        let way = way.and_then(|(port, to)| {
            let Resolved::At(mac) = to else { return None };
            Some((port, mac, source.or_else(|| self.shared.ports.error_source(port, sender))?))
        });
        let Some((port, mac, source)) = way else {
            self.icmp.suppress();
            return context.explain(lane, || format!("{kind:?} not sent: cannot reach {sender}"));
        };
        match self.icmp.send(context, batch, lane, kind, source) {
            Ok(made) => {
                let port = self.shared.ports.get(port);
                let (emitted, new) = (context.emitted().batch_of(made), made.lane);
                let headers = *emitted.headers(new);
                set_ethernet(emitted.bytes_mut(new), &headers, mac, port.mac);
                emitted.meta.out_port[new] = port.output;
                emitted.parse(Lanes::one(new), Decapsulate::No);
                context.explain(lane, || format!("sends {kind:?} from {source} to {sender}"));
            }
            Err(why) => context.explain(lane, || format!("{kind:?} not sent: {}", why.name())),
        }
    }

    /// The port and the MAC address by which packets to `address` leave; resolves it if necessary.
    pub(super) fn way_to(
        &mut self,
        batch: &Batch,
        context: &mut Context<'_>,
        lane: usize,
        address: IpAddr,
    ) -> Option<(RouterPort, Resolved)> {
        let mut hop = self.view.table.lookup(address);
        if let NextHop::Multipath(ways) = &hop {
            hop = ways.of(0).clone();
        }
        let (port, address) = match hop {
            NextHop::Gateway { port, mac: Some(mac), .. } => {
                return Some((port, Resolved::At(mac)));
            }
            NextHop::Gateway { port, address, mac: None } => (port, address),
            NextHop::Direct { port } => (port, address),
            _ => return None,
        };
        Some((port, self.resolve(batch, context, lane, port, address)))
    }

    fn explain_route(
        &self,
        context: &mut Context<'_>,
        lane: usize,
        to: IpAddr,
        hop: &NextHop,
        ways: usize,
    ) {
        let name = |port: RouterPort| &self.shared.ports.get(port).name;
        let prefix = match self.view.table.matched_now(to) {
            Ok(Some(prefix)) => format!("route {prefix}"),
            Ok(None) => "no route".to_owned(),
            Err(Busy) => "a route".to_owned(),
        };
        let of = if ways > 1 { format!(", one of {ways} next hops (ECMP)") } else { String::new() };
        context.explain(lane, || match *hop {
            NextHop::Gateway { address, port, .. } => {
                format!("{to}: {prefix} via {address} dev {}{of}", name(port))
            }
            NextHop::Direct { port } => format!("{to}: {prefix} direct dev {}{of}", name(port)),
            NextHop::Local { port } => format!("{to}: own address of port {}", name(port)),
            NextHop::Blackhole => format!("{to}: {prefix}, blackhole"),
            NextHop::Kernel => format!("{to}: an address of the kernel, which answers"),
            NextHop::Prohibited => format!("{to}: {prefix}, prohibited"),
            NextHop::Unreachable | NextHop::HostUnreachable | NextHop::Multipath(_) => {
                format!("{to}: {prefix}, unreachable")
            }
        });
    }
}

/// Source address of the IP packet in `lane`.
pub(super) fn sender_of(batch: &Batch, lane: usize) -> IpAddr {
    let key = batch.key(lane);
    if batch.headers(lane).is_ipv4() {
        IpAddr::V4((key.get(field::NW_SRC) as u32).into())
    } else {
        IpAddr::V6(key.get128(field::IPV6_SRC).into())
    }
}

/// A MAC address in the usual notation.
struct Hex(Mac);

impl std::fmt::Display for Hex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// Whether the segments of a super-packet fit into `mtu`. Those of TCP, in a tunnel or not, without "don't
/// fragment" are made smaller where they do not: their receiver sees the same stream.
fn fits(batch: &mut Batch, lane: usize, mtu: u16) -> bool {
    let Some(segments) = batch.segments(lane) else { return false };
    let before = segments.header_len() - usize::from(batch.headers(lane).l3);
    let most = usize::from(mtu).saturating_sub(before);
    if usize::from(batch.meta.segment_size[lane]) <= most {
        return true;
    }
    let shrinks = most > 0 && segments.protocol() == ip_proto::TCP && may_fragment(batch, lane);
    if shrinks {
        batch.meta.segment_size[lane] = most as u16;
    }
    shrinks
}
