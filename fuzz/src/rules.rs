//! Rules: flow syntax, ClassBench, Snort, and the files of `filter` and `acl`. A flow that parses
//! prints and parses again.

use thalweg_classify::{RuleId, classbench, flow_syntax};
use thalweg_nf::Kind;
use thalweg_packet::PacketType;
use thalweg_source::Source;

/// Reads rules; the first byte chooses what reads them.
pub fn rules(data: &[u8]) {
    let Some((kind, rest)) = data.split_first() else { return };
    let Ok(text) = std::str::from_utf8(rest) else { return };
    match kind % 5 {
        0 => match flow_syntax::parse(text, &|name| (name == "lan").then_some(3)) {
            Ok(flow) => {
                let printed = flow.pattern.to_string();
                let again = flow_syntax::parse(&printed, &|_| None);
                assert_eq!(again.map(|f| f.pattern), Ok(flow.pattern), "{text:?} {printed:?}");
            }
            Err(e) => assert!(e.span.end <= text.len()),
        },
        1 => {
            let source = Source::new("acl", text);
            match classbench::parse(&source, RuleId(0), 1000, PacketType(1)) {
                Ok(rules) => assert!(rules.iter().all(|r| !r.matches.is_empty())),
                Err(errors) => assert!(errors.iter().all(|e| !e.to_string().is_empty())),
            }
        }
        2 => build(thalweg_nids::KIND, "rules = ['FILE']", text),
        3 => build(thalweg_filter::KIND, "file = 'FILE'", text),
        _ => build(thalweg_acl::KIND, "files = ['FILE']", text),
    }
}

/// Builds an NF of a kind whose options name the file that holds `text`.
fn build(kind: Kind, options: &str, text: &str) {
    let file = tempfile::NamedTempFile::new().expect("there is a folder for temporary files");
    std::fs::write(file.path(), text).expect("the file can be written");
    let options = options.replace("FILE", &file.path().display().to_string());
    match kind.build_alone(&options) {
        Ok(blueprint) => drop(blueprint.instance()),
        Err(e) => assert!(!e.to_string().is_empty()),
    }
}
