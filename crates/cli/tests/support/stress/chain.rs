//! Random chains with NFs on devices, and what becomes of each packet in them.

use std::fmt::Write;

use super::packet::{FLOWS, Mark, TYPES, source_port, type_of};
use super::random::Random;

/// The NFs of the chains; the first four can run on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nf {
    Seal,
    Open,
    Ids,
    Edge,
    Watch,
    Gate,
    Sieve,
}

const ON_DEVICE: [Nf; 4] = [Nf::Seal, Nf::Open, Nf::Ids, Nf::Edge];
const ON_PROCESSOR: [Nf; 3] = [Nf::Watch, Nf::Gate, Nf::Sieve];

impl Nf {
    fn name(self) -> &'static str {
        match self {
            Self::Seal => "seal",
            Self::Open => "open",
            Self::Ids => "ids",
            Self::Edge => "edge",
            Self::Watch => "watch",
            Self::Gate => "gate",
            Self::Sieve => "sieve",
        }
    }
}

/// What stays the same in a round.
#[derive(Clone, Debug)]
pub struct Frame {
    pub workers: usize,
    pub inputs: usize,
    pub medium: Medium,
    frames: usize,
    /// The devices of the NFs: `soft`, and one more if there is one. All NFs on devices share that.
    devices: Vec<String>,
    /// Whether the OpenCL device works in launches, and in which.
    pub launches: &'static str,
    seed: u64,
}

/// How packets arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// In captures through pipes, which all workers share.
    Pipes,
    /// By shared memory, in a ring for each worker, which has a line of its own; the run is the server or the
    /// client. As a client, it may have packets put into its frames.
    Rings { is_server: bool, is_zero_copy: bool },
}

impl Medium {
    fn random(random: &mut Random, devices: &[String]) -> Self {
        // A run whose peer maps its memory is confined to its files, and a driver could not compile kernels.
        let has_driver = devices.iter().any(|at| at.contains(':'));
        let (is_server, is_zero_copy) = (random.once_in(3), !has_driver && random.once_in(2));
        match random.below(2) {
            0 => Self::Pipes,
            _ => Self::Rings { is_server, is_zero_copy: is_zero_copy && !is_server },
        }
    }

    /// The pipe or the socket of an input.
    pub fn file(self, input: &str) -> String {
        let suffix = if self == Self::Pipes { "pcap" } else { "sock" };
        format!("{input}.{suffix}")
    }
}

/// The work-groups that all NFs on an OpenCL device have, so that the kernel after a reload finds room
/// beside the one before.
const MOST_GROUPS: usize = 3;

impl Frame {
    pub fn random(random: &mut Random, devices: &[String]) -> Self {
        let (others, mut chosen): (Vec<_>, Vec<_>) =
            devices.iter().cloned().partition(|at| at.contains(':'));
        if !others.is_empty() {
            chosen.push(others[random.below(others.len())].clone());
        }
        let medium = Medium::random(random, devices);
        let fewest = if medium == Medium::Pipes { 1 } else { 2 };
        Self {
            workers: fewest + random.below(4 - fewest),
            inputs: 1 + random.below(2),
            medium,
            frames: random.pick(&[1024, 2048, 8192]),
            launches: random.pick(&["never", "shared", "copied"]),
            devices: chosen,
            seed: random.next() >> 1,
        }
    }

    /// The device of the NFs that is not `soft`.
    pub fn device(&self) -> Option<&str> {
        self.devices.iter().find(|at| at.contains(':')).map(String::as_str)
    }

    /// Two inputs with a queue for each of two workers.
    pub fn of_rings() -> Self {
        let medium = Medium::Rings { is_server: true, is_zero_copy: false };
        Self {
            workers: 2,
            inputs: 2,
            medium,
            frames: 1024,
            launches: "never",
            devices: vec!["soft".into()],
            seed: 0,
        }
    }

    /// The queues of each input: a line for each of them.
    pub fn queues(&self) -> usize {
        if self.medium == Medium::Pipes { 1 } else { self.workers }
    }

    /// The input of a flow, and the queue in which it has the flow.
    pub fn place_of(&self, flow: usize) -> (usize, usize) {
        let of_type = flow / TYPES;
        (of_type % self.inputs, of_type / self.inputs % self.queues())
    }

    /// The number of a queue among those of all inputs.
    pub fn stream(&self, (input, queue): (usize, usize)) -> usize {
        input * self.queues() + queue
    }

    /// How many there are.
    pub fn streams(&self) -> usize {
        self.inputs * self.queues()
    }

    /// The association that protects a flow, by its number: one for each type and queue, as packets in other
    /// lines overtake each other.
    fn association_of(&self, flow: usize) -> usize {
        type_of(flow) + TYPES * self.place_of(flow).1
    }

    /// The section of an input.
    fn input(&self, input: &str) -> String {
        let file = self.medium.file(input);
        let Medium::Rings { is_server, is_zero_copy } = self.medium else {
            return format!("[input.{input}]\ncapture = '{file}'\n");
        };
        let more = if is_server {
            "role = 'server'\n".into()
        } else {
            format!("role = 'client'\nring_size = 7\nzero_copy = {is_zero_copy}\n")
        };
        format!("[input.{input}]\nmemif = '{file}'\nqueues = {}\n{more}", self.queues())
    }
}

/// The name of an input.
pub fn input_name(number: usize) -> &'static str {
    ["a", "b"][number]
}

/// Where an NF of a device runs.
#[derive(Clone, Debug)]
struct Place {
    nf: Nf,
    /// `cpu`, or a device.
    at: String,
    work_groups: usize,
}

/// A chain: what a reload can change.
#[derive(Clone, Debug)]
pub struct Generation {
    /// By packet type.
    routes: [Vec<Nf>; TYPES],
    places: Vec<Place>,
    pinned: Option<Nf>,
    /// Whether the NF `ids` drops packets with the content, and does not only report them.
    drops: bool,
    /// Whether the NF `gate` denies packets of low priority.
    denies: bool,
}

/// What becomes of a packet in a generation: the destination MAC address with which it leaves, by its last
/// byte, or that an NF drops it.
pub type Fate = Option<u8>;

/// The last byte of the MAC address with which packets arrive.
pub const ARRIVING: u8 = 0x0f;
/// Those of the router's next hops: of either half of the destinations, and of tunnels.
const HOPS: [u8; 2] = [0xa1, 0xa2];
const TUNNEL_HOP: u8 = 0xa3;

impl Generation {
    pub fn random(random: &mut Random, frame: &Frame) -> Self {
        loop {
            let routes = routes(random);
            let is_used = |nf: &Nf| routes.iter().any(|route| route.contains(nf));
            let used: Vec<_> = ON_DEVICE.into_iter().filter(is_used).collect();
            if used.len() < 2 {
                continue;
            }
            let places = places(random, &used, &frame.devices);
            if places.iter().filter(|place| place.at != "cpu").count() == 0 {
                continue;
            }
            let pinned = random.once_in(6).then(|| random.pick(&used));
            let (drops, denies) = (random.once_in(2), random.once_in(2));
            return Self { routes, places, pinned, drops, denies };
        }
    }

    /// One whose only NF is on the processor and drops packets of low priority.
    pub fn gate() -> Self {
        let routes = std::array::from_fn(|_| vec![Nf::Gate]);
        Self { routes, places: Vec::new(), pinned: None, drops: false, denies: true }
    }

    fn uses(&self, nf: Nf) -> bool {
        self.routes.iter().any(|route| route.contains(&nf))
    }

    /// What becomes of a packet.
    pub fn fate(&self, flow: usize, mark: Mark) -> Fate {
        let (mut is_sealed, mut mac) = (false, ARRIVING);
        for nf in &self.routes[type_of(flow)] {
            match nf {
                Nf::Seal => is_sealed = true,
                Nf::Open => is_sealed = false,
                Nf::Ids if self.drops && mark == Mark::Content && !is_sealed => return None,
                // The tunnel has the same DSCP.
                Nf::Gate if self.denies && mark == Mark::Low => return None,
                Nf::Edge if is_sealed => mac = TUNNEL_HOP,
                Nf::Edge => mac = HOPS[flow % 2],
                _ => {}
            }
        }
        Some(mac)
    }

    /// How many NFs are at each kind of place: processor, `soft`, another device.
    pub fn spread(&self) -> [usize; 3] {
        let mut spread = [0; 3];
        for Place { at, .. } in &self.places {
            spread[usize::from(at != "cpu") + usize::from(at.contains(':'))] += 1;
        }
        spread
    }

    /// The chain file.
    pub fn chain(&self, frame: &Frame) -> String {
        let mut chain = format!("default_type = 't0'\n[run]\nseed = {}\n", frame.seed);
        let device = frame.device().map_or(String::new(), |at| format!("device = '{at}'\n"));
        let Frame { frames, launches, .. } = frame;
        write!(chain, "[memory]\nframes = {frames}\nlaunches = '{launches}'\n{device}").unwrap();
        for input in (0..frame.inputs).map(input_name) {
            chain += &frame.input(input);
        }
        chain += "[output.out]\ncapture = 'out.pcap'\n";
        for number in 0..TYPES {
            let rule = format!("udp,tp_dst={}", 7000 + number);
            write!(chain, "[[class]]\ntype = 't{number}'\nrules = ['{rule}']\n").unwrap();
        }
        for nf in ON_DEVICE.into_iter().chain(ON_PROCESSOR).filter(|nf| self.uses(*nf)) {
            self.section(nf, frame, &mut chain);
        }
        for (number, route) in self.routes.iter().enumerate() {
            let names: Vec<_> = route.iter().map(|nf| format!("'{}', ", nf.name())).collect();
            let path = format!("['ingress', {}'out']", names.concat());
            write!(chain, "[[route]]\ntype = 't{number}'\npath = {path}\n").unwrap();
        }
        chain
    }

    fn section(&self, nf: Nf, frame: &Frame, chain: &mut String) {
        let name = nf.name();
        let place = self.places.iter().find(|place| place.nf == nf && place.at != "cpu");
        let mut keys = place.map_or(String::new(), |Place { at, work_groups, .. }| {
            format!("at = '{at}'\nwork_groups = {work_groups}\nfailed_after_ms = 60000\n")
        });
        if self.pinned == Some(nf) {
            keys += "pinned = true\n";
        }
        let (kind, own) = match nf {
            Nf::Seal => {
                ("ipsec", format!("default_policy = 'bypass'\n{}", associations("out", frame)))
            }
            Nf::Open => {
                ("ipsec", format!("default_policy = 'bypass'\n{}", associations("in", frame)))
            }
            Nf::Ids => {
                let rules = if self.drops { "drop.rules" } else { "alert.rules" };
                ("nids", format!("rules = ['{rules}']\nalerts = 'alerts.json'\n"))
            }
            Nf::Edge => ("router", router()),
            Nf::Watch => ("monitor", String::new()),
            Nf::Gate => {
                let rule = if self.denies { "deny ip,nw_tos=32" } else { "deny tcp" };
                ("acl", format!("default = 'permit'\nrules = ['{rule}']\n"))
            }
            Nf::Sieve => ("filter", "default = 'accept'\nrules = ['drop tcp']\n".into()),
        };
        write!(chain, "[nf.{name}]\nkind = '{kind}'\n{keys}{own}").unwrap();
    }
}

/// Random ways through NFs: some of them, in any order; but what is sealed is opened later.
fn routes(random: &mut Random) -> [Vec<Nf>; TYPES] {
    let tunnels = !random.once_in(4);
    let mut members: Vec<_> = if tunnels { vec![Nf::Seal] } else { Vec::new() };
    let may_be_there = [Nf::Ids, Nf::Edge].into_iter().chain(ON_PROCESSOR);
    members.extend(may_be_there.filter(|_| random.once_in(2)));
    std::array::from_fn(|_| {
        let mut route: Vec<_> = members.iter().copied().filter(|_| !random.once_in(3)).collect();
        if route.contains(&Nf::Seal) {
            route.push(Nf::Open);
        }
        random.shuffle(&mut route);
        let at = |nf| route.iter().position(|other| *other == nf);
        if let (Some(seal), Some(open)) = (at(Nf::Seal), at(Nf::Open))
            && open < seal
        {
            route.swap(seal, open);
        }
        route
    })
}

/// Where NFs run.
fn places(random: &mut Random, nfs: &[Nf], devices: &[String]) -> Vec<Place> {
    let mut left = MOST_GROUPS;
    let mut place = |nf: &Nf| {
        let mut at = if random.once_in(4) { "cpu" } else { &devices[random.below(devices.len())] };
        let is_limited = at.contains(':');
        if is_limited && left == 0 {
            at = "soft";
        }
        let most = if is_limited && left > 0 { left.min(2) } else { 3 };
        let work_groups = 1 + random.below(most);
        if at.contains(':') {
            left -= work_groups;
        }
        Place { nf: *nf, at: at.into(), work_groups }
    };
    nfs.iter().map(&mut place).collect()
}

/// The associations of a tunnel, of the suite that devices do, each with an order of its own; and which flows
/// they protect.
fn associations(direction: &str, frame: &Frame) -> String {
    let nf = if direction == "out" { "seal" } else { "open" };
    let association = |number: usize| {
        format!(
            "[[nf.{nf}.sa]]\nname = 's{number}'\ndirection = '{direction}'\nspi = {}\n\
             source = '192.0.2.1'\ndestination = '192.0.2.10'\nesn = {}\n\
             suite = 'aes128-cbc-hmac-sha1-96'\n\
             encryption_key = '7e1a90b3c4d5f60718293a4b5c6d7e{number:02}'\n\
             authentication_key = '00112233445566778899aabbccddeeff012345{number:02}'\n",
            4096 + number,
            number % 2 == 1,
        )
    };
    let policy = |flow: usize| {
        let (port, number) = (source_port(flow), frame.association_of(flow));
        format!(
            "[[nf.seal.policy]]\nmatch = 'udp,tp_src={port}'\naction = 'protect'\nsa = 's{number}'\n"
        )
    };
    let all: String = (0..TYPES * frame.queues()).map(association).collect();
    if direction == "in" {
        return all;
    }
    all + &(0..FLOWS).map(policy).collect::<String>()
}

fn router() -> String {
    let mac = |last: u8| format!("'02:00:00:00:00:{last:02x}'");
    format!(
        "routes = 'table.txt'\n[nf.edge.ports.out]\nmac = {}\nip = '203.0.113.1'\n\
         neighbors = {{ '203.0.113.2' = {}, '203.0.113.3' = {}, '203.0.113.4' = {} }}\n",
        mac(1),
        mac(HOPS[0]),
        mac(HOPS[1]),
        mac(TUNNEL_HOP)
    )
}

/// The routes of the router: to every second destination by the same next hop, and to tunnels.
pub fn table() -> String {
    let route = |flow: usize| format!("198.51.100.{flow}/32 203.0.113.{} out\n", 2 + flow % 2);
    (0..FLOWS).map(route).chain(["192.0.2.10/32 203.0.113.4 out\n".into()]).collect()
}

/// The rules of the NF `ids`, with this action.
pub fn rules(action: &str) -> String {
    format!(
        "{action} udp any any -> any any (msg:\"content\"; content:\"{}\"; sid:1;)\n",
        super::packet::CONTENT
    )
}
