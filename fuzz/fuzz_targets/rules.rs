//! Rules: flow syntax, ClassBench, Snort. What parses prints and parses again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use thalweg_classify::{RuleId, classbench, flow_syntax};
use thalweg_packet::PacketType;
use thalweg_source::Source;

fuzz_target!(|data: &[u8]| {
    let Some((kind, rest)) = data.split_first() else { return };
    let Ok(text) = std::str::from_utf8(rest) else { return };
    match kind % 3 {
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
        _ => {
            let folder = tempfile::tempdir().expect("there is a folder for temporary files");
            let path = folder.path().join("t.rules");
            std::fs::write(&path, text).expect("the file can be written");
            let options = format!("rules = ['{}']", path.display());
            if let Err(e) = thalweg_nids::KIND.build_alone(&options) {
                assert!(!e.to_string().is_empty());
            }
        }
    }
});
