//! The memory of packets and the cores of threads, as a chain file has them.

mod common;
#[path = "common/whole.rs"]
mod whole;

#[cfg(target_os = "linux")]
use std::sync::Arc;

#[cfg(target_os = "linux")]
use common::kinds;
#[cfg(target_os = "linux")]
use thalweg_nf::device::{DeviceLine, DeviceShare, Devices, Named};
#[cfg(target_os = "linux")]
use thalweg_packet::{MemoryKind, PacketMemory, Pool};
#[cfg(target_os = "linux")]
use thalweg_testkit::odd_device::Odd;
use whole::{CHAIN, broken, folder};

#[test]
fn frames_shorter_than_an_nf_needs_are_told() {
    let chain = CHAIN.replace("kind = \"test\"\nnumber = 0", "kind = \"defrag\"");
    let warnings = |chain: &str| {
        let warnings = folder(chain).load().unwrap().warnings();
        warnings.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(warnings(&chain), Vec::<String>::new());
    assert_eq!(warnings(&format!("{chain}[memory]\nframe_size = 10496\n")), Vec::<String>::new());
    let warnings = warnings(&format!("{chain}[memory]\nframe_size = 2048\n"));
    let [warning] = &warnings[..] else { panic!("{warnings:?}") };
    assert!(
        warning.ends_with(
            "chain.toml:13:14: frames may be too small for packets of NF 'a': '2048'; \
             expected 10496 bytes, the default for this chain"
        ),
        "{warning}"
    );
}

/// Enough for packets under way beside those that ports keep; a number that the file sets stays.
#[test]
#[cfg(target_os = "linux")]
fn there_are_as_many_frames_as_ports_need() {
    let capture = "capture = \"in.pcap\"";
    let frames = |port: &str, memory: &str| {
        let chain = CHAIN.replace(capture, port) + memory;
        folder(&chain).load().unwrap().pool.frames()
    };
    let memif = |peer: &str, more: &str| {
        format!("memif = \"@{peer}\"\nrole = \"client\"\nzero_copy = true\n{more}")
    };
    let two = |more: &str| format!("{}\n[input.b]\n{}", memif("a", more), memif("b", more));
    for (port, expected) in [
        (capture.to_owned(), 8192),
        (memif("a", ""), 8192),
        (memif("a", "").replace("true", "false"), 8192),
        (two(""), 8192),
        (memif("a", "queues = 2"), 16_384),
        (two("queues = 2"), 16_384),
        (format!("{}\n[input.c]\n{}", two("queues = 2"), memif("c", "queues = 2")), 24_576),
        (memif("a", "queues = 4\nring_size = 12"), 131_072),
    ] {
        assert_eq!(frames(&port, ""), expected, "{port}");
        assert_eq!(frames(&port, "[memory]\nframes = 300000\n"), 300_000);
    }
}

#[test]
#[cfg(target_os = "linux")]
fn memory_is_shared_with_a_peer_of_a_client_that_wants_it() {
    let capture = "capture = \"in.pcap\"";
    let port = |role| format!("memif = \"@peer\"\nrole = \"{role}\"\nzero_copy = true");
    let mistakes = broken(capture, &port("server"));
    assert!(mistakes[0].contains("a server copies packets"), "{mistakes:?}");
    let mistakes = broken(capture, &format!("{}\nbuffer_size = 2048", port("client")));
    assert!(mistakes[0].contains("'buffer_size' does not apply with 'zero_copy'"), "{mistakes:?}");
    for (port, shared) in [(port("client"), true), (port("client").replace("true", "false"), false)]
    {
        let chain = format!("{CHAIN}[memory]\nhuge_pages = {shared}\n");
        let plan = folder(&chain.replace(capture, &port)).load().unwrap();
        assert_eq!(plan.pool.memory().file().is_some(), shared);
        let warns = plan.warnings().iter().any(|w| w.to_string().contains("cannot be shared"));
        assert_eq!(warns, shared, "huge pages are passed over with a note");
    }
}

/// A device that shares what it has allocated, or any memory as well.
#[cfg(target_os = "linux")]
#[derive(Debug)]
struct Sharing {
    all: bool,
}

#[cfg(target_os = "linux")]
impl Devices for Sharing {
    fn allocate(&self, _: Named<'_>, len: usize) -> Result<PacketMemory, String> {
        PacketMemory::anonymous(len).map_err(|e| e.to_string())
    }

    fn adopt(&self, at: Named<'_>, memory: PacketMemory) -> Result<PacketMemory, String> {
        if self.all { Ok(memory) } else { Odd::default().adopt(at, memory) }
    }

    fn start(
        &self,
        _: Named<'_>,
        _: Vec<DeviceShare>,
        _: &Arc<Pool>,
    ) -> Result<Vec<Vec<Box<dyn DeviceLine>>>, String> {
        Err("no chain is started".into())
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_device_takes_over_memory_of_a_peer_or_is_refused_with_its_reason() {
    let capture = "capture = \"in.pcap\"";
    let client = "memif = \"@peer\"\nrole = \"client\"\nzero_copy = true";
    let load = |port: &str, more: &str, all: bool| {
        let chain = format!("{CHAIN}[memory]\ndevice = \"odd\"\n{more}").replace(capture, port);
        folder(&chain).load_of(&kinds().with_devices(Arc::new(Sharing { all })))
    };
    assert!(load(client, "", true).unwrap().pool.memory().file().is_some());
    let mistakes = load(client, "", false).err().expect("it is refused");
    assert_eq!(mistakes.len(), 1, "{mistakes:?}");
    let mistake = mistakes[0].to_string();
    for part in [
        "chain.toml:",
        "packet memory that a peer of memif maps: 'odd' shares only memory that it has allocated",
        "expected no 'zero_copy' in memif ports, or NFs on another device",
    ] {
        assert!(mistake.contains(part), "{part}: {mistake}");
    }
    // Huge pages are there or not; without them, each is a note.
    for all in [true, false] {
        let plan = load(capture, "huge_pages = true\n", all).unwrap();
        let has = plan.pool.memory().kind() == MemoryKind::HugePages;
        let notes: Vec<_> = plan.warnings().iter().map(ToString::to_string).collect();
        let is_named = notes.iter().any(|note| note.contains("huge"));
        assert!(all || !has, "{notes:?}");
        assert_eq!(is_named, !has, "{notes:?}");
    }
}

#[test]
fn cores_that_are_no_cores_or_not_here() {
    let lines = "[input.in]";
    let run = |cores: &str| broken(lines, &format!("[run]\ncores = {cores}\n{lines}"));
    let list = "numbers and ranges of cores, such as \"2-3,8\" or [2, 3, \"8-11\"]";
    assert_eq!(
        run("[0, \"x\", -1]"),
        [
            format!("chain.toml:4:13: bad list of cores: '\"x\"'; expected {list}"),
            format!("chain.toml:4:18: bad list of cores: '-1'; expected {list}"),
        ]
    );
    assert_eq!(run("\"3-1\"").len(), 1);
    assert!(
        run("\"0-1023\"")[0].contains("more than 256 cores: '\"0-1023\"'; expected at most one")
    );
    assert!(run("[]")[0].contains("0 cores for 1 worker: '[]'; expected 1, one for each worker"));
    assert!(run("2.5")[0].contains("expected [run] with: workers, cores, "));
    let here = thalweg_cpu::cores::permitted();
    let expected =
        format!("expected cores of {}, which it may use", thalweg_cpu::cores::as_text(here));
    assert_eq!(
        run("1023"),
        [format!("chain.toml:4:9: this machine has no core 1023: '1023'; {expected}")]
    );
    let nf = |lines: &str| broken("number = 0", &format!("number = 0\n{lines}"));
    assert_eq!(
        nf("core = 0"),
        ["chain.toml:13:1: 'core' is for an NF with a thread of its own: 'core'; \
          expected pinned = true, too"]
    );
    for wrong in ["-1", "1024", "\"1\"", "1.0"] {
        let mistakes = nf(&format!("pinned = true\ncore = {wrong}"));
        assert_eq!(mistakes.len(), 1);
        assert!(mistakes[0].starts_with("chain.toml:14:8: 'core' is not the number of a core"));
    }
    assert_eq!(
        nf("pinned = true\ncore = 1023"),
        [format!("chain.toml:14:8: this machine has no core 1023: '1023'; {expected}")]
    );
}

#[test]
fn threads_that_share_a_core_are_warned_of() {
    let core = thalweg_cpu::cores::permitted()[0];
    let chain = CHAIN
        .replace(
            "[input.in]",
            &format!("[run]\nworkers = \"auto\"\ncores = [{core}, {core}]\n[input.in]"),
        )
        .replace("number = 0", &format!("number = 0\npinned = true\ncore = {core}"));
    let plan = folder(&chain).load().unwrap();
    assert_eq!((plan.workers, &*plan.cores, plan.nfs[0].core), (2, &[core, core][..], Some(core)));
    let warnings: Vec<_> = plan.warnings().iter().map(ToString::to_string).collect();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings[0].contains(&format!("worker 0 and worker 1 share core {core}")));
    assert!(warnings[1].contains(&format!("worker 0 and NF 'a' share core {core}")));
    let tree = plan.graph().to_tree();
    assert!(tree.contains(&format!("2 workers on cores {core},{core}\n")), "{tree}");
    assert!(tree.contains(&format!("on its own worker on core {core}")), "{tree}");
    let unused = folder(&chain.replace("\"auto\"", "1")).load().unwrap();
    assert!(unused.warnings()[0].to_string().contains("2 cores for 1 worker"));
}
