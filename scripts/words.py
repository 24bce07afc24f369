#!/usr/bin/env python3
"""Refuses the phrases of scripts/words.txt in the text that users read.

Usage: scripts/words.py [--list] [PATH...]
       scripts/words.py --self-test

Checks the string literals of Rust code outside of tests, the help in crates/cli/src/args.rs,
and the prose of Markdown: fenced code other than TOML and `code` quote a program and are left
alone. Without PATH: crates, docs and README.md. --list counts the hits of each phrase.
"""
import re
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLACES = ["crates", "docs", "README.md"]
EXEMPT = {"docs/style.md", "CHANGELOG.md"}
HELP = "crates/cli/src/args.rs"
GAP = r"(?:\\?\s|///)+"  # a blank: also a line's end, in a literal or between lines of help
BLANKED = "\0"  # neither white space nor part of a word, so that no phrase spans it
RUST = re.compile(
    r"""(?P<help>(?:///(?!/)[^\n]*\n[ \t]*)+) | //[^\n]* | /\*.*?\*/
    | [bc]?r(?P<hashes>\#*)"(?P<raw>.*?)"(?P=hashes)
    | [bc]?"(?P<text>(?:\\.|[^"\\])*)"
    | b?'(?:\\[^'\n]+|\\'|[^\\'\n])'
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
    """The literals of Rust code, each with its offset; an item under `#[cfg(test)]` is skipped."""
    depth, skipped = 0, None  # the depth of the item that is skipped
    for token in RUST.finditer(source):
        kind, mark = token.lastgroup, token["mark"]
        if token["test"] and skipped is None:
            skipped = depth
        elif mark:
            depth += {"{": 1, "}": -1, ";": 0}[mark]
            if skipped is not None and mark != "{" and depth <= skipped:
                skipped = None
        elif skipped is None and kind in ("raw", "text") or (kind == "help" and with_help):
            text = token[kind]
            if kind == "text":  # An escape is no letter of the word after it.
                text = re.sub(r"\\[nrt0]", "  ", text)
            yield token.start(kind), text


def markdown(source):
    """The prose of a page: quotations of programs become blanks, lines stay."""
    blank = lambda hit: hit[0] if hit["kind"] == "toml" else re.sub(r"[^\n]", BLANKED, hit[0])
    yield 0, QUOTED.sub(blank, source)


def hits(source, parts, known):
    """Every phrase found: its line, its text, the phrase and what to write instead."""
    for start, text in parts:
        for phrase, pattern, instead in known:
            for hit in pattern.finditer(text):
                line = source.count("\n", 0, start + hit.start()) + 1
                yield line, re.sub(GAP, " ", hit[0]), phrase, instead


def check(path, known):
    """The hits in a file, in the order of its lines."""
    source = path.read_text()
    parts = markdown(source) if path.suffix == ".md" else rust(source, path == ROOT / HELP)
    return sorted(hits(source, parts, known))


def files(places):
    """The files to check below `places`."""
    for place in (Path(place).resolve() for place in places):
        for path in sorted(place.rglob("*")) if place.is_dir() else [place]:
            inside = path.relative_to(ROOT)
            tests = path.name == "tests.rs" or "tests" in inside.parts
            if path.suffix in (".rs", ".md") and not tests and str(inside) not in EXEMPT:
                yield path


def self_test():
    """Shows that bad phrases are found where they count, and only there."""
    known = list(phrases("nobody\tx\nput together\tx"))
    code = 'fn f() { g("nobody", r#"a "nobody""#, "\\nnobody", "put \\\n  together"); } // nobody\n'
    code += "/* nobody */ fn h<'a>() { '\"'; '\\''; } #[cfg(test)]\nmod tests { const A: &str = "
    code += '"nobody"; fn f() {} }\nconst B: &str = "nobody"; /// nobody\n/// put\n/// together\nx'
    page = "put\ntogether `nobody`\n```toml\n# nobody\n```\n```text\nnobody\n```\n"
    for source, parts, expected in [
        (code, rust(code), [1, 1, 1, 1, 5]),
        (code, rust(code, True), [1, 1, 1, 1, 5, 5, 6]),
        (page, markdown(page), [1, 4]),
    ]:
        found = sorted(line for line, *_ in hits(source, parts, known))
        assert found == expected, (found, expected)
    print("words: self-test passed")


def main(arguments):
    """Returns the exit code."""
    if arguments == ["--self-test"]:
        return self_test()
    listing = "--list" in arguments
    places = [a for a in arguments if a != "--list"] or [ROOT / place for place in PLACES]
    known, count = list(phrases((ROOT / "scripts/words.txt").read_text())), Counter()
    for path in files(places):
        for line, text, phrase, instead in check(path, known):
            count[phrase] += 1
            if not listing:
                print(f"{path.relative_to(ROOT)}:{line}: '{text}': write {instead}")
    if listing:
        print("\n".join(f"{n:6} {phrase}" for phrase, n in count.most_common()))
    return 1 if count and not listing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
