//! State folders: the manifest and the state of one NF, separated by a zero byte.

use std::fs;
use std::path::{Path, PathBuf};

use thalweg_chain::{Kinds, Plan, PlanOptions};
use thalweg_engine::{Control, RunOptions, run};

const CHAIN: &str = "\
    routes = 'routes.csv'\n\
    memory = { frames = 128 }\n\
    classify = { emc_entries = 0 }\n\
    [input.in]\n\
    capture = 'in.pcap'\n\
    [output.out]\n\
    discard = true\n\
    [nf.nat]\n\
    kind = 'nat'\n\
    inside = ['10.0.0.0/8']\n\
    external = ['192.0.2.1']\n\
    max_mappings = 64\n";

const ROUTES: &str = "packet type,current NF,next NF\n*,ingress,nat\n*,nat,egress\n";

/// A capture without a packet.
const NOTHING: &[u8] = b"\xd4\xc3\xb2\xa1\x02\0\x04\0\0\0\0\0\0\0\0\0\0\0\x04\0\x01\0\0\0";

thread_local! {
    static FOLDER: PathBuf = prepare().expect("the files can be written");
}

fn prepare() -> std::io::Result<PathBuf> {
    let folder = tempfile::tempdir()?.keep();
    fs::create_dir(state(&folder))?;
    fs::write(folder.join("chain.toml"), CHAIN)?;
    fs::write(folder.join("routes.csv"), ROUTES)?;
    fs::write(folder.join("in.pcap"), NOTHING)?;
    Ok(folder)
}

fn state(folder: &Path) -> PathBuf {
    folder.join("state")
}

/// Runs a chain without traffic that continues with the state of a folder.
pub(crate) fn folders(data: &[u8]) {
    let folder = FOLDER.with(PathBuf::clone);
    let mut parts = data.splitn(2, |b| *b == 0);
    let (manifest, nat) = (parts.next().unwrap_or(&[]), parts.next().unwrap_or(&[]));
    fs::write(state(&folder).join("state.json"), manifest).expect("the file can be written");
    fs::write(state(&folder).join("nat.0.state"), nat).expect("the file can be written");
    let kinds = Kinds::from(thalweg_nf::Kinds::new([thalweg_nat::KIND]));
    let plan = Plan::load(
        &folder.join("chain.toml"),
        &kinds,
        PlanOptions { dry_run: true, ..PlanOptions::default() },
    );
    let plan = plan.expect("the chain file is valid");
    let options = RunOptions { import_state: Some(state(&folder)), ..RunOptions::default() };
    if let Err(e) = run(plan, &options, &Control::default()) {
        assert!(!e.to_string().is_empty());
    }
}
