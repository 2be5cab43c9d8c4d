from hypothesis import given
from hypothesis import strategies as st

from coevo_transformers.stopping import TextStream
from tests.tiny_llama import byte_tokenizer

TOKENIZER = byte_tokenizer()


def ids_of(text):
    return TOKENIZER(text, add_special_tokens=False)["input_ids"]


def said(text, stop=(), swallow="", prompt="user: "):
    stream = TextStream(TOKENIZER, ids_of(prompt), stop, swallow)
    taken = 0
    for token in ids_of(text):
        taken += 1
        if stream.push(token):
            break
    return stream.finish(), stream.stopped, taken


def test_text_ends_before_the_stop_string_and_generation_with_it():
    assert said("a + b\nprint", stop=["\n"]) == ("a + b", True, 6)


def test_the_earliest_of_several_stops_counts():
    assert said("one END two ###", stop=["###", "END"])[0] == "one "


def test_a_stop_over_several_tokens_is_found():
    assert said("x = 1</answer> more", stop=["</answer>"])[0] == "x = 1"


def test_characters_of_several_tokens_appear_whole():
    assert said("Zürich → ∑", stop=["∑"]) == ("Zürich → ", True, len("Zürich → ∑".encode()))


def test_half_a_character_at_the_end_is_shown_as_such():
    stream = TextStream(TOKENIZER, ids_of("p"), ["\n"])
    for token in ids_of("é")[:1]:
        stream.push(token)
    assert stream.finish() == "\ufffd"


def test_whitespace_trimmed_from_the_prefill_is_swallowed_once():
    assert said("    return x", swallow="    ")[0] == "return x"
    assert said("  return x", swallow="    ")[0] == "  return x"
    assert said("return x", swallow="    ")[0] == "return x"


def test_a_stop_inside_what_is_swallowed_does_not_count():
    assert said("\n  y\nz", stop=["\n"], swallow="\n  ") == ("y", True, 5)


def test_empty_stop_strings_are_ignored():
    assert said("abc", stop=[""])[0] == "abc"


@given(st.text(max_size=60), st.lists(st.text(min_size=1, max_size=3), max_size=3))
def test_streaming_equals_cutting_the_whole_text(text, stop):
    whole = TOKENIZER.decode(ids_of(text), clean_up_tokenization_spaces=False)
    cuts = [whole.find(s) for s in stop if s in whole]
    expected = whole[: min(cuts)] if cuts else whole
    found, stopped, _ = said(text, stop)
    # A stop that is met is cut at the first token that completes one, which may not be the earliest to begin.
    assert stopped == bool(cuts)
    if len(stop) <= 1:
        assert found == expected
