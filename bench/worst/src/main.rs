//! Searches for payloads that make the intrusion detection slow.
//!
//! `SECONDS SIZE SEED MATERIAL RULES...` evolves datagrams of SIZE bytes for SECONDS seconds from the
//! contents and ports in MATERIAL, the dearest against random bytes of that length to the same port
//! surviving, and prints the dearest as lines of JSON: port, payload in hexadecimal, cycles a packet,
//! and those of random bytes. `check PAYLOADS RULES...` measures payloads that an earlier search
//! printed. `bench/worst.py search` and `check` run it.

mod genome;

use std::collections::HashMap;
use std::error::Error;
use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::{RngExt, seq::IndexedRandom};
use serde_json::{Value, json};
use thalweg_cpu::cycles;
use thalweg_nf::{Context, Emitted, NetworkFunction};
use thalweg_packet::write::PacketBuilder;
use thalweg_packet::{BATCH, Batch, Decapsulate, Nanoseconds, Pool};

use genome::{Genome, Material};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Genomes that survive.
const SURVIVORS: usize = 32;
/// Genomes that are printed.
const PRINTED: usize = 10;
/// Passes of which the fastest counts while searching.
const QUICK: usize = 3;
/// Passes of which the median counts.
const CAREFUL: usize = 41;

/// An NF with the rules.
fn nids(rules: &[String]) -> Outcome<Box<dyn NetworkFunction>> {
    let text = format!("rules = {rules:?}\nchecksums = false\n[variables]\nEXTERNAL_NET = 'any'");
    Ok(thalweg_nids::KIND.build_alone(&text).map_err(|e| e.to_string())?.instance())
}

/// Contents of rules in hexadecimal, and ports that rules name, from a file of JSON.
fn material(path: &str) -> Outcome<Material> {
    let known: Value = serde_json::from_str(&fs::read_to_string(path)?)?;
    let list = |name: &str| known[name].as_array().ok_or(format!("{path}: no {name}"));
    let literals = list("literals")?.iter().map(|hexadecimal| bytes(hexadecimal));
    let port = |port: &Value| u16::try_from(port.as_u64()?).ok();
    let ports = list("ports")?.iter().filter_map(port).collect();
    Ok(Material { literals: literals.collect::<Outcome<_>>()?, ports })
}

fn bytes(hexadecimal: &Value) -> Outcome<Vec<u8>> {
    Ok(hex::decode(hexadecimal.as_str().unwrap_or_default())?)
}

/// Measures genomes.
struct Bench {
    nf: Box<dyn NetworkFunction>,
    batch: Batch,
    emitted: Emitted,
}

impl Bench {
    fn new(rules: &[String]) -> Outcome<Self> {
        let pool = Arc::new(Pool::anonymous(2 * BATCH, 2048)?);
        let (batch, emitted) = (Batch::new(pool.clone()), Emitted::new(pool));
        Ok(Self { nf: nids(rules)?, batch, emitted })
    }

    /// Cycles a packet of one pass over a batch of datagrams.
    fn pass<'a>(&mut self, genomes: impl Iterator<Item = &'a Genome>) -> Outcome<u64> {
        let [source, destination] = [[10, 0, 0, 1], [10, 2, 0, 1]];
        let packets: Vec<Vec<u8>> = genomes
            .take(BATCH)
            .map(|genome| {
                let builder =
                    PacketBuilder::new([2; 6], [4; 6]).ip(source.into(), destination.into());
                builder.udp(40_000, genome.port).build(&genome.payload)
            })
            .collect();
        let copies = packets.iter().map(|p| (&p[..], p.len() as u32, Nanoseconds(0)));
        if self.batch.push_copies(copies) != BATCH {
            return Err("no frame is free".into());
        }
        let lanes = self.batch.lanes();
        self.batch.parse(lanes, Decapsulate::No);
        let start = cycles::now();
        let mut context = Context::new(Nanoseconds(0), &mut self.emitted, None);
        self.nf.process(&mut self.batch, lanes, &mut context);
        let spent = cycles::now() - start;
        self.batch.release(lanes);
        Ok(spent / BATCH as u64)
    }

    /// The median cycles a packet of random datagrams like `genome`, each of them another: the
    /// processor would learn one by heart.
    fn usual(&mut self, genome: &Genome, rng: &mut StdRng) -> Outcome<u64> {
        let mut passes = Vec::new();
        for _ in 0..CAREFUL {
            let random = || Genome::random(genome.port, genome.payload.len(), rng);
            let batch: Vec<_> = std::iter::repeat_with(random).take(BATCH).collect();
            passes.push(self.pass(batch.iter())?);
        }
        Ok(median(passes))
    }

    /// The cycles a packet of the fastest of a few passes.
    fn quick(&mut self, genome: &Genome) -> Outcome<u64> {
        let pass = |_| self.pass(std::iter::repeat(genome));
        let passes = (0..QUICK).map(pass).collect::<Outcome<Vec<_>>>()?;
        Ok(passes.into_iter().min().unwrap_or(0))
    }

    /// A genome with its cycles a packet, and those of random bytes.
    fn report(&mut self, genome: &Genome, rng: &mut StdRng) -> Outcome<Value> {
        let pass = |_| self.pass(std::iter::repeat(genome));
        let cycles = median((0..CAREFUL).map(pass).collect::<Outcome<Vec<_>>>()?);
        let random = self.usual(genome, rng)?;
        let before = self.figures();
        self.pass(std::iter::repeat(genome))?;
        let [verified, alerts] =
            std::array::from_fn(|n| (self.figures()[n] - before[n]) / BATCH as u64);
        let payload = hex::encode(&genome.payload);
        let port = genome.port;
        Ok(json!({"port": port, "payload": payload, "cycles": cycles, "random": random,
            "verified": verified, "alerts": alerts}))
    }

    /// The rules verified and the alerts so far.
    fn figures(&self) -> [u64; 2] {
        let figures = self.nf.figures();
        let of = |name| figures.iter().find(|(known, _)| *known == name).map_or(0, |(_, n)| *n);
        ["rules_verified", "alerts"].map(of)
    }
}

fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values[values.len() / 2]
}

/// Evolves payloads of `size` bytes until `end`; the dearest first.
fn search(
    bench: &mut Bench,
    material: &Material,
    size: usize,
    end: Instant,
    rng: &mut StdRng,
) -> Outcome<Vec<Genome>> {
    let mut usual = HashMap::new();
    let mut ratio = |bench: &mut Bench, genome: &Genome, rng: &mut StdRng| -> Outcome<f64> {
        let known = usual.get(&genome.port).copied();
        let cycles = known.map_or_else(|| bench.usual(genome, rng), Ok)?;
        usual.insert(genome.port, cycles);
        Ok(bench.quick(genome)? as f64 / cycles.max(1) as f64)
    };
    let mut alive: Vec<(f64, Genome)> = Vec::new();
    let mut tried = 0u64;
    while Instant::now() < end {
        let parents = (alive.choose(rng), alive.choose(rng));
        let genome = match parents {
            (Some((_, parent)), Some((_, other))) if rng.random_bool(0.95) => {
                parent.child(other, material, rng)
            }
            _ => Genome::first(size, material, rng),
        };
        tried += 1;
        if alive.iter().any(|(_, known)| *known == genome) {
            continue;
        }
        alive.push((ratio(bench, &genome, rng)?, genome));
        alive.sort_by(|a, b| b.0.total_cmp(&a.0));
        alive.truncate(SURVIVORS);
    }
    eprintln!("{tried} payloads of {size} bytes tried");
    Ok(alive.into_iter().map(|(_, genome)| genome).collect())
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut rng;
    match &arguments[..] {
        [check, payloads, rules @ ..] if check == "check" => {
            rng = StdRng::seed_from_u64(1);
            let mut bench = Bench::new(rules)?;
            for line in fs::read_to_string(payloads)?.lines() {
                let known: Value = serde_json::from_str(line)?;
                let port = known["port"].as_u64().and_then(|port| u16::try_from(port).ok());
                let payload = bytes(&known["payload"])?;
                let genome = Genome { port: port.ok_or("no port")?, payload };
                println!("{}", bench.report(&genome, &mut rng)?);
            }
        }
        [seconds, size, seed, material, rules @ ..] if !rules.is_empty() => {
            rng = StdRng::seed_from_u64(seed.parse()?);
            let (mut bench, material) = (Bench::new(rules)?, self::material(material)?);
            let size: usize = size.parse()?;
            let end = Instant::now() + Duration::from_secs(seconds.parse()?);
            let found = search(&mut bench, &material, size.clamp(8, 1472), end, &mut rng)?;
            for genome in found.iter().take(PRINTED) {
                println!("{}", bench.report(genome, &mut rng)?);
            }
        }
        _ => return Err("SECONDS SIZE SEED MATERIAL RULES..., or check PAYLOADS RULES...".into()),
    }
    Ok(())
}
