//! Energy and area: Table 4 of the paper, which is an input here, not a result.

/// A unit of one capacity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unit {
    /// Area in tiles of the processor.
    pub area: f64,
    /// Static power in milliwatts.
    pub static_mw: f64,
    /// Dynamic energy of a query in nanojoules.
    pub dynamic_nj: f64,
}

/// One accelerator (Table 4).
pub const HALO: Unit = Unit { area: 0.012, static_mw: 97.2, dynamic_nj: 1.76 };

/// Ternary memories by size in bytes (Table 4).
pub const TCAM: [(f64, Unit); 4] = [
    (1024.0, Unit { area: 0.001, static_mw: 71.1, dynamic_nj: 0.04 }),
    (10_240.0, Unit { area: 0.066, static_mw: 235.3, dynamic_nj: 0.37 }),
    (102_400.0, Unit { area: 1.044, static_mw: 3850.5, dynamic_nj: 13.84 }),
    (1_048_576.0, Unit { area: 9.343, static_mw: 26733.1, dynamic_nj: 84.82 }),
];

/// What static memory takes in place of ternary: of the power, and of the area (section
/// 6.4 of the paper, after its reference 77).
pub const SRAM_TCAM: (f64, f64) = (0.55, 0.43);

/// A ternary memory of `bytes` bytes, between Table 4's by a straight line through the
/// logarithms, and whether it lies beyond them.
pub fn tcam(bytes: f64) -> (Unit, bool) {
    let last = TCAM.len() - 1;
    let above = TCAM.iter().position(|(size, _)| bytes <= *size).unwrap_or(last).max(1);
    let ((small, a), (large, b)) = (TCAM[above - 1], TCAM[above]);
    let part = (bytes / small).ln() / (large / small).ln();
    let between = |a: f64, b: f64| (a.ln() + part * (b / a).ln()).exp();
    let unit = Unit {
        area: between(a.area, b.area),
        static_mw: between(a.static_mw, b.static_mw),
        dynamic_nj: between(a.dynamic_nj, b.dynamic_nj),
    };
    (unit, bytes < TCAM[0].0 || bytes > TCAM[last].0)
}

/// Nanojoules of a query, static power and all, of `units` units at `rate` queries a second.
pub fn query_nj(unit: Unit, units: f64, rate: f64) -> f64 {
    unit.static_mw * 1e-3 * units / rate * 1e9 + unit.dynamic_nj
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_anchors_are_met_and_what_lies_beyond_is_told() {
        for (bytes, unit) in TCAM {
            let (of, beyond) = tcam(bytes);
            assert!((of.dynamic_nj / unit.dynamic_nj - 1.0).abs() < 1e-9 && !beyond);
        }
        let (middle, _) = tcam(32_000.0);
        assert!(middle.area > 0.066 && middle.area < 1.044);
        assert!(tcam(4e6).1 && tcam(100.0).1);
        assert!(tcam(4e6).0.area > 9.4);
    }

    #[test]
    fn the_known_ratio_is_arithmetic_and_holds_at_one_size_only() {
        assert!((TCAM[3].1.dynamic_nj / HALO.dynamic_nj - 48.2).abs() < 0.05);
        // With little memory the ternary one takes less.
        assert!((HALO.dynamic_nj / TCAM[1].1.dynamic_nj - 4.76).abs() < 0.01);
    }

    #[test]
    fn static_power_counts_less_the_more_queries_there_are() {
        let (slow, fast) = (query_nj(HALO, 16.0, 1e6), query_nj(HALO, 16.0, 1e9));
        assert!(slow > 1000.0 && fast < 4.0, "{slow} {fast}");
    }
}
