//! Which place is the cheapest for each NF.

use super::alone::{CPU, SOFT};

/// What an NF costs at its places.
pub(super) struct Costs<'a> {
    pub(super) nf: &'a str,
    /// By place: joules a packet, or processor time.
    pub(super) places: Vec<(&'a str, f64)>,
}

/// The cheapest place of an NF, and what it costs there.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Chosen {
    pub(super) nf: String,
    pub(super) place: String,
    pub(super) cost: f64,
}

/// The placement that costs the least in sum, in which all NFs on devices, `soft` aside, are on the same
/// one. NFs without a place are left out. The processor is preferred where costs are equal.
pub(super) fn cheapest(all: &[Costs<'_>]) -> Vec<Chosen> {
    let mut devices: Vec<&str> = vec![CPU];
    for (place, _) in all.iter().flat_map(|costs| &costs.places) {
        if !devices.contains(place) && *place != SOFT {
            devices.push(place);
        }
    }
    let with = |device: &str| -> Option<Vec<Chosen>> {
        all.iter()
            .filter(|costs| !costs.places.is_empty())
            .map(|costs| choose(costs, device))
            .collect()
    };
    let sum = |all: &[Chosen]| all.iter().map(|chosen| chosen.cost).sum::<f64>();
    let placements = devices.into_iter().filter_map(with);
    placements.min_by(|a, b| sum(a).total_cmp(&sum(b))).unwrap_or_default()
}

/// The cheapest place of an NF among the processor, `soft` and a device; `None` if it can be at none of
/// these.
fn choose(costs: &Costs<'_>, device: &str) -> Option<Chosen> {
    let places = costs.places.iter().filter(|(place, _)| [CPU, SOFT, device].contains(place));
    // Of equal ones, the first.
    let (place, cost) = places.min_by(|a, b| a.1.total_cmp(&b.1))?;
    Some(Chosen { nf: costs.nf.to_owned(), place: (*place).to_owned(), cost: *cost })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(all: &[(&str, &[(&str, f64)])]) -> Vec<String> {
        let costs: Vec<_> =
            all.iter().map(|(nf, places)| Costs { nf, places: places.to_vec() }).collect();
        cheapest(&costs).into_iter().map(|c| format!("{} {} {}", c.nf, c.place, c.cost)).collect()
    }

    #[test]
    fn each_nf_gets_its_cheapest_place() {
        let chosen = places(&[
            ("vpn", &[("cpu", 4.0), ("soft", 9.0), ("opencl:0", 3.0)]),
            ("ids", &[("cpu", 2.0), ("soft", 1.0), ("opencl:0", 5.0)]),
            ("router", &[("cpu", 1.0)]),
        ]);
        assert_eq!(chosen, ["vpn opencl:0 3", "ids soft 1", "router cpu 1"]);
    }

    #[test]
    fn all_nfs_on_devices_are_on_the_same_one() {
        // Each on its own best device costs 2, which a chain cannot have.
        let chosen = places(&[
            ("vpn", &[("cpu", 9.0), ("opencl:0", 1.0), ("opencl:1", 3.0)]),
            ("ids", &[("cpu", 8.0), ("opencl:0", 6.0), ("opencl:1", 1.0)]),
        ]);
        assert_eq!(chosen, ["vpn opencl:1 3", "ids opencl:1 1"]);
    }

    #[test]
    fn the_processor_is_preferred_at_equal_costs() {
        assert_eq!(places(&[("vpn", &[("cpu", 1.0), ("soft", 1.0), ("gpu", 1.0)])]), ["vpn cpu 1"]);
        assert_eq!(places(&[("vpn", &[("opencl:0", 1.0)]), ("gone", &[])]), ["vpn opencl:0 1"]);
        assert!(places(&[]).is_empty());
    }
}
