//! Reloads a chain again and again while packets flow, and checks what must hold: `RELOADS WORKERS`
//! prints a line of JSON.
//!
//! Generated packets take a filter, sometimes an access-control list and a monitor, a NAT, a router
//! and an IPsec tunnel. Each reload adds, removes or changes some of them, or their rules and routes.
//! NFs of the kind `witness` see what passes. It must hold that
//! - in + generated = out + drops over all generations,
//! - no packet overtakes another of its flow,
//! - no flow gets another port from the NAT, and no number of the tunnel is used twice or left out,
//! - no packet passes that the filter drops since the last answer.

mod chain;
mod witness;

use std::error::Error;
use std::fs;
use std::thread;
use std::time::Duration;

use serde_json::json;
use thalweg_chain::{Kinds, Plan, PlanOptions};
use thalweg_engine::{Control, Engine, Reload, Report, RunOptions};

use chain::Variant;
use witness::LEDGER;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// How long packets flow between two reloads.
const BETWEEN: Duration = Duration::from_millis(5);

fn kinds() -> Kinds {
    Kinds::from(thalweg_nf::Kinds::new([
        witness::KIND,
        thalweg_acl::KIND,
        thalweg_filter::KIND,
        thalweg_ipsec::KIND,
        thalweg_monitor::KIND,
        thalweg_nat::KIND,
        thalweg_router::KIND,
    ]))
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [reloads, workers] = &arguments[..] else { return Err("RELOADS WORKERS".into()) };
    let (reloads, workers) = (reloads.parse()?, workers.parse()?);
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("chain.toml");
    let write = |variant: Variant| -> Outcome<()> {
        fs::write(folder.path().join("table.txt"), variant.table())?;
        Ok(fs::write(&path, variant.chain())?)
    };
    write(Variant::number(0))?;
    let plan = Plan::load(&path, &kinds(), PlanOptions::default());
    let plan = plan.map_err(|errors| errors.iter().map(ToString::to_string).collect::<String>())?;
    let options = RunOptions { workers: Some(workers), ..RunOptions::default() };
    let engine = Engine::start(plan, options)?;
    let wrong = reload_all(reloads, engine.control(), write)?;
    engine.control().stop();
    let report = engine.join();
    println!("{}", summary(&report, wrong));
    Ok(())
}

/// Reloads one variant after the other; returns how often packets passed that should not.
fn reload_all(
    reloads: u64,
    control: &Control,
    write: impl Fn(Variant) -> Outcome<()>,
) -> Outcome<u64> {
    let mut wrong = 0;
    for number in 1..=reloads {
        thread::sleep(BETWEEN);
        let variant = Variant::number(number);
        write(variant)?;
        control.reload(Reload::default())?;
        let passed = LEDGER.passed(variant.forbidden());
        thread::sleep(BETWEEN);
        wrong += u64::from(LEDGER.passed(variant.forbidden()) != passed);
    }
    Ok(wrong)
}

fn summary(report: &Report, wrong: u64) -> serde_json::Value {
    json!({
        "reloads": report.reloads,
        "workers": report.workers,
        "packets_per_second": report.packets_per_second,
        "conserved": report.conserved,
        "overtaken": LEDGER.overtaken(),
        "flows_before_nat": LEDGER.flows("before"),
        "flows_behind_nat": LEDGER.flows("behind"),
        "tunnel_gaps": LEDGER.gaps(),
        "old_answers": wrong,
        "pauses_ns": report.reload_pauses_ns,
        "failures": report.failures,
        "warnings": report.warnings,
    })
}
