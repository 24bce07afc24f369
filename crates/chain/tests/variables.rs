//! Environment variables in the chain file: in strings only, reported where they stand, and never
//! shown with their value.

mod common;

use common::{Folder, Tag};

/// Set by cargo for each test.
const VALUE: &str = env!("CARGO_PKG_NAME");

const ROUTES: &str = "[[route]]\npath = ['ingress', 'a', 'egress']\n";

fn folder(chain: &str) -> Folder {
    let folder = Folder::new();
    let tag = Tag { flow: 1, back: false, lineage: 0, sequence: 0 };
    folder.capture(&format!("{VALUE}.pcap"), &[tag]);
    folder.write("chain.toml", &format!("{chain}{ROUTES}"));
    folder
}

const CHAIN: &str = r#"[input.in]
capture = "${CARGO_PKG_NAME}.pcap"
[output.out]
capture = "${NO_SUCH_VARIABLE:-out}.pcap"
[nf.a]
kind = "monitor"
json = """${CARGO_PKG_NAME}.json"""
[[class]]
type = "web"
rules = ["tcp,tp_dst=${NO_SUCH_VARIABLE:-80}", 'udp']
"#;

#[test]
fn strings_everywhere_have_their_values() {
    let folder = folder(CHAIN);
    let plan = folder.load().unwrap();
    let tree = plan.graph().to_tree();
    assert!(tree.contains(&format!("{VALUE}.pcap\n")) && tree.contains("out.pcap\n"), "{tree}");
    assert_eq!(plan.files.outputs_of_nfs()[0].path(), folder.path(&format!("{VALUE}.json")));
    assert!(tree.contains("2 rules, 2 packet types"), "{tree}");
    // The same string in another form, and a reload, read them too.
    assert!(plan.succession().unwrap().difference.is_empty());
}

#[test]
fn keys_and_files_of_rules_keep_their_text() {
    let chain = CHAIN
        .replace("[nf.a]", "[nf.'${HOME}']")
        .replace("rules = [\"tcp,tp_dst=${NO_SUCH_VARIABLE:-80}\", 'udp']", "file = \"web.flows\"");
    let folder = folder(&chain);
    folder.write("web.flows", "tcp,tp_dst=${NO_SUCH_VARIABLE:-80}\n");
    let mistakes = folder.mistakes();
    assert_eq!(mistakes.len(), 2, "{mistakes:?}");
    assert!(mistakes[0].starts_with("chain.toml:12:20: unknown NF: ''a''"), "{mistakes:?}");
    assert!(mistakes[0].ends_with("expected one of: ${HOME}"), "{mistakes:?}");
    assert!(mistakes[1].starts_with("web.flows:1:12: "), "{mistakes:?}");
}

#[test]
fn all_variables_without_a_value_are_reported_where_they_stand() {
    let chain = CHAIN
        .replace("${NO_SUCH_VARIABLE:-out}", "${NO_SUCH_VARIABLE}")
        .replace("\"\"\"${CARGO_PKG_NAME}", "\"\"\"${CARGO PKG_NAME}")
        .replace("kind = \"monitor\"", "kind = \"rooter\"");
    assert_eq!(
        folder(&chain).mistakes(),
        [
            "chain.toml:4:12: the environment variable 'NO_SUCH_VARIABLE' is not set: \
             '${NO_SUCH_VARIABLE}'; expected NO_SUCH_VARIABLE in the environment, or a default: \
             ${NO_SUCH_VARIABLE:-default}",
            "chain.toml:7:8: invalid variable: '\"\"\"${CARGO PKG_NAME}.json\"\"\"'; \
             expected ${NAME} or ${NAME:-default}; $${ for a literal ${",
        ]
    );
}

#[test]
fn messages_show_the_text_of_the_file() {
    let told = |from: &str, to: &str| {
        assert_eq!(CHAIN.matches(from).count(), 1, "{from}");
        let mistakes = folder(&CHAIN.replace(from, to)).mistakes();
        assert_eq!(mistakes.len(), 1, "{mistakes:?}");
        assert!(!mistakes[0].contains(VALUE), "{mistakes:?}");
        mistakes.into_iter().next().unwrap()
    };
    let interface = told("capture = \"${CARGO_PKG_NAME}.pcap\"", "interface = '${CARGO_PKG_NAME}'");
    assert!(
        interface.starts_with(
            "chain.toml:2:13: there is no interface '${CARGO_PKG_NAME}': ''${CARGO_PKG_NAME}''; "
        ),
        "{interface}"
    );
    let kind = told("\"monitor\"", "'${CARGO_PKG_NAME}'");
    assert!(kind.contains("unknown NF kind '${CARGO_PKG_NAME}': "), "{kind}");
    let number = told("kind = \"monitor\"", "kind = \"monitor\"\nmax_flows = '${CARGO_PKG_NAME}'");
    assert!(number.contains("invalid type: string \"${CARGO_PKG_NAME}\""), "{number}");
    // A part of a rule with a variable has no place of its own.
    let rule = told("${NO_SUCH_VARIABLE:-80}", "${CARGO_PKG_NAME}");
    assert!(rule.contains("chain.toml:10:10: "), "{rule}");
    assert!(rule.contains(": '\"tcp,tp_dst=${CARGO_PKG_NAME}\"'; "), "{rule}");
    // In a message about another place.
    let covered = "rules = ['ip,dl_vlan=${NO_SUCH_VARIABLE:-1}', 'tcp,dl_vlan=1']";
    let chain = CHAIN.replace("rules = [\"tcp,tp_dst=${NO_SUCH_VARIABLE:-80}\", 'udp']", covered);
    let mistakes = folder(&chain).mistakes();
    assert!(mistakes[0].contains("this rule can never match: 'ip,dl_vlan=${NO_"), "{mistakes:?}");
}
