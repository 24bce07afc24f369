//! Warnings and errors about a set of rules, its files and its variables.

use super::*;

const ONE: &str = "alert udp any any -> any any (content:\"a\"; sid:1;)\n";

fn warnings(rules: &str, options: &str) -> Vec<String> {
    Bench::try_new(rules, options).unwrap_or_else(|e| panic!("{e}")).1
}

fn refused(rules: &str, options: &str) -> BuildError {
    Bench::try_new(rules, options).err().unwrap_or_else(|| panic!("accepted: {rules}"))
}

#[test]
fn two_rules_of_one_sid_are_an_error_with_both_lines() {
    let other = "alert udp any any -> any any (gid:2; sid:1;)\n";
    let error = refused(&format!("{ONE}{other}\n{ONE}"), "");
    let [error] = &error.0[..] else { panic!("{error}") };
    let error = error.to_string();
    let told = "t.rules:4:48: the rule in line 1 has the same sid: '1'";
    assert!(error.contains(told), "{error}");
    assert_eq!(refused(&ONE.repeat(5), "").0.len(), 4, "each rule but the first");
}

#[test]
fn the_newest_revision_of_a_rule_counts() {
    let rule = |text: &str, rev: u8| {
        format!("alert udp any any -> any any (content:\"{text}\"; sid:1; rev:{rev};)\n")
    };
    for rules in [[("a", 1), ("b", 3), ("c", 2)], [("b", 3), ("a", 1), ("c", 2)]] {
        let rules = rules.map(|(text, rev)| rule(text, rev)).concat();
        let (mut bench, warnings) = Bench::try_new(&rules, "").unwrap_or_else(|e| panic!("{e}"));
        let [warning] = &warnings[..] else { panic!("{warnings:?}") };
        assert!(warning.contains("2 rules are replaced by a newer revision"), "{warning}");
        bench.send(&[udp(b"ac"), udp(b"b")]);
        assert_eq!(bench.sids(), [1]);
        assert_eq!(bench.alerts()[0]["alert"]["rev"], 3);
    }
}

#[test]
fn a_flow_bit_that_no_rule_sets_is_told() {
    let rule = |bits: &str, sid: u8| {
        format!("alert udp any any -> any any (content:\"a\"; flowbits:{bits}; sid:{sid};)\n")
    };
    let rules = [
        rule("isset,x", 1),
        rule("isset,y|x", 2),
        rule("isset,y|z", 3),
        rule("toggle,y", 4),
        rule("unset,x", 5),
        rule("isnotset,x", 6),
    ];
    let warnings = warnings(&rules.concat(), "");
    let [warning] = &warnings[..] else { panic!("{warnings:?}") };
    assert!(warning.contains("t.rules:1:53: no rule sets flow bit 'x'; 1 rule never"), "{warning}");
    assert!(warning.contains("'isset,x'"), "{warning}");
}

#[test]
fn many_different_warnings_end_with_their_sum() {
    let mut rules = ONE.to_owned();
    for sid in 2..=81 {
        let rule = "alert udp any any -> any any (flowbits:isset,bit#; sid:#;)\n";
        rules += &rule.replace('#', &sid.to_string());
    }
    let warnings = warnings(&rules, "");
    assert_eq!(warnings.len(), 51);
    let last = &warnings[50];
    assert!(last.contains("t.rules:52:40: 30 others like this; 30 rules never match"), "{last}");
}

#[test]
fn a_set_without_a_rule_is_an_error() {
    for text in ["", "# nothing\n\n"] {
        let error = refused(text, "").to_string();
        assert!(error.contains("t.rules:1:1: no rules left; expected at least one"), "{error}");
    }
    let unsupported = "alert ftp any any -> any any (sid:1;)\n\
        alert tcp any any -> any any (byte_math:bytes 1; sid:2;)\n\
        alert ftp any any -> any any (sid:3;)\n";
    let error = refused(unsupported, "");
    let errors: Vec<_> = error.0.iter().map(ToString::to_string).collect();
    assert_eq!(errors.len(), 3, "{errors:?}");
    assert!(errors[0].contains("no rules left; 3 rules skipped"), "{errors:?}");
    assert!(errors[1].contains("protocol 'ftp' is not supported; 2 rules are"), "{errors:?}");
    let error = KIND.build_alone("rules = []").err();
    assert!(error.unwrap().to_string().starts_with("chain.toml:1:9: no rule files"));
}

#[test]
fn one_of_several_files_without_rules_is_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a"), ONE).unwrap();
    std::fs::write(folder.path().join("b"), "# nothing\n").unwrap();
    let at = folder.path().display();
    let blueprint = KIND.build_alone(&format!("rules = ['{at}/a', '{at}/b']")).unwrap();
    let [warning] = blueprint.warnings() else { panic!("{:?}", blueprint.warnings()) };
    assert!(warning.to_string().contains("b:1:1: the file has no rules"), "{warning}");
}

#[test]
fn a_set_that_has_become_empty_is_not_taken_up() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.rules");
    std::fs::write(&file, ONE).unwrap();
    let text = format!("rules = ['{}']", file.display());
    let mut blueprint = KIND.build_alone(&text).unwrap();
    let mut nf = blueprint.instance();
    let inputs = ["in".to_owned()];
    let environment = Environment { inputs: &inputs, dry_run: true, ..Environment::default() };
    let mut reload = |blueprint: &mut Box<dyn Blueprint>| {
        thalweg_testkit::renew(&KIND, &text, &environment, blueprint, &mut *nf)
    };
    std::fs::write(&file, "# being written\n").unwrap();
    let error = reload(&mut blueprint).unwrap_err().to_string();
    assert!(error.contains("t.rules:1:1: no rules left"), "{error}");
    assert!(blueprint.describe().starts_with("1 rule,"), "{}", blueprint.describe());
    std::fs::write(&file, [ONE, &ONE.replace("sid:1", "sid:2")].concat()).unwrap();
    reload(&mut blueprint).unwrap();
    assert!(blueprint.describe().starts_with("2 rules,"), "{}", blueprint.describe());
}

#[test]
fn bad_variables_are_told_once_where_they_stand() {
    let rules = "alert udp $HOME_NET any -> $EXTERNAL_NET $HTTP_PORTS (content:\"a\"; sid:1;)\n\
        alert udp $HOME_NET any -> $EXTERNAL_NET any (content:\"a\"; sid:2;)\n";
    for (variables, place) in [
        ("HOME_NET = '[10.0.0.0/8'", "3:26: bad variable: ''[10.0.0.0/8''; expected an address"),
        ("HOME_NET = 'junk['", "3:26: bad variable"),
        ("HOME_NET = '[]'", "3:26: bad variable"),
        ("HOME_NET = '80'", "3:26: bad variable"),
        ("HOME_NET = '$NOWHERE'", "3:26: bad variable"),
        ("HTTP_PORTS = '[80,http]'", "3:28: bad variable: ''[80,http]''; expected a port"),
        ("MINE = '!any'", "3:22: bad variable"),
        ("MINE = '$MINE'", "3:22: bad variable"),
        ("'MY NET' = '10.0.0.0/8'", "3:15: bad variable name"),
        ("'$MINE' = '10.0.0.0/8'", "3:15: bad variable name"),
        ("HOME_NET = 'any'", "3:26: no address is left for EXTERNAL_NET"),
        ("HOME_NET = '[0.0.0.0/0,::/0]'", "3:26: no address is left for EXTERNAL_NET"),
    ] {
        let text = format!("variables = {{ {variables} }}");
        let error = Bench::try_new(rules, &text).err().unwrap_or_else(|| panic!("taken: {text}"));
        let [error] = &error.0[..] else { panic!("{error}") };
        assert!(error.to_string().starts_with(&format!("chain.toml:{place}")), "{error}");
    }
    for variables in [
        "HOME_NET = 'any', EXTERNAL_NET = 'any'",
        "HOME_NET = '[10.0.0.0/8,!10.1.0.0/16]', MINE = '[$HOME_NET,$HTTP_SERVERS]'",
        "MINE = '[80,443]', HTTP_PORTS = '$MINE'",
    ] {
        assert_eq!(warnings(rules, &format!("variables = {{ {variables} }}")), [""; 0]);
    }
    assert_eq!(
        warnings(ONE, "variables = { HOME_NET = 'any' }"),
        [""; 0],
        "no rule uses EXTERNAL_NET"
    );
}

#[test]
fn options_have_bounds() {
    for option in ["idle_timeout_s", "max_flows", "stream_memory_mib"] {
        let error = Bench::try_new(ONE, &format!("{option} = 0")).err().unwrap().to_string();
        assert!(error.contains("chain.toml:3:") && error.contains("expected 1 to "), "{error}");
    }
    let schema = serde_json::to_value((KIND.options)()).unwrap();
    assert_eq!(schema["properties"]["idle_timeout_s"]["minimum"], 1);
}
