//! Rule sets in ClassBench format: from files, made larger, and made up.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// The folder of classification data, if it is there.
pub fn data_folder() -> Option<PathBuf> {
    let near = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let folder = std::env::var_os("THALWEG_DATA").map_or_else(near, PathBuf::from);
    Some(folder.join("classification")).filter(|f| f.is_dir())
}

/// The text of a file, which may be compressed.
pub fn read(path: &Path) -> std::io::Result<String> {
    let bytes = std::fs::read(path)?;
    let mut text = String::new();
    if path.extension().is_some_and(|e| e == "gz") {
        std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(&bytes[..]), &mut text)?;
    } else {
        text = String::from_utf8_lossy(&bytes).into_owned();
    }
    Ok(text)
}

/// Copies of the rules in `text` until there are `rules`. In each copy but the
/// first, addresses are renamed: two that began with the same bits still do, so
/// that the copy has the structure of the original.
pub fn enlarge(text: &str, rules: usize) -> String {
    let mut larger = String::with_capacity(text.len());
    let lines: Vec<&str> = text.lines().filter(|l| l.starts_with('@')).collect();
    for at in 0..rules {
        let copy = (at / lines.len()) as u64;
        write_renamed(lines[at % lines.len()], copy, &mut larger);
    }
    larger
}

fn write_renamed(line: &str, copy: u64, out: &mut String) {
    let mut words = line.trim_start_matches('@').split_whitespace();
    out.push('@');
    for _ in 0..2 {
        let Some((address, length)) = words.next().and_then(|w| w.split_once('/')) else {
            continue;
        };
        let old: std::net::Ipv4Addr = address.parse().unwrap_or(std::net::Ipv4Addr::UNSPECIFIED);
        let new = std::net::Ipv4Addr::from(rename(old.into(), copy));
        let _ = write!(out, "{new}/{length}\t");
    }
    for word in words {
        let _ = write!(out, "{word} ");
    }
    out.push('\n');
}

/// Turns each bit of `address` over or not, by a hash of the bits before it.
fn rename(address: u32, copy: u64) -> u32 {
    if copy == 0 {
        return address;
    }
    (0..32).fold(0, |new, bit| {
        let before = u64::from(address.checked_shr(32 - bit).unwrap_or(0)) | 1 << bit;
        let mixed = (before ^ copy << 33).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let turn = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 63;
        new << 1 | (address >> (31 - bit) & 1) ^ turn as u32
    })
}

/// Rules of a made-up access list: nested prefixes of usual lengths, and ports
/// that are any, one, high, or a range.
pub fn made_up(rules: usize, seed: u64) -> String {
    let rng = &mut StdRng::seed_from_u64(seed);
    let mut text = String::new();
    for _ in 0..rules {
        let (src, dst) = (prefix(rng), prefix(rng));
        let (sport, dport) = (if rng.random_ratio(9, 10) { any() } else { ports(rng) }, ports(rng));
        let protocol = ["0x06/0xFF", "0x11/0xFF", "0x01/0xFF", "0x00/0x00"];
        let protocol = protocol[rng.random_range(0..20usize).saturating_sub(10) / 3];
        let _ = writeln!(text, "@{src}\t{dst}\t{sport}\t{dport}\t{protocol}");
    }
    text
}

fn prefix(rng: &mut StdRng) -> String {
    let lengths = [0, 8, 16, 20, 22, 24, 24, 24, 26, 28, 30, 32, 32, 32, 32];
    let length = lengths[rng.random_range(0..lengths.len())];
    // Few networks, more subnetworks, many hosts.
    let network = rng.random_range(1..40u32) << 24 | rng.random_range(0..16u32) << 16;
    let address = network | rng.random_range(0..64u32) << 10 | rng.random_range(0..256u32);
    format!("{}/{length}", std::net::Ipv4Addr::from(address))
}

fn any() -> String {
    "0 : 65535".to_owned()
}

fn ports(rng: &mut StdRng) -> String {
    let usual = [20, 21, 22, 25, 53, 80, 110, 123, 143, 161, 443, 993, 1433, 3306, 8080];
    match rng.random_range(0..10) {
        0..3 => any(),
        3..7 => {
            let port = usual[rng.random_range(0..usual.len())];
            format!("{port} : {port}")
        }
        7 => "1024 : 65535".to_owned(),
        8 => {
            let port = rng.random_range(1024..60000u16);
            format!("{port} : {port}")
        }
        _ => {
            let low = rng.random_range(1024..60000u16);
            format!("{low} : {}", low + rng.random_range(1..1000))
        }
    }
}
