"""What `vllm.options` passes on is held against the arguments of the vLLM that is installed."""

import importlib.util
import json

import pytest

from coevo.errors import UserError


@pytest.mark.skipif(importlib.util.find_spec("vllm") is not None, reason="vLLM is installed")
def test_without_vllm_the_list_says_what_to_install(coevo):
    code, _, err = coevo("options", "engine", "vllm.options")
    assert code == 2
    assert err.startswith("coevo: engine 'vllm' needs the package 'vllm', which is not installed; mend it with: pip")


def test_the_options_of_the_engine_say_how_to_list_those_of_vllm(coevo):
    code, out, _ = coevo("options", "engine", "vllm")
    assert code == 0
    assert out.splitlines()[-1] == "vllm.options is listed by: coevo options engine vllm.options"


@pytest.mark.vllm
def test_the_arguments_of_vllm_are_listed_without_those_that_coevo_sets(coevo):
    pytest.importorskip("vllm")
    code, out, _ = coevo("options", "engine", "vllm.options", "--json")
    names = [option["name"] for option in json.loads(out)["options"]]
    assert code == 0
    assert {"max_logprobs", "quantization", "chat_template"} <= set(names)
    assert not {"model", "tensor_parallel_size", "worker_extension_cls", "self", "kwargs"} & set(names)
    assert names == sorted(set(names))


@pytest.mark.vllm
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("max_logprob", r"vllm.options got 'max_logprob', which vLLM \S+ does not have; did you mean 'max_logprobs'\?"),
        ("zzz", r"vllm.options got 'zzz', .*; list those it has with: coevo options engine vllm.options"),
        ("tensor_parallel_size", r"vllm.options got .*, which coevo sets itself; set vllm.tensor_parallel instead"),
        ("worker_extension_cls", r"vllm.options got 'worker_extension_cls', which coevo sets itself"),
    ],
)
def test_an_argument_that_vllm_cannot_be_given_is_refused_before_anything_is_loaded(name, said):
    pytest.importorskip("vllm")
    from coevo_vllm.engine import VllmEngine

    with pytest.raises(UserError, match=f"^{said}$"):
        VllmEngine("a/model/that/is/nowhere", options={"max_logprobs": 3, name: 1})
