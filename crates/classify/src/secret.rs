//! The secret of the process, from which every table that packets fill draws the keys of its hash.
//!
//! A sender who knows the hash of a table can choose packets that share a bucket (Crosby and
//! Wallach, "Denial of Service via Algorithmic Complexity Attacks", USENIX Security 2003). The secret
//! is drawn once, from the operating system. It never shows in output: which entries share a bucket
//! decides neither what is evicted nor in which order entries are written. `docs/adr/0010-secret-keys.md`
//! lists the tables.

use std::fmt;
use std::hash::Hasher;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use siphasher::sip::SipHasher24;

/// The environment variable that replaces the secret with a number, for tests and to repeat a run
/// whose speed surprised. Senders who know the number can choose packets that share a bucket.
pub const VARIABLE: &str = "THALWEG_TABLE_SEED";

/// The environment variable [`VARIABLE`] holds no number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{VARIABLE}={0}: not a number; expected 0 to 18446744073709551615")]
pub struct SecretError(String);

/// A secret: the key of a pseudorandom function.
type Secret = [u64; 2];

/// Checks the environment; call it at the start of a program, to report a mistake to the user.
///
/// # Errors
/// [`VARIABLE`] is set and holds no number.
pub fn check_environment() -> Result<(), SecretError> {
    from_environment().map(drop)
}

fn from_environment() -> Result<Option<Secret>, SecretError> {
    std::env::var_os(VARIABLE).map(|text| number(&text.to_string_lossy())).transpose()
}

fn number(text: &str) -> Result<Secret, SecretError> {
    text.parse().map(of_number).map_err(|_| SecretError(text.into()))
}

fn of_number(seed: u64) -> Secret {
    [seed, 0]
}

/// The secret of this process.
///
/// # Panics
/// When the operating system returns no random bytes: predictable tables would be open to attack.
fn secret() -> Secret {
    static SECRET: OnceLock<Secret> = OnceLock::new();
    let draw = || {
        let mut secret = [0; 16];
        getrandom::fill(&mut secret).expect("the operating system returns random bytes");
        let (words, _) = secret.as_chunks();
        [u64::from_ne_bytes(words[0]), u64::from_ne_bytes(words[1])]
    };
    *SECRET.get_or_init(|| from_environment().ok().flatten().unwrap_or_else(draw))
}

/// The keys of the hashes of one table, or of several that belong together: a sequence of words that
/// cannot be predicted without the secret, and that differs from the keys of other tables.
#[derive(Clone, Copy)]
pub struct Keys {
    secret: Secret,
    table: u64,
}

impl Keys {
    /// Keys that no other table of the process has.
    pub fn draw() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self { secret: secret(), table: NEXT.fetch_add(1, Ordering::Relaxed) }
    }

    /// The same keys for the same seed, for runs that must be repeatable. They are no secret.
    pub fn seeded(seed: u64) -> Self {
        Self { secret: of_number(seed), table: u64::MAX }
    }

    /// The word `number`: SipHash-2-4, a pseudorandom function (Aumasson and Bernstein, "SipHash: a
    /// fast short-input PRF", INDOCRYPT 2012), of the table and of the number.
    pub(crate) fn word(self, number: u64) -> u64 {
        let [first, second] = self.secret;
        let mut function = SipHasher24::new_with_keys(first, second);
        function.write_u64(self.table);
        function.write_u64(number);
        function.finish()
    }
}

/// Without the keys, which no log may show.
impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keys")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(keys: Keys) -> Vec<u64> {
        (0..100).map(|number| keys.word(number)).collect()
    }

    #[test]
    fn tables_have_keys_of_their_own_and_a_seed_repeats_them() {
        let (first, second) = (Keys::draw(), Keys::draw());
        assert_ne!(words(first), words(second));
        assert_eq!(words(first), words(first), "a copy is of the same table");
        assert_eq!(words(Keys::seeded(7)), words(Keys::seeded(7)));
        assert_ne!(words(Keys::seeded(7)), words(Keys::seeded(8)));
        let mut all = [words(first), words(second), words(Keys::seeded(7))].concat();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 300, "no word repeats");
    }

    #[test]
    fn the_variable_holds_a_number() {
        assert_eq!(number("18446744073709551615"), Ok([u64::MAX, 0]));
        for text in ["", "-1", "0x7", "18446744073709551616"] {
            assert_eq!(number(text), Err(SecretError(text.into())));
        }
    }

    #[test]
    fn keys_do_not_show_in_messages() {
        assert_eq!(format!("{:?}", Keys::seeded(7)), "Keys");
    }
}
