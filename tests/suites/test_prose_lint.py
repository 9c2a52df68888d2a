"""The prose lint (scripts/prose_lint.py): each pattern finds its example, in the kinds of text that it is for, and nothing in code."""

import importlib.util
import pathlib

import pytest

pytestmark = [pytest.mark.quick, pytest.mark.may_be_retried]

CHECKOUT = pathlib.Path(__file__).resolve().parent.parent.parent


def loaded():
    spec = importlib.util.spec_from_file_location("prose_lint", CHECKOUT / "scripts" / "prose_lint.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


lint = loaded()
PATTERNS, ALLOWED = lint.load_patterns()


def found_in(path, text, allowed=()):
    return [each for kind, blocks in lint.blocks_of(path, text) for each in lint.search(path, kind, blocks, PATTERNS, allowed)]


def kinds_and_names(path, text):
    return [(each.kind, each.name) for each in found_in(path, text)]


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.name)
def test_a_pattern_finds_its_example(pattern):
    assert ("docs", pattern.name) in kinds_and_names("page.md", pattern.example + "\n")
    if pattern.fine:
        assert ("docs", pattern.name) not in kinds_and_names("page.md", pattern.fine + "\n")
    if pattern.kinds == set(lint.KINDS):
        assert ("rustdoc", pattern.name) in kinds_and_names("crates/a/src/b.rs", f"/// {pattern.example}\nfn f() {{}}\n")
        assert ("messages", pattern.name) in kinds_and_names("crates/a/src/b.rs", f'const A: &str = "{pattern.example}";\n')
        assert ("web", pattern.name) in kinds_and_names("web/src/pages/a/texts.ts", f"  a: `{pattern.example}`,\n")


def test_every_expression_begins_with_a_plain_word():
    for pattern in PATTERNS:
        for found in pattern.expressions:
            assert found.pattern[0].isalpha() or found.pattern[0] in "‹§", found.pattern


def test_code_is_no_prose():
    assert found_in("page.md", "Call `tell()`.\n\n```sh\nwhoever tells\n```\n\n[a page](what-is-there.md#tell)\n") == []
    assert found_in("crates/a/src/b.rs", "// nobody tells\nfn tell() { whoever(); }\n/// ```\n/// let told = 1;\n/// ```\nfn f() {}\n") == []
    assert found_in("crates/a/src/b.rs", 'const A: &str = "told";\n#[cfg(test)]\nmod tests {\n  const B: &str = "The log tells how.";\n}\n') == []
    assert found_in("crates/a/tests/it/b.rs", 'const B: &str = "The log tells how.";\n') == []
    assert found_in("web/src/pages/a/texts.ts", "  {\n    a: 'Read the log.',\n  },\n  {\n    a: 'Wer so many told',\n  },\n") == []


def test_a_part_of_a_page_can_be_left_out_with_a_reason():
    text = "It tells.\n\n<!-- prose-lint: off, quoted -->\n\nIt tells.\n\n<!-- prose-lint: on -->\n\nIt tells.\n"
    assert [each.line for each in found_in("page.md", text)] == [1, 9]
    assert [each.line for each in found_in("page.md", text.replace(", quoted", ""))] == [1, 5, 9]


def test_a_finding_has_its_line():
    text = "A page.\n\nIts first line,\nof which a second tells\nmore.\n"
    assert [(each.line, each.name) for each in found_in("page.md", text)] == [(4, "tell")]
    source = 'fn f() {\n    // it\'s "so"\n    let quote = \'"\';\n    error!("the client is told");\n}\n'
    assert [(each.line, each.name) for each in found_in("crates/a/src/b.rs", source)] == [(4, "tell")]


def test_a_phrase_is_found_across_lines():
    assert kinds_and_names("page.md", "The index is given\nback.\n") == [("docs", "given-back")]
    assert kinds_and_names("crates/a/src/b.rs", "/// Space is given\n/// back.\n") == [("rustdoc", "given-back")]


def test_help_and_settings_are_messages():
    for path in ("crates/settee/src/cli.rs", "crates/config/src/settings/server.rs"):
        assert kinds_and_names(path, "/// Tells how.\n") == [("messages", "tell")]


def test_an_exception_covers_its_text_only():
    allowed = [{"path": "crates/a/src/b.rs", "text": "The server tells", "reason": "a test"}]
    source = 'const A: &str = "The server tells how.";\nconst B: &str = "The log tells how.";\n'
    assert [each.line for each in found_in("crates/a/src/b.rs", source, allowed)] == [2]


def test_exceptions_have_reasons():
    assert all(entry["reason"] for entry in ALLOWED)


def test_no_kind_has_more_findings_than_recorded():
    found, unused = lint.findings(lint.files(), set(lint.KINDS))
    counts = lint.load_counts()
    for kind in lint.KINDS:
        assert sum(each.kind == kind for each in found) <= counts[kind], kind
    assert unused == []
