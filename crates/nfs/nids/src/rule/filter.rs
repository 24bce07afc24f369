//! The options `threshold` and `detection_filter`.

use super::text::{Fault, Piece};
use super::{Filter, FilterKind, Track, UniqueOn};

/// Reads `type limit, track by_src, count 1, seconds 60`.
pub(super) fn filter(value: Piece<'_>, detection: bool) -> Result<Filter, Fault> {
    let shape = "type limit|threshold|both, track by_src|by_dst|by_rule|by_both|by_flow, count N, \
                 seconds S (no type for detection_filter)";
    let (mut kind, mut track, mut count, mut seconds, mut unique_on) =
        (detection.then_some(FilterKind::Detection), None, None, None, None);
    for part in value.split(',') {
        let Some((word, what)) = part.split_once(' ') else {
            return Err(part.fault("bad filter", shape));
        };
        let what = what.trim();
        let again = match word.text {
            "type" if !detection => kind.replace(kind_of(what, shape)?).is_some(),
            "track" => track.replace(track_of(what, shape)?).is_some(),
            "count" => count.replace(what.number()?).is_some(),
            "seconds" => seconds.replace(what.number()?).is_some(),
            "unique_on" => unique_on.replace(port_of(what)?).is_some(),
            _ => return Err(word.fault("bad filter", shape)),
        };
        if again {
            return Err(
                part.fault(format!("a second '{}' in one filter", word.text), "one of the two")
            );
        }
    }
    match (kind, track, count, seconds) {
        (Some(kind), Some(track), Some(count), Some(seconds)) if count > 0 => {
            Ok(Filter { kind, track, count, seconds, unique_on })
        }
        _ => Err(value.fault("bad filter", shape)),
    }
}

fn kind_of(word: Piece<'_>, shape: &str) -> Result<FilterKind, Fault> {
    match word.text {
        "limit" => Ok(FilterKind::Limit),
        "threshold" => Ok(FilterKind::Threshold),
        "both" => Ok(FilterKind::Both),
        "backoff" => Err(Fault::unsupported(word.span(), "type 'backoff'")),
        _ => Err(word.fault("bad type", shape)),
    }
}

fn track_of(word: Piece<'_>, shape: &str) -> Result<Track, Fault> {
    match word.text {
        "by_src" => Ok(Track::Source),
        "by_dst" => Ok(Track::Destination),
        "by_rule" => Ok(Track::Rule),
        "by_both" => Ok(Track::Both),
        "by_flow" => Ok(Track::Flow),
        _ => Err(word.fault("bad track", shape)),
    }
}

fn port_of(word: Piece<'_>) -> Result<UniqueOn, Fault> {
    match word.text {
        "src_port" => Ok(UniqueOn::SourcePort),
        "dst_port" => Ok(UniqueOn::DestinationPort),
        _ => Err(word.fault("bad unique_on", "src_port or dst_port")),
    }
}
