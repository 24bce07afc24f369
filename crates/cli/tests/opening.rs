//! Ports that cannot be opened: each mistake names file, line and field.

#[path = "support/laboratory.rs"]
mod laboratory;
mod support;

use std::path::Path;

use laboratory::{can_use_xdp, folder, laboratory};
use serde_json::Value;
use support::{thalweg, write};
use thalweg_testkit::peer;

const WAY: &str = "[[route]]\npath = ['ingress', 'egress']\n";
const NO_OUTPUT: &str = "[output.o]\ndiscard = true\n";
const NO_INPUT: &str = "[input.i]\ngenerate = { packets = 10 }\n";

/// A chain that is refused: its name, its sections of ports, the wrong text with its line and column,
/// the message and what is expected.
struct Case {
    name: &'static str,
    ports: String,
    at: (usize, usize, &'static str),
    message: &'static str,
    expected: &'static str,
}

fn case(
    name: &'static str,
    ports: impl Into<String>,
    at: (usize, usize, &'static str),
    message: &'static str,
    expected: &'static str,
) -> Case {
    let ports = ports.into();
    let rest = if ports.contains("[input") {
        if ports.contains("[output") { "" } else { NO_OUTPUT }
    } else {
        NO_INPUT
    };
    Case { name, ports: format!("{ports}\n{rest}{WAY}"), at, message, expected }
}

/// Mistakes that the file shows: `check` finds them on any machine, and `run` before it opens a port.
fn of_the_file() -> Vec<Case> {
    [of_xdp(), of_other_kinds()].into_iter().flatten().collect()
}

fn of_xdp() -> Vec<Case> {
    let pair = |one: &str, other: &str| format!("[input.a]\nxdp = 'near'\n{one}\n{other}");
    vec![
        case(
            "frame_size",
            "[memory]\nframe_size = 1024\n[input.a]\nxdp = 'near'",
            (2, 14, "1024"),
            "XDP near, queue 0: frames of 1024 bytes are too small for AF_XDP",
            "frame_size = 2048 or more in [memory]",
        ),
        case(
            "ring_size",
            "[memory]\nframes = 4096\n[input.a]\nxdp = 'near'\nring_size = 2048",
            (5, 13, "2048"),
            "a receive ring of 2048 of 4096 frames leaves too few for packets under way",
            "a smaller ring_size, or frames = 8192 or more in [memory]",
        ),
        case(
            "frames",
            "[memory]\nframes = 512\n[output.a]\nxdp = 'near'",
            (2, 10, "512"),
            "a receive ring of 2048 of 512 frames leaves too few",
            "frames = 8192 or more in [memory]",
        ),
        case(
            "ordinary",
            "[input.a]\nxdp = 'near'\nmode = 'zero-copy'",
            (3, 8, "'zero-copy'"),
            "mode = \"zero-copy\" needs frames in huge pages",
            "huge_pages = true in [memory], or mode = \"copy\" or \"auto\"",
        ),
        case(
            "twice",
            pair("queue = 3", "[input.b]\nxdp = 'near'\nqueue = 3"),
            (6, 9, "3"),
            "XDP near, queue 3: input 'a' in line 1 has it",
            "one input and one output for each queue",
        ),
        case(
            "overlap",
            pair(
                "queues = 4\nring_size = 64",
                "[input.b]\nxdp = 'near'\nqueue = 3\nqueues = 2\nring_size = 64",
            ),
            (7, 9, "3"),
            "XDP near, queues 3 to 4: input 'a' in line 1 has it",
            "one input and one output for each queue",
        ),
        case(
            "rings",
            "[memory]\nframes = 16384\n[input.a]\nxdp = 'near'\nqueues = 4",
            (5, 10, "4"),
            "XDP near, queues 0 to 3: 4 receive rings with 8192 of 16384 frames leave too few",
            "fewer queues, a smaller ring_size, or frames = 32768 or more in [memory]",
        ),
        case(
            "options",
            pair("mode = 'copy'", "[output.o]\nxdp = 'near'\nmode = 'auto'"),
            (6, 8, "'auto'"),
            "XDP near, queue 0: 'mode' is not that of input 'a' in line 1, which has the same queue",
            "the same 'mode' in both",
        ),
        case(
            "default",
            pair("busy_poll_us = 50", "[output.o]\nxdp = 'near'"),
            (5, 7, "'near'"),
            "'busy_poll_us' is not that of input 'a' in line 1",
            "the same 'busy_poll_us' in both",
        ),
        case(
            "program",
            pair("pass = ['arp']", "[input.b]\nxdp = 'near'\nqueue = 1\npass = ['ssh']"),
            (7, 8, "['ssh']"),
            "XDP near, queue 1: 'pass' is not that of input 'a' in line 1, which has the same interface",
            "the same 'pass' in both",
        ),
    ]
}

fn of_other_kinds() -> Vec<Case> {
    vec![
        case(
            "memif-twice",
            "[input.a]\nmemif = 'x'\nrole = 'client'\n[input.b]\nmemif = 'x'\nrole = 'client'\nid = 0",
            (7, 6, "0"),
            "x: input 'a' in line 1 has it",
            "one input and one output for each connection",
        ),
        case(
            "memif-options",
            "[input.a]\nmemif = 'x'\nrole = 'client'\n[output.o]\nmemif = 'x'\nrole = 'client'\n\
             queues = 2",
            (7, 10, "2"),
            "'queues' is not that of input 'a' in line 1, which has the same connection",
            "the same 'queues' in both",
        ),
        case(
            "memif-frames",
            "[input.a]\nmemif = 'x'\nrole = 'client'\nzero_copy = true\n[memory]\nframes = 1024",
            (4, 13, "true"),
            "'zero_copy' needs 2048 frames for its rings and 256 besides, but there are 1024",
            "frames = 2304 in [memory], smaller rings, or fewer queues",
        ),
        case(
            "link",
            "[input.a]\nmemif = 'x'\nrole = 'client'\nlink = { latency_us = 5, queue = 0 }",
            (4, 34, "0"),
            "'queue' of 'link' is 0",
            "1 to 65536",
        ),
    ]
}

/// Whether the mistakes of a document are this one.
fn is_document_of(document: &Value, case: &Case) {
    let Case { name, at: (line, column, text), message, expected, .. } = case;
    let mistakes = document["mistakes"].as_array().unwrap_or_else(|| panic!("{name}: {document}"));
    let [mistake] = &mistakes[..] else { panic!("{name}: {document}") };
    assert_eq!(mistake["file"], format!("{name}.toml"));
    let at = [&mistake["line"], &mistake["column"]].map(|number| number.as_u64().unwrap());
    assert_eq!(at, [*line as u64, *column as u64], "{document}");
    assert_eq!(mistake["text"], *text, "{document}");
    assert!(mistake["message"].as_str().unwrap().contains(message), "{document}");
    assert!(mistake["expected"].as_str().unwrap().contains(expected), "{document}");
}

#[test]
fn mistakes_that_the_file_shows_are_found_before_a_port_is_opened() {
    let folder = folder(&[]);
    for case in of_the_file() {
        let file = format!("{}.toml", case.name);
        write(folder.path(), &file, &case.ports);
        let output = thalweg(folder.path(), &["check", "--any-interface", "--json", &file]);
        assert_eq!(output.status.code(), Some(78), "{}: {output:?}", case.name);
        is_document_of(&serde_json::from_slice(&output.stdout).unwrap(), &case);
    }
}

#[test]
fn an_input_and_an_output_with_the_same_options_share_a_queue() {
    let ports = "[input.a]\nxdp = 'near'\nmode = 'copy'\n[output.o]\nxdp = 'near'\nmode = 'copy'\n\
        [input.b]\nxdp = 'near'\nqueue = 1\n[input.c]\nxdp = 'far'\n";
    let folder = folder(&[("chain.toml", &format!("{ports}{WAY}"))]);
    support::succeeds(folder.path(), &["check", "--any-interface", "chain.toml"]);
}

/// What only the machine shows, with `tap = 'used'` and the socket `used.sock` in use by another run.
fn of_the_machine() -> Vec<Case> {
    let one = |key: &str, rest: &str| format!("[input.a]\n{key}\n{rest}");
    vec![
        case(
            "queue",
            one("xdp = 'near'", "queue = 7"),
            (3, 9, "7"),
            "interface near: it has no queue 7, or not in both directions",
            "one of its queues: ethtool -l near",
        ),
        case(
            "queues",
            one("xdp = 'near'", "queues = 2\nring_size = 64"),
            (3, 10, "2"),
            "interface near: it has no queue 1, or not in both directions",
            "one of its queues: ethtool -l near",
        ),
        case(
            "native",
            one("xdp = 'lo'", "mode = 'copy'"),
            (3, 8, "'copy'"),
            "interface lo: its driver has no XDP, which mode = \"copy\" needs",
            "mode = \"generic\" or \"auto\"",
        ),
        case(
            "forceless",
            one("xdp = 'needed'", "force = false"),
            (3, 9, "false"),
            "interface needed: it has the host's default route",
            "force = true to take it nevertheless",
        ),
        case(
            "sends",
            "[output.o]\ninterface = 'needed'",
            (2, 13, "'needed'"),
            "interface needed: it has the host's default route",
            "force = true to take it nevertheless",
        ),
        case(
            "veth",
            one("tap = 'near'", ""),
            (2, 7, "'near'"),
            "there is an interface of this name that is no TAP device",
            "the name of a TAP device",
        ),
        case(
            "used-tap",
            one("tap = 'used'", ""),
            (2, 7, "'used'"),
            "interface used: cannot open the TAP device: Device or resource busy",
            "a device that no other program has",
        ),
        case(
            "used-socket",
            one("memif = 'used.sock'", "role = 'server'"),
            (2, 9, "'used.sock'"),
            "cannot listen there: Address already in use",
            "a socket on which no other program listens",
        ),
        case(
            "no-folder",
            one("memif = 'nowhere/x.sock'", "role = 'server'"),
            (2, 9, "'nowhere/x.sock'"),
            "cannot listen there: No such file or directory",
            "a socket in a folder that exists",
        ),
        case(
            "link-queue",
            one("memif = 'l.sock'", "role = 'client'\nlink = { queue = 65536 }"),
            (4, 18, "65536"),
            "'queue' of 'link' takes 65536 frames, but there are",
            "in [memory], or a shorter queue",
        ),
    ]
}

/// What `setpriv` permits to a run of another user, and the refusals of such runs.
fn of_the_user() -> Vec<(&'static str, Case)> {
    let xdp = "[input.a]\nxdp = 'near'";
    vec![
        (
            "net_admin,net_raw",
            case(
                "no-bpf",
                xdp,
                (2, 7, "'near'"),
                "interface near: cannot make a map of sockets: Operation not permitted",
                "the capabilities CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF and CAP_PERFMON",
            ),
        ),
        (
            "net_admin,net_raw,bpf,perfmon",
            case(
                "locked",
                xdp,
                (2, 7, "'near'"),
                "interface near: the system does not permit to lock",
                "a higher limit (ulimit -l), or to run as root or with the capability CAP_IPC_LOCK",
            ),
        ),
        (
            "net_admin",
            case(
                "no-raw",
                "[input.a]\ninterface = 'near'",
                (2, 13, "'near'"),
                "cannot open a packet socket: Operation not permitted",
                "to run as root or with the capability CAP_NET_RAW",
            ),
        ),
        (
            "net_raw",
            case(
                "no-admin",
                "[input.a]\ntap = 'new0'",
                (2, 7, "'new0'"),
                "interface new0: cannot open the TAP device: Operation not permitted",
                "to run as root or with the capability CAP_NET_ADMIN",
            ),
        ),
    ]
}

/// Checks what a run printed that could not open a port: the mistake with the lines around it, and one
/// line as JSON.
fn is_refused_as(folder: &Path, case: &Case) {
    let Case { name, at: (line, column, text), message, expected, .. } = case;
    let read = |ending: &str| std::fs::read_to_string(folder.join(name).with_extension(ending));
    let shown = read("err").unwrap();
    let place = format!("{name}.toml:{line}:{column}: ");
    let start = shown.find(&place).unwrap_or_else(|| panic!("{name}: {shown}"));
    let all: String = shown[start..].split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [message, expected, text] {
        assert!(all.contains(part), "{name}: {part}: {shown}");
    }
    assert!(shown.contains("nothing was started"), "{shown}");
    let document: Value = serde_json::from_str(&read("json").unwrap()).unwrap();
    // What the check of the file finds has a document of its own.
    let one_line = document["message"].as_str().map_or_else(
        || {
            let mistake = &document["mistakes"][0];
            let text = |key: &str| mistake[key].as_str().unwrap().to_owned();
            format!(
                "{}:{}:{}: {} {}",
                text("file"),
                mistake["line"],
                mistake["column"],
                text("message"),
                text("expected")
            )
        },
        ToOwned::to_owned,
    );
    assert!(one_line.contains(&place) && one_line.contains(message), "{document}");
    assert!(one_line.contains(expected), "{document}");
}

/// Runs a chain twice: for its messages, and for its document.
const TRY: &str = "try() { local name=$1; shift\n\
    \"$@\" $THALWEG run $name.toml --duration 1ms --no-control > $name.out 2> $name.err && exit 3\n\
    echo $name $?\n\
    \"$@\" $THALWEG run $name.toml --duration 1ms --no-control --json > $name.json 2> /dev/null && exit 3\n\
    echo $name $?\n}\n";

/// Interfaces, and a run that has a TAP device and the socket of a memif.
const NETWORK: &str = "ip link add near type veth peer name far\n\
    ip link set near up\nip link set far up\n\
    ip link add needed type veth peer name other\nip link set needed up\nip link set other up\n\
    ip addr add 192.0.2.1/24 dev needed\nip route add default via 192.0.2.2\n";

fn files(cases: &[&Case]) -> Vec<(String, String)> {
    cases.iter().map(|case| (format!("{}.toml", case.name), case.ports.clone())).collect()
}

#[test]
fn what_the_machine_refuses_names_file_line_and_field() {
    if !can_use_xdp() {
        return;
    }
    let cases = of_the_machine();
    let folder = folder(&[]);
    for (name, text) in files(&cases.iter().collect::<Vec<_>>()) {
        write(folder.path(), &name, &text);
    }
    let held = format!(
        "[input.a]\ntap = 'used'\n[input.b]\nmemif = 'used.sock'\nrole = 'server'\n{NO_OUTPUT}{WAY}"
    );
    write(folder.path(), "held.toml", &held);
    let tries: Vec<_> = cases.iter().map(|case| format!("try {}\n", case.name)).collect();
    let tries = tries.concat();
    let script = format!(
        "{TRY}{NETWORK}$THALWEG run held.toml --no-control > /dev/null 2>&1 & held=$!\n\
         for _ in $(seq 100); do [ -S used.sock ] && ip link show used > /dev/null 2>&1 && break; sleep 0.05; done\n\
         {tries}kill -INT $held\nwait $held\n"
    );
    let Some(printed) = laboratory(folder.path(), &script) else { return };
    let expected: Vec<_> = cases.iter().map(|case| format!("{0} 1\n{0} 1\n", case.name)).collect();
    assert_eq!(printed, expected.concat());
    cases.iter().for_each(|case| is_refused_as(folder.path(), case));
}

#[test]
fn what_a_user_may_not_do_names_file_line_and_field() {
    if !can_use_xdp() {
        return;
    }
    let cases = of_the_user();
    let folder = folder(&[]);
    for (name, text) in files(&cases.iter().map(|(_, case)| case).collect::<Vec<_>>()) {
        write(folder.path(), &name, &text);
    }
    let tries: Vec<_> = cases
        .iter()
        .map(|(capabilities, case)| {
            let all: Vec<_> = capabilities.split(',').map(|name| format!("+{name}")).collect();
            let all = all.join(",");
            format!(
                "try {} setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all,{all} \
                 --ambient-caps=-all,{all} --bounding-set=-all,{all}\n",
                case.name
            )
        })
        .collect();
    let tries = tries.concat();
    // The folder is the user's, who can reach the program only by a copy there.
    let script = format!(
        "cp $THALWEG ./thalweg\nTHALWEG=$PWD/thalweg\nchmod 755 . thalweg\nchmod 644 *.toml\n\
         setpriv --reuid=65534 --regid=65534 --clear-groups ./thalweg --version > /dev/null || \
         {{ echo no setpriv; exit 0; }}\n\
         {TRY}{NETWORK}ulimit -l 64\n{tries}"
    );
    let Some(printed) = laboratory(folder.path(), &script) else { return };
    if printed == "no setpriv\n" {
        peer::missing("setpriv(1), and a path to the folder of the test");
        return;
    }
    // The packet socket is opened by the check of the file.
    let code = |case: &Case| if case.name == "no-raw" { 78 } else { 1 };
    let expected: Vec<_> = cases
        .iter()
        .map(|(_, case)| format!("{0} {1}\n{0} {1}\n", case.name, code(case)))
        .collect();
    assert_eq!(printed, expected.concat());
    cases.iter().for_each(|(_, case)| is_refused_as(folder.path(), case));
}

/// Without free huge pages their number is named; with them, that the driver of a veth does not do it.
#[test]
fn zero_copy_names_the_huge_pages_that_are_missing_or_the_driver() {
    if !can_use_xdp() {
        return;
    }
    let many = "[memory]\nhuge_pages = true\nframes = 1048576\n[input.a]\nxdp = 'near'\n\
        mode = 'zero-copy'";
    let few = "[memory]\nhuge_pages = true\nframes = 512\nframe_size = 2048\n[input.a]\nxdp = 'near'\n\
        ring_size = 64\nmode = 'zero-copy'";
    let at = |line| (line, 8, "'zero-copy'");
    let needs = "mode = \"zero-copy\" needs frames in huge pages, of which the system has too few";
    let missing = case("missing", many, at(6), needs, "free huge pages: sysctl vm.nr_hugepages=");
    let driver = case(
        "driver",
        few,
        at(8),
        "interface near: mode = \"zero-copy\" is not available",
        "mode = \"copy\" or \"auto\", which do without",
    );
    let folder = folder(&[]);
    for (name, text) in files(&[&missing, &driver]) {
        write(folder.path(), &name, &text);
    }
    let script = format!("{TRY}{NETWORK}try missing\ntry driver\n");
    let Some(printed) = laboratory(folder.path(), &script) else { return };
    let code = |name: &str| if printed.contains(&format!("{name} 78\n")) { 78 } else { 1 };
    assert_eq!(code("missing"), 78, "{printed}");
    is_refused_as(folder.path(), &missing);
    if code("driver") == 1 {
        is_refused_as(folder.path(), &driver);
    } else {
        // Without a free huge page, the driver is not reached. They were requested, and that is not what is missing.
        let few = Case { at: at(8), message: needs, expected: "sysctl vm.nr_hugepages=", ..driver };
        is_refused_as(folder.path(), &few);
    }
}

/// A run prints how packets pass, without a report as JSON.
#[test]
fn a_run_prints_the_mode_that_each_live_port_has_obtained() {
    if !can_use_xdp() {
        return;
    }
    let chain = format!("[input.a]\nxdp = 'near'\n[output.o]\ninterface = 'far'\n{WAY}");
    let folder = folder(&[("chain.toml", &chain)]);
    let script = format!(
        "{NETWORK}$THALWEG -v run chain.toml --duration 50ms --no-control > report 2> log\n"
    );
    let Some(_) = laboratory(folder.path(), &script) else { return };
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    let (report, log) = (read("report"), read("log"));
    assert!(report.contains("mode of input a: AF_XDP, copy, rings with 2048 slots"), "{report}");
    assert!(report.contains("mode of output o: "), "{report}");
    assert!(log.contains("info: input a: XDP near, queue 0: AF_XDP, copy, rings"), "{log}");
}
