//! NFs for tests, packets that carry their identity, and chains in a folder of their own.
#![allow(dead_code)] // each test file uses a part

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde::Deserialize;
use thalweg_chain::{Kinds, Plan, PlanOptions};
use thalweg_io::{CaptureInput, CaptureOutput, Input, Output};
use thalweg_nf::device::{DeviceFunction, DeviceJob, DeviceResult, DeviceWork, OnDevice};
use thalweg_nf::{
    BUCKETS, Blueprint, Context, Division, Grain, Kind, NetworkFunction, Part, Renewal,
};
use thalweg_packet::{BATCH, Batch, DropCounts, DropReason, Lanes, Nanoseconds, Pool};
use thalweg_source::SourceError;

/// The position of the tag: after Ethernet, IPv4 and UDP.
const TAG: usize = 42;

/// The identity of a test packet; its bytes carry it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tag {
    pub flow: u32,
    /// Whether it goes from server to client.
    pub back: bool,
    /// 0 for a received packet; for one that an NF generated, the NFs that generated it.
    pub lineage: u32,
    pub sequence: u32,
}

impl Tag {
    /// The packet: UDP, with one address pair and client port per flow, and
    /// server port `1000 + flow % 4`.
    pub fn packet(self) -> Vec<u8> {
        let client = ([10, 0, (self.flow >> 8) as u8, self.flow as u8], 20_000 + self.flow as u16);
        let server = ([192, 0, 2, 1], server_port(self.flow));
        let (from, to) = if self.back { (server, client) } else { (client, server) };
        let mut bytes = vec![0; TAG];
        bytes[..12].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
        bytes[12..24].copy_from_slice(&[8, 0, 0x45, 0, 0, 41, 0, 0, 0, 0, 64, 17]);
        bytes[26..30].copy_from_slice(&from.0);
        bytes[30..34].copy_from_slice(&to.0);
        bytes[34..36].copy_from_slice(&from.1.to_be_bytes());
        bytes[36..38].copy_from_slice(&to.1.to_be_bytes());
        bytes[38..40].copy_from_slice(&21u16.to_be_bytes());
        bytes.extend(self.bytes());
        bytes
    }

    fn bytes(self) -> [u8; 13] {
        let mut bytes = [0; 13];
        bytes[..4].copy_from_slice(&self.flow.to_be_bytes());
        bytes[4] = self.back.into();
        bytes[5..9].copy_from_slice(&self.lineage.to_be_bytes());
        bytes[9..].copy_from_slice(&self.sequence.to_be_bytes());
        bytes
    }

    pub fn of(packet: &[u8]) -> Self {
        let tag = &packet[TAG..TAG + 13];
        let word = |at: usize| u32::from_be_bytes(tag[at..at + 4].try_into().unwrap());
        Self { flow: word(0), back: tag[4] != 0, lineage: word(5), sequence: word(9) }
    }

    /// A random decision of NF `nf` about this packet, true once in `sides`; never for 0 sides.
    pub fn falls(self, nf: u32, salt: u64, sides: u32) -> bool {
        if sides == 0 {
            return false;
        }
        let mut hash = salt ^ u64::from(nf) << 32;
        for byte in self.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3).rotate_left(23);
        }
        (hash ^ hash >> 29).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33 & 0x7fff_ffff
            < 0x8000_0000 / u64::from(sides)
    }

    /// The packet that NF `nf` generates for this one.
    pub fn child(self, nf: u32) -> Self {
        Self { lineage: self.lineage * 8 + nf + 1, ..self }
    }
}

pub fn server_port(flow: u32) -> u16 {
    1000 + (flow % 4) as u16
}

pub const DROPS: u64 = 1;
pub const EMITS: u64 = 2;

/// The test NFs' own record of their work.
#[derive(Debug, Default)]
pub struct Ledger {
    pub dropped: u64,
    pub made: u64,
    pub not_made: u64,
    /// The packets that each NF saw, in order.
    pub seen: BTreeMap<u32, Vec<Tag>>,
    pub renewals: u32,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    pub number: u32,
    #[serde(default)]
    pub drop_one_in: u32,
    #[serde(default)]
    pub emit_one_in: u32,
    /// Panics at the packet with this sequence number.
    #[serde(default)]
    pub dies_at: Option<u32>,
    /// Has no instance: making one panics.
    #[serde(default)]
    pub fails: bool,
    /// Is divided by flow where it may be; then it generates no packets.
    #[serde(default)]
    pub divides: bool,
}

thread_local! {
    /// The ledger of the NFs that this thread builds.
    static LEDGER: RefCell<Arc<Mutex<Ledger>>> = RefCell::default();
}

/// The kinds that chains in a [`Folder`] may have: NFs of these tests, and a few real ones.
pub fn kinds() -> Kinds {
    let test = Kind {
        name: "test",
        summary: "drops and generates packets as a test wants",
        state: None,
        grain: Grain::None,
        limits: &[],
        chooses_output: true,
        keeps_names: false,
        takes_supers: false,
        runs_on_devices: true,
        bypass_hazard: None,
        options: || schemars::json_schema!({}),
        build: |section, _| {
            let ledger = LEDGER.with_borrow(Arc::clone);
            Ok(Box::new(TestBlueprint { options: section.parse()?, ledger }))
        },
    };
    Kinds::from(thalweg_nf::Kinds::new([
        test,
        thalweg_acl::KIND,
        thalweg_defrag::KIND,
        thalweg_filter::KIND,
        thalweg_monitor::KIND,
        thalweg_nat::KIND,
    ]))
}

struct TestBlueprint {
    options: Options,
    ledger: Arc<Mutex<Ledger>>,
}

impl Blueprint for TestBlueprint {
    fn instance(&self) -> Box<dyn NetworkFunction> {
        assert!(!self.options.fails, "as the test wants");
        Box::new(TestNf { options: self.options, ledger: self.ledger.clone() })
    }

    fn divide(&self, parts: usize) -> Option<Division> {
        let part = || TestNf { options: self.options, ledger: self.ledger.clone() };
        self.options.divides.then(|| Division {
            parts: (0..parts).map(|_| Box::new(part()) as Box<dyn Part>).collect(),
            whole: self.instance(),
            bucket: Box::new(|batch, lane| {
                (Tag::of(batch.bytes(lane)).flow.wrapping_mul(389) % BUCKETS as u32) as u16
            }),
            takes_whole: Box::new(|_, _| true),
        })
    }

    fn device_work(&self) -> Option<DeviceWork> {
        let function = DeviceFunction {
            name: "first",
            source: "",
            near: 0,
            split: None,
            changes: false,
            scalar: |bytes, _, _| [bytes[0].into(), 0],
        };
        Some(DeviceWork { function, table: Vec::new().into(), alternatives: None })
    }

    fn overlaps_on_device(&self) -> bool {
        true
    }

    fn describe(&self) -> String {
        format!("test NF {}", self.options.number)
    }

    fn renew(&mut self, old: &dyn Blueprint) -> Option<Renewal> {
        // The ledger of the thread that reloads is another one.
        self.ledger = old.downcast::<Self>()?.ledger.clone();
        if self.options.fails {
            return None;
        }
        self.ledger.lock().unwrap().renewals += 1;
        let options = self.options;
        Some(Box::new(move |instance| {
            instance.downcast_mut::<TestNf>()?.options = options;
            None
        }))
    }
}

struct TestNf {
    options: Options,
    ledger: Arc<Mutex<Ledger>>,
}

impl NetworkFunction for TestNf {
    fn process(&mut self, batch: &mut Batch, lanes: Lanes, context: &mut Context<'_>) {
        let Options { number, drop_one_in, emit_one_in, dies_at, .. } = self.options;
        let mut ledger = self.ledger.lock().unwrap();
        for lane in lanes {
            let tag = Tag::of(batch.bytes(lane));
            if dies_at == Some(tag.sequence) {
                drop(ledger);
                panic!("requested by the test");
            }
            ledger.seen.entry(number).or_default().push(tag);
            context.explain(lane, || format!("NF {number} saw flow {}", tag.flow));
            if tag.falls(number, EMITS, emit_one_in) {
                match context.emit(batch, lane, &tag.child(number).packet()) {
                    Some(_) => ledger.made += 1,
                    None => ledger.not_made += 1,
                }
            }
            if tag.falls(number, DROPS, drop_one_in) {
                ledger.dropped += 1;
                context.drop(lane, DropReason::FilterDrop);
            }
        }
    }

    fn on_device(&mut self) -> Option<&mut dyn OnDevice> {
        Some(self)
    }
}

/// On a device, all decisions are in the second half.
impl OnDevice for TestNf {
    fn begin(
        &mut self,
        batch: &mut Batch,
        lanes: Lanes,
        _: &mut Context<'_>,
        jobs: &mut Vec<DeviceJob>,
    ) {
        let job =
            |lane| DeviceJob { lane, start: 1, len: batch.bytes(lane).len() - 1, argument: [0; 2] };
        jobs.extend(lanes.into_iter().map(job));
    }

    fn finish(&mut self, batch: &mut Batch, results: &[DeviceResult], context: &mut Context<'_>) {
        assert!(results.is_sorted_by_key(|(lane, _)| *lane));
        let mut lanes = Lanes::NONE;
        for (lane, result) in results {
            if let Some(result) = result {
                assert_eq!(*result, [batch.bytes(*lane)[1].into(), 0]);
                lanes.insert(*lane);
            } else {
                self.ledger.lock().unwrap().dropped += 1;
                context.drop(*lane, DropReason::DeviceFailed);
            }
        }
        NetworkFunction::process(self, batch, lanes, context);
    }
}

impl Part for TestNf {
    fn process(&mut self, batch: &mut Batch, lanes: Lanes, context: &mut Context<'_>) {
        NetworkFunction::process(self, batch, lanes, context);
    }
}

/// A folder with a chain in it.
pub struct Folder {
    dir: tempfile::TempDir,
    pub ledger: Arc<Mutex<Ledger>>,
}

impl Folder {
    pub fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), ledger: Arc::default() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn root(&self) -> std::path::Display<'_> {
        self.dir.path().display()
    }

    pub fn write(&self, name: &str, text: &str) -> &Self {
        std::fs::write(self.path(name), text).unwrap();
        self
    }

    /// Writes a capture of the packets, a microsecond apart.
    pub fn capture(&self, name: &str, tags: &[Tag]) -> &Self {
        let times = (0..).map(|number| Nanoseconds(1_000_000_000 + number * 1000));
        let packets = tags.iter().map(|tag| tag.packet());
        self.timed_capture(name, times.zip(packets))
    }

    /// Writes a capture of packets with their times.
    pub fn timed_capture(
        &self,
        name: &str,
        packets: impl IntoIterator<Item = (Nanoseconds, Vec<u8>)>,
    ) -> &Self {
        let mut output = CaptureOutput::create(&self.path(name)).unwrap();
        for (time, bytes) in packets {
            output.write(&bytes, bytes.len() as u32, time).unwrap();
        }
        output.flush().unwrap();
        self
    }

    /// The packets of a capture.
    pub fn packets(&self, name: &str) -> Vec<Vec<u8>> {
        read_capture(&self.path(name))
    }

    pub fn tags(&self, name: &str) -> Vec<Tag> {
        self.packets(name).iter().map(|bytes| Tag::of(bytes)).collect()
    }

    /// Loads `chain.toml`.
    pub fn load(&self) -> Result<Plan, Vec<SourceError>> {
        self.load_of(&kinds())
    }

    /// Loads `chain.toml`, which may have these kinds.
    pub fn load_of(&self, kinds: &Kinds) -> Result<Plan, Vec<SourceError>> {
        LEDGER.set(self.ledger.clone());
        Plan::load(&self.path("chain.toml"), kinds, PlanOptions::default())
    }

    /// Loads `chain.toml` with more lines before it.
    pub fn load_with(&self, lines: &str) -> Result<Plan, Vec<SourceError>> {
        let chain = std::fs::read_to_string(self.path("chain.toml")).unwrap();
        self.write("chain.toml", &format!("{lines}{chain}")).load()
    }

    /// The mistakes of `chain.toml`, with the folder's name taken out.
    pub fn mistakes(&self) -> Vec<String> {
        let folder = format!("{}/", self.dir.path().display());
        let mistakes = self.load().err().expect("the chain is wrong");
        mistakes.iter().map(|m| m.to_string().replace(&folder, "")).collect()
    }
}

pub fn read_capture(path: &Path) -> Vec<Vec<u8>> {
    let mut input = CaptureInput::open(path, 1).unwrap();
    let mut batch = Batch::new(Arc::new(Pool::anonymous(BATCH, 16 * 1024).unwrap()));
    let (mut packets, mut drops) = (Vec::new(), DropCounts::default());
    loop {
        let received = input.receive(&mut batch, BATCH, &mut drops).unwrap();
        packets.extend(batch.lanes().into_iter().map(|lane| batch.bytes(lane).to_vec()));
        batch.release(Lanes::ALL);
        if received.ended {
            assert_eq!(drops.total(), 0);
            return packets;
        }
    }
}
