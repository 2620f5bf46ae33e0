"""README and docs are short and plain, and what is not is noticed."""

from __future__ import annotations

from recipes import plain


def test_every_page_is_short_and_plain() -> None:
    texts = {path.name: path.read_text(encoding="utf-8") for path in plain.pages()}
    assert len(texts) > 10
    assert plain.faults(texts) == []


def test_docstrings_and_messages_are_plain() -> None:
    texts = {
        path.relative_to(plain.ROOT).as_posix(): path.read_text(encoding="utf-8")
        for path in plain.programs()
    }
    assert len(texts) > 100
    assert plain.program_faults(texts) == []


def test_odd_docstrings_and_messages_are_noticed() -> None:
    program = '''"""Tell what is read."""
name = "behind"
def place() -> None:
    """Return None, ``beside`` and the place."""
    raise UserError(f"{name} stands behind {place}" if name else "it is none")
log("beside it", beside)
add_argument("--name", help=f"an option {name} beside another")
'''
    found = plain.program_faults({"a.py": program})
    assert sorted(line.partition(": write")[0] for line in found) == [
        "a.py:1: 'Tell'", "a.py:5: 'behind'", "a.py:5: 'is none'", "a.py:6: 'beside'",
        "a.py:7: 'beside'",
    ]  # fmt: skip


def test_vague_identifiers_are_noticed_where_they_get_their_name() -> None:
    program = "found = 1\nfor each in []:\n    pass\ndef told(own): return each.found + own\n"
    assert sorted(plain.program_faults({"hebblm/a.py": program})) == [
        "hebblm/a.py:1: found: name it what it is",
        "hebblm/a.py:2: each: name it what it is",
        "hebblm/a.py:4: own: name it what it is",
        "hebblm/a.py:4: told: name it progress_enabled",
    ]
    assert plain.program_faults({"tests/a.py": program}) == []


def test_the_library_names_arguments_and_no_options() -> None:
    program = '''"""Read with ``hebblm-eval --log-samples``, or use --k 5."""
raise UserError(f"use {name} or --k {value}")
run(["--quiet", "--no-deps"])
log("run hebblm-train --corpus ptb --preset small to train it")
'''
    found = plain.program_faults({"hebblm/text/a.py": program})
    assert [line.partition(": name")[0] for line in found] == [
        "hebblm/text/a.py:1",
        "hebblm/text/a.py:2",
    ]
    assert plain.program_faults({"hebblm/cli/a.py": program}) == []


def test_sentences_are_those_of_prose() -> None:
    text = (
        "# A title of five words\n\nOne sentence. `code (a. b)` is one\nword here!\n- A list "
        "item.\n"
    )
    text += "- Another one\n\n| a | table |\n\n```sh\nmake demo\n```\n"
    text += "<!-- x: written by y -->\nNot this.\n<!-- end of x -->\n"
    assert plain.sentences(text) == [
        "One sentence.",
        "X is one word here!",
        "A list item.",
        "Another one",
    ]


def test_what_is_long_or_odd_is_noticed() -> None:
    assert plain.faults({"a": "word " * 24_001})[0] == "24,001 words in all, at most 24,000"
    assert "a sentence of 41 words" in plain.faults({"a": "Short it is.\n\n" * 3 + "word " * 41})[0]
    assert plain.faults({"a": f"{'word ' * 19}.\n\n"})[0].startswith(
        "a: the median sentence has 20 words"
    )
    assert plain.faults({"a": "It stands behind\nthe `behind` of it."}) == [
        "a: 'behind': write after, or worse than"
    ]
    assert plain.odd_words("There are no neighbours.") == []
    odd = (
        "beside it, an option that is none, it is of no result, is set for nothing, of which one, "
        "is told"
    )
    for said in odd.split(", "):
        assert len(plain.odd_words(said)) == 1, said
