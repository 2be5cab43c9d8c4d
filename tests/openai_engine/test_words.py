"""A server's own words are found in whatever form it writes them, and what it says of the context is understood."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from coevo_openai.words import words_in, words_of
from tests.openai_engine.api_kit import ask, engine_on, request
from tests.openai_engine.api_server import answers, serving

FORMS = {
    '{"error": {"message": "too bad", "type": "x"}}': "too bad",
    '{"error": "too bad"}': "too bad",
    '{"error": {"error": {"message": "too bad"}}}': "too bad",
    '{"error": {"code": 500, "details": 3}}': '{"error": {"code": 500, "details": 3}}',
    '{"detail": "too bad"}': "too bad",
    '{"detail": {"message": "too bad"}}': "too bad",
    '{"detail": [{"loc": ["body", "seed"], "msg": "too large"}, {"loc": ["body", 3], "msg": "wrong"}]}': (
        "body.seed: too large; body.3: wrong"
    ),
    '{"message": "too bad"}': "too bad",
    '{"message": ["too", "bad"]}': "too; bad",
    '{"object": "error", "message": "too bad", "code": 400}': "too bad",
    '{"title": "Bad", "status": 400}': "Bad",
    '{"errors": [{"message": "too bad"}]}': "too bad",
    '[{"error": {"message": "too bad"}}]': "too bad",
    '"too bad"': "too bad",
    "too\n  bad": "too bad",
    "<html><head><title>502</title><script>x()</script></head><body><h1>Bad &amp; worse</h1></body></html>": (
        "502 Bad & worse"
    ),
    '{"error": {"message": "Provider failed", "metadata": {"raw": "plain words"}}}': "Provider failed: plain words",
    "": "",
    "{}": "",
    "null": "",
}

OVERFLOWS = [  # as the servers in the comments word it, shortened
    {"error": {"message": "no", "code": "context_length_exceeded"}},  # OpenAI
    {"error": {"message": "Input tokens exceed the configured limit of 272000 tokens."}},  # OpenAI
    {"message": "This model's maximum context length is 8 tokens. However, you requested 9 tokens"},  # vLLM
    {"error": {"message": "The decoder prompt (length 9) is longer than the maximum model length of 8."}},  # vLLM
    {"error": {"message": "You passed 9 input tokens. However, the model's context length is only 8"}},  # vLLM
    {"message": "The input (9 tokens) is longer than the model's context length (8 tokens)."},  # SGLang
    {"message": "Input length (9 tokens) exceeds the maximum allowed length (8 tokens)."},  # SGLang
    {"error": {"message": "x", "type": "exceed_context_size_error"}},  # llama.cpp
    {"error": {"message": "request (9 tokens) exceeds the available context size (8 tokens)"}},  # llama.cpp
    {"error": "input length exceeds maximum context length"},  # Ollama
    {"error": {"message": "prompt too long; exceeded max context length by 9 tokens"}},  # Ollama
    {"error": "Trying to keep the first 9 tokens when context the overflows."},  # LM Studio
    {"error": "The number of tokens to keep from the initial prompt is greater than the model has"},  # LM Studio
    {"error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8.", "error_type": "validation"},
    {"error": "Input validation error: `inputs` must have less than 8 tokens. Given: 9"},  # TGI, as the one before
    {
        "type": "error",
        "error": {"type": "invalid_request_error", "message": "prompt is too long: 9 tokens > 8 maximum"},
    },
    {"error": {"message": "input length and `max_tokens` exceed context limit: 9 + 9 > 8"}},  # Anthropic, both
    {"message": "Prompt contains 9 tokens, too large for model with 8 maximum context length"},  # Mistral
    [{"error": {"message": "The input token count (9) exceeds the maximum number of tokens allowed (8)."}}],  # Gemini
    {"message": "too many tokens: total number of tokens in the prompt cannot exceed 8"},  # Cohere
    {"detail": "Prompt length 9 is greater than max_seq_len 8"},  # TabbyAPI
]
OTHERS = [
    {"error": {"message": "Unsupported value: 'temperature'"}},
    {"error": {"message": "Request too large for model on tokens per minute (TPM): Limit 8, Requested 9"}},
    {"error": {"message": "max_tokens must be at most 8"}},
    {"error": {"message": "the prompt is empty"}},
]


@pytest.mark.parametrize("body", FORMS)
def test_the_words_are_found(body):
    assert words_of(body.encode()).text == FORMS[body]


@pytest.mark.parametrize("page", ["<html " + "<" * 8_000_000, "<html>" + "<script>" * 1_000_000], ids=len)
def test_a_page_of_marks_that_never_end_is_read_at_once(page):
    # Work that grows with the square of the length would take hours here.
    assert words_of(page.encode()).text == ("<html " + "<" * 3994 if "<<" in page else "")
    assert len(words_in({"error": {"message": page}}).text) <= 4000


def test_what_cannot_be_read_as_a_character_is_left_as_it_is():
    assert words_of(b"<html>&#" + b"9" * 6000).text


@pytest.mark.parametrize("body", OVERFLOWS, ids=str)
def test_what_says_that_it_does_not_fit_is_understood(body):
    assert words_in(body).overflow


@pytest.mark.parametrize("body", OTHERS, ids=str)
def test_what_says_something_else_is_not_taken_for_that(body):
    assert not words_in(body).overflow


@pytest.mark.parametrize("status", [400, 413, 422, 500])
def test_a_prompt_that_does_not_fit_is_not_asked_again_and_the_server_is_heard(status):
    with serving(answers(status, json.dumps(OVERFLOWS[9]).encode())) as server:
        (answer,) = ask(engine_on(server), request())
    assert (answer.finish_reason, answer.note) == ("context_overflow", "input length exceeds maximum context length")
    assert len(server.asked) == 1


JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(
        st.sampled_from(["error", "detail", "message", "msg", "loc", "code", "metadata", "raw", "x"]), inner, max_size=4
    ),
)  # fmt: skip


@given(st.binary() | JSON.map(lambda value: json.dumps(value).encode()))
@example(b'{"loc": ["\\r"]}')
def test_any_body_is_read_into_one_line(body):
    said = words_of(body)
    assert said.text == " ".join(said.text.split())
    assert said.codes == said.codes.lower()
