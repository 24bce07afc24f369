//! How the state of a kind is divided when it moves.

use schemars::JsonSchema;
use serde::Serialize;

use crate::steering::Units;

/// The parts in which the state of a kind moves to another instance while packets flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Grain {
    /// There is no state: packets may change to another instance at any time.
    None,
    /// Sums, which instances add up: packets may change to another instance at any time, and what
    /// the former one counted follows.
    Merge,
    /// Each unit of flows moves by itself; the packets of one unit wait meanwhile.
    Units,
    /// All of it at once: what concerns one flow depends on others. All packets wait meanwhile.
    Whole,
}

impl Grain {
    /// How state of this grain moves, in words.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::None => "nothing to move",
            Self::Merge => "sums, which are added to those of another instance",
            Self::Units => "flow by flow, in up to 4096 units",
            Self::Whole => "as a whole",
        }
    }

    /// The units in which state of this grain moves, if `wanted` are wanted; `None` if there is no
    /// state.
    pub fn units(self, wanted: Units) -> Option<Units> {
        match self {
            Self::None => None,
            Self::Merge | Self::Whole => Some(Units::whole()),
            Self::Units => Some(wanted),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steering::Steering;

    #[test]
    fn only_units_of_flows_are_divided() {
        let wanted = Units::new(256, Steering::with_seed(1)).unwrap();
        let count = |grain: Grain| grain.units(wanted).map(Units::count);
        let grains = [Grain::None, Grain::Merge, Grain::Units, Grain::Whole];
        assert_eq!(grains.map(count), [None, Some(1), Some(256), Some(1)]);
    }
}
