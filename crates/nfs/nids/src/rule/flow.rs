//! The options `flow` and `flowbits`.

use super::draft::Draft;
use super::text::{Fault, Piece};
use super::{FlowBit, View};

/// The most tests and changes of flow bits in a rule, each of which is compared with all others.
const MOST_BITS: usize = 128;

/// Reads `established,to_server`.
pub(super) fn flow(draft: &mut Draft, value: Piece<'_>) -> Result<(), Fault> {
    fn settle<T: PartialEq>(given: &mut Option<T>, value: T, part: Piece<'_>) -> Result<(), Fault> {
        match given {
            Some(before) if *before == value => {
                Err(part.fault("this repeats an earlier 'flow' keyword", "one of the two"))
            }
            Some(_) => {
                Err(part.fault("this contradicts an earlier 'flow' keyword", "one of the two"))
            }
            None => {
                *given = Some(value);
                Ok(())
            }
        }
    }
    let rule = &mut draft.rule;
    // Whether the connection's state matters.
    let mut stateful = None;
    for part in value.split(',') {
        match part.text {
            "to_server" | "from_client" => settle(&mut rule.flow.to_server, true, part)?,
            "to_client" | "from_server" => settle(&mut rule.flow.to_server, false, part)?,
            state @ ("established" | "not_established") => {
                settle(&mut rule.flow.established, state == "established", part)?;
                settle(&mut stateful, true, part)?;
            }
            "stateless" => settle(&mut stateful, false, part)?,
            "no_stream" => settle(&mut rule.view, View::Packet, part)?,
            "only_stream" => settle(&mut rule.view, View::Stream, part)?,
            "no_frag" | "only_frag" => {
                return Err(Fault::unsupported(part.span(), format!("flow '{}'", part.text)));
            }
            _ => {
                let expected = "to_server, from_client, to_client, from_server, established, \
                                not_established, stateless, no_stream or only_stream";
                return Err(part.fault("bad flow", expected));
            }
        }
    }
    Ok(())
}

/// Reads `set,NAME` and its like.
pub(super) fn flow_bits(draft: &mut Draft, value: Piece<'_>) -> Result<(), Fault> {
    let (command, names) = match value.split_once(',') {
        Some((command, names)) => (command.trim(), Some(names.trim())),
        None => (value.trim(), None),
    };
    if command.text == "noalert" {
        draft.rule.no_alert = true;
        return match names {
            Some(names) => Err(names.fault("'noalert' takes no name", "flowbits:noalert")),
            None => Ok(()),
        };
    }
    if !matches!(command.text, "set" | "unset" | "toggle" | "isset" | "isnotset") {
        let expected = "set, unset, toggle, isset, isnotset or noalert";
        return Err(command.fault("bad flowbits", expected));
    }
    let Some(names) = names.filter(|n| !n.text.is_empty()) else {
        return Err(value.fault("flowbits without a name", "COMMAND,NAME such as set,NAME"));
    };
    let alternatives = names.text.contains('|');
    let list: Vec<Piece<'_>> = names.split(if alternatives { '|' } else { '&' }).collect();
    if let Some(wrong) = list.iter().find(|n| !is_name(n.text)) {
        let expected = "names without blanks, separated by | or by &";
        return Err(if wrong.text.is_empty() { names } else { *wrong }
            .fault("bad name of a flow bit", expected));
    }
    let list = || list.iter().map(|n| n.text.to_owned());
    let one = |kind: fn(String) -> FlowBit| list().map(kind).collect::<Vec<_>>();
    let bits = match command.text {
        "isset" if alternatives => vec![FlowBit::IsSet(list().collect())],
        "isset" => one(|name| FlowBit::IsSet(vec![name])),
        "isnotset" if alternatives || list().count() == 1 => {
            vec![FlowBit::IsNotSet(list().collect())]
        }
        command if alternatives || command == "isnotset" => {
            let what = format!("flowbits '{command}' of several bits joined by | or &");
            return Err(Fault::unsupported(value.span(), what));
        }
        "set" => one(FlowBit::Set),
        "unset" => one(FlowBit::Unset),
        _ => one(FlowBit::Toggle),
    };
    let tests = bits.iter().filter(|b| matches!(b, FlowBit::IsSet(_))).count();
    draft.places.is_set.extend(std::iter::repeat_n(value.span(), tests));
    if draft.rule.bits.len() + bits.len() > MOST_BITS {
        let what = format!("a rule with more than {MOST_BITS} tests and changes of flow bits");
        return Err(Fault::unsupported(value.span(), what));
    }
    for bit in bits {
        check(&draft.rule.bits, &bit, value, &mut draft.warnings)?;
        draft.rule.bits.push(bit);
    }
    Ok(())
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || matches!(c, '&' | '|'))
}

/// Rejects a test that excludes another test of the rule, and warns of two changes of one bit.
fn check(
    before: &[FlowBit],
    new: &FlowBit,
    value: Piece<'_>,
    warnings: &mut Vec<Fault>,
) -> Result<(), Fault> {
    let both = || before.iter().chain([new]);
    // The names of tests of one bit, which must be set, or must not be.
    let forced = |set: bool| -> Vec<&String> {
        let one = both().filter_map(|bit| match bit {
            FlowBit::IsSet(names) if set => Some(names),
            FlowBit::IsNotSet(names) if !set => Some(names),
            _ => None,
        });
        one.filter(|names| names.len() == 1).flatten().collect()
    };
    let (set, unset) = (forced(true), forced(false));
    let contradicted = |bit: &FlowBit| match bit {
        FlowBit::IsSet(names) => names.iter().all(|name| unset.contains(&name)),
        FlowBit::IsNotSet(names) => names.iter().all(|name| set.contains(&name)),
        _ => false,
    };
    if both().any(contradicted) {
        let message = "this requires a flow bit both set and not set";
        return Err(value.fault(message, "isset or isnotset of a bit"));
    }
    let same = |bit: &FlowBit| changed(bit).is_some() && changed(bit) == changed(new) && bit != new;
    if before.iter().any(same) {
        let message = "an earlier option of the rule changes the same flow bit";
        warnings.push(value.fault(message, "one change of a bit in a rule"));
    }
    Ok(())
}

/// The bit that is set, unset or toggled.
fn changed(bit: &FlowBit) -> Option<&str> {
    match bit {
        FlowBit::Set(name) | FlowBit::Unset(name) | FlowBit::Toggle(name) => Some(name),
        FlowBit::IsSet(_) | FlowBit::IsNotSet(_) => None,
    }
}
