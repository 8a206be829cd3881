"""Eight worker processes: launch plans, gathering, a rank that fails while the others wait."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from megatron_cuda_graphs.smoke import plan
from megatron_cuda_graphs.smoke.model import SmokeRequest


@pytest.fixture
def eight(fake_gpus):
    fake_gpus(*((i, 140000) for i in range(8)))


def test_eight_ranks_are_gathered(eight, smoke):
    report = smoke(nproc=8, ep=8)
    assert report.status == "captured"
    assert [r.rank for r in report.ranks] == list(range(8))


@pytest.mark.parametrize("how", ["raises", "segv", "exit"])
def test_a_failing_rank_is_named_while_the_others_wait(eight, smoke, how):
    report = smoke(nproc=8, inject=how, time_limit_s=60)
    assert report.status == "failed"
    assert report.failure.rank == 7
    assert report.failure.ranks_silent == tuple(range(7))
    assert report.left_behind == ()
    assert report.durations.worker_s < 30


def test_a_rank_whose_replay_is_wrong_speaks_for_all(eight, smoke):
    report = smoke(nproc=8, inject="last_rank_wrong")
    assert (report.status, report.failure.kind, report.failure.rank) == ("failed", "wrong_result", 7)
    assert report.measures.parity.first_wrong_step == 4


def test_too_few_gpus_is_said(fake_gpus, smoke):
    report = smoke(nproc=8)
    assert (report.status, report.exit_code) == ("no_gpu", 3)
    assert "8 GPUs" in report.lacks[0]


def prepared(tmp_path, **request):
    from megatron_cuda_graphs.smoke import presets

    asked = SmokeRequest(**request)
    return plan.prepare(
        asked, "megatron-te", (), presets.workload("tiny"), "run", tmp_path, ["GPU-a", "GPU-b"], python="/py",
        base_env={"PATH": "/bin", "SECRET": "no", "NCCL_DEBUG": "INFO"},
    )  # fmt: skip


def test_the_environment_is_an_allow_list(tmp_path):
    env = prepared(tmp_path, env={"NVTE_FLASH_ATTN": "0"}).env
    assert "SECRET" not in env
    assert (env["NCCL_DEBUG"], env["NVTE_FLASH_ATTN"], env["CUDA_VISIBLE_DEVICES"]) == ("INFO", "0", "GPU-a,GPU-b")


def test_torchrun_starts_the_ordinary_worker(tmp_path):
    made = prepared(tmp_path, launcher="torchrun", nproc=2, tp=2)
    (argv,) = made.commands
    assert "torch.distributed.run" in argv
    assert "--nproc-per-node=2" in argv
    assert argv[-4:-2] == ["-m", plan.WORKER] or plan.WORKER in argv
    assert made.ranks == 2


def test_local_ranks_meet_in_a_file_not_on_a_port(tmp_path):
    made = prepared(tmp_path, nproc=2, tp=2)
    assert len(made.commands) == 2
    assert made.per_rank[1]["RANK"] == "1"
    assert made.per_rank[1]["MCG_SMOKE_RENDEZVOUS"].startswith("file://")


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash to check the script with")
@pytest.mark.parametrize(
    "fields",
    [
        {"nproc": 8, "nodes": 2, "tp": 2, "ep": 4, "preset": "qwen3-30b-a3b", "env": {"NCCL_DEBUG": "it's"}},
        {"nproc": 4, "pp": 2, "vp": 2, "tier": "megatron-te", "modules": [], "overrides": {"seq_length": 1024}},
        {"nproc": 2, "tp": 2, "deterministic": True, "modules": ["attn", "mlp"], "config": "--num-layers 2 --bf16"},
    ],
)
def test_the_sbatch_script_is_valid_shell_and_asks_for_the_same(fields, tmp_path):
    import argparse
    import shlex

    from megatron_cuda_graphs.cli import smoke as cli

    asked = SmokeRequest(**fields)
    text = plan.launch_script(asked)
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)
    assert f"#SBATCH --nodes={asked.nodes}" in text
    for line in text.splitlines():
        if line.startswith("printf"):
            subprocess.run(["bash", "-c", line], check=True, cwd=tmp_path)
    argv = shlex.split(next(x for x in text.splitlines() if " smoke " in x))
    argv = [str(tmp_path / a) if a == plan.CONFIG else a for a in argv]
    parser = argparse.ArgumentParser()
    cli.arguments(parser)
    heard = cli._request(parser.parse_args(argv[argv.index("smoke") + 1 :]))
    assert SmokeRequest.model_validate(heard) == asked.model_copy(update={"launcher": "srun"})
