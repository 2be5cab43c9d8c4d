"""Tables, verdicts and mends of `coevo plan`."""

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from coevo.tools.sizing import costs, memory
from coevo.tools.sizing.architecture import architecture
from coevo.tools.sizing.constants import CONSTANTS, GB
from coevo.tools.sizing.deployment import Deployment
from coevo.tools.sizing.tables import size
from tests.tiny_llama import save_tiny_llama

ROOT = Path(__file__).parents[2]
FAKES = str(ROOT / "tests/fakes.py")
CONFIGS = sorted((ROOT / "configs").glob("*.toml"))
LLAMA = architecture("meta-llama/Llama-3.1-8B-Instruct")
ON_GPU = Deployment(
    engine="sharded", pool="", workers=2, shards=1, on_gpu=True, dtype="bfloat16", width=2, context=4096, sequences=16,
    cache_tokens=None, cache_bytes=None, share=0.85, reserved=None, master="host", cuts=True,
)  # fmt: skip


def rows(how=ON_GPU, memory_bytes=80 * GB, answer=512):
    return {row.what: row for row in memory.device_rows(LLAMA, how, memory_bytes, answer)}


def host(how):
    device = memory.device_rows(LLAMA, how, 80 * GB, 512)
    return {row.what: row for row in memory.host_rows(LLAMA, how, device)}


def test_a_device_holds_the_served_weights_and_no_optimizer():
    assert rows()["weights, served"].bytes == 2 * LLAMA.parameters
    assert set(rows()) == {
        "weights, served", "key/value cache", "activations", "noise on its way", "runtime", "sum",
    }  # fmt: skip


def test_the_sum_is_that_of_the_rows():
    *parts, last = memory.device_rows(LLAMA, ON_GPU, 80 * GB, 512)
    assert last.bytes == sum(row.bytes or 0 for row in parts)


def test_the_cache_holds_all_answers_where_there_is_room_and_as_many_as_fit_where_not():
    assert rows()["key/value cache"].bytes == 16 * 4096 * 131_072
    small = rows(memory_bytes=24 * GB)["key/value cache"]
    assert small.bytes == 1 * 4096 * 131_072
    assert small.note == "room for 0 of 16 answers of 4,096 tokens; the others wait"
    middle = rows(memory_bytes=32 * GB)["key/value cache"]
    assert middle.bytes // (4096 * 131_072) == int(re.match(r"room for (\d+) of 16", middle.note)[1])


def test_tensor_parallelism_cuts_weights_and_cache():
    one, two = rows(), rows(dataclasses.replace(ON_GPU, shards=2))
    for what in ("weights, served", "key/value cache"):
        assert two[what].bytes == one[what].bytes // 2


def test_noise_is_two_pieces_of_the_master_and_the_largest_tensor():
    assert rows()["noise on its way"].bytes == 2 * 256_000_000 + 2 * 4096 * 128_256


def test_every_engine_of_a_pool_has_its_master_and_the_processes_of_one_engine_share_theirs():
    assert host(ON_GPU)["fp32 master"].bytes == 2 * 4 * LLAMA.parameters
    shared = dataclasses.replace(ON_GPU, workers=1, shards=2)
    assert host(shared)["fp32 master"].bytes == 4 * LLAMA.parameters


def test_a_master_on_disk_leaves_main_memory_free():
    on_disk = dataclasses.replace(ON_GPU, master="disk")
    assert "fp32 master" not in host(on_disk)


def test_on_the_cpu_all_of_it_is_in_main_memory():
    how = dataclasses.replace(ON_GPU, on_gpu=False, workers=1, cache_tokens=8192, share=1.0)
    table = host(how)
    assert table["weights, served"].bytes == 2 * LLAMA.parameters
    assert table["key/value cache"].bytes == 8192 * 131_072
    assert "noise on its way" not in table
    assert "runtime" not in table


def test_what_is_not_known_is_not_made_up():
    shape = architecture("someone/else", 4_000_000_000)
    table = {r.what: r for r in memory.device_rows(shape, dataclasses.replace(ON_GPU, context=None), None, 1)}
    assert table["weights, served"].bytes == 8_000_000_000
    for what in ("key/value cache", "activations"):
        assert (table[what].bytes, table[what].note) == (None, memory.UNKNOWN)
    assert table["sum"].note == "at least: something is unknown"


WORK = costs.Work(
    rollouts=64, calls=64, leases=8, updates=1, terms=8, prompt=100, answer=412, hand=8
)  # fmt: skip


def test_seeds_and_numbers_cross_the_network_and_not_weights():
    found = costs.network_bytes(LLAMA, ON_GPU, WORK)
    assert found["es"] == 8 * 16 + 2 * (8 * 16 + 64)
    assert found["broadcast"] == 2 * 2 * LLAMA.parameters


def test_twice_the_members_take_twice_the_noise():
    double = dataclasses.replace(WORK, leases=16, terms=16)
    one, two = (costs.seconds(LLAMA, ON_GPU, work, 16) for work in (WORK, double))
    assert two.noise == pytest.approx(2 * one.noise)
    assert two.updates == pytest.approx(2 * one.updates)
    assert two.rollouts == one.rollouts


def test_on_the_cpu_the_rates_are_those_of_the_bench():
    how = dataclasses.replace(ON_GPU, on_gpu=False, workers=1)
    demo = architecture("smollm2-135m")
    found = costs.seconds(demo, how, WORK, 2)
    assert found.serve == pytest.approx(134_515_008 / 1.05e9)
    assert found.rollouts == pytest.approx(64 * 412 / 143)


def test_every_constant_says_where_it_comes_from():
    for name, constant in CONSTANTS.items():
        assert constant.value > 0, name
        assert constant.source, name


@pytest.mark.parametrize(("number", "text"), [(None, "-"), (12, "12 B"), (4_200, "4.2 kB"), (6e9, "6.0 GB")])
def test_sizes_are_told_in_a_unit_that_fits(number, text):
    assert size(number) == text


# The command.


@pytest.fixture
def tiny(tmp_path):
    return str(save_tiny_llama(tmp_path / "tiny"))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda p: p.name)
def test_every_config_can_be_planned(path, coevo):
    code, out, err = coevo("plan", path, "--gpus", 4, "--gpu-memory", 80, "--host-memory", 512, "--json")
    assert err == ""
    found = json.loads(out)
    assert code == (0 if found["fits"] else 1)
    assert found["rollouts"]["usual"]["rollouts"] > 0
    assert found["served"] == "elsewhere" or found["model"]["parameters"] > 1e8


@pytest.mark.parametrize("name", ["paper-qwen3.5-4b.toml", "paper-qwen3.5-27b.toml"])
def test_a_paper_scale_config_fits_four_gpus(name, coevo):
    plan = [ROOT / "configs" / name, "--gpus", 4, "--gpu-memory", 80, "--host-memory", 512]
    code, out, _ = coevo("plan", *plan)
    assert code == 0, out
    workers = "4 workers of 1 device" if "4b" in name else "2 workers of 2 devices"
    assert f", {workers}, " in out
    verdicts = dict(re.findall(r"^(.+?)  +(fits|not judged)  ", out, re.MULTILINE))
    assert verdicts["each of 4 GPUs"] == "fits"
    assert "model calls" in out
    assert re.search(r"seeds and numbers [\d.]+ k?B; all weights to every worker would be \d+\.\d GB", out)


def test_the_rollouts_of_the_paper_are_counted(coevo):
    _, out, _ = coevo("plan", ROOT / "configs/paper-qwen3.5-4b.toml", "--json")
    usual = json.loads(out)["rollouts"]["usual"]
    assert (usual["rollouts"], usual["leases"], usual["updates"]) == (32 * 32, 32, 1)


def test_a_plan_of_this_machine_is_held_against_this_machine(plan, tiny):
    code, out, _ = plan("--set", f"model={tiny}", "--gpus", "0")
    assert code == 0
    assert re.search(r"^main memory +fits +needs \d", out, re.MULTILINE)


def test_a_shorter_context_that_is_proposed_fits(plan):
    arguments = [
        "--set", "model=meta-llama/Llama-3.1-8B-Instruct", "--set", "engine=sharded", "--gpus", "1",
        "--gpu-memory", "24", "--set", "sharded.memory=1.0",
    ]  # fmt: skip
    code, out, _ = plan(*arguments)
    assert code == 1
    tokens = re.search(r"a context of ([\d,]+) tokens instead of 131,072", out)[1].replace(",", "")
    assert plan(*arguments, "--set", f"sharded.context={tokens}")[0] == 0
    assert plan(*arguments, "--set", f"sharded.context={int(tokens) + 256}")[0] == 1


def test_tensor_parallelism_that_is_proposed_fits(plan):
    arguments = [
        "--set", "model=meta-llama/Llama-3.1-8B-Instruct", "--set", "engine=pool", "--gpus", "2", "--gpu-memory", "16",
        "--set", "pool.workers=2",
    ]  # fmt: skip
    code, out, _ = plan(*arguments, "--set", "pool.options.context=4096")
    assert code == 1
    assert "mend: tensor parallelism 2 (1 worker)" in out
    mended = ["--set", "pool.options={tensor_parallel = 2, context = 4096}", "--set", "pool.workers=1"]
    assert plan(*arguments, *mended)[0] == 0


def test_a_small_main_memory_is_mended_by_a_master_on_disk(plan):
    arguments = [
        "--set", "model=meta-llama/Llama-3.1-8B-Instruct", "--set", "engine=sharded", "--gpus", "1",
        "--gpu-memory", "80", "--host-memory", "16",
    ]  # fmt: skip
    code, out, _ = plan(*arguments)
    assert code == 1
    assert re.search(r"^main memory +DOES NOT FIT .*mend: master = 'disk' \(32\.1 GB there\)", out, re.MULTILINE)
    assert plan(*arguments, "--set", "sharded.master=disk")[0] == 0


def test_too_few_gpus_do_not_fit(plan):
    pool = ["--set", "model=Qwen/Qwen3.5-4B", "--set", "engine=pool", "--set", "pool.workers=4"]
    code, out, _ = plan(*pool, "--gpus", "2", "--gpu-memory", "80", "--set", "pool.options.context=4096")
    assert code == 1
    assert re.search(
        r"^number of GPUs +DOES NOT FIT +needs 4 of 2 +mend: fewer workers, or a node of 4 GPUs$", out, re.MULTILINE
    )


QWEN_ON_POOL = ["--model", "Qwen/Qwen3.5-27B", "--engine", "pool", "--gpu-memory", "80"]


def test_a_mend_needs_no_more_gpus_than_there_are(plan):
    tight = ["--model", "meta-llama/Llama-3.1-8B-Instruct", "--engine", "sharded", "--gpu-memory", "9"]
    tight += ["--set", "sharded.context=2048"]
    assert "mend: tensor parallelism 4 (1 worker)" in plan(*tight, "--gpus", "4")[1]
    _, out, _ = plan(*tight, "--gpus", "3")
    assert "DOES NOT FIT" in out
    assert "tensor parallelism" not in out


def test_workers_of_a_mend_are_as_many_as_there_is_room_for(plan):
    tight = ["--model", "meta-llama/Llama-3.1-8B-Instruct", "--engine", "pool", "--set", "pool.workers=8"]
    _, out, _ = plan(*tight, "--gpus", "4", "--gpu-memory", "16", "--set", "pool.options.context=4096")
    assert "mend: tensor parallelism 2 (2 workers)" in out


def test_more_gpus_than_there_are_are_not_counted_as_if_they_were_there(plan):
    spread = ["--set", "pool.workers=2", "--set", "pool.options.tensor_parallel=2"]
    code, out, _ = plan(*QWEN_ON_POOL, *spread, "--gpus", "3")
    assert code == 1
    assert "each of 4 GPUs" not in out
    assert re.search(r"^each GPU +what it", out, re.MULTILINE)
    assert re.search(r"^each GPU +fits", out, re.MULTILINE)
    assert "needs 4 of 3    mend: fewer workers, or a node of 4 GPUs" in re.sub(" {4,}", "    ", out)
    _, out, _ = plan(*QWEN_ON_POOL, "--set", "pool.workers=1", "--set", "pool.options.tensor_parallel=4", "--gpus", "3")
    assert "mend: less tensor parallelism, or a node of 4 GPUs" in out


def test_the_options_of_run_may_be_used(plan, tiny):
    code, out, err = plan("--model", tiny, "--engine", "numbers", "--plugin", FAKES, "--param", "none", "--context",
                          "fixed", "--set", "task=aim")  # fmt: skip
    assert (code, err) == (0, "")
    assert f"{tiny}: " in out
    assert "none and fixed on aim" in out
    assert "engine numbers" in out


def test_a_number_that_is_written_as_a_text_is_that_number(plan):
    asked = ["--model", "Qwen/Qwen3.5-4B", "--engine", "sharded", "--json", "--set"]
    shown = [json.loads(plan(*asked, f"sharded.rows={rows}")[1]) for rows in ("1", "'1'")]
    assert [found["deployment"]["sequences"] for found in shown] == [1, 1]


def test_an_engine_that_says_nothing_of_its_memory_is_taken_for_a_plain_one(plan, tiny):
    found = json.loads(plan("--model", tiny, "--engine", "numbers", "--plugin", FAKES, "--gpus", "0", "--json")[1])
    how = found["deployment"]
    assert (how["shards"], how["cuts"], how["master"]) == (1, False, "host")


def test_a_memory_that_nobody_told_is_not_judged(plan):
    code, out, _ = plan(
        "--set", "model=Qwen/Qwen3.5-4B", "--set", "engine=sharded", "--gpus", "1", "--gpu-memory", "80"
    )
    assert code == 0
    assert re.search(r"^main memory +not judged", out, re.MULTILINE)
    assert "main memory not known (give --host-memory)" in out


def test_a_model_that_a_server_has_needs_nothing_here(plan):
    code, out, _ = plan("--set", "engine=server", "--set", "model=any-name", "--set", "param=none")
    assert code == 0
    assert "The model is served elsewhere" in out
    assert "model calls" in out


MISTAKES = {
    ("--set", "model=some/one"): "nothing is known of the size of model 'some/one'; give it with --parameters 4e9",
    ("--parameters", "many"): "--parameters got 'many': expected a number of weights such as 4e9",
    ("--gpus", "-1"): "--gpus got -1: expected how many the node has, or 0 for the CPU",
    ("--gpu-memory", "0"): "--gpu-memory got 0.0: expected a size in GB, such as 80",
    ("--set", "engine=shardet"): "no engine named 'shardet'; did you mean 'sharded'?",
    ("--set", "model=Qwen/Qwen3.5-27B", "--set", "engine=sharded", "--set", "sharded.tensor_parallel=5"):
        "tensor parallelism 5 does not divide the 24 attention heads of 'Qwen/Qwen3.5-27B'",
    ("--set", "model=Qwen/Qwen3.5-27B", "--set", "engine=pool", "--set", "pool.gpus=1", "--set",
     "pool.options.tensor_parallel=2"): "pool.gpus got 1: tensor parallelism 2 needs 2 GPUs for each worker",
    ("--engine", "pool", "--set", "pool.engine=shardet"): "no engine named 'shardet'; did you mean 'sharded'?",
    ("--engine", "pool", "--set", "pool.engine=pool"): "pool.engine got 'pool': a pool is no worker; expected",
    ("--engine", "pool", "--set", "pool.engine=server"):
        "parameter updater 'es' cannot train on engine 'server', whose weights are fixed; use an engine that adapts",
    ("--engine", "pool", "--set", "pool.options.rowz=1"): "engine 'sharded' has no option 'rowz'; did you mean 'rows'?",
    ("--engine", "pool", "--set", "pool.options.rows=many"): "engine 'sharded': option 'rows' got 'many'",
    ("--engine", "server"): "parameter updater 'es' cannot train on engine 'server', whose weights are fixed",
    ("--engine", "sharded", "--set", "sharded.tensor_parallel=3", "--gpus", "0"):
        "tensor parallelism 3: on the CPU each worker needs a core and there are 2; set less, or plan for GPUs",
    ("nowhere.toml",): "no configuration file 'nowhere.toml'",
}  # fmt: skip


@pytest.mark.parametrize("arguments", list(MISTAKES), ids=" ".join)
def test_a_mistake_is_one_line(arguments, plan, monkeypatch):
    monkeypatch.setattr("coevo.machine.resources.cores", lambda: 2)
    code, out, err = plan(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"coevo: {MISTAKES[arguments]}")
    assert len(err.splitlines()) == 1


def test_a_plan_imports_no_model_library(tmp_path):
    program = (
        "import contextlib, sys\nfrom coevo.cli import main\n"
        "asked = ['plan', '--set', 'model=Qwen/Qwen3.5-4B', '--json']\n"
        "code = main(asked)\nwith contextlib.redirect_stdout(open('text', 'w')): main(asked[:-1])\n"
        "heavy = ('torch', 'transformers', 'vllm', 'ray', 'openai', 'numba')\n"
        "print([name for name in heavy if name in sys.modules], file=sys.stderr)\nsys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.stderr == "[]\n"
    assert done.returncode == (0 if json.loads(done.stdout)["fits"] else 1)  # as this machine may be


def test_the_text_is_the_same_plan_as_the_json(plan):
    arguments = ["--set", "model=Qwen/Qwen3.5-4B", "--set", "engine=sharded", "--gpus", "1", "--gpu-memory", "80"]
    found = json.loads(plan(*arguments, "--json")[1])
    text = plan(*arguments)[1]
    for row in [*found["device"], *found["host"]]:
        assert re.search(rf"^{row['what']} +{re.escape(size(row['bytes']))}", text, re.MULTILINE)


def test_the_page_shows_what_the_command_prints(coevo):
    page = (ROOT / "docs/memory.md").read_text(encoding="utf-8")
    shown = re.findall(r"^```\n\$ coevo (plan [^\n]+)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(shown) == 2
    for command, text in shown:
        words = [str(ROOT / word) if word.endswith(".toml") else word for word in command.split()]
        _, out, _ = coevo(*words)
        assert out.endswith(text)


def test_the_page_gives_the_rates_that_are_used():
    page = (ROOT / "docs/memory.md").read_text(encoding="utf-8")
    assert CONSTANTS["cpu_serve"].value == 0.525e9
    assert "0.525·10^9 weights a second and core, 0.9·10^9 for updates" in page
    assert (CONSTANTS["cpu_update"].value, CONSTANTS["gpu_normals"].value) == (0.9e9, 4e11)
    assert CONSTANTS["gpu_bandwidth"].value == pytest.approx(0.85 * 3.35e12)
    assert (CONSTANTS["host_link"].value, CONSTANTS["runtime"].value) == (50e9, 1.5e9)
