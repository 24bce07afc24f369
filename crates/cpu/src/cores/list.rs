//! Lists of cores as text: `2-3,8-11`, as `taskset`, DPDK and the kernel write them.

use std::fmt::Write;

use super::HIGHEST;

/// Why a text is no list of cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadCores {
    /// A part of it is neither a number nor a range.
    #[error("bad list of cores")]
    Syntax,
    /// A number is higher than that of any core.
    #[error("no core has a number above {HIGHEST}")]
    TooHigh,
    /// A range ends before it begins.
    #[error("the range of cores {0}-{1} ends before it begins")]
    Backward(u32, u32),
    /// It names more cores than a machine can have.
    #[error("this names more than {MOST} cores")]
    TooMany,
}

/// The most cores of a list.
const MOST: usize = HIGHEST as usize + 1;

/// The cores of a list, in its order.
///
/// # Errors
/// If `text` is no list, or names too many cores, or one above [`HIGHEST`].
pub fn parse(text: &str) -> Result<Vec<u32>, BadCores> {
    let number = |text: &str| {
        let text = text.trim();
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = is_number.then(|| text.parse().unwrap_or(u32::MAX));
        match number.ok_or(BadCores::Syntax)? {
            core @ ..=HIGHEST => Ok(core),
            _ => Err(BadCores::TooHigh),
        }
    };
    let mut cores = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err(BadCores::Backward(first, last));
        }
        cores.extend(first..=last);
        if cores.len() > MOST {
            return Err(BadCores::TooMany);
        }
    }
    Ok(cores)
}

/// The list of `cores` as text, with neighbours that follow each other as a range.
pub fn as_text(cores: &[u32]) -> String {
    let mut text = String::new();
    let mut rest = cores;
    while let Some(first) = rest.first() {
        let follows = |(at, core): (usize, &u32)| u64::from(*core) == u64::from(*first) + at as u64;
        let run = rest.iter().enumerate().take_while(|(at, core)| follows((*at, core))).count();
        let comma = if text.is_empty() { "" } else { "," };
        let _ = match run {
            1 => write!(text, "{comma}{first}"),
            run => write!(text, "{comma}{first}-{}", rest[run - 1]),
        };
        rest = &rest[run..];
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_ranges_in_their_order() {
        for (text, cores) in [
            ("3", &[3][..]),
            ("2-3,8-11", &[2, 3, 8, 9, 10, 11]),
            ("9, 1 - 2", &[9, 1, 2]),
            ("1023", &[1023]),
            ("5-5", &[5]),
        ] {
            assert_eq!(parse(text).as_deref(), Ok(cores), "{text}");
        }
    }

    #[test]
    fn other_texts_are_refused_with_the_reason() {
        for text in ["", ",", "1,", "-", "1-", "-2", "1-2-3", "+1", "a", "0x1", "1.5", "1;2"] {
            assert_eq!(parse(text), Err(BadCores::Syntax), "{text}");
        }
        assert_eq!(parse("3-1"), Err(BadCores::Backward(3, 1)));
        for text in ["1024", "0-4294967295", "99999999999999999999"] {
            assert_eq!(parse(text), Err(BadCores::TooHigh), "{text}");
        }
    }

    #[test]
    fn a_long_list_ends_early() {
        assert_eq!(parse("0-1023").map(|cores| cores.len()), Ok(1024));
        assert_eq!(parse(&"0-1023,".repeat(1 << 20)), Err(BadCores::TooMany));
    }

    #[test]
    fn a_list_as_text_is_the_same_list() {
        let lists =
            [&[][..], &[7], &[0, 1], &[2, 3, 8, 9, 10, 11, 1], &[4, 4, 5, 3, 2], &[u32::MAX, 0]];
        let texts = ["", "7", "0-1", "2-3,8-11,1", "4,4-5,3,2", "4294967295,0"];
        for (cores, text) in lists.into_iter().zip(texts) {
            assert_eq!(as_text(cores), text);
            if cores.iter().all(|core| *core <= HIGHEST) && !cores.is_empty() {
                assert_eq!(parse(text).as_deref(), Ok(cores));
            }
        }
    }
}
