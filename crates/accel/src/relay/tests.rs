use std::sync::Mutex;

use thalweg_packet::{Frame, PacketMemory, Pool};

use super::*;
use crate::error::Fault;
use crate::reflect::REFLECT;
use crate::region::Shape;
use crate::syncer::{Job, Syncer};

const LANES: usize = 4;
/// Bytes of packets in a launch.
const BYTES: usize = 600;

/// What launches of a test are to do, and have done.
#[derive(Default)]
struct Scene {
    /// How many of those that have departed are over, and how that ended.
    over: usize,
    fails: bool,
    /// By departure: rows, and the lengths of packets.
    departed: Vec<(usize, Vec<u32>)>,
}

type Shared = Arc<Mutex<Scene>>;

/// A launch that returns the length of each packet.
struct Scripted {
    scene: Shared,
    rows: usize,
    lens: Vec<[u32; LANES]>,
    /// Its number among those that have departed.
    number: Option<usize>,
}

impl Flight for Scripted {
    fn lay_out(&mut self, rows: usize) {
        assert!(self.is_over().is_some());
        (self.rows, self.lens, self.number) = (rows, vec![[0; LANES]; rows], None);
    }

    fn head(&mut self, _: usize, _: usize, _: (usize, usize)) {}

    fn put(&mut self, row: usize, lane: usize, request: Option<Request>, _: bool) {
        self.lens[row][lane] = request.map_or(0, |request| request.len);
    }

    fn depart(&mut self) -> Result<(), String> {
        let departed = &mut self.scene.lock().unwrap().departed;
        self.number = Some(departed.len());
        let lens = self.lens.as_flattened().iter().copied().filter(|len| *len > 0);
        departed.push((self.rows, lens.collect()));
        Ok(())
    }

    fn is_over(&self) -> Option<Result<(), String>> {
        let Some(number) = self.number else { return Some(Ok(())) };
        let scene = self.scene.lock().unwrap();
        let ended = if scene.fails { Err("it burns".into()) } else { Ok(()) };
        (number < scene.over).then_some(ended)
    }

    fn land(&mut self) {}

    fn result(&self, row: usize, lane: usize) -> [u32; 2] {
        [self.lens[row][lane], row as u32]
    }
}

struct Test {
    scene: Shared,
    pool: Arc<Pool>,
    relaying: Box<dyn Resident>,
    syncers: Vec<Syncer<usize>>,
}

impl Test {
    /// A relay for this number of work-groups, each with a syncer.
    fn new(work_groups: usize) -> Self {
        let shape = Shape { work_groups, lanes: LANES, rows: 64 };
        let len = Region::len_for(shape, &[&[]]).unwrap();
        let memory = PacketMemory::anonymous(len).unwrap();
        let region = Arc::new(Region::new(memory, shape, &vec![0; work_groups], &[&[]]).unwrap());
        let pool = Arc::new(Pool::anonymous(1024, 512).unwrap());
        let syncer = |group| {
            let patience = Duration::from_millis(200);
            Syncer::new(region.clone(), pool.clone(), vec![(vec![group], None)], patience)
        };
        let syncers = (0..work_groups).map(syncer).collect();
        let scene = Shared::default();
        let flight = |_| Scripted { scene: scene.clone(), rows: 0, lens: Vec::new(), number: None };
        let flights = (0..2).map(flight).collect();
        let limits = Limits { lanes: LANES, rows: 8, bytes: BYTES };
        let launch = Launch { region, pool: pool.clone(), functions: vec![REFLECT] };
        let relaying = start("a device", launch, (limits, true), flights).unwrap();
        Self { scene, pool, relaying, syncers }
    }

    /// Submits packets of this length.
    fn submit(&mut self, syncer: usize, packets: usize, len: usize) {
        for tag in 0..packets {
            let frame = self.pool.take().unwrap();
            let job = Job { frame, bytes: 0..len, argument: [0; 2], tag };
            self.syncers[syncer].submit(0, job).unwrap();
        }
    }

    /// Waits until this number of launches has departed.
    fn departed(&self, number: usize) -> Vec<(usize, Vec<u32>)> {
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            let departed = self.scene.lock().unwrap().departed.clone();
            if departed.len() >= number {
                return departed;
            }
            assert!(Instant::now() < until, "{departed:?}");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Takes packets back until none is under way; returns their results.
    fn collect(&mut self, syncer: usize) -> Vec<(usize, u32)> {
        let mut back = Vec::new();
        while self.syncers[syncer].under_way() > 0 {
            let each = |done: crate::syncer::Done<usize>| {
                back.push((done.tag, done.result[0]));
                self.pool.give_back([done.frame]);
            };
            self.syncers[syncer].poll(each).unwrap();
            thread::yield_now();
        }
        back
    }

    fn fault(&mut self) -> Fault {
        loop {
            match self.syncers[0].poll(|_| panic!("a packet is back")) {
                Ok(_) => thread::sleep(Duration::from_millis(1)),
                Err(fault) => return fault,
            }
        }
    }
}

#[test]
fn rows_of_several_work_groups_share_a_launch_and_get_their_own_results() {
    let mut test = Test::new(2);
    // The first launch has what there is; the others wait for it, or for enough rows.
    test.submit(0, LANES, 10);
    assert_eq!(test.departed(1), [(1, vec![10; LANES])]);
    test.submit(0, LANES, 20);
    test.submit(1, 2 * LANES, 30);
    thread::sleep(Duration::from_millis(20));
    assert_eq!(test.departed(1).len(), 1, "three rows are not enough beside another launch");
    test.submit(1, LANES, 31);
    let second = test.departed(2).remove(1);
    assert_eq!(second.0, 4, "{second:?}");
    let mut lens = second.1;
    lens.sort_unstable();
    assert_eq!(lens, [[20; LANES], [30; LANES], [30; LANES], [31; LANES]].concat());
    // Later ones count only when earlier ones do.
    test.scene.lock().unwrap().over = 2;
    let of_first = test.collect(0);
    let tags: Vec<_> = (0..LANES).chain(0..LANES).collect();
    assert_eq!(of_first.iter().map(|(tag, _)| *tag).collect::<Vec<_>>(), tags);
    assert!(of_first.iter().map(|(_, len)| *len).eq([[10; LANES], [20; LANES]].concat()));
    let lens = test.collect(1).into_iter().map(|(_, len)| len).collect::<Vec<_>>();
    assert_eq!(lens, [[30; LANES], [30; LANES], [31; LANES]].concat());
    assert_eq!(test.relaying.figures().unwrap().of(0), (2, 2 * 4 * (10 + 20 + 30 + 30 + 31)));
    assert!(test.relaying.stop(Duration::from_secs(20)));
    assert_eq!(test.pool.in_use(), 0);
}

#[test]
fn a_launch_takes_as_many_rows_as_fit_of_each_work_group_in_turn() {
    let mut test = Test::new(2);
    // A first launch, so that the others wait meanwhile.
    test.submit(0, LANES, 1);
    test.departed(1);
    // Rows of 40 and of 400 bytes: 600 fit.
    test.submit(0, 12 * LANES, 10);
    test.submit(1, 2 * LANES, 100);
    test.departed(2);
    test.scene.lock().unwrap().over = usize::MAX;
    assert_eq!(test.collect(0).len() + test.collect(1).len(), 15 * LANES);
    let departed = test.departed(3);
    for (rows, lens) in &departed {
        let copied: u32 = lens.iter().map(|len| len.next_multiple_of(4)).sum();
        assert!(*rows <= 8 && copied as usize <= BYTES, "{departed:?}");
    }
    assert_eq!(departed.iter().map(|(rows, _)| rows).sum::<usize>(), 15, "{departed:?}");
    assert!(test.relaying.stop(Duration::from_secs(20)));
    assert_eq!(test.pool.in_use(), 0);
}

#[test]
fn a_launch_that_fails_ends_all_work_groups_when_no_other_is_under_way() {
    let mut test = Test::new(1);
    test.submit(0, LANES, 10);
    test.departed(1);
    test.submit(0, ENOUGH * LANES, 10);
    test.departed(2);
    {
        let mut scene = test.scene.lock().unwrap();
        (scene.fails, scene.over) = (true, 1);
    }
    thread::sleep(Duration::from_millis(20));
    let region = test.syncers[0].poll(|_| panic!("a packet is back"));
    assert_eq!(region, Ok(0), "the other launch may still write");
    test.scene.lock().unwrap().over = 2;
    assert_eq!(test.fault(), Fault::Ended { work_group: 0 });
    let why = test.relaying.failure().expect("it names the error of the launch");
    assert!(why.starts_with("a launch: "), "{why}");
    let pool = test.pool.clone();
    let syncer = test.syncers.remove(0);
    syncer.abandon(|_, frame: Option<Frame>| pool.give_back(frame));
    assert_eq!(pool.in_use(), 0, "no launch can write to the packets any more");
    assert!(test.relaying.stop(Duration::from_secs(20)));
}

#[test]
fn a_launch_that_does_not_come_back_keeps_its_frames_and_hinders_no_end() {
    let mut test = Test::new(1);
    test.submit(0, LANES, 10);
    test.departed(1);
    assert!(matches!(test.fault(), Fault::Stalled { work_group: 0, .. }));
    let mut lost = Vec::new();
    test.syncers.remove(0).abandon(|_, frame: Option<Frame>| lost.push(frame));
    assert_eq!(lost, [const { None }; LANES], "the launch may still write to them");
    assert!(!test.relaying.stop(Duration::from_millis(50)));
    test.scene.lock().unwrap().over = 1;
    assert!(test.relaying.stop(Duration::from_secs(20)));
    assert_eq!(test.pool.in_use(), LANES);
}
