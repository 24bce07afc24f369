//! Which vector instructions the data path uses.

use std::fmt;
use std::sync::OnceLock;

/// The variable that forces a level.
pub const ISA_VARIABLE: &str = "THALWEG_ISA";

/// A level of vector instructions. Each vectorised routine has a scalar
/// reference and may have a variant for each of the other levels; all give the
/// same results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Isa {
    /// Only the instructions of the compiler's target.
    Scalar,
    /// AVX2 with BMI, POPCNT and SSE4.2 (x86-64-v3).
    Avx2,
    /// In addition AVX-512 F, BW, DQ, VL and CD (x86-64-v4).
    Avx512,
}

/// Proof that the processor supports AVX-512.
#[derive(Clone, Copy, Debug)]
pub struct Avx512(());

/// Why a level cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IsaError {
    /// There is no such level.
    #[error("{ISA_VARIABLE}={0}: unknown instruction set; expected scalar, avx2 or avx512")]
    Unknown(String),
    /// The processor lacks its instructions.
    #[error("{ISA_VARIABLE}={wanted}: this processor supports only {has}")]
    Missing {
        /// The requested level.
        wanted: Isa,
        /// The best level that can be used.
        has: Isa,
    },
}

impl Isa {
    /// All levels, lowest first.
    pub const ALL: [Self; 3] = [Self::Scalar, Self::Avx2, Self::Avx512];

    /// The best level that this processor has.
    pub fn detect() -> Self {
        // Each search of a batch asks.
        static BEST: OnceLock<Isa> = OnceLock::new();
        *BEST.get_or_init(Self::detected)
    }

    fn detected() -> Self {
        #[cfg(target_arch = "x86_64")]
        match (thalweg_level::has_avx2!(), thalweg_level::has_more_for_avx512!()) {
            (true, true) => return Self::Avx512,
            (true, false) => return Self::Avx2,
            _ => {}
        }
        Self::Scalar
    }

    /// Whether this processor has the level.
    pub fn is_available(self) -> bool {
        self <= Self::detect()
    }

    /// Proof that AVX-512 may be used; `None` at another level, or when the processor lacks the
    /// instructions.
    pub fn avx512(self) -> Option<Avx512> {
        (self == Self::Avx512 && self.is_available()).then_some(Avx512(()))
    }

    /// The levels that this processor has, lowest first.
    pub fn available() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|isa| isa.is_available())
    }

    /// The level that `THALWEG_ISA` forces, or the best there is.
    ///
    /// # Errors
    /// The variable names no level, or one that the processor lacks.
    pub fn from_environment() -> Result<Self, IsaError> {
        match std::env::var_os(ISA_VARIABLE) {
            None => Ok(Self::detect()),
            Some(name) => Self::forced(&name.to_string_lossy()),
        }
    }

    fn forced(name: &str) -> Result<Self, IsaError> {
        let wanted = Self::ALL.into_iter().find(|isa| isa.name() == name);
        let wanted = wanted.ok_or_else(|| IsaError::Unknown(name.into()))?;
        if wanted.is_available() {
            Ok(wanted)
        } else {
            Err(IsaError::Missing { wanted, has: Self::detect() })
        }
    }

    /// The level that this process uses, read from the environment once. The best
    /// available level replaces one that cannot be used; to report that to the user,
    /// call [`from_environment`](Self::from_environment).
    pub fn active() -> Self {
        static ACTIVE: OnceLock<Isa> = OnceLock::new();
        *ACTIVE.get_or_init(|| Self::from_environment().unwrap_or_else(|_| Self::detect()))
    }

    /// The level's name, as `THALWEG_ISA` takes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
        }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_forced_by_its_name_or_refused() {
        for isa in Isa::available() {
            assert_eq!(Isa::forced(isa.name()), Ok(isa));
        }
        assert_eq!(Isa::forced("sse9"), Err(IsaError::Unknown("sse9".into())));
        assert!(Isa::Scalar.is_available());
    }

    /// CI sets `REQUIRE_ISA` beside `THALWEG_ISA`, so that a machine without the
    /// instructions fails instead of testing another level.
    #[test]
    fn the_required_level_is_the_one_in_use() {
        if let Ok(required) = std::env::var("REQUIRE_ISA") {
            assert_eq!(Isa::from_environment().map(Isa::name), Ok(required.as_str()));
            assert_eq!(Isa::active().name(), required);
        }
    }
}
