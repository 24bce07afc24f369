//! Options that read numbers from the payload.

use super::content::{
    ByteExtract, ByteJump, ByteTest, MOST_DIGITS, Number, Order, PayloadTest, Place, VARIABLES,
};
use super::text::{Fault, Piece};

pub(super) fn is_data_at(value: Piece<'_>, names: &[String]) -> Result<PayloadTest, Fault> {
    let (value, negated) = match value.strip('!') {
        Some(rest) => (rest, true),
        None => (value, false),
    };
    let mut parts = value.split(',');
    let first = parts.next().unwrap_or(value);
    let at = match variable(first, names)? {
        Some(variable) => variable,
        None => Number::Literal(i64::from(first.number::<u16>()?)),
    };
    let mut relative = false;
    for part in parts {
        match part.text {
            "relative" => relative = true,
            "rawbytes" => {}
            _ => return Err(part.fault("bad isdataat", "relative or rawbytes")),
        }
    }
    Ok(PayloadTest::IsDataAt { at, relative, negated })
}

/// The variable that `piece` names; `None` if it is not a name.
pub(super) fn variable(piece: Piece<'_>, names: &[String]) -> Result<Option<Number>, Fault> {
    if !piece.text.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return Ok(None);
    }
    match names.iter().position(|n| n == piece.text) {
        Some(index) => Ok(Some(Number::Variable(index))),
        None => Err(piece.fault("unknown variable", "the name of an earlier byte_extract")),
    }
}

/// A number, decimal or hexadecimal with 0x.
fn literal(piece: Piece<'_>) -> Result<u64, Fault> {
    match piece.text.strip_prefix("0x").or_else(|| piece.text.strip_prefix("0X")) {
        Some(hex) => {
            let expected = "a hexadecimal number of at most 64 bits";
            u64::from_str_radix(hex, 16).map_err(|_| piece.fault("bad number", expected))
        }
        None => piece.number(),
    }
}

fn offset(piece: Piece<'_>, names: &[String]) -> Result<Number, Fault> {
    match variable(piece, names)? {
        Some(variable) => Ok(variable),
        None => Ok(Number::Literal(i64::from(piece.number::<i32>()?))),
    }
}

/// Reads `part` if it sets the number's format; returns whether it does.
fn number_form(part: Piece<'_>, place: &mut Place) -> Result<bool, Fault> {
    let order = &mut place.order;
    match part.text {
        "relative" => place.relative = true,
        "big" => *order = Order::Big,
        "little" => *order = Order::Little,
        "string" | "dec" => *order = Order::Digits(10),
        "hex" => *order = Order::Digits(16),
        "oct" => *order = Order::Digits(8),
        "dce" => return Err(Fault::unsupported(part.span(), "'dce'")),
        text if text.starts_with("bitmask") => place.mask = literal(part.from(7).trim())?,
        _ => return Ok(false),
    }
    Ok(true)
}

/// The number of bytes to read; 0 reads all digits there are, and for a jump nothing.
fn count(
    piece: Piece<'_>,
    order: Order,
    names: &[String],
    may_be_none: bool,
) -> Result<Number, Fault> {
    if let Some(variable) = variable(piece, names)? {
        return Ok(variable);
    }
    let digits = matches!(order, Order::Digits(_));
    let (least, most) = (i64::from(!digits && !may_be_none), if digits { MOST_DIGITS } else { 8 });
    let n: i64 = piece.number()?;
    if (least..=most).contains(&n) {
        Ok(Number::Literal(n))
    } else {
        Err(piece.fault("bad byte count", format!("{least} to {most}")))
    }
}

pub(super) fn byte_test(value: Piece<'_>, names: &[String]) -> Result<ByteTest, Fault> {
    let parts: Vec<Piece<'_>> = value.split(',').collect();
    let [bytes, operator, compared, at, rest @ ..] = &parts[..] else {
        return Err(value.fault("bad byte_test", "bytes, operator, value, offset"));
    };
    let mut test = ByteTest {
        place: Place::default(),
        operator: '=',
        or_equal: false,
        negated: false,
        value: Number::Literal(0),
    };
    let sign = operator.strip('!').map_or(operator.text, |rest| {
        test.negated = true;
        rest.text
    });
    (test.operator, test.or_equal) = match sign {
        "<" => ('<', false),
        ">" => ('>', false),
        "<=" => ('<', true),
        ">=" => ('>', true),
        "=" | "" => ('=', false),
        "&" => ('&', false),
        "^" => ('^', false),
        _ => {
            let expected = "<, >, =, <=, >=, & or ^, optionally after !";
            return Err(operator.fault("bad operator", expected));
        }
    };
    for part in rest {
        if !number_form(*part, &mut test.place)? {
            let expected = "relative, big, little, string, hex, dec, oct or bitmask";
            return Err(part.fault("bad byte_test", expected));
        }
    }
    test.place.count = count(*bytes, test.place.order, names, false)?;
    test.value = match variable(*compared, names)? {
        Some(variable) => variable,
        // Unsigned numbers wrap here, and wrap back where they are compared.
        None => Number::Literal(literal(*compared)? as i64),
    };
    test.place.offset = offset(*at, names)?;
    Ok(test)
}

pub(super) fn byte_jump(value: Piece<'_>, names: &[String]) -> Result<ByteJump, Fault> {
    let parts: Vec<Piece<'_>> = value.split(',').collect();
    let [bytes, at, rest @ ..] = &parts[..] else {
        return Err(value.fault("bad byte_jump", "bytes, offset"));
    };
    let mut jump = ByteJump {
        place: Place::default(),
        multiplier: 1,
        align: false,
        from_beginning: false,
        post_offset: Number::Literal(0),
    };
    for part in rest {
        let (name, behind) = word(*part);
        match name {
            "align" => jump.align = true,
            "from_beginning" => jump.from_beginning = true,
            "multiplier" => jump.multiplier = literal(behind)?,
            "post_offset" => jump.post_offset = offset(behind, names)?,
            _ if number_form(*part, &mut jump.place)? => {}
            "from_end" => return Err(Fault::unsupported(part.span(), "'from_end'")),
            _ => {
                let expected = "relative, big, little, string, hex, dec, oct, bitmask, align, \
                                multiplier, from_beginning or post_offset";
                return Err(part.fault("bad byte_jump", expected));
            }
        }
    }
    jump.place.count = count(*bytes, jump.place.order, names, true)?;
    jump.place.offset = offset(*at, names)?;
    Ok(jump)
}

/// Reads a byte_extract and adds its name to `names`.
pub(super) fn byte_extract(
    value: Piece<'_>,
    names: &mut Vec<String>,
) -> Result<ByteExtract, Fault> {
    let parts: Vec<Piece<'_>> = value.split(',').collect();
    let [bytes, at, name, rest @ ..] = &parts[..] else {
        return Err(value.fault("bad byte_extract", "bytes, offset, name"));
    };
    if !name.text.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return Err(name.fault("bad variable name", "a name that begins with a letter"));
    }
    let (mut place, mut multiplier, mut align) = (Place::default(), 1, 1);
    for part in rest {
        let (word, behind) = word(*part);
        match word {
            "multiplier" => multiplier = literal(behind)?,
            "align" => align = literal(behind)?,
            _ if number_form(*part, &mut place)? => {}
            _ => {
                let expected = "relative, big, little, string, hex, dec, oct, bitmask, align or \
                                multiplier";
                return Err(part.fault("bad byte_extract", expected));
            }
        }
    }
    if !matches!(align, 1 | 2 | 4) {
        return Err(value.fault("bad align", "1, 2 or 4"));
    }
    place.count = count(*bytes, place.order, names, false)?;
    place.offset = offset(*at, names)?;
    let index = names.iter().position(|n| n == name.text).unwrap_or(names.len());
    if index == VARIABLES {
        let what = format!("a rule with more than {VARIABLES} variables");
        return Err(Fault::unsupported(name.span(), what));
    }
    if index == names.len() {
        names.push(name.text.to_owned());
    }
    Ok(ByteExtract { place, multiplier, align, variable: index })
}

/// Reads `bytes 12, offset 1, relative`, each of which is optional.
pub(super) fn base64_decode(value: Option<Piece<'_>>) -> Result<PayloadTest, Fault> {
    let (mut bytes, mut offset, mut relative) = (None, 0, false);
    let parts = value.into_iter().flat_map(|v| v.split(',').collect::<Vec<_>>());
    for part in parts {
        let (word, behind) = word(part);
        match word {
            "bytes" => bytes = Some(behind.number::<u16>()?.into()),
            "offset" => offset = behind.number::<u16>()?.into(),
            "relative" => relative = true,
            _ => return Err(part.fault("bad base64_decode", "bytes N, offset N or relative")),
        }
    }
    Ok(PayloadTest::Base64 { bytes, offset, relative, tests: Vec::new() })
}

/// The first word, and the text after it.
fn word(part: Piece<'_>) -> (&str, Piece<'_>) {
    match part.text.find(' ') {
        Some(at) => (&part.text[..at], part.from(at).trim()),
        None => (part.text, part.from(part.text.len())),
    }
}
