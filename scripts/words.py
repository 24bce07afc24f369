#!/usr/bin/env python3
"""Refuses the phrases of scripts/words.txt in the text that users read.

Usage: scripts/words.py [--list] [PATH...]    --list counts the hits of each phrase
       scripts/words.py --self-test

Checks string literals of Rust code outside of tests, the help in crates/cli/src/args.rs, and the
prose of Markdown, but neither `code` nor fenced blocks other than TOML: they quote programs.
"""
import re
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLACES = [ROOT / "crates", ROOT / "docs", ROOT / "README.md"]
EXEMPT = {"docs/style.md", "CHANGELOG.md"}
HELP = "crates/cli/src/args.rs"
GAP = r"(?:\\?\s|///)+"  # a blank: also a line's end, in a literal or between lines of help
RUST = re.compile(
    r"""(?P<help>(?:///(?!/)[^\n]*\n[ \t]*)+) | //[^\n]* | /\*.*?\*/
    | [bc]?r(?P<hashes>\#*)"(?P<raw>.*?)"(?P=hashes)
    | [bc]?"(?P<text>(?:\\.|[^"\\])*)"
    | b?'(?:\\'|\\[^'\n]+|[^\\'\n])'
    | (?P<test>\#\[cfg\((?:all\()?test\b[^\]]*\])
    | \w+ | (?P<mark>[{};])""",
    re.VERBOSE | re.DOTALL,
)
QUOTED = re.compile(r"^ *```(?P<kind>\w*)\n.*?^ *```|(?<!`)`[^`]+`(?!`)", re.DOTALL | re.MULTILINE)


def phrases(text):
    """The lines of words.txt: each phrase, its pattern, and what to write instead."""
    for line in text.splitlines():
        if line and not line.startswith("#"):
            phrase, instead = line.split("\t")
            pattern = phrase.replace(" ", GAP)
            yield phrase, re.compile(rf"(?<!\w)(?:{pattern})(?!\w)"), instead


def rust(source, with_help=False):
    """The literals of Rust code, each with its offset; items under `#[cfg(test)]` are skipped."""
    depth, skipped = 0, None  # the depth at which a skipped item begins
    for token in RUST.finditer(source):
        kind, mark = token.lastgroup, token["mark"]
        if token["test"] and skipped is None:
            skipped = depth
        elif mark:
            depth += {"{": 1, "}": -1, ";": 0}[mark]
            if skipped is not None and mark != "{" and depth <= skipped:
                skipped = None
        elif skipped is None and (kind in ("raw", "text") or (kind == "help" and with_help)):
            text = token[kind]
            if kind == "text":  # an escape is not a letter of the word that follows it
                text = re.sub(r"\\[nrt0]", "  ", text)
            yield token.start(kind), text


def markdown(source):
    """The prose of a page, with quotations of programs blanked; no phrase spans a blank."""
    blank = lambda hit: hit[0] if hit["kind"] == "toml" else re.sub(r"[^\n]", "\0", hit[0])
    yield 0, QUOTED.sub(blank, source)


def hits(source, parts, known):
    """Every phrase found: its line, its text, the phrase and what to write instead."""
    for start, text in parts:
        for phrase, pattern, instead in known:
            for hit in pattern.finditer(text):
                line = source.count("\n", 0, start + hit.start()) + 1
                yield line, re.sub(GAP, " ", hit[0]), phrase, instead


def files(places):
    """The files to check below `places`."""
    for place in (Path(place).resolve() for place in places):
        for path in sorted(place.rglob("*")) if place.is_dir() else [place]:
            inside = path.relative_to(ROOT)
            tests = path.name == "tests.rs" or "tests" in inside.parts
            if path.suffix in (".rs", ".md") and not tests and str(inside) not in EXEMPT:
                yield path, str(inside)


def self_test():
    """Shows that phrases are found in literals, help and prose, and nowhere else."""
    known = list(phrases("nobody\tx\nput together\tx"))
    code = 'fn f() { g("nobody", r#"a "nobody""#, "\\nnobody", "put \\\n  together"); } // nobody\n'
    code += "/* nobody */ fn h<'a>() { '\"'; '\\''; } #[cfg(test)]\nmod tests { const A: &str = "
    code += '"nobody"; fn f() {} }\nconst B: &str = "nobody"; /// nobody\n/// put\n/// together\nx'
    page = "put\ntogether `nobody`\n```toml\n# nobody\n```\n```text\nnobody\n```\n"
    for source, parts, expected in [
        (code, rust(code), [1, 1, 1, 1, 5]),
        (code, rust(code, with_help=True), [1, 1, 1, 1, 5, 5, 6]),
        (page, markdown(page), [1, 4]),
    ]:
        found = sorted(line for line, *_ in hits(source, parts, known))
        assert found == expected, (found, expected)


def main(arguments):
    """Runs the command; returns its exit code."""
    if arguments == ["--self-test"]:
        return self_test()
    listing = "--list" in arguments
    places = [argument for argument in arguments if argument != "--list"] or PLACES
    known, count = list(phrases((ROOT / "scripts/words.txt").read_text())), Counter()
    for path, name in files(places):
        source = path.read_text()
        parts = markdown(source) if path.suffix == ".md" else rust(source, name == HELP or "JsonSchema" in source)
        for line, text, phrase, instead in sorted(hits(source, parts, known)):
            count[phrase] += 1
            if not listing:
                print(f"{name}:{line}: '{text}': write {instead}")
    if listing:
        print("\n".join(f"{count[phrase]:5} {phrase}" for phrase, *_ in known))
    return int(bool(count) and not listing)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
