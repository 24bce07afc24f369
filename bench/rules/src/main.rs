//! Measures the rule table over ClassBench rule sets: how long it takes to load
//! them, to search, and to add or remove one rule, and how many megaflows and
//! masks traces make, with the masks of searches and with the union of the masks
//! of all subtables that a search visits.

mod megaflows;
mod sets;
mod traces;

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use thalweg_classify::{Match, Rule, RuleId, RuleTable, SharedRules, classbench};
use thalweg_packet::{FlowKey, PacketType};
use thalweg_source::Source;

use megaflows::Count;

/// Rules of the large sets.
const RULES: usize = 100_000;
/// Rules that are added and removed again, each change timed.
const CHANGES: u32 = 2000;
/// Loads of which the median is taken.
const LOADS: usize = 5;

/// The real sets that are made large.
const LARGE: [&str; 8] = [
    "large/acl1_100k.rules.gz",
    "large/ipc1_50k.rules.gz",
    "neurocuts/acl2_10k.rules.gz",
    "neurocuts/acl3_10k.rules.gz",
    "neurocuts/acl4_10k.rules.gz",
    "neurocuts/fw1_10k.rules.gz",
    "neurocuts/fw2_10k.rules.gz",
    "neurocuts/fw3_10k.rules.gz",
];

/// The measurements of one set.
struct Measured {
    name: String,
    rules: usize,
    patterns: usize,
    masks: usize,
    /// Milliseconds to parse, milliseconds to build, microseconds to publish.
    load: [f64; 3],
    /// Nanoseconds: median, 99th percentile, most.
    search: [u64; 3],
    add: [u64; 3],
    remove: [u64; 3],
    /// For each trace, megaflows with narrow masks and with wide ones.
    connections: [Count; 2],
    scans: [Count; 2],
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let file = match arguments.next().as_deref() {
        Some("--json") => Some(arguments.next().ok_or("--json needs a file")?),
        Some(other) => return Err(format!("unknown argument {other}").into()),
        None => None,
    };
    let mut all = Vec::new();
    if let Some(folder) = sets::data_folder() {
        for path in LARGE {
            let name = path.rsplit('/').next().unwrap_or(path).trim_end_matches(".rules.gz");
            eprintln!("{name}");
            all.push(measure(name, &sets::enlarge(&sets::read(&folder.join(path))?, RULES))?);
        }
    } else {
        println!("no data folder: only the made-up set\n");
    }
    all.push(measure("made up", &sets::made_up(RULES, 1))?);
    print(&all);
    if let Some(file) = file {
        let values: Vec<_> = all.iter().map(Measured::json).collect();
        std::fs::write(file, serde_json::to_string_pretty(&values)?)?;
    }
    Ok(())
}

fn measure(name: &str, text: &str) -> Result<Measured, String> {
    let (shared, rules, load) = load(name, text)?;
    let table = shared.load();
    let union = megaflows::Union::new(&rules);
    let count = |keys: &[FlowKey]| {
        let narrow = megaflows::count(keys, |key| table.lookup(key).mask);
        [narrow, megaflows::count(keys, |key| union.mask(table.lookup(key).rule))]
    };
    let keys = traces::connections(&rules);
    let (connections, scans) = (count(&keys), count(&traces::scans(&rules)));
    let search = searches(&table, &keys);
    let masks = table.subtables();
    drop(table);
    let [add, remove] = changes(&shared, &rules);
    Ok(Measured {
        name: name.to_owned(),
        rules: rules.len(),
        patterns: rules.iter().map(|r| r.matches.len()).sum(),
        masks,
        load,
        search,
        add,
        remove,
        connections,
        scans,
    })
}

fn parse(name: &str, text: &str) -> Result<Vec<Rule>, String> {
    let source = Source::new(name, text);
    classbench::parse(&source, RuleId(0), 1 << 20, PacketType(1))
        .map_err(|errors| errors[0].to_string())
}

/// Loads a set several times; the times are those of the median.
fn load(name: &str, text: &str) -> Result<(SharedRules, Vec<Rule>, [f64; 3]), String> {
    let shared = SharedRules::new(RuleTable::new(PacketType(0)));
    let mut times: Vec<[f64; 3]> = Vec::new();
    for _ in 0..LOADS {
        // The table of the last round goes first, outside the time.
        shared.publish(Arc::new(RuleTable::new(PacketType(0))));
        let started = Instant::now();
        let rules = parse(name, text)?;
        let parsed = Instant::now();
        let mut table = RuleTable::new(PacketType(0));
        table.extend(rules);
        let built = Instant::now();
        shared.publish(Arc::new(table));
        let publishing = built.elapsed().as_secs_f64() * 1e6;
        let ms = |from: Instant, to: Instant| (to - from).as_secs_f64() * 1e3;
        times.push([ms(started, parsed), ms(parsed, built), publishing]);
    }
    times.sort_by(|a, b| (a[0] + a[1]).total_cmp(&(b[0] + b[1])));
    Ok((shared, parse(name, text)?, times[LOADS / 2]))
}

fn nanoseconds(work: impl FnOnce()) -> u64 {
    let started = Instant::now();
    work();
    started.elapsed().as_nanos() as u64
}

/// Median, 99th percentile and most of `times`.
fn ranked(mut times: Vec<u64>) -> [u64; 3] {
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    [at(0.5), at(0.99), at(1.0)]
}

fn searches(table: &RuleTable, keys: &[FlowKey]) -> [u64; 3] {
    let search = |key: &FlowKey| {
        nanoseconds(|| {
            black_box(table.lookup(black_box(key)));
        })
    };
    ranked(keys.iter().map(search).collect())
}

/// Adds and removes one rule at a time: rules drawn from the set, under new
/// numbers and priorities, every other one with addresses of its own.
fn changes(shared: &SharedRules, rules: &[Rule]) -> [[u64; 3]; 2] {
    let rng = &mut StdRng::seed_from_u64(9);
    let next = shared.load().next_id().0;
    let (mut adds, mut removals) = (Vec::new(), Vec::new());
    for n in 0..CHANGES {
        let mut new = rules[rng.random_range(0..rules.len())].clone();
        new.id = RuleId(next + n);
        new.priority = rng.random_range(0..1 << 20);
        if n % 2 == 0 {
            new.matches = new.matches.iter().map(elsewhere).collect();
        }
        let old = &rules[rng.random_range(0..rules.len())];
        adds.push(nanoseconds(|| shared.update(|t| t.insert(new.clone()))));
        removals.push(nanoseconds(|| shared.update(|t| drop(t.remove(old.id)))));
        removals.push(nanoseconds(|| shared.update(|t| drop(t.remove(new.id)))));
        adds.push(nanoseconds(|| shared.update(|t| t.insert(old.clone()))));
    }
    [ranked(adds), ranked(removals)]
}

/// The pattern with bits of both addresses turned over.
fn elsewhere(pattern: &Match) -> Match {
    let mut value = *pattern.value();
    value.words[thalweg_packet::field::NW_SRC.word as usize] ^= 0x0101_0101_0101_0101;
    Match::new(value, *pattern.mask())
}

fn print(all: &[Measured]) {
    println!("                                          load: parse  build  publish");
    println!("set            rules patterns    masks          ms     ms       us");
    for m in all {
        let [parse, build, publish] = m.load;
        println!(
            "{:<12} {:>7} {:>8} {:>8}     {parse:>7.0} {build:>6.0} {publish:>8.1}",
            m.name, m.rules, m.patterns, m.masks,
        );
    }
    println!("\n             search, us       add one, us      remove one, us");
    println!("set          median    p99   median    p99    median    p99");
    for m in all {
        let us = |ns: u64| ns as f64 / 1e3;
        let [search, add, remove] = [m.search, m.add, m.remove].map(|t| [us(t[0]), us(t[1])]);
        println!(
            "{:<12} {:>6.1} {:>6.1}   {:>6.1} {:>6.1}    {:>6.1} {:>6.1}",
            m.name, search[0], search[1], add[0], add[1], remove[0], remove[1],
        );
    }
    println!("\n{} keys each: megaflows (masks)", traces::KEYS);
    println!("             connections                     scans");
    println!("set          narrow          wide            narrow          wide");
    for m in all {
        let cells = [m.connections, m.scans].concat();
        let cells = cells.iter().map(|c| format!("{:<16}", format!("{} ({})", c.flows, c.masks)));
        println!("{:<12} {}", m.name, cells.collect::<String>().trim_end());
    }
}

impl Measured {
    fn json(&self) -> Value {
        let times =
            |[median, p99, most]: [u64; 3]| json!({"median": median, "p99": p99, "most": most});
        let counts = |[narrow, wide]: [Count; 2]| {
            json!({
                "narrow": {"megaflows": narrow.flows, "masks": narrow.masks},
                "wide": {"megaflows": wide.flows, "masks": wide.masks},
            })
        };
        json!({
            "set": self.name, "rules": self.rules, "patterns": self.patterns, "masks": self.masks,
            "parse_ms": self.load[0], "build_ms": self.load[1], "publish_us": self.load[2],
            "search_ns": times(self.search), "add_ns": times(self.add),
            "remove_ns": times(self.remove),
            "keys": traces::KEYS,
            "connections": counts(self.connections), "scans": counts(self.scans),
        })
    }
}
