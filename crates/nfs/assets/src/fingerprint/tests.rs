//! Fingerprints of other projects, compared with what those projects document.

use std::path::Path;

use roxmltree::{Document, Node};

use super::*;
use thalweg_testkit::data_folder;

/// The fingerprints that `load` reads, and its warnings and errors.
fn loaded(load: impl FnOnce(&mut Loader)) -> (Fingerprints, Vec<String>) {
    let mut loader = Loader::default();
    load(&mut loader);
    let problems = loader.errors.iter().chain(&loader.warnings).map(ToString::to_string).collect();
    (loader.finish(), problems)
}

/// The banner of an example.
fn banner(example: &Node<'_, '_>) -> Vec<u8> {
    let text = example.text().unwrap_or("");
    match example.attribute("_encoding") {
        Some("base64") => base64(text),
        Some(other) => panic!("encoding {other}"),
        None => text.as_bytes().to_vec(),
    }
}

fn base64(text: &str) -> Vec<u8> {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bits, mut count, mut bytes) = (0u32, 0, Vec::new());
    for letter in text.bytes().filter(|b| LETTERS.contains(b)) {
        let value = LETTERS.iter().position(|l| *l == letter).unwrap();
        (bits, count) = (bits << 6 | value as u32, count + 6);
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    bytes
}

/// The examples that differ, and the number of all examples.
fn examples(path: &Path) -> (Vec<String>, usize) {
    let source = Source::read(path).unwrap();
    let (known, problems) = loaded(|l| l.recog(&source));
    let document = Document::parse(source.text()).unwrap();
    let root = document.root_element();
    let text = Text::named(root.attribute("matches").unwrap()).unwrap();
    let mut wrong = problems;
    let mut count = 0;
    for example in root.descendants().filter(|n| n.has_tag_name("example")) {
        count += 1;
        let banner = banner(&example);
        let says = known.text(text, &banner);
        let expected: Vec<_> =
            example.attributes().filter(|a| !a.name().starts_with('_')).collect();
        let differs = says
            .as_ref()
            .is_none_or(|says| expected.iter().any(|a| says.get(a.name()) != Some(a.value())));
        if differs {
            let banner = String::from_utf8_lossy(&banner).into_owned();
            wrong.push(format!("{}: {banner:?}: {says:?}, not {expected:?}", path.display()));
        }
    }
    (wrong, count)
}

#[test]
fn examples_of_recog_give_their_attributes() {
    let Some(folder) = data_folder().map(|d| d.join("assets/recog")) else { return };
    let (mut wrong, mut count) = (Vec::new(), 0);
    for entry in folder.read_dir().unwrap() {
        let (more, examples) = examples(&entry.unwrap().path());
        wrong.extend(more);
        count += examples;
    }
    assert!(count > 2000, "{count} examples");
    assert!(wrong.is_empty(), "{} of {count} differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn p0f_is_understood_whole() {
    let Some(folder) = data_folder() else { return };
    let source = Source::read(folder.join("assets/p0f.fp")).unwrap();
    let (known, problems) = loaded(|l| l.p0f(&source));
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    let signatures = source.text().lines().filter(|l| l.starts_with("sig")).count();
    let [handshakes, ..] = known.counts();
    assert!(handshakes > 150 && handshakes < signatures, "{handshakes} of {signatures}");
    assert_eq!(known.link(1492), Some("DSL"));
}

#[test]
fn what_comes_with_the_program_is_right() {
    let (known, problems) = loaded(Loader::built_in);
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(known.counts().iter().all(|count| *count > 5));
    let says = known.text(Text::Ssh, b"OpenSSH_9.2p1 Debian-2+deb12u3").unwrap();
    assert_eq!(says.get("service.version"), Some("9.2p1"));
    assert_eq!(says.get("service.info"), Some("Debian-2+deb12u3"));
}
