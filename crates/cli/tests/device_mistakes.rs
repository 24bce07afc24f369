//! Devices that are not there, lack something, or have too little room: what a user reads about that, and where.

#[path = "support/controlled.rs"]
mod controlled;
#[path = "support/places.rs"]
mod places;
mod support;
#[path = "support/tunnels.rs"]
mod tunnels;

use std::fs;
use std::path::Path;
use std::process::Output;

use controlled::Controlled;
use places::places;
use serde_json::Value;
use support::{command, generate, succeeds, thalweg, wait, write};
use thalweg_accel::devices;
use thalweg_testkit::peer;
use tunnels::{back_and_forth, key, sealing};

/// A folder with a capture.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    generate(folder.path(), "clear.pcap --packets 10");
    folder
}

/// What a program that must fail with `code` prints, in one line.
#[track_caller]
fn error(output: &Output, code: i32) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{text}");
    // Long messages continue in further lines.
    text.split_whitespace().filter(|word| *word != "│").collect::<Vec<_>>().join(" ")
}

/// The lines about a chain that `thalweg check` refuses.
#[track_caller]
fn refused(folder: &Path, chain: &str) -> String {
    write(folder, "chain.toml", chain);
    error(&thalweg(folder, &["check", "chain.toml"]), 78)
}

#[test]
fn what_cannot_run_on_a_device_is_named_with_its_place() {
    let folder = folder();
    let f = folder.path();
    let _turn = places();
    // In these chains, 'at' is in line 10, and the next key in line 11.
    for (keys, place, expected) in [
        ("at = 'vax'\n", "10:6", "'at' of NF 'vpn': unknown device 'vax'"),
        ("at = 'opencl:99'\n", "10:6", "'at' of NF 'vpn': there is no OpenCL device 99"),
        ("at = 'opencl:x'\n", "10:6", "'at' of NF 'vpn': unknown device 'opencl:x'"),
        ("at = 'soft:1'\n", "10:6", "'at' of NF 'vpn': unknown device 'soft:1'"),
        ("at = 'GPU'\n", "10:6", "'at' of NF 'vpn': unknown device 'GPU'"),
        ("at = ''\n", "10:6", "'at' of NF 'vpn': unknown device ''"),
        ("at = 'gpu:-1'\n", "10:6", "'at' of NF 'vpn': unknown device 'gpu:-1'"),
        ("at = 'gpu:99'\n", "10:6", "'at' of NF 'vpn': "),
        ("at = 'cuda:99'\n", "10:6", "'at' of NF 'vpn': "),
        ("at = 7\n", "10:6", "'at' is not a name"),
        ("at = 'soft'\nwork_groups = 0\n", "11:15", "'work_groups' is out of range"),
        ("at = 'soft'\nwork_groups = -1\n", "11:15", "'work_groups' is out of range"),
        ("at = 'soft'\nwork_groups = '4'\n", "11:15", "'work_groups' is of type string"),
        ("at = 'soft'\nwork_groups = 1.5\n", "11:15", "'work_groups' is of type float"),
        ("at = 'soft'\nfallback = 'gpu'\n", "11:12", "unknown value of 'fallback'"),
        ("work_groups = 2\n", "10:1", "'work_groups' is for an NF on a device"),
        ("at = 'soft'\nfailed_after_ms = 0\n", "11:19", "'failed_after_ms' is out of range"),
    ] {
        let error = refused(f, &sealing(keys));
        assert!(error.contains(&format!("chain.toml:{place}: {expected}")), "{keys}: {error}");
        assert!(error.contains("error: 1 mistake in 1 file"), "{keys}: {error}");
    }
    let error = refused(f, &sealing("at = 'gpu:x'\n"));
    assert!(error.contains("expected \"cpu\", or soft, gpu, gpu:1, or a name that"), "{error}");
    let error = refused(f, &format!("[memory]\ndevice = 'vax'\n{}", sealing("")));
    let expected = "chain.toml:2:10: 'device' of [memory]: unknown device 'vax'";
    assert!(error.contains(expected), "{error}");
    let error = refused(
        f,
        &sealing("at = 'soft'\n").replace("'vpn', 'out'", "'vpn', 'f', 'out'").replace(
            "[nf.vpn]",
            "[nf.f]\nkind = 'filter'\nrules = ['allow any']\nat = 'soft'\n[nf.vpn]",
        ),
    );
    assert!(error.contains("an NF of kind 'filter' cannot run on a device"), "{error}");
    let gcm = "[input.in]\ncapture = 'clear.pcap'\n[output.out]\ndiscard = true\n\
               [nf.vpn]\nkind = 'ipsec'\nat = 'soft'\n[[route]]\npath = ['ingress', 'vpn', 'out']\n";
    let error = refused(f, gcm);
    let expected = "chain.toml:7:6: a device can do nothing for NF 'vpn'";
    assert!(error.contains(expected), "{error}");
}

#[test]
fn a_misspelt_key_comes_with_those_of_devices() {
    let folder = folder();
    for key in ["fallbak = 'cpu'", "workgroups = 2"] {
        let error = refused(folder.path(), &sealing(&format!("at = 'soft'\n{key}\n")));
        assert!(error.contains("chain.toml:11:1: unknown field `"), "{error}");
        let expected = "the options of NF 'vpn'; or kind, pinned, core, on_overload, \
                        overload_after_ms, at, work_groups, fallback, failed_after_ms";
        assert!(error.contains(expected), "{error}");
    }
    let chain = "[input.in]\ncapture = 'clear.pcap'\n[output.out]\ndiscard = true\n\
                 [nf.f]\nkind = 'filter'\nrules = ['allow any']\nfallback = 'cpu'\n\
                 [[route]]\npath = ['ingress', 'f', 'out']\n";
    let error = refused(folder.path(), chain);
    assert!(!error.contains("work_groups"), "this kind has no such keys: {error}");
}

/// What `thalweg check` prints about a chain at `gpu`, and `thalweg devices` about OpenCL, where a variable
/// of the environment hides what this machine has.
#[track_caller]
fn hidden(folder: &Path, variable: &str, value: &Path) -> [String; 2] {
    write(folder, "chain.toml", &sealing("at = 'opencl:0'\n"));
    let run =
        |arguments: &[&str]| command(folder, arguments).env(variable, value).output().unwrap();
    let refused = error(&run(&["check", "chain.toml"]), 78);
    assert!(refused.contains("chain.toml:10:6: 'at' of NF 'vpn': "), "{refused}");
    let list = run(&["devices"]);
    assert!(list.status.success());
    let list = String::from_utf8(list.stdout).unwrap();
    let why = list.lines().find_map(|line| line.strip_prefix("no OpenCL devices: "));
    [refused, why.unwrap_or_else(|| panic!("one line: {list}")).to_owned()]
}

#[test]
fn without_opencl_one_line_names_what_is_missing() {
    let folder = folder();
    let f = folder.path();
    let remedy = "install the driver of your GPU, or ocl-icd-libopencl1 and pocl-opencl-icd for the processor";
    // What the system finds first is no library.
    let libraries = f.join("libraries");
    fs::create_dir(&libraries).unwrap();
    write(&libraries, "libOpenCL.so.1", "no library");
    for why in hidden(f, "LD_LIBRARY_PATH", &libraries) {
        assert!(why.contains(&format!("libOpenCL.so.1 is not there; {remedy}")), "{why}");
    }
    for why in hidden(f, "OPENCL_DYLIB_PATH", &f.join("none.so")) {
        assert!(why.contains("OPENCL_DYLIB_PATH names no library that can be loaded"), "{why}");
        assert!(why.contains("none.so") && why.contains(remedy), "{why}");
    }
}

/// Whether PoCL is one of the devices, which has `units` then.
fn pocl() -> Option<(String, u32)> {
    let pocl = |device: &thalweg_accel::Device| device.platform == "Portable Computing Language";
    let found = devices().devices.into_iter().find(pocl);
    if found.is_none() {
        peer::missing("PoCL");
    }
    found.map(|device| (device.place, device.compute_units))
}

#[test]
fn without_a_driver_or_a_folder_of_kernels_one_line_names_it() {
    let folder = folder();
    let f = folder.path();
    let (_places, _turn) = places();
    if pocl().is_none() {
        return;
    }
    fs::create_dir(f.join("vendors")).unwrap();
    for why in hidden(f, "OCL_ICD_VENDORS", &f.join("vendors")) {
        assert!(why.contains("OpenCL has no driver; install the driver of your GPU"), "{why}");
    }
    if pocl().is_some_and(|(place, _)| place == "opencl:0") && devices().devices.len() == 2 {
        // A folder below a file: not even root can write it.
        for why in hidden(f, "POCL_CACHE_DIR", &f.join("clear.pcap/kernels")) {
            assert!(why.contains("PoCL lists no device"), "{why}");
            assert!(why.contains("set POCL_CACHE_DIR to a folder that is"), "{why}");
        }
    }
}

#[test]
fn a_gpu_that_is_not_there_is_named_with_the_reasons_of_both_interfaces() {
    let folder = folder();
    let (_places, _turn) = places();
    if devices().devices.iter().any(|device| device.kind == "gpu") {
        return;
    }
    for at in ["gpu", "gpu:0", "gpu:1"] {
        let error = refused(folder.path(), &sealing(&format!("at = '{at}'\n")));
        assert!(error.contains("'at' of NF 'vpn': there is no GPU here; OpenCL: "), "{error}");
        assert!(error.contains("; CUDA: "), "{error}");
    }
}

#[test]
fn devices_are_listed_with_what_they_share() {
    let folder = folder();
    let list: Value =
        serde_json::from_str(&succeeds(folder.path(), &["devices", "--json"])).unwrap();
    let soft = &list["devices"][0];
    assert_eq!((&soft["place"], &soft["shared_memory"]), (&"soft".into(), &"fine-system".into()));
    for device in list["devices"].as_array().unwrap() {
        let live = ["fine", "fine-system"].contains(&device["shared_memory"].as_str().unwrap());
        let is_resident = live && device["atomics"] == true;
        assert_eq!(device["can"] == "resident-kernels", is_resident, "{device}");
        assert_eq!(device.get("lacks").is_none(), is_resident, "{device}");
    }
    let table = succeeds(folder.path(), &["devices"]);
    let header = "device kind units shared memory atomics can run platform";
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(words(table.lines().next().unwrap()), header, "{table}");
    let soft = table.lines().find(|line| line.starts_with("soft ")).map(words).unwrap();
    assert!(soft.ends_with("fine system yes resident kernels Thalweg"), "{table}");
    assert!(table.contains("soft: threads of this program"), "{table}");
}

#[test]
fn work_groups_that_the_device_does_not_run_at_once_are_a_mistake_of_the_file() {
    let folder = folder();
    let f = folder.path();
    let (_places, _turn) = places();
    let Some((place, _)) = pocl() else { return };
    let run = |arguments: &[&str]| {
        command(f, arguments).env("POCL_MAX_PTHREAD_COUNT", "3").output().unwrap()
    };
    // The last NF has them, in the line after its 'failed_after_ms'.
    let chain = back_and_forth(&place, "work_groups = 3\n");
    write(f, "chain.toml", &chain);
    let line = 1 + chain.lines().position(|line| line.starts_with("work_groups")).unwrap();
    let start = std::time::Instant::now();
    for arguments in [&["check", "chain.toml"][..], &["run", "chain.toml"]] {
        let error = error(&run(arguments), 78);
        let expected = format!(
            "chain.toml:{line}:15: NFs 'seal', 'open' at '{place}' need 4 resident work-groups, and the \
             device runs 3"
        );
        assert!(error.contains(&expected), "{error}");
        assert!(error.contains("POCL_MAX_PTHREAD_COUNT in the environment sets more"), "{error}");
    }
    assert!(start.elapsed().as_secs() < 20, "it does not wait for them");
    write(f, "chain.toml", &back_and_forth(&place, "work_groups = 2\n"));
    assert!(run(&["check", "chain.toml"]).status.success());
    // Without the key, the place is that of 'at'.
    write(f, "chain.toml", &back_and_forth(&place, ""));
    let few = |groups: &str| {
        let mut check = command(f, &["check", "chain.toml"]);
        check.env("POCL_MAX_PTHREAD_COUNT", groups).output().unwrap()
    };
    assert!(few("2").status.success());
    let error = error(&few("1"), 78);
    assert!(error.contains("need 2 resident work-groups, and the device runs 1"), "{error}");
    assert!(error.contains(&format!("at = '{place}'")), "the line of 'at' is shown: {error}");
}

/// The chain that seals packets without end.
fn endless(keys: &str) -> String {
    let chain =
        sealing(keys).replace("'clear.pcap'", "'clear.pcap'\nmemory = true\nloop = 0\npace = 1");
    chain.replace("capture = 'sealed.pcap'", "discard = true")
}

#[test]
fn a_reload_for_which_the_device_has_no_room_is_refused_in_a_dry_run_too() {
    let folder = folder();
    let f = folder.path();
    let (_places, _turn) = places();
    let Some((place, _)) = pocl() else { return };
    let groups = |groups: usize| endless(&format!("{}work_groups = {groups}\n", key(&place)));
    write(f, "chain.toml", &groups(2));
    let mut run = command(f, &["run", "chain.toml", "--json", "--control=room"]);
    let run = Controlled::spawn(f, "room", run.env("POCL_MAX_PTHREAD_COUNT", "3"));
    wait(|| run.succeeds(&["-s", "room", "nfs"]).contains("vpn"));
    for (wanted, expected) in [
        (1, None),
        (
            3,
            Some(
                "3 resident work-groups in addition to those that run until it is done; of 3, 1 are",
            ),
        ),
        (4, Some("NF 'vpn' at 'opencl:0' needs 4 resident work-groups, and the device runs 3")),
    ] {
        write(f, "chain.toml", &groups(wanted));
        let dry = run.ctl(&["-s", "room", "reload", "--dry-run"]);
        let error = String::from_utf8_lossy(&dry.stderr).into_owned();
        assert_eq!(dry.status.success(), expected.is_none(), "{wanted}: {error}");
        let Some(expected) = expected else { continue };
        let expected = expected.replace("opencl:0", &place);
        assert!(error.contains(&expected), "{wanted}: {error}");
        let real = run.ctl(&["-s", "room", "reload"]);
        assert!(!real.status.success(), "{wanted}");
        assert!(String::from_utf8_lossy(&real.stderr).contains(&expected), "{wanted}");
    }
    write(f, "chain.toml", &groups(1));
    run.succeeds(&["-s", "room", "reload"]);
    run.succeeds(&["-s", "room", "stop"]);
    assert_eq!(run.end()["reloads"], 1);
}

#[test]
fn a_confined_run_opens_no_device_by_a_reload_and_names_the_reason() {
    let folder = folder();
    let f = folder.path();
    let (_places, _turn) = places();
    let Some((place, _)) = pocl() else { return };
    let doctor: Value = serde_json::from_str(&succeeds(f, &["doctor", "--json"])).unwrap();
    let mut findings = doctor["findings"].as_array().unwrap().iter();
    if !findings.any(|finding| finding["name"] == "Landlock" && finding["found"] == true) {
        peer::missing("Landlock");
        return;
    }
    write(f, "chain.toml", &endless("at = 'soft'\n"));
    let run = Controlled::start(f, "confined", "chain.toml", &["--control=confined"]);
    wait(|| run.succeeds(&["-s", "confined", "nfs"]).contains("vpn"));
    for at in [&*place, "gpu"] {
        write(f, "chain.toml", &endless(&format!("at = '{at}'\n")));
        for arguments in
            [&["-s", "confined", "reload", "--dry-run"][..], &["-s", "confined", "reload"]]
        {
            let output = run.ctl(arguments);
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(!output.status.success(), "{at}");
            let why =
                "'at' of NF 'vpn': this run is confined to its files, and has opened no device";
            assert!(error.contains(why), "{at}: {error}");
            assert!(error.contains(&format!("device = \"{at}\" in [memory]")), "{at}: {error}");
        }
    }
    // Threads of this program are no driver.
    write(f, "chain.toml", &endless("at = 'soft'\nwork_groups = 2\n"));
    run.succeeds(&["-s", "confined", "reload"]);
    run.succeeds(&["-s", "confined", "stop"]);
    assert_eq!(run.end()["reloads"], 1);
    // With the remedy, it works.
    let remedied = |at: &str| format!("[memory]\ndevice = '{place}'\n{}", endless(&key(at)));
    write(f, "chain.toml", &remedied("soft"));
    let run = Controlled::start(f, "remedied", "chain.toml", &["--control=remedied"]);
    write(f, "chain.toml", &remedied(&place));
    run.succeeds(&["-s", "remedied", "reload"]);
    run.succeeds(&["-s", "remedied", "stop"]);
    assert_eq!(run.end()["reloads"], 1);
}

#[test]
fn without_a_linker_pocl_is_refused_unless_its_kernels_are_cached() {
    let folder = folder();
    let f = folder.path();
    let (_places, _turn) = places();
    let Some((place, _)) = pocl() else { return };
    fs::create_dir(f.join("cache")).unwrap();
    fs::create_dir(f.join("programs")).unwrap();
    write(f, "chain.toml", &sealing(&key(&place)));
    let run = |has_linker: bool| {
        let mut run = command(f, &["run", "chain.toml"]);
        run.env("POCL_CACHE_DIR", f.join("cache"));
        if !has_linker {
            run.env("PATH", f.join("programs"));
        }
        run.output().unwrap()
    };
    let output = run(false);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "it ends by itself: {error}");
    assert!(error.contains("PoCL needs a linker") && error.contains("'ld'"), "{error}");
    assert!(error.contains("NF 'vpn'"), "{error}");
    for has_linker in [true, false] {
        let output = run(has_linker);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "linker {has_linker}: {error}");
    }
}
